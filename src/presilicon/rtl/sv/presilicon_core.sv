// The instrument without taps and stream: vectors in, blocks of words out, both with valid and ready. The blocks never stand
// still: while the reader is slow no chain is issued, and there is room for what the chains on their way give.
//
//   sequencer -> BLOCK_0 -> BLOCK_1 -> BLOCK_2 -> packer       0 nothing, 1 filter, 2 vector unit, 3 scalar reduce
module presilicon_core #(
    parameter int LANES = 16,
    parameter int RANGES = 4,
    parameter int ELEMENT = 32,
    parameter int WORD = 32,
    parameter bit FLOAT = 0,
    parameter int EXPONENT = 8,
    parameter int FRACTION = 16,  // or mantissa bits of a word
    parameter int BIAS = 127,
    parameter int RANGE_ROWS = 8,
    parameter int SCRATCHPAD_ROWS = 16,
    parameter int CHAINS = 16,
    parameter int TAPS = 1,
    parameter int ALU = 63,
    parameter int REDUCE = 15,
    parameter int BLOCK_0 = 1,
    parameter int BLOCK_1 = 2,
    parameter int BLOCK_2 = 3,
    parameter bit FLUSH = 0,
    parameter int TAG = 1,
    parameter int TAP = TAPS > 1 ? $clog2(TAPS) : 1,
    parameter int KEY = WORD + 1 > 6 ? WORD + 1 : 6,
    parameter int COUNT = $clog2(LANES) + 1
) (
    input logic clock,
    input logic reset,

    input  logic                     in_valid,
    output logic                     in_ready,
    input  logic [              1:0] in_kind,
    input  logic [          TAP-1:0] in_tap,
    input  logic [              1:0] in_last,
    input  logic [          TAG-1:0] in_tag,
    input  logic [LANES*ELEMENT-1:0] in_data,

    output logic                  out_valid,
    input  logic                  out_ready,
    output logic                  out_end,
    output logic                  out_abort,
    output logic [     COUNT-1:0] out_count,
    output logic [LANES*WORD-1:0] out_data,
    output logic [       TAG-1:0] out_tag,
    output logic                  idle,
    output logic                  none_out,  // no block waits at the way out

    input  logic           chain_write,
    input  logic [    7:0] chain_index,
    input  logic [   71:0] chain_data,
    input  logic           program_write,
    input  logic [TAP-1:0] program_tap,
    input  logic [    7:0] program_first,
    input  logic [    7:0] program_count,
    input  logic           key_write,
    input  logic [    7:0] key_row,
    input  logic [    8:0] key_column,
    input  logic           key_classes,
    input  logic [KEY-1:0] key_data,
    input  logic           exchange_program,
    input  logic           discard,
    output logic           exchange
);
  `include "presilicon_latency.svh"
  localparam int FILTER = BLOCK_0 == 1 || BLOCK_1 == 1 || BLOCK_2 == 1 ? filter_cycles(LANES) : 0;
  localparam int VECTOR = BLOCK_0 == 2 || BLOCK_1 == 2 || BLOCK_2 == 2 ? vector_cycles(ALU, int'(FLOAT)) : 0;
  localparam int SCALAR = BLOCK_0 == 3 || BLOCK_1 == 3 || BLOCK_2 == 3 ? reduce_cycles(LANES, REDUCE, int'(FLOAT)) : 0;
  // From the issue of a chain until its block is in the queue: sequencer, blocks, packer.
  localparam int PIPELINE = 3 + FILTER + VECTOR + SCALAR + ($clog2(LANES) + 1) / 2 + 4;
  localparam int TAGS = $clog2(PIPELINE + 4);

  logic go, sequencer_idle, packer_idle;
  logic [39:0] control_0, control_1, control_2, control_3;
  logic [LANES*WORD-1:0] data_0, data_1, data_2, data_3;
  // The tags of the frames in the pipeline: in at a frame's first chain, out with its end.
  (* ram_style = "distributed" *) logic [TAG-1:0] tags[2**TAGS];
  logic [TAGS-1:0] tag_in, tag_out;
  logic tag_push, tag_pop, push;
  logic [TAG-1:0] tag, pushed;

  presilicon_sequencer #(
      .LANES(LANES),
      .ELEMENT(ELEMENT),
      .WORD(WORD),
      .FLOAT(FLOAT),
      .CHAINS(CHAINS),
      .TAPS(TAPS),
      .FLUSH(FLUSH),
      .TAG(TAG),
      .PIPELINE(PIPELINE)
  ) sequencer (
      .clock,
      .reset,
      .go,
      .in_valid,
      .in_ready,
      .in_kind,
      .in_tap,
      .in_last,
      .in_tag,
      .in_data,
      .out_control(control_0),
      .out_data(data_0),
      .tag_push,
      .tag,
      .idle(sequencer_idle),
      .chain_write,
      .chain_index,
      .chain_data,
      .program_write,
      .program_tap,
      .program_first,
      .program_count,
      .exchange_program,
      .exchange
  );

  presilicon_block #(
      .KIND(BLOCK_0),
      .LANES(LANES),
      .RANGES(RANGES),
      .WORD(WORD),
      .FLOAT(FLOAT),
      .EXPONENT(EXPONENT),
      .FRACTION(FRACTION),
      .BIAS(BIAS),
      .RANGE_ROWS(RANGE_ROWS),
      .SCRATCHPAD_ROWS(SCRATCHPAD_ROWS),
      .ALU(ALU),
      .REDUCE(REDUCE)
  ) block_0 (
      .clock,
      .reset,
      .in_control(control_0),
      .in_data(data_0),
      .out_control(control_1),
      .out_data(data_1),
      .key_write,
      .key_row,
      .key_column,
      .key_classes,
      .key_data,
      .exchange,
      .discard
  );

  presilicon_block #(
      .KIND(BLOCK_1),
      .LANES(LANES),
      .RANGES(RANGES),
      .WORD(WORD),
      .FLOAT(FLOAT),
      .EXPONENT(EXPONENT),
      .FRACTION(FRACTION),
      .BIAS(BIAS),
      .RANGE_ROWS(RANGE_ROWS),
      .SCRATCHPAD_ROWS(SCRATCHPAD_ROWS),
      .ALU(ALU),
      .REDUCE(REDUCE)
  ) block_1 (
      .clock,
      .reset,
      .in_control(control_1),
      .in_data(data_1),
      .out_control(control_2),
      .out_data(data_2),
      .key_write,
      .key_row,
      .key_column,
      .key_classes,
      .key_data,
      .exchange,
      .discard
  );

  presilicon_block #(
      .KIND(BLOCK_2),
      .LANES(LANES),
      .RANGES(RANGES),
      .WORD(WORD),
      .FLOAT(FLOAT),
      .EXPONENT(EXPONENT),
      .FRACTION(FRACTION),
      .BIAS(BIAS),
      .RANGE_ROWS(RANGE_ROWS),
      .SCRATCHPAD_ROWS(SCRATCHPAD_ROWS),
      .ALU(ALU),
      .REDUCE(REDUCE)
  ) block_2 (
      .clock,
      .reset,
      .in_control(control_2),
      .in_data(data_2),
      .out_control(control_3),
      .out_data(data_3),
      .key_write,
      .key_row,
      .key_column,
      .key_classes,
      .key_data,
      .exchange,
      .discard
  );

  presilicon_packer #(
      .LANES(LANES),
      .RANGES(RANGES),
      .WORD(WORD),
      .TAG(TAG),
      .FLIGHT(PIPELINE)
  ) packer (
      .clock,
      .reset,
      .go,
      .in_control(control_3),
      .in_data(data_3),
      .tag(tags[tag_out]),
      .tag_pop,
      .out_valid,
      .out_ready,
      .out_end,
      .out_abort,
      .out_count,
      .out_data,
      .out_tag,
      .idle(packer_idle)
  );
  assign idle = sequencer_idle && packer_idle;
  assign none_out = packer_idle;

  always_ff @(posedge clock) begin
    {push, pushed} <= {tag_push, tag};
    if (push) tags[tag_in] <= pushed;
    tag_in <= tag_in + TAGS'(push);
    tag_out <= tag_out + TAGS'(tag_pop);
    if (reset) begin
      push <= 1'b0;
      tag_in <= '0;
      tag_out <= '0;
    end
  end
endmodule
