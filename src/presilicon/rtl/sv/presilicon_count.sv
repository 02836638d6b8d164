// A number of elements as a word: saturated in fixed point (1 cycle and an empty one), rounded as a float (2 cycles).
module presilicon_count #(
    parameter int COUNT = 6,  // bits
    parameter int WORD = 32,
    parameter bit FLOAT = 0,
    parameter int EXPONENT = 8,
    parameter int FRACTION = 16,  // or mantissa bits
    parameter int BIAS = 127
) (
    input  logic             clock,
    input  logic [COUNT-1:0] count,
    output logic [ WORD-1:0] word
);
  `include "presilicon_format.svh"
  localparam int FORMAT = ieee_format(EXPONENT, FRACTION, BIAS);
  generate
    if (FLOAT) begin : floats
      presilicon_float_pack #(
          .FORMAT(FORMAT),
          .BITS(COUNT)
      ) pack (
          .clock,
          .enable(1'b1),
          .draw(16'd0),
          .sign(1'b0),
          .top(12'(BIAS + COUNT - 1)),
          .significand(count),
          .nan(1'b0),
          .infinity(1'b0),
          .word
      );
    end else begin : fixed
      localparam int WIDE = COUNT + FRACTION > WORD ? COUNT + FRACTION : WORD;
      wire [WIDE-1:0] shifted = WIDE'(count) << FRACTION;
      logic [WORD-1:0] saturated;
      always_ff @(posedge clock) begin
        saturated <= |(shifted >> (WORD - 1)) ? {1'b0, {(WORD - 1) {1'b1}}} : shifted[WORD-1:0];
        word <= saturated;
      end
    end
  endgenerate
endmodule
