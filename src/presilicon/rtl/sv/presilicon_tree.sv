// LANES words reduced to one over neighbours, LANES a power of two; KIND as in presilicon_tree_nodes.
module presilicon_tree #(
    parameter int LANES = 16,
    parameter int WORD = 32,
    parameter bit FLOAT = 0,
    parameter int EXPONENT = 8,
    parameter int FRACTION = 16,
    parameter int BIAS = 127,
    parameter int KIND = 0
) (
    input  logic                  clock,
    input  logic                  reset,
    input  logic                  smaller,  // a cycle before the words
    input  logic [LANES*WORD-1:0] in,
    output logic [      WORD-1:0] out
);
  generate
    if (LANES == 1) begin : leaf
      assign out = in;
      wire unused = &{1'b0, clock, reset, smaller};
    end else begin : level
      logic [LANES/2*WORD-1:0] half;
      logic smaller_next;
      presilicon_tree_nodes #(
          .PAIRS(LANES / 2),
          .WORD(WORD),
          .FLOAT(FLOAT),
          .EXPONENT(EXPONENT),
          .FRACTION(FRACTION),
          .BIAS(BIAS),
          .KIND(KIND)
      ) nodes (
          .clock,
          .reset,
          .smaller,
          .in,
          .out(half)
      );
      always_ff @(posedge clock) smaller_next <= smaller;
      presilicon_tree #(
          .LANES(LANES / 2),
          .WORD(WORD),
          .FLOAT(FLOAT),
          .EXPONENT(EXPONENT),
          .FRACTION(FRACTION),
          .BIAS(BIAS),
          .KIND(KIND)
      ) rest (
          .clock,
          .reset,
          .smaller(smaller_next),
          .in(half),
          .out
      );
    end
  endgenerate
endmodule
