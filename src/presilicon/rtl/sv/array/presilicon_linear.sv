// A linear layer on a systolic array: forward, input gradient and weight gradient in turn, with the weights in place.
//
//   vectors of the left edge ──▶ ┌────────────┐
//   vectors of the top edge  ──▶ │ ROWS x COLS│ ──▶ sums of tiles added up ──▶ out
//   weights, tile by tile    ──▶ │ cells      │
//                                └────────────┘
//
// Weights lie as a matrix of rows x columns. Without COLUMNS its rows are the layer's inputs, its columns the outputs:
// activations come from the left, errors from the top. With COLUMNS it is transposed, and so are the edges.
// Memories answer in the cycle after `*_read`. Products are those of `presilicon_linear_control`.
module presilicon_linear #(
    parameter int ROWS = 4,
    parameter int COLS = 4,
    parameter int LEFT = 'hff5e0,
    parameter int TOP = 'hff5e0,
    parameter int WEIGHT = 'hff5e0,
    parameter int OPERAND = 'hff5e0,  // of the cells: holds all three
    parameter int PRODUCT = 0,
    parameter int PARTIAL = 'hff5e0,
    parameter int TOTAL = 'hff5e0,
    parameter int PRODUCT_ROUNDING = 0,
    parameter int PARTIAL_ROUNDING = 0,
    parameter int TOTAL_ROUNDING = 0,
    parameter bit COLUMNS = 0,
    parameter bit DOUBLE = 0,
    parameter int CHUNK = 0,
    parameter int SAMPLE = 8,
    parameter int GROUP = 4,
    localparam int LEFT_WORD = LEFT & 63,
    localparam int TOP_WORD = TOP & 63,
    localparam int WEIGHT_WORD = WEIGHT & 63,
    localparam int WORD = TOTAL & 63,
    localparam int LANES = ROWS > COLS ? ROWS : COLS,
    localparam int ROW = $clog2(ROWS)
) (
    input logic clock,
    input logic reset,
    input logic enable,

    input  logic                      start,         // while busy is low
    input  logic [               2:0] products,
    input  logic                      resident,
    input  logic [          SAMPLE:0] samples,
    input  logic [         GROUP-1:0] last_row,
    input  logic [         GROUP-1:0] last_column,
    input  logic [$clog2(ROWS+1)-1:0] rest_rows,
    input  logic [$clog2(COLS+1)-1:0] rest_columns,
    output logic                      busy,          // until the last result is out
    output logic                      running,       // the array computes for a product
    output logic [               1:0] running_product,

    output logic                        weights_read,
    output logic [             ROW-1:0] weights_row,
    output logic [           GROUP-1:0] weights_row_group,
    output logic [           GROUP-1:0] weights_column_group,
    input  logic [COLS*WEIGHT_WORD-1:0] weights,
    output logic                        left_read,
    output logic [          SAMPLE-1:0] left_sample,
    output logic [           GROUP-1:0] left_group,
    input  logic [  ROWS*LEFT_WORD-1:0] left,
    output logic                        top_read,
    output logic [          SAMPLE-1:0] top_sample,
    output logic [           GROUP-1:0] top_group,
    input  logic [  COLS*TOP_WORD-1:0]  top,

    output logic                  out_valid,
    output logic [           1:0] out_product,
    output logic [    SAMPLE-1:0] out_sample,        // products 0 and 1
    output logic [     GROUP-1:0] out_row_group,
    output logic [     GROUP-1:0] out_column_group,
    output logic [       ROW-1:0] out_row,           // product 2
    output logic [LANES*WORD-1:0] out,

    // Vectors for an instrument, with lanes beyond the matrix as zeros.
    output logic                      shown_first,
    output logic                      shown_second,
    output logic [               1:0] shown_last,
    output logic [ROWS*LEFT_WORD-1:0] shown_left,
    output logic [ COLS*TOP_WORD-1:0] shown_top
);
  localparam int OPERAND_WORD = OPERAND & 63;
  localparam int BUS = OPERAND_WORD + 2;
  localparam int SUM = PARTIAL & 63;
  localparam int TAG = 2 + SAMPLE + 2 * GROUP + ROW;

  logic [1:0] mode;
  logic load, take, capture, first, sums_valid, sums_first, sums_last;
  logic [ROWS-1:0] left_valid;
  logic [COLS-1:0] top_valid;
  logic [SAMPLE+GROUP-1:0] sums_address;
  logic [TAG-1:0] sums_tag, out_tag;
  presilicon_linear_control #(
      .ROWS(ROWS),
      .COLS(COLS),
      .COLUMNS(COLUMNS),
      .DOUBLE(DOUBLE),
      .CHUNK(CHUNK),
      .SAMPLE(SAMPLE),
      .GROUP(GROUP)
  ) control (
      .clock,
      .reset,
      .enable,
      .start,
      .products,
      .resident,
      .samples,
      .last_row,
      .last_column,
      .rest_rows,
      .rest_columns,
      .busy(running),
      .product(running_product),
      .weights_read,
      .weights_row,
      .weights_row_group,
      .weights_column_group,
      .left_read,
      .left_sample,
      .left_group,
      .top_read,
      .top_sample,
      .top_group,
      .mode,
      .load,
      .take,
      .capture,
      .first,
      .left_valid,
      .top_valid,
      .sums_valid,
      .sums_first,
      .sums_last,
      .sums_address,
      .sums_tag,
      .shown_first,
      .shown_second,
      .shown_last
  );

  logic [ROWS*BUS-1:0] left_operands;
  logic [COLS*BUS-1:0] top_operands;
  logic [COLS*OPERAND_WORD-1:0] wide_weights;
  generate
    for (genvar lane = 0; lane < ROWS; lane++) begin : left_lanes
      presilicon_widen #(
          .FORMAT(LEFT),
          .OUT(OPERAND)
      ) widen (
          .code(left[lane*LEFT_WORD+:LEFT_WORD]),
          .wide(left_operands[lane*BUS+:OPERAND_WORD])
      );
      assign left_operands[lane*BUS+OPERAND_WORD+:2] = {left_valid[lane], first};
      assign shown_left[lane*LEFT_WORD+:LEFT_WORD] = left[lane*LEFT_WORD+:LEFT_WORD] & {LEFT_WORD{left_valid[lane]}};
    end
    for (genvar lane = 0; lane < COLS; lane++) begin : top_lanes
      presilicon_widen #(
          .FORMAT(TOP),
          .OUT(OPERAND)
      ) widen (
          .code(top[lane*TOP_WORD+:TOP_WORD]),
          .wide(top_operands[lane*BUS+:OPERAND_WORD])
      );
      presilicon_widen #(
          .FORMAT(WEIGHT),
          .OUT(OPERAND)
      ) widen_weight (
          .code(weights[lane*WEIGHT_WORD+:WEIGHT_WORD]),
          .wide(wide_weights[lane*OPERAND_WORD+:OPERAND_WORD])
      );
      assign top_operands[lane*BUS+OPERAND_WORD+:2] = {top_valid[lane], 1'b0};
      assign shown_top[lane*TOP_WORD+:TOP_WORD] = top[lane*TOP_WORD+:TOP_WORD] & {TOP_WORD{top_valid[lane]}};
    end
  endgenerate

  logic [COLS*SUM-1:0] down_sums, leaving_sums;
  logic [ROWS*SUM-1:0] right_sums;
  presilicon_array #(
      .ROWS(ROWS),
      .COLS(COLS),
      .OPERAND(OPERAND),
      .PRODUCT(PRODUCT),
      .PARTIAL(PARTIAL),
      .PRODUCT_ROUNDING(PRODUCT_ROUNDING),
      .PARTIAL_ROUNDING(PARTIAL_ROUNDING),
      .DOUBLE(DOUBLE)
  ) array (
      .clock,
      .enable,
      .mode,
      .load,
      .take,
      .capture,
      .left(left_operands),
      .top(top_operands),
      .weights(wide_weights),
      .down_sums,
      .right_sums,
      .leaving_sums
  );

  wire [1:0] sums_product = sums_tag[TAG-1-:2];
  wire sums_are_down = sums_product == (COLUMNS ? 2'd1 : 2'd0);
  wire [LANES*SUM-1:0] sums = sums_product == 2'd2 ? (LANES * SUM)'(leaving_sums)
      : sums_are_down ? (LANES * SUM)'(down_sums) : (LANES * SUM)'(right_sums);
  presilicon_tile_sums #(
      .LANES(LANES),
      .PARTIAL(PARTIAL),
      .TOTAL(TOTAL),
      .ROUNDING(TOTAL_ROUNDING),
      .ADDRESS(SAMPLE + GROUP),
      .TAG(TAG)
  ) tile_sums (
      .clock,
      .reset,
      .enable,
      .in_valid(sums_valid),
      .in_first(sums_first),
      .in_last(sums_last),
      .in_address(sums_address),
      .in_tag(sums_tag),
      .in_sums(sums),
      .out_valid,
      .out_tag,
      .out
  );
  assign {out_product, out_sample, out_row_group, out_column_group, out_row} = out_tag;

  // The last sums leave the cells a cycle after the array's last cycle, and this module two cycles later.
  logic [3:0] settling;
  always_ff @(posedge clock) begin
    if (enable) settling <= {settling[2:0], running};
    if (reset) settling <= '0;
  end
  assign busy = running || |settling;
endmodule
