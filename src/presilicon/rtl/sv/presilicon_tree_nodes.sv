// One level of a reduction over neighbours: PAIRS nodes, each a registered maximum or minimum, product, or sum of floats.
module presilicon_tree_nodes #(
    parameter int PAIRS = 8,
    parameter int WORD = 32,
    parameter bit FLOAT = 0,
    parameter int EXPONENT = 8,
    parameter int FRACTION = 16,  // or mantissa bits
    parameter int BIAS = 127,
    parameter int KIND = 0  // 0 maximum or minimum (1 cycle), 1 product (5), 2 sum of floats (5)
) (
    input  logic                    clock,
    input  logic                    reset,
    input  logic                    smaller,  // a cycle before the words
    input  logic [2*PAIRS*WORD-1:0] in,
    output logic [  PAIRS*WORD-1:0] out
);
  `include "presilicon_format.svh"
  localparam int FORMAT = ieee_format(EXPONENT, FRACTION, BIAS);
  generate
    for (genvar pair = 0; pair < PAIRS; pair++) begin : node
      wire [WORD-1:0] x = in[2*pair*WORD+:WORD];
      wire [WORD-1:0] y = in[(2*pair+1)*WORD+:WORD];
      if (KIND == 0) begin : extremes
        logic [WORD-1:0] extreme;
        logic smaller_here;
        presilicon_copy #(
            .BITS(1)
        ) copy (
            .clock,
            .reset,
            .in (smaller),
            .out(smaller_here)
        );
        presilicon_extreme #(
            .WORD(WORD),
            .FLOAT(FLOAT),
            .MANTISSA(FRACTION)
        ) compare (
            .smaller(smaller_here),
            .x,
            .y,
            .extreme
        );
        always_ff @(posedge clock) out[pair*WORD+:WORD] <= extreme;
      end else if (KIND == 1 && !FLOAT) begin : fixed_products
        presilicon_fixed_multiply #(
            .WORD(WORD),
            .FRACTION(FRACTION)
        ) multiply (
            .clock,
            .x,
            .y,
            .product(out[pair*WORD+:WORD])
        );
      end else if (KIND == 1) begin : float_products
        presilicon_float_multiply #(
            .X(FORMAT),
            .Y(FORMAT),
            .OUT(FORMAT),
            .HALVES(1)
        ) multiply (
            .clock,
            .enable(1'b1),
            .draw(16'd0),
            .x,
            .y,
            .product(out[pair*WORD+:WORD])
        );
      end else begin : float_sums
        presilicon_float_add #(
            .X(FORMAT),
            .Y(FORMAT),
            .OUT(FORMAT)
        ) add (
            .clock,
            .enable(1'b1),
            .draw(16'd0),
            .x,
            .y,
            .sum(out[pair*WORD+:WORD])
        );
      end
    end
    if (KIND != 0) begin : no_choice
      wire unused = &{1'b0, reset, smaller};
    end
  endgenerate
endmodule
