// A code of one format as a code of a wider one that holds all its numbers, within the cycle.
module presilicon_widen #(
    parameter int FORMAT = 'hff5e0,
    parameter int OUT = 'hff5e0,
    localparam int WORD = FORMAT & 63,
    localparam int OUT_WORD = OUT & 63
) (
    input  logic [    WORD-1:0] code,
    output logic [OUT_WORD-1:0] wide
);
  `include "presilicon_format.svh"
  generate
    if (FORMAT == OUT) begin : same
      assign wide = code;
    end else if (format_kind(OUT) != 0) begin : fixed
      wire signed [OUT_WORD-1:0] extended = OUT_WORD'($signed({format_kind(FORMAT) == 1 && code[WORD-1], code}));
      assign wide = extended << (format_fraction(OUT) - format_fraction(FORMAT));
    end else begin : float
      localparam int BITS = significand_bits(FORMAT);
      logic sign, nan, infinity;
      logic signed [11:0] exponent;
      logic [BITS-1:0] significand;
      presilicon_unpack #(
          .FORMAT(FORMAT),
          .SIGNIFICAND(BITS),
          .OFFSET(format_bias(OUT))
      ) unpack (
          .code,
          .sign,
          .exponent,
          .significand,
          .nan,
          .infinity
      );
      presilicon_float_pack #(
          .FORMAT(OUT),
          .BITS(BITS),
          .CUTS(0)
      ) pack (
          .clock(1'b0),
          .enable(1'b0),
          .sign,
          .top(exponent),
          .significand,
          .nan,
          .infinity,
          .draw(16'd0),
          .word(wide)
      );
    end
  endgenerate
endmodule
