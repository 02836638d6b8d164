// A multiply-accumulate unit: one product per enabled cycle, each sum rounded once. Products are exact or rounded to
// PRODUCT; sums within a chunk have the format PARTIAL; chunks' sums are added in the format TOTAL.
//
//   left * right ─▶ [PRODUCT] ─▶ (register, CUT) ─▶ + partial ─▶ register ─▶ + total at a chunk's end ─▶ register
//
// `out` is valid 1 + CUT cycles (one more with TOTAL) after the last product. Without `enable` nothing moves. A cycle
// without `in_valid` is a bubble. The next sum may follow at once.
module presilicon_mac #(
    parameter int LEFT = 'hff5e0,
    parameter int RIGHT = 'hff5e0,
    parameter int PRODUCT = 0,
    parameter int PARTIAL = 'hff5e0,
    parameter int TOTAL = 0,
    parameter int PRODUCT_ROUNDING = 0,
    parameter int PARTIAL_ROUNDING = 0,
    parameter int TOTAL_ROUNDING = 0,
    parameter int CHUNK = 0,
    parameter bit CUT = 1,
    parameter logic [255:0] JUMP = 256'h1,
    localparam int LEFT_WORD = LEFT & 63,
    localparam int RIGHT_WORD = RIGHT & 63,
    localparam int WORD = TOTAL == 0 ? PARTIAL & 63 : TOTAL & 63
) (
    input  logic                  clock,
    input  logic                  reset,
    input  logic                  enable,
    input  logic [          15:0] seed,      // of stochastic rounding, taken at reset
    input  logic                  in_valid,
    input  logic                  in_first,  // product of a sum
    input  logic                  in_last,
    input  logic [ LEFT_WORD-1:0] left,
    input  logic [RIGHT_WORD-1:0] right,
    output logic                  out_valid,
    output logic [      WORD-1:0] out
);
  `include "presilicon_format.svh"
  localparam int PARTIAL_WORD = PARTIAL & 63;
  localparam bit FIXED = format_kind(PARTIAL) != 0;
  localparam int EXACT = FIXED ? LEFT_WORD + RIGHT_WORD + 2 : 15 + significand_bits(LEFT) + significand_bits(RIGHT);
  localparam int ROUNDED = FIXED ? (PRODUCT & 63) + 1 : 15 + significand_bits(PRODUCT);
  localparam int TERM = PRODUCT == 0 ? EXACT : ROUNDED;
  localparam int FRACTION = PRODUCT == 0 ? format_fraction(LEFT) + format_fraction(RIGHT) : format_fraction(PRODUCT);

  logic begins, ends, first_chunk;
  presilicon_mac_chunks #(
      .CHUNK(CHUNK)
  ) chunks (
      .clock,
      .reset,
      .enable,
      .in_valid,
      .in_first,
      .in_last,
      .begins,
      .ends,
      .first_chunk
  );

  // Roundings in the order in which they happen: the product, the sum, the sum of chunks.
  localparam int DRAWS = PRODUCT == 0 ? 2 : 3;
  logic [16*DRAWS-1:0] draws;
  presilicon_lfsr #(
      .DRAWS(DRAWS),
      .JUMP (JUMP)
  ) lfsr (
      .clock,
      .reset,
      .enable(enable && in_valid),
      .seed,
      .first(in_first),
      .count(ends ? 2'(DRAWS) : 2'(DRAWS - 1)),
      .draws
  );

  logic [TERM-1:0] term, term_1;
  presilicon_mac_term #(
      .LEFT(LEFT),
      .RIGHT(RIGHT),
      .PRODUCT(PRODUCT),
      .ROUNDING(PRODUCT_ROUNDING),
      .FIXED(FIXED),
      .OFFSET(format_bias(PARTIAL)),
      .TERM(TERM)
  ) multiply (
      .left,
      .right,
      .draw(draws[15:0]),
      .term
  );

  logic valid_1, begins_1, ends_1, first_chunk_1, last_1;
  logic [31:0] draws_1;
  presilicon_cut #(
      .BITS(TERM + 36),
      .CUT (CUT)
  ) multiplied (
      .clock,
      .enable,
      .in ({begins, ends, first_chunk, in_last, draws[16*DRAWS-1-:32], term}),
      .out({begins_1, ends_1, first_chunk_1, last_1, draws_1, term_1})
  );
  generate
    if (CUT) begin : cut
      always_ff @(posedge clock)
        if (reset) valid_1 <= 1'b0;
        else if (enable) valid_1 <= in_valid;
    end else begin : wired
      assign valid_1 = in_valid;
    end
  endgenerate

  logic [PARTIAL_WORD-1:0] partial, sum;
  wire [PARTIAL_WORD-1:0] running = begins_1 ? '0 : partial;
  presilicon_mac_sum #(
      .Z(PARTIAL),
      .OUT(PARTIAL),
      .ROUNDING(PARTIAL_ROUNDING),
      .TERM(TERM),
      .FRACTION(FRACTION)
  ) add (
      .term(term_1),
      .z(running),
      .draw(draws_1[15:0]),
      .sum
  );
  logic done_2, first_chunk_2, last_2;
  logic [15:0] draw_2;
  always_ff @(posedge clock) begin
    if (enable) begin
      done_2 <= valid_1 && ends_1;
      {first_chunk_2, last_2, draw_2} <= {first_chunk_1, last_1, draws_1[31:16]};
      if (valid_1) partial <= sum;
    end
    if (reset) done_2 <= 1'b0;
  end

  presilicon_mac_total #(
      .PARTIAL(PARTIAL),
      .TOTAL(TOTAL),
      .ROUNDING(TOTAL_ROUNDING)
  ) total (
      .clock,
      .reset,
      .enable,
      .in_valid(done_2),
      .in_first(first_chunk_2),
      .in_last(last_2),
      .partial,
      .draw(draw_2),
      .out_valid,
      .out
  );
endmodule
