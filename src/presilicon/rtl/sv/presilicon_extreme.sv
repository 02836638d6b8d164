// The greater or the smaller of two words, x where they are equal; for floats, NaN where either is. No registers.
module presilicon_extreme #(
    parameter int WORD = 32,
    parameter bit FLOAT = 0,
    parameter int MANTISSA = 23
) (
    input  logic            smaller,  // 1: the smaller
    input  logic [WORD-1:0] x,
    input  logic [WORD-1:0] y,
    output logic [WORD-1:0] extreme
);
  generate
    if (FLOAT) begin : floats
      localparam int EXPONENT = WORD - 1 - MANTISSA;
      localparam logic [WORD-2:0] INFINITY = {{EXPONENT{1'b1}}, {MANTISSA{1'b0}}};
      localparam logic [WORD-1:0] NAN = {1'b0, {EXPONENT{1'b1}}, 1'b1, {(MANTISSA - 1) {1'b0}}};
      // Integers in the same order as the floats, both zeros the same.
      wire signed [WORD-1:0] x_order = x[WORD-2:0] == '0 ? '0 : x[WORD-1] ? {1'b1, ~x[WORD-2:0]} : x;
      wire signed [WORD-1:0] y_order = y[WORD-2:0] == '0 ? '0 : y[WORD-1] ? {1'b1, ~y[WORD-2:0]} : y;
      wire signed [WORD-1:0] low = smaller ? y_order : x_order;
      wire signed [WORD-1:0] high = smaller ? x_order : y_order;
      wire nan = x[WORD-2:0] > INFINITY || y[WORD-2:0] > INFINITY;
      assign extreme = nan ? NAN : $signed(low) < $signed(high) ? y : x;
    end else begin : fixed
      wire y_greater = $signed(x) < $signed(y);
      assign extreme = y_greater != smaller ? y : x;
    end
  endgenerate
endmodule
