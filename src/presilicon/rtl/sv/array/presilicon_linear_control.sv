// Runs the products of a linear layer on a systolic array, one after another, fold by fold:
//
//   product 0  weights in the cells, times the vectors of one edge (forward)
//   product 1  the same weights transposed in place, times the vectors of the other edge (input gradient)
//   product 2  both edges' vectors, sums in the cells (weight gradient)
//
// Weights lie in tiles of ROWS x COLS. Product 0 takes them in one order and product 1 in the opposite one, beginning
// with the tile that product 0 left in the cells; both add the tiles of a sum in rising order. COLUMNS: product 0 sums
// along the rows of cells (vectors from the top), product 1 down the columns; otherwise the other way round.
//
// Vectors and weights are asked for one cycle before they are needed, and everything for the array is a cycle late.
// A fold takes ROWS cycles to load its weights (or, in product 2, to drain its sums) and vectors + ROWS + COLS - 2
// cycles to stream. DOUBLE: the next fold is loaded, and the last one drained, while operands stream.
module presilicon_linear_control #(
    parameter int ROWS = 4,
    parameter int COLS = 4,
    parameter bit COLUMNS = 0,
    parameter bit DOUBLE = 0,
    parameter int CHUNK = 0,   // vectors after which the sums of product 2 leave; 0: all
    parameter int SAMPLE = 8,  // bits of a vector's number
    parameter int GROUP = 4,   // bits of a tile's number along one side
    localparam int ROW = $clog2(ROWS),
    localparam int USED_ROWS = $clog2(ROWS + 1),
    localparam int USED_COLS = $clog2(COLS + 1),
    localparam int TAG = 2 + SAMPLE + 2 * GROUP + ROW
) (
    input logic clock,
    input logic reset,
    input logic enable,

    input logic                 start,
    input logic [          2:0] products,     // that are wanted
    input logic                 resident,     // the cells hold the layer's tile: its product 0 was the last that loaded
    input logic [     SAMPLE:0] samples,      // vectors, at least 1
    input logic [    GROUP-1:0] last_row,     // tiles along the rows, less one
    input logic [    GROUP-1:0] last_column,  // tiles along the columns, less one
    input logic [USED_ROWS-1:0] rest_rows,    // rows of the last tile that are used
    input logic [USED_COLS-1:0] rest_columns,

    output logic       busy,     // cycles of the array
    output logic [1:0] product,  // that is running

    // What is needed in the next cycle: rows of a tile of weights, and vectors of both edges.
    output logic              weights_read,
    output logic [   ROW-1:0] weights_row,
    output logic [ GROUP-1:0] weights_row_group,
    output logic [ GROUP-1:0] weights_column_group,
    output logic              left_read,
    output logic [SAMPLE-1:0] left_sample,
    output logic [ GROUP-1:0] left_group,
    output logic              top_read,
    output logic [SAMPLE-1:0] top_sample,
    output logic [ GROUP-1:0] top_group,

    // For the array, a cycle later.
    output logic [     1:0] mode,
    output logic            load,
    output logic            take,
    output logic            capture,
    output logic            first,       // vector of a sum that stays
    output logic [ROWS-1:0] left_valid,
    output logic [COLS-1:0] top_valid,

    // A vector of sums that leaves the cells now, of one tile.
    output logic                    sums_valid,
    output logic                    sums_first,    // tile
    output logic                    sums_last,
    output logic [SAMPLE+GROUP-1:0] sums_address,
    output logic [         TAG-1:0] sums_tag,      // product, sample, row group, column group, row

    // The vectors of this cycle as an instrument wants them: each vector of product 0 and 2 once, group by group.
    output logic       shown_first,      // product 0's
    output logic       shown_second,     // the other edge's, in product 2
    output logic [1:0] shown_last        // the last of a group, and of all groups
);
  localparam logic [1:0] SUMS_DOWN = 2'd0, SUMS_RIGHT = 2'd1, SUMS_STAY = 2'd2, SUMS_LEAVE = 2'd3;
  localparam logic [1:0] IDLE = 2'd0, LOAD = 2'd1, STREAM = 2'd2, LEAVE = 2'd3;
  localparam int TICK = SAMPLE + $clog2(ROWS + COLS) + 1;
  logic [1:0] state;
  logic [TICK-1:0] tick;
  logic [GROUP-1:0] outer, inner;  // number of the fold's tile; product 0 goes up in outer and down in inner
  logic [SAMPLE:0] base;  // first vector of a chunk
  logic [2:0] to_do;  // still to do
  logic has_tile;  // the cells hold a tile of this layer
  logic has_more;  // folds of product 2, when sums leave

  // ---- sizes
  wire [GROUP-1:0] last_outer = COLUMNS ? last_column : last_row;
  wire [GROUP-1:0] last_inner = COLUMNS ? last_row : last_column;
  wire is_stay = product == 2'd2;
  wire [SAMPLE:0] remaining = samples - base;
  wire in_chunks = CHUNK != 0 && is_stay;
  wire is_last_chunk = !in_chunks || 32'(remaining) <= CHUNK;
  wire [SAMPLE:0] count = is_last_chunk ? remaining : (SAMPLE + 1)'(CHUNK);
  wire [TICK-1:0] last_tick = state == STREAM ? TICK'(count) + TICK'(ROWS + COLS - 3) : TICK'(ROWS - 1);
  wire ends = tick == last_tick;

  // ---- the next fold
  logic is_last_fold;
  logic [GROUP-1:0] next_outer, next_inner;
  logic [SAMPLE:0] next_base;
  always_comb begin
    {next_outer, next_inner, next_base} = {outer, inner, (SAMPLE + 1)'(0)};
    case (product)
      2'd0: begin
        is_last_fold = outer == last_outer && inner == '0;
        next_inner = inner == '0 ? last_inner : inner - 1'b1;
        if (inner == '0) next_outer = outer + 1'b1;
      end
      2'd1: begin
        is_last_fold = outer == '0 && inner == last_inner;
        next_inner = inner == last_inner ? '0 : inner + 1'b1;
        if (inner == last_inner) next_outer = outer - 1'b1;
      end
      default: begin
        is_last_fold = is_last_chunk && outer == last_outer && inner == last_inner;
        if (!is_last_chunk) next_base = base + count;
        else begin
          next_inner = inner == last_inner ? '0 : inner + 1'b1;
          if (inner == last_inner) next_outer = outer + 1'b1;
        end
      end
    endcase
  end

  // ---- the next product
  wire [2:0] ahead = state == IDLE ? products : to_do;
  wire [1:0] next_product = ahead[0] ? 2'd0 : ahead[1] ? 2'd1 : 2'd2;
  wire is_resident = next_product == 2'd1 && (state == IDLE ? resident : has_tile);
  wire last_of_product = ends && (is_stay ? state == LEAVE && !has_more : state == STREAM && is_last_fold);
  always_ff @(posedge clock) begin
    if (enable) begin
      tick <= ends ? '0 : tick + 1'b1;
      if ((state == IDLE && start && products != '0) || (last_of_product && to_do != '0)) begin
        product <= next_product;
        to_do <= ahead & ~(3'b001 << next_product);
        if (state == IDLE) has_tile <= products[0] || resident;
        state <= next_product == 2'd2 || is_resident ? STREAM : LOAD;
        tick <= '0;
        base <= '0;
        outer <= next_product == 2'd1 ? last_outer : '0;
        inner <= next_product == 2'd0 ? last_inner : '0;
      end else if (last_of_product) state <= IDLE;
      else if (ends)
        case (state)
          LOAD: state <= STREAM;
          STREAM: begin
            has_more <= !is_last_fold;
            if (is_stay) state <= DOUBLE && !is_last_fold ? STREAM : LEAVE;
            else state <= DOUBLE ? STREAM : LOAD;
            if (!is_last_fold) {outer, inner, base} <= {next_outer, next_inner, next_base};
          end
          LEAVE: state <= STREAM;
          default: state <= IDLE;
        endcase
    end
    if (reset) state <= IDLE;
  end
  assign busy = state != IDLE;

  // ---- what the array needs in the next cycle
  wire streams = state == STREAM;
  wire feeds = streams && tick < TICK'(count);
  wire loads = state == LOAD || (DOUBLE && streams && !is_stay && !is_last_fold && tick < TICK'(ROWS));
  wire [GROUP-1:0] load_outer = state == LOAD ? outer : next_outer;
  wire [GROUP-1:0] load_inner = state == LOAD ? inner : next_inner;
  wire [GROUP-1:0] row_group = COLUMNS ? inner : outer;
  wire [GROUP-1:0] column_group = COLUMNS ? outer : inner;
  wire sums_down = COLUMNS ? product == 2'd1 : product == 2'd0;
  assign weights_read = loads;
  assign weights_row = ROW'(ROWS - 1) - ROW'(tick);
  assign weights_row_group = COLUMNS ? load_inner : load_outer;
  assign weights_column_group = COLUMNS ? load_outer : load_inner;
  assign left_read = feeds && (is_stay || sums_down);
  assign top_read = feeds && (is_stay || !sums_down);
  assign left_sample = SAMPLE'(base) + SAMPLE'(tick);
  assign top_sample = left_sample;
  assign left_group = row_group;
  assign top_group = column_group;
  wire [USED_ROWS-1:0] used_rows = row_group == last_row ? rest_rows : USED_ROWS'(ROWS);
  wire [USED_COLS-1:0] used_columns = column_group == last_column ? rest_columns : USED_COLS'(COLS);
  wire is_last_sample = {1'b0, left_sample} == samples - 1'b1;
  wire [1:0] running = is_stay ? SUMS_STAY : sums_down ? SUMS_DOWN : SUMS_RIGHT;
  wire [1:0] next_mode = state == LEAVE && !DOUBLE ? SUMS_LEAVE : running;
  wire is_first_fold = product == 2'd0 ? inner == last_inner : outer == '0;
  wire is_last_group = product == 2'd0 ? outer == last_outer : inner == last_inner;
  always_ff @(posedge clock) begin
    if (enable) begin
      mode <= next_mode;
      load <= loads;
      take <= DOUBLE && ends && (state == LOAD || (streams && !is_stay && !is_last_fold));
      capture <= DOUBLE && ends && streams && is_stay;
      first <= feeds && is_stay && tick == '0;
      shown_first <= feeds && product == 2'd0 && is_first_fold;
      shown_second <= feeds && is_stay && is_first_fold;
      shown_last <= {is_last_sample && is_last_group, is_last_sample};
    end
    if (reset) {load, take, capture, shown_first, shown_second} <= '0;
  end
  generate
    for (genvar lane = 0; lane < ROWS; lane++) begin : left_lanes
      always_ff @(posedge clock) if (enable) left_valid[lane] <= left_read && lane < 32'(used_rows);
    end
    for (genvar lane = 0; lane < COLS; lane++) begin : top_lanes
      always_ff @(posedge clock) if (enable) top_valid[lane] <= top_read && lane < 32'(used_columns);
    end
  endgenerate

  // ---- sums that leave: those that move come ROWS + COLS cycles after their vector was asked for, those that stay
  // when they are drained
  localparam int WAY = ROWS + COLS;
  localparam int MOVING = 3 + TAG;
  wire reduced_first = sums_down ? row_group == '0 : column_group == '0;
  wire reduced_last = sums_down ? row_group == last_row : column_group == last_column;
  wire [TAG-1:0] moving_tag = {product, left_sample, row_group, column_group, ROW'(0)};
  logic [GROUP-1:0] leaving_outer, leaving_inner;
  logic leaving_first, leaving_last, was_streamed, leaving;
  logic [ROW-1:0] leaving_row;
  wire drains = is_stay && (state == LEAVE || (DOUBLE && streams && was_streamed && tick < TICK'(ROWS)));
  always_ff @(posedge clock)
    if (enable) begin
      if (ends && streams && is_stay)
        {leaving_outer, leaving_inner, leaving_first, leaving_last} <= {outer, inner, base == '0, is_last_chunk};
      was_streamed <= streams && is_stay && (was_streamed || ends);
      leaving_row <= ROW'(ROWS - 1) - ROW'(tick);
    end
  logic [WAY*MOVING-1:0] under_way;
  always_ff @(posedge clock) begin
    if (enable) begin
      under_way <= {under_way[(WAY-1)*MOVING-1:0], feeds && !is_stay, reduced_first, reduced_last, moving_tag};
      leaving <= drains;
    end
    if (reset) {under_way, leaving} <= '0;
  end
  wire [GROUP-1:0] leaving_row_group = COLUMNS ? leaving_inner : leaving_outer;
  wire [GROUP-1:0] leaving_column_group = COLUMNS ? leaving_outer : leaving_inner;
  wire [MOVING-1:0] moved = under_way[WAY*MOVING-1-:MOVING];
  assign sums_valid = leaving || moved[MOVING-1];
  assign {sums_first, sums_last} = leaving ? {leaving_first, leaving_last} : moved[MOVING-2-:2];
  assign sums_tag = leaving ? {2'd2, SAMPLE'(0), leaving_row_group, leaving_column_group, leaving_row} : moved[TAG-1:0];
  // Where the sums of a moving vector's tiles wait, by their group and sample; of those that stay, one tile at a time.
  wire moved_down = COLUMNS ? moved[TAG-1-:2] == 2'd1 : moved[TAG-1-:2] == 2'd0;
  wire [GROUP-1:0] moved_group = moved_down ? moved[ROW+:GROUP] : moved[ROW+GROUP+:GROUP];
  assign sums_address = leaving ? (SAMPLE + GROUP)'(leaving_row) : {moved_group, moved[ROW+2*GROUP+:SAMPLE]};
endmodule
