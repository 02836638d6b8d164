// x * y of floats, 5 cycles: partial products, their sums, the product, normalise, round.
module presilicon_float_multiply #(
    parameter int EXPONENT = 8,
    parameter int MANTISSA = 23,
    parameter int BIAS = 127
) (
    input  logic                       clock,
    input  logic [EXPONENT+MANTISSA:0] x,
    input  logic [EXPONENT+MANTISSA:0] y,
    output logic [EXPONENT+MANTISSA:0] product
);
  localparam int WORD = 1 + EXPONENT + MANTISSA;
  localparam int HALF = (MANTISSA + 2) / 2;  // significands are split in two halves of HALF bits
  localparam int WHOLE = 4 * HALF;
  localparam int BITS = WHOLE > MANTISSA + 4 ? WHOLE : MANTISSA + 4;
  localparam logic [WORD-2:0] INFINITY = {{EXPONENT{1'b1}}, {MANTISSA{1'b0}}};

  wire [EXPONENT-1:0] x_field = x[WORD-2-:EXPONENT];
  wire [EXPONENT-1:0] y_field = y[WORD-2-:EXPONENT];
  wire [2*HALF-1:0] x_significand = (2 * HALF)'({|x_field, x[MANTISSA-1:0]});
  wire [2*HALF-1:0] y_significand = (2 * HALF)'({|y_field, y[MANTISSA-1:0]});
  wire signed [11:0] x_exponent = |x_field ? 12'(x_field) : 12'sd1;
  wire signed [11:0] y_exponent = |y_field ? 12'(y_field) : 12'sd1;
  wire x_infinite = x[WORD-2:0] == INFINITY;
  wire y_infinite = y[WORD-2:0] == INFINITY;
  wire x_nan = x[WORD-2:0] > INFINITY;
  wire y_nan = y[WORD-2:0] > INFINITY;
  wire a_zero = x[WORD-2:0] == '0 || y[WORD-2:0] == '0;

  logic [2*HALF-1:0] low_low, low_high, high_low, high_high;
  logic sign_1, nan_1, infinity_1;
  logic signed [11:0] exponent_1;
  always_ff @(posedge clock) begin
    low_low <= x_significand[HALF-1:0] * y_significand[HALF-1:0];
    low_high <= x_significand[HALF-1:0] * y_significand[2*HALF-1:HALF];
    high_low <= x_significand[2*HALF-1:HALF] * y_significand[HALF-1:0];
    high_high <= x_significand[2*HALF-1:HALF] * y_significand[2*HALF-1:HALF];
    sign_1 <= x[WORD-1] ^ y[WORD-1];
    nan_1 <= x_nan || y_nan || ((x_infinite || y_infinite) && a_zero);
    infinity_1 <= x_infinite || y_infinite;
    exponent_1 <= x_exponent + y_exponent;
  end

  logic [WHOLE-1:0] outer_2;
  logic [2*HALF:0] middle_2;
  logic sign_2, nan_2, infinity_2;
  logic signed [11:0] exponent_2;
  always_ff @(posedge clock) begin
    outer_2 <= {high_high, low_low};
    middle_2 <= {1'b0, low_high} + {1'b0, high_low};
    {sign_2, nan_2, infinity_2} <= {sign_1, nan_1, infinity_1};
    exponent_2 <= exponent_1 - 12'(BIAS);
  end

  // The highest of the 2 * MANTISSA + 2 product bits stands for the sum of the exponents plus 1.
  localparam int SPARE = WHOLE - 2 * MANTISSA - 2;
  logic [WHOLE-1:0] whole_3;
  logic sign_3, nan_3, infinity_3;
  logic signed [11:0] top_3;
  always_ff @(posedge clock) begin
    whole_3 <= {outer_2[WHOLE-1:HALF] + (WHOLE - HALF)'(middle_2), outer_2[HALF-1:0]};
    {sign_3, nan_3, infinity_3} <= {sign_2, nan_2, infinity_2};
    top_3 <= exponent_2 + 12'sd1 + 12'(SPARE);
  end

  presilicon_float_pack #(
      .EXPONENT(EXPONENT),
      .MANTISSA(MANTISSA),
      .BITS(BITS)
  ) pack (
      .clock,
      .sign(sign_3),
      .top(top_3),
      .significand({whole_3, {(BITS - WHOLE) {1'b0}}}),
      .nan(nan_3),
      .infinity(infinity_3),
      .word(product)
  );
endmodule
