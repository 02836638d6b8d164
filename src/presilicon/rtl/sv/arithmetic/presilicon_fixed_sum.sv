// An exact integer term with FRACTION bits after the point plus a fixed-point number z, rounded to the fixed-point
// format OUT and saturated.
module presilicon_fixed_sum #(
    parameter int Z = 'h200008,
    parameter int OUT = 'h200008,
    parameter int ROUNDING = 0,
    parameter int BITS = 16,  // of the term, in two's complement
    parameter int FRACTION = 0,
    localparam int Z_WORD = Z & 63,
    localparam int OUT_WORD = OUT & 63
) (
    input  logic signed [    BITS-1:0] term,
    input  logic        [  Z_WORD-1:0] z,
    input  logic        [        15:0] draw,
    output logic        [OUT_WORD-1:0] sum
);
  `include "presilicon_format.svh"
  localparam int Z_FRACTION = format_fraction(Z);
  localparam int OUT_FRACTION = format_fraction(OUT);
  localparam int MODE = ROUNDING & 7;
  localparam int RANDOM = rounding_bits(ROUNDING);
  // Places below the last one of the result, at least as many as the rounding looks at and one for the rest.
  localparam int FINE = larger_of(larger_of(FRACTION, Z_FRACTION) - OUT_FRACTION, RANDOM + 1);
  localparam int PLACES = OUT_FRACTION + FINE;
  localparam int WIDE = larger_of(larger_of(BITS + PLACES - FRACTION, Z_WORD + 1 + PLACES - Z_FRACTION),
                                  OUT_WORD + FINE) + 2;

  wire signed [WIDE-1:0] z_wide = WIDE'($signed({format_kind(Z) == 1 && z[Z_WORD-1], z}));
  wire signed [WIDE-1:0] exact = (WIDE'(term) << (PLACES - FRACTION)) + (z_wide << (PLACES - Z_FRACTION));
  wire negative = exact[WIDE-1];
  wire [FINE-1:0] below = exact[FINE-1:0];
  wire half = below[FINE-1];
  wire rest = |below[FINE-2:0];
  // Stochastic rounding looks at the magnitude: of a negative number, at what is missing to the place above.
  wire [FINE-1:0] distance = negative ? -below : below;
  wire [RANDOM:0] drawn = {1'b0, distance[FINE-1-:RANDOM]} + {1'b0, draw[15-:RANDOM]};
  logic up;  // to the place above, toward plus infinity
  always_comb
    case (MODE)
      NEAREST_EVEN: up = half && (rest || exact[FINE]);
      NEAREST_AWAY: up = half && (rest || !negative);
      TOWARD_ZERO: up = (half || rest) && negative;
      UP: up = half || rest;
      STOCHASTIC: up = negative ? (half || rest) && !drawn[RANDOM] : drawn[RANDOM];
      default: up = 1'b0;
    endcase
  wire signed [WIDE-FINE-1:0] rounded = exact[WIDE-1:FINE] + (WIDE - FINE)'(up);

  localparam bit SIGNED = format_kind(OUT) == 1;
  localparam int UPPER = WIDE - FINE - OUT_WORD + (SIGNED ? 1 : 0);  // bits that must agree with the sign
  wire fits = rounded[WIDE-FINE-1-:UPPER] == {UPPER{SIGNED && rounded[WIDE-FINE-1]}};
  wire is_below = rounded[WIDE-FINE-1];
  assign sum = fits ? rounded[OUT_WORD-1:0] : {SIGNED ? is_below : !is_below, {(OUT_WORD - 1) {!is_below}}};
  wire unused = &{1'b0, draw, drawn, distance};
endmodule
