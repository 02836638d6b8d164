// x * y of two formats as an exact term: the significand has all bits of the product. Without NORMALIZE the operands'
// subnormals stay as they are, and so does the product; with it, one of the two highest bits is 1 unless it is zero. OFFSET is added to the exponent.
module presilicon_product #(
    parameter int X = 'hff5e0,
    parameter int Y = 'hff5e0,
    parameter int BITS = 48,  // significand_bits(X) + significand_bits(Y)
    parameter bit NORMALIZE = 0,
    parameter int OFFSET = 0,
    // 3 cycles, in halves for the multipliers of an FPGA: partial products, their sums, the product; or none.
    parameter bit HALVES = 0,
    localparam int X_WORD = X & 63,
    localparam int Y_WORD = Y & 63
) (
    input  logic                     clock,
    input  logic                     enable,
    input  logic        [X_WORD-1:0] x,
    input  logic        [Y_WORD-1:0] y,
    output logic                     sign,
    output logic signed [      11:0] exponent,
    output logic        [  BITS-1:0] significand,
    output logic                     nan,
    output logic                     infinity
);
  `include "presilicon_format.svh"
  localparam int X_BITS = significand_bits(X);
  localparam int Y_BITS = significand_bits(Y);
  // Exponent fields as they are: all biases are one constant in the sum.
  localparam int X_OFFSET = format_kind(X) == 0 ? format_bias(X) : 0;
  localparam int Y_OFFSET = format_kind(Y) == 0 ? format_bias(Y) : 0;
  logic x_sign, x_nan, x_infinity, y_sign, y_nan, y_infinity;
  logic signed [11:0] x_exponent, y_exponent;
  logic [X_BITS-1:0] x_significand;
  logic [Y_BITS-1:0] y_significand;
  presilicon_unpack #(
      .FORMAT(X),
      .SIGNIFICAND(X_BITS),
      .NORMALIZE(NORMALIZE),
      .OFFSET(X_OFFSET)
  ) unpack_x (
      .code(x),
      .sign(x_sign),
      .exponent(x_exponent),
      .significand(x_significand),
      .nan(x_nan),
      .infinity(x_infinity)
  );
  presilicon_unpack #(
      .FORMAT(Y),
      .SIGNIFICAND(Y_BITS),
      .NORMALIZE(NORMALIZE),
      .OFFSET(Y_OFFSET)
  ) unpack_y (
      .code(y),
      .sign(y_sign),
      .exponent(y_exponent),
      .significand(y_significand),
      .nan(y_nan),
      .infinity(y_infinity)
  );
  wire either = x_infinity || y_infinity;
  wire is_nan = x_nan || y_nan || (either && (x_significand == '0 || y_significand == '0));
  wire signed [11:0] sum = x_exponent + y_exponent + 12'(1 + OFFSET - X_OFFSET - Y_OFFSET);
  generate
    if (!HALVES) begin : whole
      assign significand = x_significand * y_significand;
      assign {sign, exponent, nan, infinity} = {x_sign ^ y_sign, sum, is_nan, either};
      wire unused = &{1'b0, clock, enable};
    end else begin : halves
      localparam int HALF = (larger_of(X_BITS, Y_BITS) + 1) / 2;
      wire [2*HALF-1:0] x_wide = (2 * HALF)'(x_significand);
      wire [2*HALF-1:0] y_wide = (2 * HALF)'(y_significand);
      logic [2*HALF-1:0] low_low, low_high, high_low, high_high;
      logic [2*HALF:0] middle;
      logic [4*HALF-1:0] outer, product;
      logic [14:0] rest_1, rest_2;
      always_ff @(posedge clock)
        if (enable) begin
          low_low <= x_wide[HALF-1:0] * y_wide[HALF-1:0];
          low_high <= x_wide[HALF-1:0] * y_wide[2*HALF-1:HALF];
          high_low <= x_wide[2*HALF-1:HALF] * y_wide[HALF-1:0];
          high_high <= x_wide[2*HALF-1:HALF] * y_wide[2*HALF-1:HALF];
          outer <= {high_high, low_low};
          middle <= {1'b0, low_high} + {1'b0, high_low};
          product <= {outer[4*HALF-1:HALF] + (3 * HALF)'(middle), outer[HALF-1:0]};
          rest_1 <= {x_sign ^ y_sign, sum, is_nan, either};
          rest_2 <= rest_1;
          {sign, exponent, nan, infinity} <= rest_2;
        end
      assign significand = product[BITS-1:0];
      wire unused = &{1'b0, product};
    end
  endgenerate
endmodule
