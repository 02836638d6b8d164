// The bare core for the co-simulation: ports wider than 64 bits and in whole 32-bit words, whatever the sizes, and a look at what
// the circuit remembers.
module presilicon_sim_bare #(
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
    parameter int WIDE = 32 * ((LANES * WORD + 31) / 32 + 3),
    parameter int WIDE_CONTROLS = 32 * (CONTROLS + 3)
) (
    input  logic            clock,
    input  logic            reset,
    input  logic            in_valid,
    output logic            in_ready,
    input  logic            in_break,
    input  logic [     7:0] in_tap,
    input  logic [     7:0] in_last,
    input  logic [WIDE-1:0] in_data,
    output logic            out_valid,
    input  logic            out_ready,
    output logic            out_end,
    output logic            out_abort,
    output logic [    15:0] out_count,
    output logic [WIDE-1:0] out_data,
    input  logic            config_valid,
    output logic            config_ready,
    input  logic [     7:0] config_data,
    output logic [    31:0] image,
    output logic [    15:0] taken,
    output logic [    15:0] refused,
    output logic [     7:0] refusal,
    output logic            waiting,
    output logic            idle,

    input  logic [             7:0] peek_row,
    output logic [        WIDE-1:0] peek_scratchpad,
    output logic [        WIDE-1:0] peek_carried,
    output logic [        WIDE-1:0] peek_partial,
    output logic [            15:0] peek_fill,
    output logic [            63:0] peek_first_0,
    output logic [            63:0] peek_first_1,
    output logic [WIDE_CONTROLS-1:0] peek_controls
);
  localparam int TAP = TAPS > 1 ? $clog2(TAPS) : 1;
  localparam int COUNT = $clog2(LANES) + 1;
  localparam int ROW = SCRATCHPAD_ROWS > 1 ? $clog2(SCRATCHPAD_ROWS) : 1;
  localparam int VECTOR = LANES * WORD;
  logic [COUNT-1:0] count;
  logic [VECTOR-1:0] data;
  logic [32*CONTROLS+31:0] controls;
  presilicon_bare #(
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
      .CONTROLS(CONTROLS),
      .ALU(ALU),
      .REDUCE(REDUCE),
      .BLOCK_0(BLOCK_0),
      .BLOCK_1(BLOCK_1),
      .BLOCK_2(BLOCK_2),
      .FLUSH(FLUSH)
  ) dut (
      .clock,
      .reset,
      .in_valid,
      .in_ready,
      .in_break,
      .in_tap(in_tap[TAP-1:0]),
      .in_last(in_last[1:0]),
      .in_data(in_data[LANES*ELEMENT-1:0]),
      .out_valid,
      .out_ready,
      .out_end,
      .out_abort,
      .out_count(count),
      .out_data(data),
      .config_valid,
      .config_ready,
      .config_data,
      .image,
      .taken,
      .refused,
      .refusal,
      .controls,
      .idle
  );
  assign out_count = 16'(count);
  assign out_data = WIDE'(data);
  assign waiting = dut.pending && (dut.hold || !dut.outside_frame);
  assign peek_controls = WIDE_CONTROLS'(controls);
  assign peek_partial = WIDE'(dut.core.packer.waiting);
  assign peek_fill = 16'(dut.core.packer.fill);
  assign peek_first_0 = 64'(dut.core.sequencer.begins_0);
  assign peek_first_1 = 64'(dut.core.sequencer.begins_1);
  wire [ROW-1:0] row = peek_row[ROW-1:0];
  wire unused = &{1'b0, in_tap, in_last, in_data, peek_row};
  logic [LANES*WORD-1:0] scratchpad, carried;
  generate
    for (genvar n = 0; n < LANES; n++) begin : lane
      if (BLOCK_0 == 2) begin : first
        assign scratchpad[n*WORD+:WORD] = dut.core.block_0.alu.unit.written[row] ? dut.core.block_0.alu.unit.lane[n].unit.scratchpad[row] : '0;
        assign carried[n*WORD+:WORD] = dut.core.block_0.alu.unit.lane[n].unit.carried;
      end else if (BLOCK_1 == 2) begin : second
        assign scratchpad[n*WORD+:WORD] = dut.core.block_1.alu.unit.written[row] ? dut.core.block_1.alu.unit.lane[n].unit.scratchpad[row] : '0;
        assign carried[n*WORD+:WORD] = dut.core.block_1.alu.unit.lane[n].unit.carried;
      end else if (BLOCK_2 == 2) begin : third
        assign scratchpad[n*WORD+:WORD] = dut.core.block_2.alu.unit.written[row] ? dut.core.block_2.alu.unit.lane[n].unit.scratchpad[row] : '0;
        assign carried[n*WORD+:WORD] = dut.core.block_2.alu.unit.lane[n].unit.carried;
      end else begin : none
        assign scratchpad[n*WORD+:WORD] = '0;
        assign carried[n*WORD+:WORD] = '0;
      end
    end
  endgenerate
  assign peek_scratchpad = WIDE'(scratchpad);
  assign peek_carried = WIDE'(carried);
endmodule
