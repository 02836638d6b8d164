// `in`, DELAY cycles later. Long delays are a ring in memory, so that they cost no registers; what comes out during the
// first DELAY cycles means nothing. Not dissolved: every lane has its own ring, with its own place.
(* keep_hierarchy = "yes" *)
module presilicon_delay #(
    parameter int BITS = 8,
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
    end else if (DELAY <= 2) begin : registers
      logic [DELAY*BITS-1:0] line;
      always_ff @(posedge clock) line <= (DELAY * BITS)'({line, in});
      assign out = line[DELAY*BITS-1-:BITS];
      wire unused = &{1'b0, reset};
    end else begin : ring
      localparam int PLACES = DELAY - 1;
      localparam int PLACE = $clog2(PLACES);
      (* ram_style = "distributed" *) logic [BITS-1:0] memory[PLACES];
      logic [PLACE-1:0] place;
      always_ff @(posedge clock) begin
        out <= memory[place];
        memory[place] <= in;
        place <= place == PLACE'(PLACES - 1) ? '0 : place + 1'b1;
        if (reset) place <= '0;
      end
    end
  endgenerate
endmodule
