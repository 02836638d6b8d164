// One lane of the vector unit: what is ready within the cycle (`early`), and what comes registers later (`late`).
module presilicon_alu_lane #(
    parameter int WORD = 32,
    parameter bit FLOAT = 0,
    parameter int EXPONENT = 8,
    parameter int FRACTION = 16,  // or mantissa bits
    parameter int BIAS = 127,
    parameter logic [5:0] FUNCTIONS = 6'h3f  // add, sub, mul, max, min, abs
) (
    input  logic            clock,
    input  logic            enable,
    input  logic [     2:0] operation,
    input  logic            late_multiply,  // the late result is a product
    input  logic [WORD-1:0] x,
    input  logic [WORD-1:0] s,
    output logic [WORD-1:0] early,
    output logic [WORD-1:0] late
);
  wire is_add = FUNCTIONS[0] && operation == 3'd1;
  wire is_sub = FUNCTIONS[1] && operation == 3'd2;
  wire is_max = FUNCTIONS[3] && operation == 3'd4;
  wire is_min = FUNCTIONS[4] && operation == 3'd5;
  wire is_abs = FUNCTIONS[5] && operation == 3'd6;
  generate
    if (FLOAT) begin : floats
      logic [WORD-1:0] extreme;
      presilicon_extreme #(
          .WORD(WORD),
          .FLOAT(1),
          .MANTISSA(FRACTION)
      ) compare (
          .smaller(is_min),
          .x,
          .y(s),
          .extreme
      );
      assign early = is_max || is_min ? extreme : {x[WORD-1] & !is_abs, x[WORD-2:0]};
      logic [WORD-1:0] sum, product;
      if (FUNCTIONS[0] || FUNCTIONS[1]) begin : adder
        presilicon_float_add #(
            .EXPONENT(EXPONENT),
            .MANTISSA(FRACTION)
        ) add (
            .clock,
            .enable,
            .x,
            .y({s[WORD-1] ^ is_sub, s[WORD-2:0]}),
            .sum
        );
      end else begin : no_adder
        assign sum = '0;
      end
      if (FUNCTIONS[2]) begin : multiplier
        presilicon_float_multiply #(
            .EXPONENT(EXPONENT),
            .MANTISSA(FRACTION),
            .BIAS(BIAS)
        ) multiply (
            .clock,
            .enable,
            .x,
            .y(s),
            .product
        );
      end else begin : no_multiplier
        assign product = '0;
      end
      assign late = late_multiply ? product : sum;
      wire unused = &{1'b0, clock, enable, is_add, is_sub};
    end else begin : fixed
      // One adder does it all: x + s, x - s, the comparison of x and s, 0 - x.
      wire [WORD-1:0] a = is_abs ? '0 : x;
      wire [WORD-1:0] b = is_abs ? x : s;
      wire subtract = !is_add;
      wire [WORD:0] total = {a[WORD-1], a} + ({b[WORD-1], b} ^ {(WORD + 1) {subtract}}) + (WORD + 1)'(subtract);
      wire fits = total[WORD] == total[WORD-1];
      wire [WORD-1:0] saturated = fits ? total[WORD-1:0] : {total[WORD], {(WORD - 1) {~total[WORD]}}};
      wire take_s = (is_max && total[WORD]) || (is_min && !total[WORD]);
      wire take_total = is_add || is_sub || (is_abs && x[WORD-1]);
      assign early = take_total ? saturated : take_s ? s : x;
      if (FUNCTIONS[2]) begin : multiplier
        presilicon_fixed_multiply #(
            .WORD(WORD),
            .FRACTION(FRACTION)
        ) multiply (
            .clock,
            .enable,
            .x,
            .y(s),
            .product(late)
        );
      end else begin : no_multiplier
        assign late = '0;
      end
      wire unused = &{1'b0, clock, enable, late_multiply};
    end
  endgenerate
endmodule
