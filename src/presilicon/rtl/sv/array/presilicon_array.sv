// A systolic array of ROWS x COLS cells with the delays at its edges: straight vectors go in and come out.
//
//                 weights, upper operands (COLS lanes)
//                          v v v
//   left operands (ROWS) > cells > right_sums (ROWS lanes)
//                          v v v
//                 down_sums, leaving_sums (COLS lanes)
//
// A vector that is fed in cycle t is in down_sums or right_sums, by the mode, in cycle t + ROWS + COLS - 1.
// Sums that stay have the product of the vectors fed in cycle t in cycle t + ROWS + COLS - 1 at the latest; they leave
// over leaving_sums, the last row first. Weights are loaded the last row first, too.
module presilicon_array #(
    parameter int ROWS = 4,
    parameter int COLS = 4,
    parameter int OPERAND = 'hff5e0,
    parameter int PRODUCT = 0,
    parameter int PARTIAL = 'hff5e0,
    parameter int PRODUCT_ROUNDING = 0,
    parameter int PARTIAL_ROUNDING = 0,
    parameter bit DOUBLE = 0,
    localparam int WORD = OPERAND & 63,
    localparam int BUS = WORD + 2,
    localparam int SUM = PARTIAL & 63
) (
    input  logic                 clock,
    input  logic                 enable,
    input  logic [          1:0] mode,
    input  logic                 load,
    input  logic                 take,
    input  logic                 capture,
    input  logic [ ROWS*BUS-1:0] left,
    input  logic [ COLS*BUS-1:0] top,
    input  logic [COLS*WORD-1:0] weights,
    output logic [ COLS*SUM-1:0] down_sums,
    output logic [ ROWS*SUM-1:0] right_sums,
    output logic [ COLS*SUM-1:0] leaving_sums
);
  logic [ROWS*BUS-1:0] left_skewed;
  logic [COLS*BUS-1:0] top_skewed;
  logic [COLS*SUM-1:0] lowest;
  logic [ROWS*SUM-1:0] rightmost;
  presilicon_skew #(
      .LANES(ROWS),
      .BITS (BUS)
  ) left_edge (
      .clock,
      .enable,
      .in (left),
      .out(left_skewed)
  );
  presilicon_skew #(
      .LANES(COLS),
      .BITS (BUS)
  ) top_edge (
      .clock,
      .enable,
      .in (top),
      .out(top_skewed)
  );
  presilicon_skew #(
      .LANES(COLS),
      .BITS(SUM),
      .REVERSED(1)
  ) bottom_edge (
      .clock,
      .enable,
      .in (lowest),
      .out(down_sums)
  );
  presilicon_skew #(
      .LANES(ROWS),
      .BITS(SUM),
      .REVERSED(1)
  ) right_edge (
      .clock,
      .enable,
      .in (rightmost),
      .out(right_sums)
  );

  generate
    for (genvar r = 0; r < ROWS; r++) begin : row
      for (genvar c = 0; c < COLS; c++) begin : column
        logic [BUS-1:0] left_in, above_in, right_out, below_out;
        logic [WORD-1:0] weight_in, weight_out;
        logic [SUM-1:0] sum_left, sum_above, leaving_above, sum, leaving;
        if (c == 0) begin : left_side
          assign left_in  = left_skewed[r*BUS+:BUS];
          assign sum_left = '0;
        end else begin : beside
          assign left_in  = row[r].column[c-1].right_out;
          assign sum_left = row[r].column[c-1].sum;
        end
        if (r == 0) begin : top_side
          assign above_in = top_skewed[c*BUS+:BUS];
          assign weight_in = weights[c*WORD+:WORD];
          assign sum_above = '0;
          assign leaving_above = '0;
        end else begin : under
          assign above_in = row[r-1].column[c].below_out;
          assign weight_in = row[r-1].column[c].weight_out;
          assign sum_above = row[r-1].column[c].sum;
          assign leaving_above = row[r-1].column[c].leaving;
        end
        presilicon_cell #(
            .OPERAND(OPERAND),
            .PRODUCT(PRODUCT),
            .PARTIAL(PARTIAL),
            .PRODUCT_ROUNDING(PRODUCT_ROUNDING),
            .PARTIAL_ROUNDING(PARTIAL_ROUNDING),
            .DOUBLE(DOUBLE)
        ) cell_ (
            .clock,
            .enable,
            .mode,
            .load,
            .take,
            .capture,
            .left(left_in),
            .above(above_in),
            .weight_above(weight_in),
            .sum_left,
            .sum_above,
            .leaving_above,
            .right(right_out),
            .below(below_out),
            .weight_below(weight_out),
            .sum,
            .leaving
        );
        if (c == COLS - 1) begin : right_side
          assign rightmost[r*SUM+:SUM] = sum;
          wire unused = &{1'b0, right_out};
        end
        if (r == ROWS - 1) begin : bottom_side
          assign lowest[c*SUM+:SUM] = sum;
          assign leaving_sums[c*SUM+:SUM] = leaving;
          wire unused = &{1'b0, below_out, weight_out};
        end
      end
    end
  endgenerate
endmodule
