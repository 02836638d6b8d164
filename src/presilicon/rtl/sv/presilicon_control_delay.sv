// The control bits of a chain, DELAY cycles later; empty cycles come out after a reset.
module presilicon_control_delay #(
    parameter int BITS = 40,
    parameter int DELAY = 4
) (
    input  logic            clock,
    input  logic            reset,
    input  logic [BITS-1:0] in,
    output logic [BITS-1:0] out
);
  generate
    if (DELAY == 0) begin : none
      assign out = in;
      wire unused = &{1'b0, clock, reset};
    end else begin : registers
      logic [DELAY*BITS-1:0] line;
      always_ff @(posedge clock) begin
        line <= (DELAY * BITS)'({line, in});
        if (reset) line <= '0;
      end
      assign out = line[DELAY*BITS-1-:BITS];
    end
  endgenerate
endmodule
