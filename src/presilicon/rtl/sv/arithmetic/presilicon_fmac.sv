// FAST's fMAC: dot products of block floating point whose multipliers take SLICE mantissa bits of each operand. A group
// takes one cycle, a pass, for each pair of slices: ceil(left_bits / SLICE) * ceil(right_bits / SLICE). The mantissas
// of each group have their own width, given with it. The sum of a group is exact, then rounded to PARTIAL and added to
// TOTAL, as in `presilicon_mac_group`; it is valid one cycle after the last pass, one more with TOTAL.
module presilicon_fmac #(
    parameter int MANTISSA = 4,  // the widest, a multiple of SLICE
    parameter int SLICE = 2,
    parameter int WIDTH = 16,
    parameter int LEFT_SCALE = 'h40000181,
    parameter int RIGHT_SCALE = 'h40000181,
    parameter int PARTIAL = 'hff5e0,
    parameter int TOTAL = 'hff5e0,
    parameter int PARTIAL_ROUNDING = 0,
    parameter int TOTAL_ROUNDING = 0,
    parameter logic [255:0] JUMP = 256'h1,
    localparam int LANE = MANTISSA + 1,
    localparam int WORD = TOTAL == 0 ? PARTIAL & 63 : TOTAL & 63
) (
    input  logic                  clock,
    input  logic                  reset,
    input  logic                  enable,
    input  logic [          15:0] seed,         // of stochastic rounding, taken at reset
    input  logic                  in_valid,
    output logic                  in_ready,     // a group is taken when both are high
    input  logic                  in_first,     // group of a sum
    input  logic                  in_last,
    input  logic [WIDTH*LANE-1:0] left,         // sign on top of MANTISSA bits of magnitude
    input  logic [WIDTH*LANE-1:0] right,
    input  logic [           4:0] left_bits,    // mantissa bits that are in use
    input  logic [           4:0] right_bits,
    input  logic [           7:0] left_scale,   // code of the group's exponent
    input  logic [           7:0] right_scale,
    output logic                  out_valid,
    output logic [      WORD-1:0] out
);
  `include "presilicon_format.svh"
  localparam int SLICES = MANTISSA / SLICE;
  localparam int INDEX = SLICES > 1 ? $clog2(SLICES) : 1;
  localparam int PARTIAL_WORD = PARTIAL & 63;
  localparam int DOT = 2 * SLICE + $clog2(WIDTH);
  localparam int SUM = 2 * MANTISSA + $clog2(WIDTH);

  logic signed [11:0] left_exponent, right_exponent;
  logic left_factor, right_factor, left_nan, right_nan;
  presilicon_scale #(
      .SCALE(LEFT_SCALE)
  ) scale_left (
      .code(left_scale),
      .exponent(left_exponent),
      .significand(left_factor),
      .nan(left_nan)
  );
  presilicon_scale #(
      .SCALE(RIGHT_SCALE)
  ) scale_right (
      .code(right_scale),
      .exponent(right_exponent),
      .significand(right_factor),
      .nan(right_nan)
  );
  logic [31:0] draws;
  presilicon_lfsr #(
      .DRAWS(2),
      .JUMP (JUMP)
  ) lfsr (
      .clock,
      .reset,
      .enable(enable && in_valid && in_ready),
      .seed,
      .first(in_first),
      .count(2'd2),
      .draws
  );

  // The group that is multiplied, and the slices that are next.
  logic busy, first_1, last_1;
  logic [WIDTH*LANE-1:0] left_1, right_1;
  logic [INDEX-1:0] left_slice, right_slice, left_end, right_end;
  logic signed [11:0] exponent_1;
  logic [31:0] draws_1;
  wire is_last_pass = left_slice == left_end && right_slice == right_end;
  assign in_ready = !busy || is_last_pass;
  wire [5:0] left_slices = (6'(left_bits) + 6'(SLICE - 1)) / 6'(SLICE);
  wire [5:0] right_slices = (6'(right_bits) + 6'(SLICE - 1)) / 6'(SLICE);
  wire signed [11:0] places = 12'(left_bits) + 12'(right_bits) - 12'sd2;  // of the products, below the exponents
  always_ff @(posedge clock)
    if (reset) busy <= 1'b0;
    else if (enable) begin
      if (in_ready) begin
        busy <= in_valid;
        {left_1, right_1, first_1, last_1, draws_1} <= {left, right, in_first, in_last, draws};
        {left_slice, right_slice} <= '0;
        left_end <= INDEX'(left_slices - 6'd1);
        right_end <= INDEX'(right_slices - 6'd1);
        exponent_1 <= left_exponent + right_exponent - places + 12'(SUM - 1);
      end else begin
        right_slice <= right_slice == right_end ? '0 : right_slice + 1'b1;
        if (right_slice == right_end) left_slice <= left_slice + 1'b1;
      end
    end

  // One pass: a product of SLICE x SLICE bits per lane, and their sum.
  logic [WIDTH-1:0] signs;
  logic [2*SLICE*WIDTH-1:0] products;
  generate
    for (genvar lane = 0; lane < WIDTH; lane++) begin : lanes
      wire [MANTISSA-1:0] x = left_1[LANE*lane+:MANTISSA];
      wire [MANTISSA-1:0] y = right_1[LANE*lane+:MANTISSA];
      wire [SLICE-1:0] x_slice = x[SLICE*left_slice+:SLICE];
      wire [SLICE-1:0] y_slice = y[SLICE*right_slice+:SLICE];
      assign products[2*SLICE*lane+:2*SLICE] = x_slice * y_slice;
      assign signs[lane] = left_1[LANE*lane+MANTISSA] ^ right_1[LANE*lane+MANTISSA];
    end
  endgenerate
  logic dot_sign;
  logic [DOT-1:0] dot;
  presilicon_signed_sum #(
      .COUNT(WIDTH),
      .BITS (2 * SLICE),
      .SUM  (DOT)
  ) add (
      .signs,
      .magnitudes(products),
      .sign(dot_sign),
      .magnitude(dot)
  );
  wire [INDEX:0] slices = {1'b0, left_slice} + {1'b0, right_slice};
  wire [SUM:0] placed = (SUM + 1)'(dot) << (SLICE * slices);
  logic [SUM:0] running;
  wire [SUM:0] sum_before = left_slice == '0 && right_slice == '0 ? '0 : running;
  wire [SUM:0] sum_after = dot_sign ? sum_before - placed : sum_before + placed;
  wire sum_sign = sum_after[SUM];

  logic [PARTIAL_WORD-1:0] packed_sum, partial;
  presilicon_float_pack #(
      .FORMAT(PARTIAL),
      .ROUNDING(PARTIAL_ROUNDING),
      .BITS(SUM),
      .CUTS(0)
  ) pack (
      .clock(1'b0),
      .enable(1'b0),
      .sign(sum_sign),
      .top(exponent_1 + 12'(format_bias(PARTIAL))),
      .significand(sum_sign ? -sum_after[SUM-1:0] : sum_after[SUM-1:0]),
      .nan(1'b0),
      .infinity(1'b0),
      .draw(draws_1[15:0]),
      .word(packed_sum)
  );
  logic done_2, first_2, last_2;
  logic [15:0] draw_2;
  always_ff @(posedge clock) begin
    if (enable) begin
      running <= sum_after;
      done_2 <= busy && is_last_pass;
      if (busy && is_last_pass) {partial, first_2, last_2, draw_2} <= {packed_sum, first_1, last_1, draws_1[31:16]};
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
      .in_first(first_2),
      .in_last(last_2),
      .partial,
      .draw(draw_2),
      .out_valid,
      .out
  );
  wire unused = &{1'b0, left_factor, right_factor, left_nan, right_nan, left_slices, right_slices};
endmodule
