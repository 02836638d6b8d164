// Filter and matrix reduce: every lane against every range of a row, then a count for each range or for each lane.
//
//   cycle 1    keys and classes of the words; the row of ranges is read
//   cycle 2    LANES * (RANGES + 1) signed comparisons
//   cycle 3    in which range; the matrix is taken by rows or by columns
//   log2 LANES cycles of adders, then 2 cycles until the count is a word
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
    input  logic                  enable,
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
  localparam int LEVELS = $clog2(LANES);
  localparam int COUNT = LEVELS + 1;
  localparam int LATENCY = 3 + LEVELS + 2 + 1;
  localparam int ROW = ROWS > 1 ? $clog2(ROWS) : 1;

  // ---- range rows
  logic [ROWS-1:0] active, touched, known;
  logic [ROWS-1:0] classes_0, classes_1;  // whether a place holds classes
  wire [ROW-1:0] write_row = key_row[ROW-1:0];
  wire unused = &{1'b0, key_row};
  always_ff @(posedge clock) begin
    if (reset) begin
      active <= '0;
      touched <= '0;
      known <= '0;
    end else begin
      if (key_write) begin
        touched[write_row] <= 1'b1;
        if (active[write_row]) classes_0[write_row] <= key_classes;
        else classes_1[write_row] <= key_classes;
      end
      if (exchange) begin
        active <= active ^ touched;
        known <= known | touched;
      end
      if (exchange || discard) touched <= '0;
    end
  end

  wire [ROW-1:0] read_row = in_control[C_RANGE_ROW+:ROW];
  logic row_classes, row_known;
  logic [(RANGES+1)*KEY-1:0] row_keys;
  always_ff @(posedge clock)
    if (enable) begin
      row_classes <= active[read_row] ? classes_1[read_row] : classes_0[read_row];
      row_known <= known[read_row];
    end
  generate
    for (genvar m = 0; m <= RANGES; m++) begin : boundary
      (* ram_style = "distributed" *) logic [KEY-1:0] keys[2**(ROW+1)];
      always_ff @(posedge clock) begin
        if (key_write && key_column == 9'(m)) keys[{~active[write_row], write_row}] <= key_data;
        if (enable) row_keys[m*KEY+:KEY] <= keys[{active[read_row], read_row}];
      end
    end
  endgenerate

  // ---- every lane against every range
  logic axis_1, axis_2;
  always_ff @(posedge clock)
    if (enable) begin
      axis_1 <= in_control[C_AXIS];
      axis_2 <= axis_1;
    end
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
          .enable,
          .word(in_data[n*WORD+:WORD]),
          .row_keys,
          .row_classes,
          .row_known,
          .held(held[n*RANGES+:RANGES])
      );
    end
  endgenerate

  // ---- counts: LANES groups of RANGES bits are rows, or pieces of columns
  logic [LANES*RANGES-1:0] groups;
  always_ff @(posedge clock)
    if (enable)
      for (int n = 0; n < LANES; n++)
        for (int m = 0; m < RANGES; m++)
          groups[n*RANGES+m] <= axis_2 ? held[n*RANGES+m]
              // group n is piece n % (LANES / RANGES) of column n / (LANES / RANGES)
              : held[((n%(LANES/RANGES))*RANGES+m)*RANGES+n/(LANES/RANGES)];

  localparam int PIECE = $clog2(RANGES) + 1;
  localparam int PIECES = LANES / RANGES;
  logic axis_counts;
  presilicon_delay #(
      .BITS (1),
      .DELAY(1 + LEVELS)
  ) axis_delay (
      .clock,
      .reset,
      .enable,
      .in (axis_2),
      .out(axis_counts)
  );
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
          .enable,
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
        .enable,
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
            .enable,
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
          .enable,
          .count(number),
          .word (words[n*WORD+:WORD])
      );
    end
  endgenerate

  // ---- counts, or the vector as it came
  logic [39:0] late_control;
  logic [LANES*WORD-1:0] late_data;
  presilicon_control_delay #(
      .BITS (C_BITS),
      .DELAY(LATENCY - 1)
  ) control_delay (
      .clock,
      .reset,
      .enable,
      .in (in_control),
      .out(late_control)
  );
  presilicon_delay #(
      .BITS (LANES * WORD),
      .DELAY(LATENCY - 1)
  ) data_delay (
      .clock,
      .reset,
      .enable,
      .in (in_data),
      .out(late_data)
  );
  always_ff @(posedge clock) begin
    if (enable) begin
      out_control <= late_control;
      out_data <= late_control[C_FILTER] ? words : late_data;
    end
    if (reset) out_control <= '0;
  end
endmodule
