// A term as a float's code: normalized, then rounded, with a register behind each of the two if CUTS says so.
// Without LOWERS no bit lies below the format's last place unless it does so by its own width: `top` is at least 1.
// `top` is the biased exponent that the highest bit of the significand stands for. The lowest bit of the significand may
// stand for all further ones. A significand of zero gives a zero of that sign; `draw` is used from its highest bit on.
module presilicon_float_pack #(
    parameter int FORMAT = 'hff5e0,
    parameter int ROUNDING = 0,
    parameter int BITS = 28,
    parameter bit LOWERS = 1,
    parameter int CUTS = 'b11,  // behind the normalization, behind the rounding
    localparam int WORD = FORMAT & 63
) (
    input  logic                   clock,
    input  logic                   enable,
    input  logic                   sign,
    input  logic signed [    11:0] top,
    input  logic        [BITS-1:0] significand,
    input  logic                   nan,
    input  logic                   infinity,
    input  logic        [    15:0] draw,
    output logic        [WORD-1:0] word
);
  `include "presilicon_format.svh"
  localparam int MANTISSA = format_fraction(FORMAT);
  localparam int SPECIALS = format_specials(FORMAT);
  localparam int MODE = ROUNDING & 7;
  localparam int FRACTION = rounding_bits(ROUNDING);
  localparam int FULL = larger_of(BITS, MANTISSA + FRACTION + 2);
  localparam int PLACE = $clog2(FULL + 1);
  localparam int CODE = 12 + MANTISSA;  // exponents beyond the range of the format included

  localparam logic [WORD-2:0] ONES = '1;
  localparam logic [WORD-2:0] INFINITY = SPECIALS == IEEE ? ONES << MANTISSA : ONES;
  localparam logic [WORD-2:0] LARGEST = SPECIALS == IEEE ? (ONES << MANTISSA) - 1'b1
      : SPECIALS == FN || SPECIALS == P3109 ? ONES - 1'b1 : ONES;
  // Of its own, since Yosys would take a shift inside braces for as wide as all of them.
  localparam logic [WORD-2:0] QUIET = INFINITY | (MANTISSA == 0 ? '0 : (WORD - 1)'(1) << (MANTISSA - 1));
  localparam logic [WORD-1:0] NAN = SPECIALS == IEEE ? {1'b0, QUIET}
      : SPECIALS == FN ? {1'b0, ONES}
      : SPECIALS != NO_SPECIALS ? {1'b1, {(WORD - 1) {1'b0}}}
      : (FORMAT >> 29 & 1) != 0 ? {1'b0, LARGEST} : '0;

  wire [FULL-1:0] padded = FULL'(significand) << (FULL - BITS);
  logic [PLACE-1:0] zeros;
  always_comb begin
    zeros = '0;
    for (int bit_ = 0; bit_ < FULL; bit_++) if (padded[bit_]) zeros = PLACE'(FULL - 1 - bit_);
  end
  wire signed [11:0] exponent = top - 12'(zeros);
  wire is_normal = exponent >= 12'sd1;
  wire signed [11:0] left = is_normal ? 12'(zeros) : top - 12'sd1;
  wire signed [11:0] right = 12'sd1 - top;
  // A subnormal whose bits lie below its last place is shifted right; what falls out is kept in the lowest bit.
  wire [2*FULL-1:0] lowered = {padded, {FULL{1'b0}}} >> (right > 12'(FULL) ? 12'(FULL) : right);
  wire [FULL-1:0] shifted =
      !LOWERS || left >= 12'sd0 ? padded << left : {lowered[2*FULL-1:FULL+1], lowered[FULL] | (|lowered[FULL-1:0])};

  wire [11:0] field = is_normal && |padded ? exponent : '0;
  logic [CODE-1:0] code;
  generate
    if (MANTISSA == 0) begin : powers
      assign code = field;
    end else begin : fractions
      assign code = {field, shifted[FULL-2-:MANTISSA]};
    end
  endgenerate
  localparam int LAST = FULL - MANTISSA - 2;  // the highest bit below the last place
  wire half = shifted[LAST];
  wire rest = |shifted[LAST-1:0];
  wire [FRACTION:0] drawn = {1'b0, shifted[LAST-:FRACTION]} + {1'b0, draw[15-:FRACTION]};
  logic away;
  always_comb
    case (MODE)
      NEAREST_EVEN: away = half && (rest || code[0]);
      NEAREST_AWAY: away = half;
      UP: away = (half || rest) && !sign;
      DOWN: away = (half || rest) && sign;
      STOCHASTIC: away = drawn[FRACTION];
      default: away = 1'b0;
    endcase
  wire unused = &{1'b0, drawn, draw, shifted[FULL-1]};

  logic sign_1, nan_1, infinity_1, away_1;
  logic [CODE-1:0] code_1;
  presilicon_cut #(
      .BITS(CODE + 4),
      .CUT (CUTS[0])
  ) normalized (
      .clock,
      .enable,
      .in ({sign, nan, infinity, away, code}),
      .out({sign_1, nan_1, infinity_1, away_1, code_1})
  );

  // A mantissa that overflows carries into the exponent by itself.
  wire [CODE-1:0] rounded = code_1 + CODE'(away_1);
  wire too_large = |rounded[CODE-1:WORD-1]
      || (SPECIALS == IEEE ? &rounded[WORD-2:MANTISSA] : (SPECIALS == FN || SPECIALS == P3109) && &rounded[WORD-2:0]);
  wire stops = (ROUNDING >> 8) == 0
      && (MODE == TOWARD_ZERO || (MODE == UP && sign_1) || (MODE == DOWN && !sign_1));
  wire is_zero = rounded == '0 || (format_flushes(FORMAT) != 0 && rounded[CODE-1:MANTISSA] == '0);
  logic [WORD-1:0] chosen;
  always_comb
    if (nan_1) chosen = NAN;
    else if (infinity_1 || (too_large && !stops))
      case (format_overflow(FORMAT))
        TO_INFINITY: chosen = {sign_1, INFINITY};
        SATURATE: chosen = {sign_1, LARGEST};
        default: chosen = NAN;
      endcase
    else if (too_large) chosen = {sign_1, LARGEST};
    else if (is_zero) chosen = {sign_1 && format_has_negative_zero(FORMAT) != 0, {(WORD - 1) {1'b0}}};
    else chosen = {sign_1, rounded[WORD-2:0]};
  presilicon_cut #(
      .BITS(WORD),
      .CUT (CUTS[1])
  ) packed_ (
      .clock,
      .enable,
      .in (chosen),
      .out(word)
  );
endmodule
