// All words of a vector reduced to word 0, the others 0; or the vector as it came. Only the functions that are asked
// for are built, and all take as long as the slowest of them.
module presilicon_scalar_reduce #(
    parameter int LANES = 16,
    parameter int WORD = 32,
    parameter bit FLOAT = 0,
    parameter int EXPONENT = 8,
    parameter int FRACTION = 16,  // or mantissa bits
    parameter int BIAS = 127,
    parameter logic [3:0] FUNCTIONS = 4'hf  // sum, product, max, min
) (
    input  logic                  clock,
    input  logic                  reset,
    input  logic [          39:0] in_control,
    input  logic [LANES*WORD-1:0] in_data,
    output logic [          39:0] out_control,
    output logic [LANES*WORD-1:0] out_data
);
  `include "presilicon_chain.svh"
  `include "presilicon_latency.svh"
  localparam int LEVELS = $clog2(LANES);
  localparam int SUM = FLOAT ? 5 * LEVELS : LEVELS + 1;
  localparam int PRODUCT = 5 * LEVELS;
  localparam int TREES = tree_cycles(LANES, int'(FUNCTIONS), int'(FLOAT));

  // The trees stand far from the lanes: what comes is on its way for two cycles.
  logic [LANES*WORD-1:0] data_1, data;
  logic smaller;
  always_ff @(posedge clock) begin
    data_1 <= in_data;
    data <= data_1;
    smaller <= in_control[C_REDUCE+:3] == 3'd4;
  end

  logic [WORD-1:0] sum, product, extreme;
  generate
    if (FUNCTIONS[0]) begin : sums
      logic [WORD-1:0] early;
      if (FLOAT) begin : floats
        presilicon_tree #(
            .LANES(LANES),
            .WORD(WORD),
            .FLOAT(1),
            .EXPONENT(EXPONENT),
            .FRACTION(FRACTION),
            .BIAS(BIAS),
            .KIND(2)
        ) tree (
            .clock,
            .reset,
            .smaller(1'b0),
            .in(data),
            .out(early)
        );
      end else begin : fixed
        logic [WORD+LEVELS-1:0] exact;
        presilicon_exact_sum #(
            .LANES(LANES),
            .WORD (WORD)
        ) tree (
            .clock,
            .in (data),
            .sum(exact)
        );
        // Words at an end of the range: the sum is the smallest word, or else the largest.
        logic [LANES-1:0] is_smallest, is_largest;
        logic any_smallest, any_largest;
        always_ff @(posedge clock)
          for (int n = 0; n < LANES; n++) begin
            is_smallest[n] <= data_1[n*WORD+:WORD] == {1'b1, {(WORD - 1) {1'b0}}};
            is_largest[n] <= data_1[n*WORD+:WORD] == {1'b0, {(WORD - 1) {1'b1}}};
          end
        presilicon_delay #(
            .BITS (2),
            .DELAY(LEVELS)
        ) ends (
            .clock,
            .reset,
            .in ({|is_smallest, |is_largest}),
            .out({any_smallest, any_largest})
        );
        wire ended = any_smallest || any_largest;
        wire sign = ended ? any_smallest : exact[WORD+LEVELS-1];
        wire fits = !ended && exact[WORD+LEVELS-1:WORD-1] == {(LEVELS + 1) {sign}};
        always_ff @(posedge clock) early <= fits ? exact[WORD-1:0] : {sign, {(WORD - 1) {~sign}}};
      end
      presilicon_delay #(
          .BITS (WORD),
          .DELAY(TREES - SUM)
      ) wait_ (
          .clock,
          .reset,
          .in (early),
          .out(sum)
      );
    end else begin : no_sums
      assign sum = '0;
    end
    if (FUNCTIONS[1]) begin : products
      logic [WORD-1:0] early;
      presilicon_tree #(
          .LANES(LANES),
          .WORD(WORD),
          .FLOAT(FLOAT),
          .EXPONENT(EXPONENT),
          .FRACTION(FRACTION),
          .BIAS(BIAS),
          .KIND(1)
      ) tree (
          .clock,
          .reset,
          .smaller(1'b0),
          .in(data),
          .out(early)
      );
      presilicon_delay #(
          .BITS (WORD),
          .DELAY(TREES - PRODUCT)
      ) wait_ (
          .clock,
          .reset,
          .in (early),
          .out(product)
      );
    end else begin : no_products
      assign product = '0;
    end
    if (|FUNCTIONS[3:2]) begin : extremes
      logic [WORD-1:0] early;
      presilicon_tree #(
          .LANES(LANES),
          .WORD(WORD),
          .FLOAT(FLOAT),
          .EXPONENT(EXPONENT),
          .FRACTION(FRACTION),
          .BIAS(BIAS),
          .KIND(0)
      ) tree (
          .clock,
          .reset,
          .smaller,
          .in(data),
          .out(early)
      );
      presilicon_delay #(
          .BITS (WORD),
          .DELAY(TREES - LEVELS)
      ) wait_ (
          .clock,
          .reset,
          .in (early),
          .out(extreme)
      );
    end else begin : no_extremes
      assign extreme = '0;
      wire unused = &{1'b0, smaller};
    end
  endgenerate
  // ---- one word, or the vector as it came
  logic [2:0] function_next;
  presilicon_control_delay #(
      .BITS (C_BITS),
      .DELAY(TREES + 3)
  ) control_delay (
      .clock,
      .reset,
      .in (in_control),
      .out(out_control)
  );
  presilicon_delay #(
      .BITS (3),
      .DELAY(TREES + 1)
  ) choice_delay (
      .clock,
      .reset,
      .in (in_control[C_REDUCE+:3]),
      .out(function_next)
  );
  generate
    for (genvar n = 0; n < LANES; n++) begin : choice
      logic [WORD-1:0] late_word;
      presilicon_delay #(
          .BITS (WORD),
          .DELAY(TREES + 2)
      ) data_delay (
          .clock,
          .reset,
          .in (in_data[n*WORD+:WORD]),
          .out(late_word)
      );
      if (n == 0) begin : first
        logic [2:0] function_;
        presilicon_copy #(
            .BITS(3)
        ) copy (
            .clock,
            .reset,
            .in (function_next),
            .out(function_)
        );
        always_ff @(posedge clock)
          case (function_)
            3'd0: out_data[WORD-1:0] <= late_word;
            3'd1: out_data[WORD-1:0] <= sum;
            3'd2: out_data[WORD-1:0] <= product;
            default: out_data[WORD-1:0] <= extreme;
          endcase
      end else begin : others
        logic reduced;
        presilicon_copy #(
            .BITS(1)
        ) copy (
            .clock,
            .reset,
            .in (function_next != 3'd0),
            .out(reduced)
        );
        always_ff @(posedge clock) out_data[n*WORD+:WORD] <= reduced ? '0 : late_word;
      end
    end
  endgenerate
endmodule
