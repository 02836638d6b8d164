// A sign, an exponent and an unrounded significand as a float word, 2 cycles: normalised, then rounded to nearest, ties to even.
// The value is significand * 2^(top - BITS + 1), with `top` the biased exponent that the highest bit stands for; a
// significand of zero gives a zero of that sign. `nan` gives the one NaN code, `infinity` an infinity.
module presilicon_float_pack #(
    parameter int EXPONENT = 8,
    parameter int MANTISSA = 23,
    parameter int BITS = 28  // of the significand, at least MANTISSA + 4
) (
    input  logic                         clock,
    input  logic                         sign,
    input  logic signed [11:0]           top,
    input  logic        [BITS-1:0]       significand,
    input  logic                         nan,
    input  logic                         infinity,
    output logic [EXPONENT+MANTISSA:0]   word
);
  localparam int PLACE = $clog2(BITS + 1);
  localparam logic [EXPONENT-1:0] ONES = '1;

  logic [PLACE-1:0] zeros;
  always_comb begin
    zeros = PLACE'(BITS);
    for (int bit_ = 0; bit_ < BITS; bit_++) if (significand[bit_]) zeros = PLACE'(BITS - 1 - bit_);
  end
  wire signed [11:0] exponent = top - 12'(zeros);
  wire is_normal = exponent >= 12'sd1;
  wire signed [11:0] left = is_normal ? $signed(12'(zeros)) : top - 12'sd1;
  wire signed [11:0] right = 12'sd1 - top;
  // A subnormal whose bits lie below its last place: shifted right, what falls out is kept as sticky.
  wire [2*BITS-1:0] lowered = {significand, {BITS{1'b0}}} >> (right > 12'(BITS) ? 12'(BITS) : right);
  wire [BITS-1:0] shifted =
      left >= 12'sd0 ? significand << left : {lowered[2*BITS-1:BITS+1], lowered[BITS] | (|lowered[BITS-1:0])};

  logic sign_1, nan_1, infinity_1;
  logic [EXPONENT-1:0] field_1;
  logic [MANTISSA-1:0] mantissa_1;
  logic up_1;
  wire too_large = is_normal && exponent >= 12'(ONES) && |significand;
  wire half = shifted[BITS-MANTISSA-2];
  wire rest = |shifted[BITS-MANTISSA-3:0];
  always_ff @(posedge clock) begin
    sign_1 <= sign;
    nan_1 <= nan;
    infinity_1 <= infinity || too_large;
    field_1 <= is_normal && |significand ? exponent[EXPONENT-1:0] : '0;
    mantissa_1 <= shifted[BITS-2-:MANTISSA];
    up_1 <= half && (rest || shifted[BITS-MANTISSA-1]);
  end

  // A mantissa that overflows carries into the exponent by itself, up to infinity.
  wire [EXPONENT+MANTISSA-1:0] rounded = {field_1, mantissa_1} + (EXPONENT + MANTISSA)'(up_1);
  always_ff @(posedge clock) begin
    if (nan_1) word <= {1'b0, ONES, 1'b1, {(MANTISSA - 1) {1'b0}}};
    else if (infinity_1) word <= {sign_1, ONES, {MANTISSA{1'b0}}};
    else word <= {sign_1, rounded};
  end
endmodule
