// x + y of floats, 5 cycles: order by magnitude, align, add, normalise, round.
module presilicon_float_add #(
    parameter int EXPONENT = 8,
    parameter int MANTISSA = 23
) (
    input  logic                       clock,
    input  logic [EXPONENT+MANTISSA:0] x,
    input  logic [EXPONENT+MANTISSA:0] y,
    output logic [EXPONENT+MANTISSA:0] sum
);
  localparam int WORD = 1 + EXPONENT + MANTISSA;
  localparam int GUARDED = MANTISSA + 4;  // hidden bit, mantissa, guard, round, sticky
  localparam logic [WORD-2:0] INFINITY = {{EXPONENT{1'b1}}, {MANTISSA{1'b0}}};

  wire y_larger = y[WORD-2:0] > x[WORD-2:0];
  wire [WORD-1:0] greater = y_larger ? y : x;
  wire [WORD-2:0] lesser = y_larger ? x[WORD-2:0] : y[WORD-2:0];
  wire [EXPONENT-1:0] large_field = greater[WORD-2-:EXPONENT];
  wire [EXPONENT-1:0] small_field = lesser[WORD-2-:EXPONENT];
  wire [EXPONENT-1:0] large_exponent = |large_field ? large_field : EXPONENT'(1);
  wire [EXPONENT-1:0] small_exponent = |small_field ? small_field : EXPONENT'(1);

  logic sign_1, differ_1, nan_1, infinity_1, both_negative_1;
  logic [EXPONENT-1:0] exponent_1, distance_1;
  logic [MANTISSA:0] large_1, small_1;
  always_ff @(posedge clock) begin
    sign_1 <= greater[WORD-1];
    differ_1 <= x[WORD-1] ^ y[WORD-1];
    both_negative_1 <= x[WORD-1] & y[WORD-1];
    nan_1 <= greater[WORD-2:0] > INFINITY || (lesser == INFINITY && x[WORD-1] != y[WORD-1]);
    infinity_1 <= greater[WORD-2:0] == INFINITY;
    exponent_1 <= large_exponent;
    distance_1 <= large_exponent - small_exponent;
    large_1 <= {|large_field, greater[MANTISSA-1:0]};
    small_1 <= {|small_field, lesser[MANTISSA-1:0]};
  end

  wire [2*GUARDED-1:0] lowered = {small_1, {(GUARDED + 3) {1'b0}}} >> distance_1;
  logic sign_2, differ_2, nan_2, infinity_2, both_negative_2;
  logic [EXPONENT-1:0] exponent_2;
  logic [GUARDED-1:0] large_2, small_2;
  always_ff @(posedge clock) begin
    {sign_2, differ_2, nan_2, infinity_2, both_negative_2} <= {sign_1, differ_1, nan_1, infinity_1, both_negative_1};
    exponent_2 <= exponent_1;
    large_2 <= {large_1, 3'b0};
    small_2 <= {lowered[2*GUARDED-1:GUARDED+1], |lowered[GUARDED:0]};
  end

  wire [GUARDED:0] total = differ_2 ? {1'b0, large_2} - {1'b0, small_2} : {1'b0, large_2} + {1'b0, small_2};
  logic sign_3, nan_3, infinity_3;
  logic signed [11:0] top_3;
  logic [GUARDED:0] total_3;
  always_ff @(posedge clock) begin
    sign_3 <= |total ? sign_2 : both_negative_2;
    {nan_3, infinity_3} <= {nan_2, infinity_2};
    top_3 <= 12'(exponent_2) + 12'sd1;
    total_3 <= total;
  end

  presilicon_float_pack #(
      .EXPONENT(EXPONENT),
      .MANTISSA(MANTISSA),
      .BITS(GUARDED + 1)
  ) pack (
      .clock,
      .sign(sign_3),
      .top(top_3),
      .significand(total_3),
      .nan(nan_3),
      .infinity(infinity_3),
      .word(sum)
  );
endmodule
