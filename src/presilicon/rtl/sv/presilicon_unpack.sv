// A code of a format as a term. With NORMALIZE the highest bit of a significand other than zero is 1; without, that of a
// float's subnormal is 0 under the exponent of the smallest normal number. OFFSET is added to the exponent.
module presilicon_unpack #(
    parameter int FORMAT = 'hff5e0,
    parameter int SIGNIFICAND = 24,  // significand_bits(FORMAT)
    parameter bit NORMALIZE = 0,
    parameter int OFFSET = 0,
    localparam int WORD = FORMAT & 63
) (
    input  logic        [       WORD-1:0] code,
    output logic                          sign,
    output logic signed [           11:0] exponent,
    output logic        [SIGNIFICAND-1:0] significand,
    output logic                          nan,
    output logic                          infinity
);
  `include "presilicon_format.svh"
  logic [SIGNIFICAND-1:0] plain;
  logic signed [11:0] plain_exponent;
  generate
    if (format_kind(FORMAT) == 0) begin : float
      localparam int FIELD = format_exponent(FORMAT);
      localparam int MANTISSA = format_fraction(FORMAT);
      localparam int SPECIALS = format_specials(FORMAT);
      localparam int BIAS = format_bias(FORMAT) - OFFSET;
      localparam logic [WORD-2:0] INFINITY = {{FIELD{1'b1}}, {(WORD - 1 - FIELD) {SPECIALS == P3109}}};
      wire [WORD-2:0] magnitude = code[WORD-2:0];
      wire [FIELD-1:0] field = magnitude[WORD-2-:FIELD];
      wire is_flushed = format_flushes(FORMAT) != 0 && field == '0;
      assign sign = code[WORD-1];
      assign plain_exponent = 12'(|field ? field : FIELD'(1)) - 12'(BIAS);
      if (MANTISSA == 0) begin : powers
        assign plain = |field;
      end else begin : fractions
        assign plain = {|field, magnitude[MANTISSA-1:0] & {MANTISSA{!is_flushed}}};
      end
      assign infinity = (SPECIALS == IEEE || SPECIALS == P3109) && magnitude == INFINITY;
      assign nan = SPECIALS == IEEE ? magnitude > INFINITY
          : SPECIALS == FN ? &magnitude
          : SPECIALS == NO_SPECIALS ? 1'b0 : sign && magnitude == '0;
    end else begin : fixed
      assign sign = format_kind(FORMAT) != 3 && code[WORD-1];
      if (format_kind(FORMAT) == 1) begin : complement
        assign plain = sign ? -code : code;
      end else begin : magnitude
        assign plain = code[SIGNIFICAND-1:0];
      end
      assign plain_exponent = 12'(SIGNIFICAND - 1 - format_fraction(FORMAT) + OFFSET);
      assign {nan, infinity} = 2'b00;
    end
    if (NORMALIZE) begin : normalize
      localparam int PLACE = $clog2(SIGNIFICAND + 1);
      logic [PLACE-1:0] zeros;
      always_comb begin
        zeros = '0;
        for (int bit_ = 0; bit_ < SIGNIFICAND; bit_++) if (plain[bit_]) zeros = PLACE'(SIGNIFICAND - 1 - bit_);
      end
      assign significand = plain << zeros;
      assign exponent = |plain ? plain_exponent - 12'(zeros) : 12'(ZERO_EXPONENT);
    end else begin : as_it_is
      assign significand = plain;
      assign exponent = plain_exponent;
    end
  endgenerate
endmodule
