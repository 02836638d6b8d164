// What a block's scale does to its elements: the exponent that it adds, the significand that it multiplies by, and NaN.
// SCALE is 0 for none, the word of a float, or 2^30 + 2^10 if code 255 is NaN + 512 + the exponent of code 0.
module presilicon_scale #(
    parameter int SCALE = 0,
    parameter int SIGNIFICAND = 1  // of a float, else 1
) (
    input  logic        [            7:0] code,
    output logic signed [           11:0] exponent,
    output logic        [SIGNIFICAND-1:0] significand,
    output logic                          nan
);
  `include "presilicon_format.svh"
  generate
    if (SCALE == 0) begin : none
      assign exponent = '0;
      assign significand = 1'b1;
      assign nan = 1'b0;
      wire unused = &{1'b0, code};
    end else if (SCALE >> 30 != 0) begin : power
      assign exponent = 12'(code) + 12'((SCALE & 1023) - 512);
      assign significand = 1'b1;
      assign nan = (SCALE >> 10 & 1) != 0 && &code;
    end else begin : float
      logic sign, infinity;
      presilicon_unpack #(
          .FORMAT(SCALE),
          .SIGNIFICAND(SIGNIFICAND)
      ) unpack (
          .code,
          .sign,
          .exponent,
          .significand,
          .nan,
          .infinity
      );
      wire unused = &{1'b0, sign, infinity};
    end
  endgenerate
endmodule
