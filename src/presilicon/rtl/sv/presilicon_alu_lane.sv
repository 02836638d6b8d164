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
    input  logic            add,            // one of these, or none: x passes
    input  logic            sub,
    input  logic            greater,
    input  logic            smaller,
    input  logic            absolute,       // then s is 0
    input  logic            late_multiply,  // the late result is a product
    input  logic [WORD-1:0] x,
    input  logic [WORD-1:0] s,
    output logic [WORD-1:0] early,
    output logic [WORD-1:0] late
);
  `include "presilicon_format.svh"
  localparam int FORMAT = ieee_format(EXPONENT, FRACTION, BIAS);
  generate
    if (FLOAT) begin : floats
      logic [WORD-1:0] extreme;
      presilicon_extreme #(
          .WORD(WORD),
          .FLOAT(1),
          .MANTISSA(FRACTION)
      ) compare (
          .smaller,
          .x,
          .y(s),
          .extreme
      );
      assign early = greater || smaller ? extreme : {x[WORD-1] & !absolute, x[WORD-2:0]};
      logic [WORD-1:0] sum, product;
      if (FUNCTIONS[0] || FUNCTIONS[1]) begin : adder
        presilicon_float_add #(
            .X(FORMAT),
            .Y(FORMAT),
            .OUT(FORMAT)
        ) add (
            .clock,
            .enable(1'b1),
            .draw(16'd0),
            .x,
            .y({s[WORD-1] ^ sub, s[WORD-2:0]}),
            .sum
        );
      end else begin : no_adder
        assign sum = '0;
      end
      if (FUNCTIONS[2]) begin : multiplier
        presilicon_float_multiply #(
            .X(FORMAT),
            .Y(FORMAT),
            .OUT(FORMAT),
            .HALVES(1)
        ) multiply (
            .clock,
            .enable(1'b1),
            .draw(16'd0),
            .x,
            .y(s),
            .product
        );
      end else begin : no_multiplier
        assign product = '0;
      end
      assign late = late_multiply ? product : sum;
      wire unused = &{1'b0, clock, add, sub};
    end else begin : fixed
      // One adder does it all: x + s, x - s, the comparison of x and s, -x as ~x + 1. Saturation is sticky: a sum with
      // an operand at an end of the range is that end, a difference its counterpart.
      wire [WORD-1:0] a = x ^ {WORD{absolute}};
      wire [WORD-1:0] b = s ^ {WORD{!add && !absolute}};
      wire [WORD:0] total = {a[WORD-1], a} + {b[WORD-1], b} + (WORD + 1)'(!add);
      wire fits = total[WORD] == total[WORD-1];
      wire [WORD-1:0] saturated = fits ? total[WORD-1:0] : {total[WORD], {(WORD - 1) {~total[WORD]}}};
      wire x_end = (add || sub) && x[WORD-2:0] == {(WORD - 1) {~x[WORD-1]}};
      wire s_end = s[WORD-2:0] == {(WORD - 1) {~s[WORD-1]}};
      wire [WORD-1:0] sum = x_end ? x : s_end ? s ^ {WORD{sub}} : saturated;
      wire take_s = (greater && total[WORD]) || (smaller && !total[WORD]);
      wire take_total = add || sub || (absolute && x[WORD-1]);
      assign early = take_total ? sum : take_s ? s : x;
      if (FUNCTIONS[2]) begin : multiplier
        presilicon_fixed_multiply #(
            .WORD(WORD),
            .FRACTION(FRACTION)
        ) multiply (
            .clock,
            .x,
            .y(s),
            .product(late)
        );
      end else begin : no_multiplier
        assign late = '0;
      end
      wire unused = &{1'b0, clock, late_multiply};
    end
  endgenerate
endmodule
