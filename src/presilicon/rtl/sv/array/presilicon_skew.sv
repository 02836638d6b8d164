// Delays lane l by l cycles, or with REVERSED by LANES - 1 - l: a vector enters the edge of a systolic array as a
// slanted line, and what leaves the other edge is straightened again. Without `enable` nothing moves.
module presilicon_skew #(
    parameter int LANES = 4,
    parameter int BITS = 8,
    parameter bit REVERSED = 0
) (
    input  logic                  clock,
    input  logic                  enable,
    input  logic [LANES*BITS-1:0] in,
    output logic [LANES*BITS-1:0] out
);
  generate
    for (genvar lane = 0; lane < LANES; lane++) begin : lanes
      localparam int DELAY = REVERSED ? LANES - 1 - lane : lane;
      if (DELAY == 0) begin : direct
        assign out[lane*BITS+:BITS] = in[lane*BITS+:BITS];
      end else begin : delayed
        logic [DELAY*BITS-1:0] line;
        always_ff @(posedge clock) if (enable) line <= (DELAY * BITS)'({line, in[lane*BITS+:BITS]});
        assign out[lane*BITS+:BITS] = line[DELAY*BITS-1-:BITS];
      end
    end
  endgenerate
  wire unused = &{1'b0, clock, enable};
endmodule
