// x + y, rounded once to format OUT; a register behind each of the five steps of `presilicon_term_sum`, by CUTS.
module presilicon_float_add #(
    parameter int X = 'hff5e0,
    parameter int Y = 'hff5e0,
    parameter int OUT = 'hff5e0,
    parameter int ROUNDING = 0,
    parameter int CUTS = 'b11111,
    localparam int X_WORD = X & 63,
    localparam int Y_WORD = Y & 63,
    localparam int OUT_WORD = OUT & 63
) (
    input  logic                clock,
    input  logic                enable,
    input  logic [  X_WORD-1:0] x,
    input  logic [  Y_WORD-1:0] y,
    input  logic [        15:0] draw,
    output logic [OUT_WORD-1:0] sum
);
  `include "presilicon_format.svh"
  localparam int BITS = significand_bits(X);
  logic sign, nan, infinity;
  logic signed [11:0] exponent;
  logic [BITS-1:0] significand;
  presilicon_unpack #(
      .FORMAT(X),
      .SIGNIFICAND(BITS),
      .NORMALIZE(X != OUT),
      .OFFSET(format_bias(OUT))
  ) unpack (
      .code(x),
      .sign,
      .exponent,
      .significand,
      .nan,
      .infinity
  );
  presilicon_term_sum #(
      .Z(Y),
      .OUT(OUT),
      .ROUNDING(ROUNDING),
      .BITS(BITS),
      .ORDERED(X == OUT && Y == OUT),
      .CUTS(CUTS)
  ) term_sum (
      .clock,
      .enable,
      .sign,
      .exponent,
      .significand,
      .nan,
      .infinity,
      .z(y),
      .draw,
      .sum
  );
endmodule
