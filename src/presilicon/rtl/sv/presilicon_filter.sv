// Filter and matrix reduce: every lane against every range of a row, then a count for each range or for each lane.
//
//   cycle 1    where the row of ranges lies
//   cycle 2    keys and classes of the words; the row is read
//   cycle 3    LANES * (RANGES + 1) signed comparisons
//   cycle 4    in which range
//   cycle 5    the matrix is taken by rows or by columns
//   log2 LANES cycles of adders, 2 cycles until the count is a word, 1 to choose between counts and vector
//
// Range rows have two places each: `active` says which is in force. The loader writes the other one, `exchange` swaps
// the rows that were written, all at once, `discard` forgets them.
module presilicon_filter #(
    parameter int LANES = 16,
    parameter int RANGES = 4,
    parameter int WORD = 32,
    parameter bit FLOAT = 0,
    parameter int EXPONENT = 8,
    parameter int FRACTION = 16,  // or mantissa bits
    parameter int BIAS = 127,
    parameter int ROWS = 8,
    parameter int KEY = WORD + 1 > 6 ? WORD + 1 : 6  // bits of a stored boundary; class masks need 6
) (
    input  logic                  clock,
    input  logic                  reset,
    input  logic [          39:0] in_control,
    input  logic [LANES*WORD-1:0] in_data,
    output logic [          39:0] out_control,
    output logic [LANES*WORD-1:0] out_data,

    input logic           key_write,
    input logic [    7:0] key_row,
    input logic [    8:0] key_column,
    input logic           key_classes,
    input logic [KEY-1:0] key_data,
    input logic           exchange,
    input logic           discard
);
  `include "presilicon_chain.svh"
  `include "presilicon_latency.svh"
  localparam int LEVELS = $clog2(LANES);
  localparam int COUNT = LEVELS + 1;
  localparam int LATENCY = filter_cycles(LANES);
  localparam int ROW = ROWS > 1 ? $clog2(ROWS) : 1;

  // ---- range rows; what the loader says is taken two cycles later, so that it may come from far away
  localparam int ORDER = 3 + ROW + 9 + KEY + 1;
  logic write, classes, swap, forget, other;
  logic [ROW-1:0] write_row;
  logic [8:0] write_column;
  logic [KEY-1:0] write_data;
  logic [ORDER-1:0] order;
  logic [ROWS-1:0] active, touched, known;
  logic [ROWS-1:0] classes_0, classes_1;  // whether a place holds classes
  wire unused = &{1'b0, key_row};
  always_ff @(posedge clock) begin
    order <= {key_write, exchange, discard, key_row[ROW-1:0], key_column, key_data, key_classes};
    {write, swap, forget, write_row, write_column, write_data, classes} <= order;
    other <= !active[order[ORDER-4-:ROW]];  // the place that is not in force
    if (write) begin
      touched[write_row] <= 1'b1;
      if (other) classes_1[write_row] <= classes;
      else classes_0[write_row] <= classes;
    end
    if (swap) begin
      active <= active ^ touched;
      known <= known | touched;
    end
    if (swap || forget) touched <= '0;
    if (reset) begin
      order <= '0;
      {write, swap, forget} <= '0;
      active <= '0;
      touched <= '0;
      known <= '0;
    end
  end

  wire [ROW-1:0] read_row = in_control[C_RANGE_ROW+:ROW];
  logic [ROW:0] place;
  logic row_classes_1, row_known_1, row_classes, row_known;
  logic [(RANGES+1)*KEY-1:0] row_keys;
  always_ff @(posedge clock) begin
    place <= {active[read_row], read_row};
    row_classes_1 <= active[read_row] ? classes_1[read_row] : classes_0[read_row];
    row_known_1 <= known[read_row];
    {row_classes, row_known} <= {row_classes_1, row_known_1};
  end
  generate
    for (genvar m = 0; m <= RANGES; m++) begin : boundary
      (* ram_style = "distributed" *) logic [KEY-1:0] keys[2**(ROW+1)];
      always_ff @(posedge clock) begin
        if (write && write_column == 9'(m)) keys[{other, write_row}] <= write_data;
        row_keys[m*KEY+:KEY] <= keys[place];
      end
    end
  endgenerate

  // ---- every lane against every range
  logic [LANES*RANGES-1:0] held;  // lane by lane
  generate
    for (genvar n = 0; n < LANES; n++) begin : lane
      presilicon_filter_lane #(
          .RANGES(RANGES),
          .WORD(WORD),
          .FLOAT(FLOAT),
          .EXPONENT(EXPONENT),
          .FRACTION(FRACTION),
          .KEY(KEY)
      ) compare (
          .clock,
          .in_word(in_data[n*WORD+:WORD]),
          .row_keys,
          .row_classes,
          .row_known,
          .held(held[n*RANGES+:RANGES])
      );
    end
  endgenerate

  // ---- counts: LANES groups of RANGES bits are rows, or pieces of columns
  localparam int PIECE = $clog2(RANGES) + 1;
  localparam int PIECES = LANES / RANGES;
  logic axis, axis_counts;
  logic [LANES*RANGES-1:0] groups;
  presilicon_delay #(
      .BITS (1),
      .DELAY(3)
  ) axis_delay (
      .clock,
      .reset,
      .in (in_control[C_AXIS]),
      .out(axis)
  );
  presilicon_delay #(
      .BITS (1),
      .DELAY(2 + LEVELS)
  ) counts_delay (
      .clock,
      .reset,
      .in (axis),
      .out(axis_counts)
  );
  generate
    for (genvar n = 0; n < LANES; n++) begin : group
      logic of_lane;
      presilicon_copy #(
          .BITS(1)
      ) copy (
          .clock,
          .reset,
          .in (axis),
          .out(of_lane)
      );
      // Group n is piece n % PIECES of column n / PIECES.
      always_ff @(posedge clock)
        for (int m = 0; m < RANGES; m++)
          groups[n*RANGES+m] <= of_lane ? held[n*RANGES+m] : held[((n%PIECES)*RANGES+m)*RANGES+n/PIECES];
    end
  endgenerate

  logic [LANES*PIECE-1:0] pieces;
  logic [LANES*PIECE-1:0] lane_counts;
  logic [LANES*WORD-1:0] words;
  generate
    for (genvar n = 0; n < LANES; n++) begin : piece
      presilicon_popcount #(
          .INPUTS(RANGES),
          .BITS  (1)
      ) bits (
          .clock,
          .in (groups[n*RANGES+:RANGES]),
          .sum(pieces[n*PIECE+:PIECE])
      );
    end
    presilicon_delay #(
        .BITS (LANES * PIECE),
        .DELAY($clog2(PIECES))
    ) piece_delay (
        .clock,
        .reset,
        .in (pieces),
        .out(lane_counts)
    );
    for (genvar n = 0; n < LANES; n++) begin : count
      logic [COUNT-1:0] number;
      wire [COUNT-1:0] of_lane = COUNT'(lane_counts[n*PIECE+:PIECE]);
      if (n < RANGES) begin : both
        logic [COUNT-1:0] of_range;
        presilicon_popcount #(
            .INPUTS(PIECES),
            .BITS  (PIECE)
        ) column (
            .clock,
            .in (pieces[n*PIECES*PIECE+:PIECES*PIECE]),
            .sum(of_range)
        );
        assign number = axis_counts ? of_lane : of_range;
      end else begin : lanes_only
        assign number = axis_counts ? of_lane : '0;
      end
      presilicon_count #(
          .COUNT(COUNT),
          .WORD(WORD),
          .FLOAT(FLOAT),
          .EXPONENT(EXPONENT),
          .FRACTION(FRACTION),
          .BIAS(BIAS)
      ) to_word (
          .clock,
          .count(number),
          .word (words[n*WORD+:WORD])
      );
    end
  endgenerate

  // ---- counts, or the vector as it came
  logic counts_next;
  presilicon_control_delay #(
      .BITS (C_BITS),
      .DELAY(LATENCY)
  ) control_delay (
      .clock,
      .reset,
      .in (in_control),
      .out(out_control)
  );
  presilicon_delay #(
      .BITS (1),
      .DELAY(LATENCY - 2)
  ) choice_delay (
      .clock,
      .reset,
      .in (in_control[C_FILTER]),
      .out(counts_next)
  );
  generate
    for (genvar n = 0; n < LANES; n++) begin : choice
      logic counts;
      logic [WORD-1:0] word;
      presilicon_copy #(
          .BITS(1)
      ) copy (
          .clock,
          .reset,
          .in (counts_next),
          .out(counts)
      );
      presilicon_delay #(
          .BITS (WORD),
          .DELAY(LATENCY - 1)
      ) data_delay (
          .clock,
          .reset,
          .in (in_data[n*WORD+:WORD]),
          .out(word)
      );
      always_ff @(posedge clock) out_data[n*WORD+:WORD] <= counts ? words[n*WORD+:WORD] : word;
    end
  endgenerate
endmodule
