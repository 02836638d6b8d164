// A multiply-accumulate unit that adds WIDTH products at once and rounds once, of numbers that stand alone or have a scale
// per group. With ALIGN the products, and the running sum of a chunk of several groups, are aligned and cut
// (`presilicon_group_aligned`). Without, products are placed on one grid that holds all of them and added exactly; then
// each group is a chunk of its own.
//
//   WIDTH products ─▶ (register, CUT) ─▶ aligned or exact sum, + partial ─▶ register ─▶ + total ─▶ register
//
// Ports, `enable` and latency are those of `presilicon_mac`; a group with fewer products is filled up with zeros.
module presilicon_mac_group #(
    parameter int LEFT = 'h200008,
    parameter int RIGHT = 'h200008,
    parameter int LEFT_SCALE = 0,
    parameter int RIGHT_SCALE = 0,
    parameter int WIDTH = 4,
    parameter int ALIGN = 0,
    parameter bit FLOORED = 0,
    parameter int PARTIAL = 'hff5e0,
    parameter int TOTAL = 0,
    parameter int PARTIAL_ROUNDING = 0,
    parameter int TOTAL_ROUNDING = 0,
    parameter int CHUNK = 0,  // groups
    parameter bit CUT = 1,
    parameter logic [255:0] JUMP = 256'h1,
    localparam int LEFT_WORD = LEFT & 63,
    localparam int RIGHT_WORD = RIGHT & 63,
    localparam int WORD = TOTAL == 0 ? PARTIAL & 63 : TOTAL & 63
) (
    input  logic                        clock,
    input  logic                        reset,
    input  logic                        enable,
    input  logic [                15:0] seed,         // of stochastic rounding, taken at reset
    input  logic                        in_valid,
    input  logic                        in_first,     // group of a sum
    input  logic                        in_last,
    input  logic [ WIDTH*LEFT_WORD-1:0] left,
    input  logic [WIDTH*RIGHT_WORD-1:0] right,
    input  logic [                 7:0] left_scale,   // code of the group's scale
    input  logic [                 7:0] right_scale,
    output logic                        out_valid,
    output logic [            WORD-1:0] out
);
  `include "presilicon_format.svh"
  localparam int PARTIAL_WORD = PARTIAL & 63;
  localparam int BITS = significand_bits(LEFT) + significand_bits(RIGHT);

  logic begins, ends, first_chunk;
  presilicon_mac_chunks #(
      .CHUNK(CHUNK)
  ) chunks (
      .clock,
      .reset,
      .enable,
      .in_valid,
      .in_first,
      .in_last,
      .begins,
      .ends,
      .first_chunk
  );
  logic [31:0] draws;
  presilicon_lfsr #(
      .DRAWS(2),
      .JUMP (JUMP)
  ) lfsr (
      .clock,
      .reset,
      .enable(enable && in_valid),
      .seed,
      .first(in_first),
      .count(ends ? 2'd2 : 2'd1),
      .draws
  );

  logic [WIDTH-1:0] signs, nans, infinities;
  logic [12*WIDTH-1:0] exponents;
  logic [BITS*WIDTH-1:0] significands;
  generate
    for (genvar lane = 0; lane < WIDTH; lane++) begin : lanes
      logic signed [11:0] top;
      presilicon_product #(
          .X(LEFT),
          .Y(RIGHT),
          .BITS(BITS),
          .NORMALIZE(ALIGN != 0 && !FLOORED)
      ) multiply (
          .clock(1'b0),
          .enable(1'b0),
          .x(left[LEFT_WORD*lane+:LEFT_WORD]),
          .y(right[RIGHT_WORD*lane+:RIGHT_WORD]),
          .sign(signs[lane]),
          .exponent(top),
          .significand(significands[BITS*lane+:BITS]),
          .nan(nans[lane]),
          .infinity(infinities[lane])
      );
      assign exponents[12*lane+:12] = top - 12'sd1;
    end
  endgenerate

  localparam int LEFT_FACTOR = LEFT_SCALE == 0 || LEFT_SCALE >> 30 != 0 ? 1 : significand_bits(LEFT_SCALE);
  localparam int RIGHT_FACTOR = RIGHT_SCALE == 0 || RIGHT_SCALE >> 30 != 0 ? 1 : significand_bits(RIGHT_SCALE);
  localparam int FACTOR = LEFT_FACTOR + RIGHT_FACTOR;
  logic [LEFT_FACTOR-1:0] left_factor;
  logic [RIGHT_FACTOR-1:0] right_factor;
  logic signed [11:0] left_exponent, right_exponent;
  logic left_nan, right_nan;
  presilicon_scale #(
      .SCALE(LEFT_SCALE),
      .SIGNIFICAND(LEFT_FACTOR)
  ) scale_left (
      .code(left_scale),
      .exponent(left_exponent),
      .significand(left_factor),
      .nan(left_nan)
  );
  presilicon_scale #(
      .SCALE(RIGHT_SCALE),
      .SIGNIFICAND(RIGHT_FACTOR)
  ) scale_right (
      .code(right_scale),
      .exponent(right_exponent),
      .significand(right_factor),
      .nan(right_nan)
  );
  wire signed [11:0] scale = left_exponent + right_exponent;
  wire [FACTOR-1:0] factor = left_factor * right_factor;
  wire is_nan = |nans || left_nan || right_nan || (|(infinities & signs) && |(infinities & ~signs));
  wire is_infinite = |infinities;
  wire infinite_sign = |(infinities & signs);

  // The sum of the group: a register stands behind the products, or behind the exact sum.
  logic valid_1, begins_1, ends_1, first_chunk_1, last_1, nan_1, infinity_1, infinite_sign_1;
  logic [31:0] draws_1;
  logic signed [11:0] scale_1;
  presilicon_cut #(
      .BITS(51),
      .CUT (CUT)
  ) control (
      .clock,
      .enable,
      .in ({begins, ends, first_chunk, in_last, is_nan, is_infinite, infinite_sign, draws, scale}),
      .out({begins_1, ends_1, first_chunk_1, last_1, nan_1, infinity_1, infinite_sign_1, draws_1, scale_1})
  );
  generate
    if (CUT) begin : cut
      always_ff @(posedge clock)
        if (reset) valid_1 <= 1'b0;
        else if (enable) valid_1 <= in_valid;
    end else begin : wired
      assign valid_1 = in_valid;
    end
  endgenerate

  localparam int SPAN = exponent_span(LEFT) + exponent_span(RIGHT);
  localparam int SUM = ALIGN != 0 ? ALIGN + 2 + $clog2(WIDTH + 1) : BITS + SPAN + $clog2(WIDTH) + FACTOR;
  logic [PARTIAL_WORD-1:0] partial, packed_sum;
  logic sum_sign, sum_nan, sum_infinity, finite_sign;
  logic signed [11:0] sum_exponent;
  logic [SUM-1:0] magnitude;
  generate
    if (ALIGN != 0) begin : aligned
      logic [WIDTH-1:0] signs_1;
      logic [12*WIDTH-1:0] exponents_1;
      logic [BITS*WIDTH-1:0] significands_1;
      presilicon_cut #(
          .BITS((13 + BITS) * WIDTH),
          .CUT (CUT)
      ) multiplied (
          .clock,
          .enable,
          .in ({signs, exponents, significands}),
          .out({signs_1, exponents_1, significands_1})
      );
      logic z_nan, z_infinity, z_sign;
      wire [PARTIAL_WORD-1:0] running = begins_1 ? '0 : partial;
      presilicon_group_aligned #(
          .WIDTH(WIDTH),
          .BITS(BITS),
          .FRACTION(BITS - 2),
          .ALIGN(ALIGN),
          .FLOORED(FLOORED),
          .Z(PARTIAL),
          .SUM(SUM)
      ) add (
          .signs(signs_1),
          .exponents(exponents_1),
          .significands(significands_1),
          .scale(scale_1),
          .z(running),
          .sign(finite_sign),
          .exponent(sum_exponent),
          .magnitude,
          .z_nan,
          .z_infinity,
          .z_sign
      );
      assign sum_nan = nan_1 || z_nan || (infinity_1 && z_infinity && infinite_sign_1 != z_sign);
      assign sum_infinity = infinity_1 || z_infinity;
      assign sum_sign = sum_infinity ? (infinity_1 ? infinite_sign_1 : z_sign) : finite_sign;
      wire unused = &{1'b0, factor};
    end else begin : exact
      localparam int PLACES = BITS + SPAN;
      localparam int LOWEST = lowest_exponent(LEFT) + lowest_exponent(RIGHT);
      localparam int PLAIN = PLACES + $clog2(WIDTH);
      logic [PLACES*WIDTH-1:0] placed;
      for (genvar lane = 0; lane < WIDTH; lane++) begin : places
        if (SPAN == 0) begin : as_they_are
          assign placed[PLACES*lane+:PLACES] = significands[BITS*lane+:BITS];
        end else begin : shifted
          localparam int SHIFT = $clog2(SPAN + 1);
          wire [11:0] above = exponents[12*lane+:12] - 12'(LOWEST);
          assign placed[PLACES*lane+:PLACES] = PLACES'(significands[BITS*lane+:BITS]) << above[SHIFT-1:0];
          wire unused = &{1'b0, above};
        end
      end
      logic plain_sign;
      logic [PLAIN-1:0] plain;
      presilicon_signed_sum #(
          .COUNT(WIDTH),
          .BITS (PLACES),
          .SUM  (PLAIN)
      ) add (
          .signs,
          .magnitudes(placed),
          .sign(plain_sign),
          .magnitude(plain)
      );
      logic plain_sign_1;
      logic [PLAIN-1:0] plain_1;
      logic [FACTOR-1:0] factor_1;
      presilicon_cut #(
          .BITS(PLAIN + FACTOR + 1),
          .CUT (CUT)
      ) summed (
          .clock,
          .enable,
          .in ({plain_sign, plain, factor}),
          .out({plain_sign_1, plain_1, factor_1})
      );
      assign magnitude = plain_1 * factor_1;
      assign finite_sign = plain_sign_1 && |magnitude;
      // Significands of scales have all but one bit below their exponent.
      assign sum_exponent = scale_1 + 12'(LOWEST - (BITS - 2) - (FACTOR - 2) + SUM - 1);
      assign sum_nan = nan_1;
      assign sum_infinity = infinity_1;
      assign sum_sign = infinity_1 ? infinite_sign_1 : finite_sign;
      wire unused = &{1'b0, begins_1, exponents};
    end
  endgenerate

  presilicon_float_pack #(
      .FORMAT(PARTIAL),
      .ROUNDING(PARTIAL_ROUNDING),
      .BITS(SUM),
      .CUTS(0)
  ) pack (
      .clock(1'b0),
      .enable(1'b0),
      .sign(sum_sign),
      .top(sum_exponent + 12'(format_bias(PARTIAL))),
      .significand(magnitude),
      .nan(sum_nan),
      .infinity(sum_infinity),
      .draw(draws_1[15:0]),
      .word(packed_sum)
  );
  logic done_2, first_chunk_2, last_2;
  logic [15:0] draw_2;
  always_ff @(posedge clock) begin
    if (enable) begin
      done_2 <= valid_1 && ends_1;
      {first_chunk_2, last_2, draw_2} <= {first_chunk_1, last_1, draws_1[31:16]};
      // A tensor core has no negative zero.
      if (valid_1) partial <= FLOORED && packed_sum[PARTIAL_WORD-2:0] == '0 ? '0 : packed_sum;
    end
    if (reset) done_2 <= 1'b0;
  end

  presilicon_mac_total #(
      .PARTIAL(PARTIAL),
      .TOTAL(TOTAL),
      .ROUNDING(TOTAL_ROUNDING)
  ) total (
      .clock,
      .reset,
      .enable,
      .in_valid(done_2),
      .in_first(first_chunk_2),
      .in_last(last_2),
      .partial,
      .draw(draw_2),
      .out_valid,
      .out
  );
endmodule
