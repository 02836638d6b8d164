// x * y + z with one rounding, to format OUT. CUTS: a register behind the exact product, then behind the five steps of
// `presilicon_term_sum`.
module presilicon_float_fma #(
    parameter int X = 'hff5e0,
    parameter int Y = 'hff5e0,
    parameter int Z = 'hff5e0,
    parameter int OUT = 'hff5e0,
    parameter int ROUNDING = 0,
    parameter int CUTS = 'b100000,
    localparam int X_WORD = X & 63,
    localparam int Y_WORD = Y & 63,
    localparam int Z_WORD = Z & 63,
    localparam int OUT_WORD = OUT & 63
) (
    input  logic                clock,
    input  logic                enable,
    input  logic [  X_WORD-1:0] x,
    input  logic [  Y_WORD-1:0] y,
    input  logic [  Z_WORD-1:0] z,
    input  logic [        15:0] draw,
    output logic [OUT_WORD-1:0] sum
);
  `include "presilicon_format.svh"
  localparam int BITS = significand_bits(X) + significand_bits(Y);
  logic sign, nan, infinity, sign_1, nan_1, infinity_1;
  logic signed [11:0] exponent, exponent_1;
  logic [BITS-1:0] significand, significand_1;
  logic [Z_WORD-1:0] z_1;
  logic [15:0] draw_1;
  presilicon_product #(
      .X(X),
      .Y(Y),
      .BITS(BITS),
      .NORMALIZE(1),
      .OFFSET(format_bias(OUT))
  ) exact (
      .clock,
      .enable,
      .x,
      .y,
      .sign,
      .exponent,
      .significand,
      .nan,
      .infinity
  );
  presilicon_cut #(
      .BITS(31 + BITS + Z_WORD),
      .CUT (CUTS[0])
  ) multiplied (
      .clock,
      .enable,
      .in ({sign, nan, infinity, exponent, significand, z, draw}),
      .out({sign_1, nan_1, infinity_1, exponent_1, significand_1, z_1, draw_1})
  );
  presilicon_term_sum #(
      .Z(Z),
      .OUT(OUT),
      .ROUNDING(ROUNDING),
      .BITS(BITS),
      .SLACK(1),
      .CUTS(CUTS >> 1)
  ) term_sum (
      .clock,
      .enable,
      .sign(sign_1),
      .exponent(exponent_1),
      .significand(significand_1),
      .nan(nan_1),
      .infinity(infinity_1),
      .z(z_1),
      .draw(draw_1),
      .sum
  );
endmodule
