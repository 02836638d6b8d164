// The exact term that a product adds to a sum, on one bus: an integer for sums in fixed point, else sign, NaN, infinity,
// exponent (with OFFSET) and significand. With a format PRODUCT the product is rounded to it first. ONE has the term of a number alone.
module presilicon_mac_term #(
    parameter int LEFT = 'hff5e0,
    parameter int RIGHT = 'hff5e0,
    parameter int PRODUCT = 0,
    parameter int ROUNDING = 0,
    parameter bit FIXED = 0,
    parameter bit ONE = 0,
    parameter int OFFSET = 0,
    parameter int TERM = 63,
    localparam int LEFT_WORD = LEFT & 63,
    localparam int RIGHT_WORD = RIGHT & 63
) (
    input  logic [ LEFT_WORD-1:0] left,
    input  logic [RIGHT_WORD-1:0] right,
    input  logic [          15:0] draw,
    output logic [      TERM-1:0] term
);
  `include "presilicon_format.svh"
  localparam int PRODUCT_WORD = PRODUCT & 63;
  generate
    if (FIXED) begin : fixed
      localparam int BITS = LEFT_WORD + RIGHT_WORD + 2;
      wire signed [LEFT_WORD:0] left_wide = {format_kind(LEFT) == 1 && left[LEFT_WORD-1], left};
      wire signed [RIGHT_WORD:0] right_wide = {format_kind(RIGHT) == 1 && right[RIGHT_WORD-1], right};
      wire signed [BITS-1:0] exact = left_wide * right_wide;
      if (ONE) begin : number
        assign term = TERM'(left_wide);
        wire unused = &{1'b0, exact, draw};
      end else if (PRODUCT == 0) begin : exact_product
        assign term = TERM'(exact);
        wire unused = &{1'b0, draw};
      end else begin : rounded_product
        logic [PRODUCT_WORD-1:0] rounded;
        presilicon_fixed_sum #(
            .Z(PRODUCT),
            .OUT(PRODUCT),
            .ROUNDING(ROUNDING),
            .BITS(BITS),
            .FRACTION(format_fraction(LEFT) + format_fraction(RIGHT))
        ) round (
            .term(exact),
            .z({PRODUCT_WORD{1'b0}}),
            .draw,
            .sum(rounded)
        );
        assign term = TERM'($signed({format_kind(PRODUCT) == 1 && rounded[PRODUCT_WORD-1], rounded}));
      end
    end else begin : float
      logic sign, nan, infinity;
      logic signed [11:0] exponent;
      logic [TERM-16:0] significand;
      assign term = {sign, nan, infinity, exponent, significand};
      if (ONE || PRODUCT != 0) begin : number
        localparam int FORMAT = ONE ? LEFT : PRODUCT;
        logic [(FORMAT & 63)-1:0] code;
        presilicon_unpack #(
            .FORMAT(FORMAT),
            .SIGNIFICAND(TERM - 15),
            .NORMALIZE(1),
            .OFFSET(OFFSET)
        ) unpack (
            .code,
            .sign,
            .exponent,
            .significand,
            .nan,
            .infinity
        );
        if (ONE) begin : one
          assign code = left;
          wire unused = &{1'b0, right, draw};
        end else begin : rounded_product
          presilicon_float_multiply #(
              .X(LEFT),
              .Y(RIGHT),
              .OUT(PRODUCT),
              .ROUNDING(ROUNDING),
              .CUTS(0)
          ) multiply (
              .clock(1'b0),
              .enable(1'b0),
              .x(left),
              .y(right),
              .draw,
              .product(code)
          );
        end
      end else begin : exact_product
        presilicon_product #(
            .X(LEFT),
            .Y(RIGHT),
            .BITS(TERM - 15),
            .NORMALIZE(1),
            .OFFSET(OFFSET)
        ) exact (
            .clock(1'b0),
            .enable(1'b0),
            .x(left),
            .y(right),
            .sign,
            .exponent,
            .significand,
            .nan,
            .infinity
        );
        wire unused = &{1'b0, draw};
      end
    end
  endgenerate
endmodule
