// The whole instrument: taps of the user's circuit in, packets out, images in; nothing of the user's is ever held up.
//
//   taps -> selection -> input buffer -> core -> frame buffer -> packetizer -> bytes
//                           bytes -> loader -^
module presilicon_instrument #(
    parameter int LANES = 16,
    parameter int RANGES = 4,
    parameter int ELEMENT = 32,
    parameter int WORD = 32,
    parameter bit FLOAT = 0,
    parameter int EXPONENT = 8,
    parameter int FRACTION = 16,
    parameter int BIAS = 127,
    parameter int RANGE_ROWS = 8,
    parameter int SCRATCHPAD_ROWS = 16,
    parameter int CHAINS = 16,
    parameter int TAPS = 1,
    parameter int CONTROLS = 4,
    parameter int ALU = 63,
    parameter int REDUCE = 15,
    parameter int BLOCK_0 = 1,
    parameter int BLOCK_1 = 2,
    parameter int BLOCK_2 = 3,
    parameter int BUFFER = 32,  // vectors of the input buffer, a power of two
    parameter int OUTPUT = BUFFER,  // blocks of the output buffer, a power of two
    parameter int TAP = TAPS > 1 ? $clog2(TAPS) : 1,
    parameter int COUNT = $clog2(LANES) + 1
) (
    input logic clock,
    input logic reset,  // one cycle is enough

    input logic [              TAPS-1:0] tap_valid,
    input logic [              TAPS-1:0] tap_lost,  // from presilicon_tap_crossing; 0 for taps of this clock
    input logic [            2*TAPS-1:0] tap_last,
    input logic [TAPS*LANES*ELEMENT-1:0] tap_data,

    input  logic       config_valid,
    output logic       config_ready,
    input  logic [7:0] config_data,

    output logic       stream_valid,
    input  logic       stream_ready,
    output logic [7:0] stream_data,

    output logic [32*CONTROLS+31:0] controls  // the registers, and 32 bits of 0
);
  // No byte is taken at the edge of a reset: what the loader would hand on outlives it.
  logic loader_ready;
  assign config_ready = loader_ready && !reset;

  localparam int KEY = WORD + 1 > 6 ? WORD + 1 : 6;
  localparam int TAG = TAP + 33;  // tap, side, number
  localparam int VECTOR = LANES * ELEMENT;
  localparam int FILL = $clog2(BUFFER) + 1;
  localparam logic [2:0] BLOCKS = {
    BLOCK_0 == 3 || BLOCK_1 == 3 || BLOCK_2 == 3,
    BLOCK_0 == 2 || BLOCK_1 == 2 || BLOCK_2 == 2,
    BLOCK_0 == 1 || BLOCK_1 == 1 || BLOCK_2 == 1
  };

  logic chain_write, program_write, key_write, key_classes, discard, exchange, pending, has_program, has_sampling;
  logic [7:0] chain_index, program_first, program_count, key_row;
  logic [71:0] chain_data;
  logic [TAP-1:0] program_tap, sampling_tap;
  logic [8:0] key_column;
  logic [KEY-1:0] key_data;
  logic sampling_write, control_write, report, report_busy;
  logic [4:0] control_index;
  logic [15:0] sampling_value, taken, refused;
  logic [31:0] control_value, image;
  logic [7:0] refusal;

  presilicon_loader #(
      .LANES(LANES),
      .RANGES(RANGES),
      .WORD(WORD),
      .FLOAT(FLOAT),
      .EXPONENT(EXPONENT),
      .FRACTION(FRACTION),
      .RANGE_ROWS(RANGE_ROWS),
      .SCRATCHPAD_ROWS(SCRATCHPAD_ROWS),
      .CHAINS(CHAINS),
      .TAPS(TAPS),
      .CONTROLS(CONTROLS),
      .ALU(ALU),
      .REDUCE(REDUCE),
      .BLOCKS(BLOCKS)
  ) loader (
      .clock,
      .reset,
      .byte_valid(config_valid && config_ready),
      .byte_ready(loader_ready),
      .byte_data(config_data),
      .chain_write,
      .chain_index,
      .chain_data,
      .program_write,
      .program_tap,
      .program_first,
      .program_count,
      .key_write,
      .key_row,
      .key_column,
      .key_classes,
      .key_data,
      .sampling_write,
      .sampling_tap,
      .sampling_value,
      .control_write,
      .control_index,
      .control_value,
      .pending,
      .exchange,
      .discard,
      .has_program,
      .has_sampling,
      .report_busy,
      .report,
      .image,
      .taken,
      .refused,
      .refusal
  );

  presilicon_controls #(
      .CONTROLS(CONTROLS)
  ) registers (
      .clock,
      .reset,
      .control_write,
      .control_index,
      .control_value,
      .exchange,
      .discard,
      .controls
  );

  // ---- taps
  logic chosen_valid, overflow, too_late, changed;
  logic [1:0] chosen_kind, chosen_last;
  logic [TAP-1:0] chosen_tap;
  logic [TAG-1:0] chosen_tag, overflow_tag;
  logic [VECTOR-1:0] chosen_data;
  logic [FILL-1:0] fill;
  logic [32*TAPS-1:0] dropped;
  presilicon_selection #(
      .TAPS(TAPS),
      .BITS(VECTOR),
      .PLACES(BUFFER)
  ) selection (
      .clock,
      .reset,
      .tap_valid,
      .tap_lost,
      .tap_last,
      .tap_data,
      .out_valid(chosen_valid),
      .out_kind(chosen_kind),
      .out_tap(chosen_tap),
      .out_last(chosen_last),
      .out_tag(chosen_tag),
      .out_data(chosen_data),
      .count(fill),
      .program_write,
      .program_tap,
      .program_count,
      .sampling_write,
      .sampling_tap,
      .sampling_value,
      .pending,
      .has_program,
      .has_sampling,
      .overflow,
      .overflow_tag,
      .too_late,
      .dropped,
      .changed
  );

  localparam int LAST = VECTOR;
  localparam int TAG_AT = LAST + 2;
  localparam int TAP_AT = TAG_AT + TAG;
  localparam int KIND = TAP_AT + TAP;
  logic buffered_valid, buffered_ready;
  logic [KIND+1:0] buffered;
  presilicon_fifo #(
      .BITS(KIND + 2),
      .PLACES(BUFFER)
  ) input_buffer (
      .clock,
      .reset,
      .in_valid(chosen_valid),
      .in_data({chosen_kind, chosen_tap, chosen_tag, chosen_last, chosen_data}),
      .out_valid(buffered_valid),
      .out_ready(buffered_ready),
      .out_data(buffered),
      .count(fill)
  );

  // ---- core
  logic packed_valid, packed_ready, packed_end, packed_abort;
  logic [COUNT-1:0] packed_count;
  logic [LANES*WORD-1:0] packed_data;
  logic [TAG-1:0] packed_tag;
  logic packed_none, frames_none;
  /* verilator lint_off PINCONNECTEMPTY */  // nobody asks whether the core is idle
  presilicon_core #(
      .LANES(LANES),
      .RANGES(RANGES),
      .ELEMENT(ELEMENT),
      .WORD(WORD),
      .FLOAT(FLOAT),
      .EXPONENT(EXPONENT),
      .FRACTION(FRACTION),
      .BIAS(BIAS),
      .RANGE_ROWS(RANGE_ROWS),
      .SCRATCHPAD_ROWS(SCRATCHPAD_ROWS),
      .CHAINS(CHAINS),
      .TAPS(TAPS),
      .ALU(ALU),
      .REDUCE(REDUCE),
      .BLOCK_0(BLOCK_0),
      .BLOCK_1(BLOCK_1),
      .BLOCK_2(BLOCK_2),
      .FLUSH(1),
      .TAG(TAG)
  ) core (
      .clock,
      .reset,
      .in_valid(buffered_valid),
      .in_ready(buffered_ready),
      .in_kind(buffered[KIND+:2]),
      .in_tap(buffered[TAP_AT+:TAP]),
      .in_last(buffered[LAST+:2]),
      .in_tag(buffered[TAG_AT+:TAG]),
      .in_data(buffered[VECTOR-1:0]),
      .out_valid(packed_valid),
      .out_ready(packed_ready),
      .out_end(packed_end),
      .out_abort(packed_abort),
      .out_count(packed_count),
      .out_data(packed_data),
      .out_tag(packed_tag),
      .idle(),
      .none_out(packed_none),
      .chain_write,
      .chain_index,
      .chain_data,
      .program_write,
      .program_tap,
      .program_first,
      .program_count,
      .key_write,
      .key_row,
      .key_column,
      .key_classes,
      .key_data,
      .exchange_program(has_program),
      .discard,
      .exchange
  );
  /* verilator lint_on PINCONNECTEMPTY */

  // ---- the way out
  logic block_valid, block_ready, block_last;
  logic [TAG-1:0] block_tag;
  logic [COUNT-1:0] block_count;
  logic [LANES*WORD-1:0] block_data;
  presilicon_frame_buffer #(
      .BITS(LANES * WORD),
      .COUNT(COUNT),
      .PLACES(OUTPUT),
      .TAG(TAG)
  ) frame_buffer (
      .clock,
      .reset,
      .in_valid(packed_valid),
      .in_ready(packed_ready),
      .in_end(packed_end),
      .in_abort(packed_abort),
      .in_count(packed_count),
      .in_data(packed_data),
      .in_tag(packed_tag),
      .out_valid(block_valid),
      .out_ready(block_ready),
      .out_last(block_last),
      .out_tag(block_tag),
      .out_count(block_count),
      .out_data(block_data),
      .none(frames_none),
      .overflow,
      .too_late,
      .overflow_tag
  );

  presilicon_packetizer #(
      .LANES(LANES),
      .WORD(WORD),
      .TAPS(TAPS)
  ) packetizer (
      .clock,
      .reset,
      .block_valid,
      .block_ready,
      .block_last,
      .block_tag,
      .block_count,
      .block_data,
      .exchange,
      .none_ahead(packed_none && frames_none),
      .report,
      .report_busy,
      .changed,
      .image,
      .taken,
      .refused,
      .refusal,
      .dropped,
      .out_valid(stream_valid),
      .out_ready(stream_ready),
      .out_data(stream_data)
  );
endmodule
