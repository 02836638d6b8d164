// The whole instrument for the co-simulation: taps of its own clock or of another one (CROSSED), wide ports, and what
// it decides while it runs.
module presilicon_sim_instrument #(
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
    parameter int BUFFER = 32,
    parameter int CROSSED = 0,  // a bit for each tap
    parameter int QUEUE = 16,  // of a crossing
    parameter int WIDE_TAP = 32 * ((LANES * ELEMENT + 31) / 32 + 3),
    parameter int WIDE_COUNTS = 32 * (TAPS + 3)
) (
    input logic clock,
    input logic reset,
    input logic tap_clock,
    input logic tap_reset,

    input logic [TAPS*WIDE_TAP-1:0] tap_data,
    input logic [             63:0] tap_valid,
    input logic [             63:0] tap_last_0,
    input logic [             63:0] tap_last_1,

    input  logic       config_valid,
    output logic       config_ready,
    input  logic [7:0] config_data,
    output logic       stream_valid,
    input  logic       stream_ready,
    output logic [7:0] stream_data,

    output logic                   pushed,
    output logic [            7:0] pushed_kind,
    output logic [            7:0] pushed_tap,
    output logic [            7:0] pushed_last,
    output logic [           31:0] pushed_number,
    output logic [   WIDE_TAP-1:0] pushed_data,
    output logic                   status_starts,
    output logic                   block_starts,
    output logic                   too_late,
    output logic [            7:0] too_late_tap,
    output logic [           31:0] too_late_number,
    output logic [           15:0] taken,
    output logic [           15:0] refused,
    output logic [            7:0] refusal,
    output logic [           15:0] fill,
    output logic                   busy,
    output logic [WIDE_COUNTS-1:0] dropped,
    output logic [           63:0] control_0
);
  localparam int VECTOR = LANES * ELEMENT;
  logic [TAPS-1:0] valid, lost;
  logic [2*TAPS-1:0] last;
  logic [TAPS*VECTOR-1:0] data;
  logic [32*CONTROLS+31:0] controls;
  generate
    for (genvar t = 0; t < TAPS; t++) begin : tap
      wire [VECTOR-1:0] vector = tap_data[t*WIDE_TAP+:VECTOR];
      if (CROSSED[t]) begin : crossed
        presilicon_tap_crossing #(
            .BITS(VECTOR),
            .PLACES(QUEUE)
        ) crossing (
            .tap_clock,
            .tap_reset,
            .tap_valid(tap_valid[t]),
            .tap_last({tap_last_1[t], tap_last_0[t]}),
            .tap_data(vector),
            .clock,
            .reset,
            .out_valid(valid[t]),
            .out_lost(lost[t]),
            .out_last(last[2*t+:2]),
            .out_data(data[t*VECTOR+:VECTOR])
        );
      end else begin : direct
        assign valid[t] = tap_valid[t];
        assign lost[t] = 1'b0;
        assign last[2*t+:2] = {tap_last_1[t], tap_last_0[t]};
        assign data[t*VECTOR+:VECTOR] = vector;
      end
    end
  endgenerate
  presilicon_instrument #(
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
      .BUFFER(BUFFER)
  ) dut (
      .clock,
      .reset,
      .tap_valid(valid),
      .tap_lost(lost),
      .tap_last(last),
      .tap_data(data),
      .config_valid,
      .config_ready,
      .config_data,
      .stream_valid,
      .stream_ready,
      .stream_data,
      .controls
  );
  assign pushed = dut.chosen_valid;
  assign pushed_kind = 8'(dut.chosen_kind);
  assign pushed_tap = 8'(dut.chosen_tap);
  assign pushed_last = 8'(dut.chosen_last);
  assign pushed_number = dut.chosen_tag[31:0];
  assign pushed_data = WIDE_TAP'(dut.chosen_data);
  assign status_starts = dut.packetizer.start_status;
  assign block_starts = dut.packetizer.start_block;
  assign too_late = dut.too_late;
  assign too_late_tap = 8'(dut.overflow_tag >> 33);
  assign too_late_number = dut.overflow_tag[31:0];
  assign taken = dut.taken;
  assign refused = dut.refused;
  assign refusal = dut.refusal;
  assign fill = 16'(dut.fill);
  assign busy = dut.buffered_valid || !dut.core.idle || dut.block_valid || dut.pending || dut.selection.convey
      || dut.selection.break_waits || dut.packetizer.reporting || dut.packetizer.state != 3'd0 || |valid
      || |dut.selection.valid || dut.fill != '0 || dut.frame_buffer.there;
  assign dropped = WIDE_COUNTS'(dut.dropped);
  assign control_0 = 64'(controls[31:0]);
endmodule
