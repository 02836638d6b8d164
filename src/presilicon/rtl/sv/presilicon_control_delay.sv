// The control bits of a chain, DELAY enabled cycles later; empty cycles come out after a reset.
module presilicon_control_delay #(
    parameter int BITS = 40,
    parameter int DELAY = 4
) (
    input  logic            clock,
    input  logic            reset,
    input  logic            enable,
    input  logic [BITS-1:0] in,
    output logic [BITS-1:0] out
);
  logic [DELAY*BITS-1:0] line;
  always_ff @(posedge clock) begin
    if (reset) line <= '0;
    else if (enable) line <= (DELAY * BITS)'({line, in});
  end
  assign out = line[DELAY*BITS-1-:BITS];
endmodule
