// Chooses among the taps, frame by frame. Nothing is held up: an outer frame is accepted as a whole at its first vector,
// or dropped; one that overruns the buffer is broken off.
//
// Firmware that waits takes effect here as soon as no frame is under way, and travels on with the next vector, or alone.
module presilicon_selection #(
    parameter int TAPS = 2,
    parameter int BITS = 64,  // of a vector
    parameter int PLACES = 32,  // of the input buffer
    parameter int TAP = TAPS > 1 ? $clog2(TAPS) : 1,
    parameter int TAG = TAP + 33,
    parameter int COUNT = $clog2(PLACES) + 1
) (
    input logic clock,
    input logic reset,

    input logic [     TAPS-1:0] tap_valid,
    input logic [     TAPS-1:0] tap_lost,   // no vector: what is missing of the frame was lost before it came here
    input logic [   2*TAPS-1:0] tap_last,
    input logic [TAPS*BITS-1:0] tap_data,

    output logic             out_valid,
    output logic [      1:0] out_kind,
    output logic [  TAP-1:0] out_tap,
    output logic [      1:0] out_last,
    output logic [  TAG-1:0] out_tag,   // tap, side and frame number
    output logic [ BITS-1:0] out_data,
    input  logic [COUNT-1:0] count,     // of the buffer behind

    input logic           program_write,
    input logic [TAP-1:0] program_tap,
    input logic [    7:0] program_count,
    input logic           sampling_write,
    input logic [TAP-1:0] sampling_tap,
    input logic [   15:0] sampling_value,
    input logic           pending,         // an image waits
    input logic           has_program,
    input logic           has_sampling,

    input  logic               overflow,      // this frame does not fit into the output buffer
    input  logic [    TAG-1:0] overflow_tag,
    input  logic               too_late,      // it was accepted to its end, and is dropped there
    output logic [32*TAPS-1:0] dropped,
    output logic               changed        // a count of dropped frames
);
  // ---- what the taps offer, a cycle later: the user's circuit sees one register
  logic [TAPS-1:0] valid, lost;
  logic [2*TAPS-1:0] last;
  logic [TAPS*BITS-1:0] data;
  always_ff @(posedge clock) begin
    valid <= tap_valid;
    lost <= tap_lost;
    last <= tap_last;
    data <= tap_data;
    if (reset) valid <= '0;
  end

  // ---- who may begin
  logic [TAPS-1:0] outside;  // the tap's next vector begins an outer frame
  logic [TAPS-1:0] watched, watched_next;
  logic [16*TAPS-1:0] sampling, sampling_next, turn;
  logic [32*TAPS-1:0] number;
  logic [TAPS-1:0] starts, due;
  always_comb
    for (int t = 0; t < TAPS; t++) begin
      starts[t] = valid[t] && outside[t];
      due[t] = watched[t] && sampling[16*t+:16] != '0 && turn[16*t+:16] == '0;
    end
  wire [TAPS-1:0] wants = starts & due & ~lost;
  wire [TAPS-1:0] wins = wants & (~wants + 1'b1);  // the first has the highest priority

  logic under_way, break_waits, convey, switched;
  logic side;  // changes with every image that takes effect
  logic [TAP-1:0] current;
  logic [31:0] current_number;
  wire full = count == COUNT'(PLACES);
  wire accept = |wants && !under_way && !break_waits && count <= COUNT'(PLACES / 2);
  wire goes_on = under_way && valid[current];
  wire too_large = under_way && overflow && overflow_tag == {current, side, current_number};
  wire broken = (goes_on && (full || lost[current])) || too_large;

  logic [TAP-1:0] winner;
  always_comb begin
    winner = '0;
    for (int t = 0; t < TAPS; t++) if (wins[t]) winner = TAP'(t);
  end
  wire [TAP-1:0] chosen = under_way ? current : winner;
  wire ends = last[2*chosen+1];
  wire push = accept || (goes_on && !broken);
  wire under_way_next = push ? !ends : under_way && !broken;
  wire switch_now = pending && !switched && !under_way_next;

  wire push_break = break_waits && !full;
  wire push_exchange = convey && !push && !break_waits && !full;
  always_comb begin
    out_valid = push || push_break || push_exchange;
    out_kind = push ? {convey, convey} : push_break ? 2'd1 : 2'd2;
    out_tap = push_break ? current : chosen;
    out_last = push ? last[2*chosen+:2] : 2'd0;
    out_tag = {chosen, side, under_way ? current_number : number[32*chosen+:32]};
    out_data = data[chosen*BITS+:BITS];
  end

  always_ff @(posedge clock) begin
    under_way <= under_way_next;
    if (accept) begin
      current <= winner;
      current_number <= number[32*winner+:32];
    end
    break_waits <= broken || (break_waits && full);
    if (switch_now) convey <= 1'b1;
    else if (push || push_exchange) convey <= 1'b0;
    switched <= switch_now || (switched && pending);
    side <= side ^ switch_now;
    if (reset) begin
      under_way <= 1'b0;
      break_waits <= 1'b0;
      convey <= 1'b0;
      switched <= 1'b0;
      side <= 1'b0;
    end
  end

  // ---- frames counted, sampled, dropped
  logic [TAPS-1:0] drops, drops_late;
  always_comb
    for (int t = 0; t < TAPS; t++) begin
      drops[t] = (starts[t] && due[t] && !(accept && wins[t])) || (broken && current == TAP'(t));
      drops_late[t] = too_late && overflow_tag[TAG-1:33] == TAP'(t);
    end
  assign changed = |drops || |drops_late;
  always_ff @(posedge clock)
    for (int t = 0; t < TAPS; t++) begin
      if (valid[t]) outside[t] <= last[2*t+1] || lost[t];
      if (starts[t]) begin
        number[32*t+:32] <= number[32*t+:32] + 32'd1;
        if (turn[16*t+:16] != '0) turn[16*t+:16] <= turn[16*t+:16] - 16'd1;
        else if (accept && wins[t]) turn[16*t+:16] <= sampling[16*t+:16] - 16'd1;  // a dropped frame leaves the turn
      end
      dropped[32*t+:32] <= dropped[32*t+:32] + 32'(drops[t]) + 32'(drops_late[t]);
      if (program_write && program_tap == TAP'(t)) watched_next[t] <= program_count != '0;
      if (sampling_write && sampling_tap == TAP'(t)) sampling_next[16*t+:16] <= sampling_value;
      if (switch_now && has_program) watched[t] <= watched_next[t];
      if (switch_now && has_sampling) begin
        sampling[16*t+:16] <= sampling_next[16*t+:16];
        turn[16*t+:16] <= '0;
      end
      if (reset) begin
        outside[t] <= 1'b1;
        number[32*t+:32] <= '0;
        turn[16*t+:16] <= '0;
        sampling[16*t+:16] <= 16'd1;
        watched[t] <= 1'b0;
        dropped[32*t+:32] <= '0;
      end
    end
endmodule
