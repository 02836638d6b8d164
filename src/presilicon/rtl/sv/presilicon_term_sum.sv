// A term plus a number z of format Z, rounded once to format OUT: order by exponent, align, add, normalize, round, with
// a register behind each if CUTS says so. The term's significand has at most SLACK zeros on top, unless it is zero or a
// subnormal of format OUT; its exponent has OUT's bias.
module presilicon_term_sum #(
    parameter int Z = 'hff5e0,
    parameter int OUT = 'hff5e0,
    parameter int ROUNDING = 0,
    parameter int BITS = 24,  // of the term
    parameter int SLACK = 0,
    parameter bit ORDERED = 0,  // a term of format OUT, not normalized: with equal formats no difference is negative
    parameter int CUTS = 'b11111,
    localparam int Z_WORD = Z & 63,
    localparam int OUT_WORD = OUT & 63
) (
    input  logic                       clock,
    input  logic                       enable,
    input  logic                       sign,
    input  logic signed [        11:0] exponent,
    input  logic        [    BITS-1:0] significand,
    input  logic                       nan,
    input  logic                       infinity,
    input  logic        [  Z_WORD-1:0] z,
    input  logic        [        15:0] draw,
    output logic        [OUT_WORD-1:0] sum
);
  `include "presilicon_format.svh"
  localparam int Z_BITS = significand_bits(Z);
  localparam int WIDER = larger_of(BITS, Z_BITS);
  // One place for a difference that loses its highest bit, and one that stands for all that was shifted out.
  localparam int GUARDED = larger_of(WIDER, significand_bits(OUT) + rounding_bits(ROUNDING) + 1) + 1 + SLACK;

  logic z_sign, z_nan, z_infinity;
  logic signed [11:0] z_exponent;
  logic [Z_BITS-1:0] z_significand;
  // In the format of the result, a number below the normal ones has all the places that the result can have.
  presilicon_unpack #(
      .FORMAT(Z),
      .SIGNIFICAND(Z_BITS),
      .NORMALIZE(Z != OUT),
      .OFFSET(format_bias(OUT))
  ) unpack (
      .code(z),
      .sign(z_sign),
      .exponent(z_exponent),
      .significand(z_significand),
      .nan(z_nan),
      .infinity(z_infinity)
  );

  wire [WIDER-1:0] term_wide = WIDER'(significand) << (WIDER - BITS);
  wire [WIDER-1:0] z_wide = WIDER'(z_significand) << (WIDER - Z_BITS);
  wire z_larger = ORDERED ? {~z_exponent[11], z_exponent[10:0], z_wide} > {~exponent[11], exponent[10:0], term_wide}
      : z_exponent > exponent;
  wire signed [11:0] larger = z_larger ? z_exponent : exponent;
  wire signed [11:0] smaller = z_larger ? exponent : z_exponent;
  wire [11:0] apart = larger - smaller;
  localparam int PLACE = $clog2(GUARDED + 1);
  wire [PLACE-1:0] distance = apart > 12'(GUARDED) ? PLACE'(GUARDED) : apart[PLACE-1:0];

  logic sign_1, differ_1, alike_1, nan_1, infinity_1, infinite_sign_1;
  logic signed [11:0] top_1;
  logic [PLACE-1:0] distance_1;
  logic [WIDER-1:0] large_1, small_1;
  logic [15:0] draw_1;
  presilicon_cut #(
      .BITS(34 + PLACE + 2 * WIDER),
      .CUT (CUTS[0])
  ) ordered (
      .clock,
      .enable,
      .in({
        z_larger ? z_sign : sign,
        sign ^ z_sign,
        sign & z_sign,
        nan || z_nan || (infinity && z_infinity && sign != z_sign),
        infinity || z_infinity,
        infinity ? sign : z_sign,
        larger + 12'sd1,
        distance,
        z_larger ? z_wide : term_wide,
        z_larger ? term_wide : z_wide,
        draw
      }),
      .out({sign_1, differ_1, alike_1, nan_1, infinity_1, infinite_sign_1, top_1, distance_1, large_1, small_1, draw_1})
  );

  wire [2*GUARDED-1:0] lowered = {small_1, {(2 * GUARDED - WIDER) {1'b0}}} >> distance_1;
  logic sign_2, differ_2, alike_2, nan_2, infinity_2, infinite_sign_2;
  logic signed [11:0] top_2;
  logic [GUARDED-1:0] large_2, small_2;
  logic [15:0] draw_2;
  presilicon_cut #(
      .BITS(34 + 2 * GUARDED),
      .CUT (CUTS[1])
  ) aligned (
      .clock,
      .enable,
      .in({
        {sign_1, differ_1, alike_1, nan_1, infinity_1, infinite_sign_1, top_1},
        {large_1, {(GUARDED - WIDER) {1'b0}}},
        {lowered[2*GUARDED-1:GUARDED+1], lowered[GUARDED] | (|lowered[GUARDED-1:0])},
        draw_1
      }),
      .out({sign_2, differ_2, alike_2, nan_2, infinity_2, infinite_sign_2, top_2, large_2, small_2, draw_2})
  );

  wire [GUARDED+1:0] added =
      differ_2 ? {2'b0, large_2} - {2'b0, small_2} : {2'b0, large_2} + {2'b0, small_2};
  wire is_negative = !ORDERED && added[GUARDED+1];
  wire [GUARDED:0] total = is_negative ? -added[GUARDED:0] : added[GUARDED:0];
  // A zero of unlike terms is +0, but -0 if the rounding is down.
  wire zero_sign = differ_2 ? (ROUNDING & 7) == DOWN : alike_2;
  wire sum_sign = infinity_2 ? infinite_sign_2 : total == '0 ? zero_sign : sign_2 ^ is_negative;
  wire unused = &{1'b0, added[GUARDED+1]};

  logic sign_3, nan_3, infinity_3;
  logic signed [11:0] top_3;
  logic [GUARDED:0] total_3;
  logic [15:0] draw_3;
  presilicon_cut #(
      .BITS(32 + GUARDED),
      .CUT (CUTS[2])
  ) summed (
      .clock,
      .enable,
      .in ({sum_sign, nan_2, infinity_2, top_2, total, draw_2}),
      .out({sign_3, nan_3, infinity_3, top_3, total_3, draw_3})
  );

  presilicon_float_pack #(
      .FORMAT(OUT),
      .ROUNDING(ROUNDING),
      .BITS(GUARDED + 1),
      .LOWERS(Z != OUT),
      .CUTS(CUTS >> 3)
  ) pack (
      .clock,
      .enable,
      .sign(sign_3),
      .top(top_3),
      .significand(total_3),
      .nan(nan_3),
      .infinity(infinity_3),
      .draw(draw_3),
      .word(sum)
  );
endmodule
