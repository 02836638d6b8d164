// x * y, rounded once to format OUT: the exact product (3 cycles with HALVES), normalized, rounded, by CUTS.
module presilicon_float_multiply #(
    parameter int X = 'hff5e0,
    parameter int Y = 'hff5e0,
    parameter int OUT = 'hff5e0,
    parameter int ROUNDING = 0,
    parameter bit HALVES = 0,
    parameter int CUTS = 'b11,
    localparam int X_WORD = X & 63,
    localparam int Y_WORD = Y & 63,
    localparam int OUT_WORD = OUT & 63
) (
    input  logic                clock,
    input  logic                enable,
    input  logic [  X_WORD-1:0] x,
    input  logic [  Y_WORD-1:0] y,
    input  logic [        15:0] draw,  // with the operands; with HALVES, 3 cycles later
    output logic [OUT_WORD-1:0] product
);
  `include "presilicon_format.svh"
  localparam int BITS = significand_bits(X) + significand_bits(Y);
  logic sign, nan, infinity;
  logic signed [11:0] exponent;
  logic [BITS-1:0] significand;
  presilicon_product #(
      .X(X),
      .Y(Y),
      .BITS(BITS),
      .OFFSET(format_bias(OUT)),
      .HALVES(HALVES)
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
  presilicon_float_pack #(
      .FORMAT(OUT),
      .ROUNDING(ROUNDING),
      .BITS(BITS),
      .CUTS(CUTS)
  ) pack (
      .clock,
      .enable,
      .sign,
      .top(exponent),
      .significand,
      .nan,
      .infinity,
      .draw,
      .word(product)
  );
endmodule
