// A cell of a systolic array: one multiplication and one addition per cycle, rounded as the MAC unit does.
// Operands move right and down; where the sum comes from, and what is multiplied, is the mode:
//
//   0 SUMS_DOWN   sum from above    + left operand  x weight
//   1 SUMS_RIGHT  sum from the left + upper operand x weight: the product with the transposed weights, in place
//   2 SUMS_STAY   own sum           + left operand  x upper operand
//   3 SUMS_LEAVE  sum from above: sums that stayed leave downwards
//
// An operand is {valid, first, code}: without valid the sum passes unchanged, first begins a sum that stays.
// DOUBLE: the next weight arrives, and finished sums leave, while the cell computes.
module presilicon_cell #(
    parameter int OPERAND = 'hff5e0,
    parameter int PRODUCT = 0,
    parameter int PARTIAL = 'hff5e0,
    parameter int PRODUCT_ROUNDING = 0,
    parameter int PARTIAL_ROUNDING = 0,
    parameter bit DOUBLE = 0,
    localparam int WORD = OPERAND & 63,
    localparam int SUM = PARTIAL & 63
) (
    input  logic            clock,
    input  logic            enable,
    input  logic [     1:0] mode,
    input  logic            load,           // the weight from above
    input  logic            take,           // the loaded weight for use; DOUBLE only
    input  logic            capture,        // the finished sum leaves; DOUBLE only
    input  logic [WORD+1:0] left,
    input  logic [WORD+1:0] above,
    input  logic [WORD-1:0] weight_above,
    input  logic [ SUM-1:0] sum_left,
    input  logic [ SUM-1:0] sum_above,
    input  logic [ SUM-1:0] leaving_above,
    output logic [WORD+1:0] right,
    output logic [WORD+1:0] below,
    output logic [WORD-1:0] weight_below,
    output logic [ SUM-1:0] sum,
    output logic [ SUM-1:0] leaving
);
  /* verilator no_inline_module */  // compiled once for all cells
  `include "presilicon_format.svh"
  localparam logic [1:0] SUMS_RIGHT = 2'd1, SUMS_STAY = 2'd2, SUMS_LEAVE = 2'd3;
  localparam bit FIXED = format_kind(PARTIAL) != 0;
  localparam int EXACT = FIXED ? 2 * WORD + 2 : 15 + 2 * significand_bits(OPERAND);
  localparam int ROUNDED = FIXED ? (PRODUCT & 63) + 1 : 15 + significand_bits(PRODUCT);
  localparam int TERM = PRODUCT == 0 ? EXACT : ROUNDED;
  localparam int FRACTION = format_fraction(PRODUCT == 0 ? OPERAND : PRODUCT) * (PRODUCT == 0 ? 2 : 1);

  logic [WORD-1:0] weight;
  wire stays = mode == SUMS_STAY;
  wire [WORD+1:0] moving = mode == SUMS_RIGHT ? above : left;
  wire [WORD-1:0] other = stays ? above[WORD-1:0] : weight;
  wire multiplies = moving[WORD+1] && mode != SUMS_LEAVE && (!stays || above[WORD+1]);
  wire [SUM-1:0] own = moving[WORD] ? '0 : sum;
  wire [SUM-1:0] so_far = stays ? own : mode == SUMS_RIGHT ? sum_left : sum_above;
  logic [TERM-1:0] term;
  logic [SUM-1:0] added;
  presilicon_mac_term #(
      .LEFT(OPERAND),
      .RIGHT(OPERAND),
      .PRODUCT(PRODUCT),
      .ROUNDING(PRODUCT_ROUNDING),
      .FIXED(FIXED),
      .OFFSET(format_bias(PARTIAL)),
      .TERM(TERM)
  ) multiply (
      .left(moving[WORD-1:0]),
      .right(other),
      .draw(16'd0),
      .term
  );
  presilicon_mac_sum #(
      .Z(PARTIAL),
      .OUT(PARTIAL),
      .ROUNDING(PARTIAL_ROUNDING),
      .TERM(TERM),
      .FRACTION(FRACTION)
  ) add (
      .term,
      .z(so_far),
      .draw(16'd0),
      .sum(added)
  );
  wire [SUM-1:0] summed = multiplies ? added : so_far;
  always_ff @(posedge clock)
    if (enable) begin
      sum   <= summed;
      right <= left;
      below <= above;
    end

  generate
    if (DOUBLE) begin : double
      logic [WORD-1:0] loading;
      wire  [WORD-1:0] newest = load ? weight_above : loading;
      always_ff @(posedge clock)
        if (enable) begin
          loading <= newest;
          if (take) weight <= newest;
          leaving <= capture ? summed : leaving_above;
        end
      assign weight_below = loading;
    end else begin : single
      always_ff @(posedge clock) if (enable && load) weight <= weight_above;
      assign weight_below = weight;
      assign leaving = sum;
      wire unused = &{1'b0, take, capture, leaving_above};
    end
  endgenerate
endmodule
