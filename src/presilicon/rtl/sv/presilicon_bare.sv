// The core and its loader, for one stream of vectors that can be held up: no taps, no packets. An image that waits is
// exchanged before the next vector that begins an outer frame.
module presilicon_bare #(
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
    parameter bit FLUSH = 0,
    parameter int TAP = TAPS > 1 ? $clog2(TAPS) : 1,
    parameter int COUNT = $clog2(LANES) + 1
) (
    input logic clock,
    input logic reset,

    input  logic                     in_valid,
    output logic                     in_ready,
    input  logic                     in_break,  // no vector: the frame under way ends here and is void
    input  logic [          TAP-1:0] in_tap,
    input  logic [              1:0] in_last,
    input  logic [LANES*ELEMENT-1:0] in_data,

    output logic                  out_valid,
    input  logic                  out_ready,
    output logic                  out_end,
    output logic                  out_abort,
    output logic [     COUNT-1:0] out_count,
    output logic [LANES*WORD-1:0] out_data,

    input  logic                    config_valid,
    output logic                    config_ready,
    input  logic [             7:0] config_data,
    output logic [            31:0] image,
    output logic [            15:0] taken,
    output logic [            15:0] refused,
    output logic [             7:0] refusal,
    output logic [32*CONTROLS+31:0] controls,      // the registers, and 32 bits of 0
    output logic                    idle
);
  localparam int KEY = WORD + 1 > 6 ? WORD + 1 : 6;
  localparam logic [2:0] BLOCKS = {
    BLOCK_0 == 3 || BLOCK_1 == 3 || BLOCK_2 == 3,
    BLOCK_0 == 2 || BLOCK_1 == 2 || BLOCK_2 == 2,
    BLOCK_0 == 1 || BLOCK_1 == 1 || BLOCK_2 == 1
  };

  logic chain_write, program_write, key_write, key_classes, exchange_program, discard, exchange, pending;
  logic [7:0] chain_index, program_first, program_count, key_row;
  logic [71:0] chain_data;
  logic [TAP-1:0] program_tap;
  logic [8:0] key_column;
  logic [KEY-1:0] key_data;
  logic control_write, core_idle, core_ready, outside_frame;
  logic [4:0] control_index;
  logic [31:0] control_value;

  // Between two outer frames of the stream: nothing has come yet, or the last vector ended one.
  wire outside_next = in_valid && in_ready ? in_break || in_last[1] : outside_frame;
  logic hold;  // an image waits, and no frame is under way
  logic sent;  // the token is on its way
  wire token = hold && !sent;
  assign in_ready = core_ready && !hold;
  always_ff @(posedge clock) begin
    outside_frame <= outside_next;
    hold <= pending && outside_next;
    sent <= (sent || (token && core_ready)) && pending;
    if (reset) begin
      outside_frame <= 1'b1;
      hold <= 1'b0;
      sent <= 1'b0;
    end
  end

  /* verilator lint_off PINCONNECTEMPTY */  // without taps there is no sampling, without a stream no report
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
      .byte_valid(config_valid),
      .byte_ready(config_ready),
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
      .sampling_write(),
      .sampling_tap(),
      .sampling_value(),
      .control_write,
      .control_index,
      .control_value,
      .pending,
      .exchange,
      .discard,
      .has_program(exchange_program),
      .has_sampling(),
      .report_busy(1'b0),
      .report(),
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
      .FLUSH(FLUSH)
  ) core (
      .clock,
      .reset,
      .in_valid(hold ? token : in_valid),
      .in_ready(core_ready),
      .in_kind(hold ? 2'd2 : {1'b0, in_break}),
      .in_tap,
      .in_last,
      .in_tag(1'b0),
      .in_data,
      .out_valid,
      .out_ready,
      .out_end,
      .out_abort,
      .out_count,
      .out_data,
      .out_tag(),
      .idle(core_idle),
      .none_out(),
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
      .exchange_program,
      .discard,
      .exchange
  );
  /* verilator lint_on PINCONNECTEMPTY */
  assign idle = core_idle && !hold;
endmodule
