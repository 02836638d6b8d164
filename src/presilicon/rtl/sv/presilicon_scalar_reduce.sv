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
  localparam int PRODUCT = FLOAT ? 5 * LEVELS : 4 * LEVELS;
  localparam int TREES = tree_cycles(LANES, int'(FUNCTIONS), int'(FLOAT));

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
            .smaller(1'b0),
            .in(in_data),
            .out(early)
        );
      end else begin : fixed
        logic [WORD+LEVELS-1:0] exact;
        presilicon_exact_sum #(
            .LANES(LANES),
            .WORD (WORD)
        ) tree (
            .clock,
            .in (in_data),
            .sum(exact)
        );
        wire sign = exact[WORD+LEVELS-1];
        wire fits = exact[WORD+LEVELS-1:WORD-1] == {(LEVELS + 1) {sign}};
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
          .smaller(1'b0),
          .in(in_data),
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
          .smaller(in_control[C_REDUCE+:3] == 3'd4),
          .in(in_data),
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
    end
  endgenerate

  // ---- one word, or the vector as it came
  logic [C_BITS-1:0] late_control;
  logic reduced_next;
  presilicon_control_delay #(
      .BITS (C_BITS),
      .DELAY(TREES)
  ) control_delay (
      .clock,
      .reset,
      .in (in_control),
      .out(late_control)
  );
  presilicon_delay #(
      .BITS (1),
      .DELAY(TREES - 1)
  ) choice_delay (
      .clock,
      .reset,
      .in (in_control[C_REDUCE+:3] != 3'd0),
      .out(reduced_next)
  );
  wire [2:0] late_function = late_control[C_REDUCE+:3];
  wire [WORD-1:0] word = late_function == 3'd1 ? sum : late_function == 3'd2 ? product : extreme;
  always_ff @(posedge clock) begin
    out_control <= late_control;
    if (reset) out_control <= '0;
  end
  generate
    for (genvar n = 0; n < LANES; n++) begin : choice
      logic reduced;
      logic [WORD-1:0] late_word;
      presilicon_copy #(
          .BITS(1)
      ) copy (
          .clock,
          .reset,
          .in (reduced_next),
          .out(reduced)
      );
      presilicon_delay #(
          .BITS (WORD),
          .DELAY(TREES)
      ) data_delay (
          .clock,
          .reset,
          .in (in_data[n*WORD+:WORD]),
          .out(late_word)
      );
      always_ff @(posedge clock) out_data[n*WORD+:WORD] <= !reduced ? late_word : n == 0 ? word : '0;
    end
  endgenerate
endmodule
