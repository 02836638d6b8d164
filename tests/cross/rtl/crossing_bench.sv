// A queue between two clocks: fills it, resets one side for one cycle, and prints what comes out afterwards.
`timescale 1ns / 1ps
module crossing_bench #(
    parameter integer IN_PERIOD = 10,
    parameter integer OUT_PERIOD = 10,
    parameter integer SIDE = 0,  // that is reset: 0 in, 1 out
    parameter integer PHASE = 0
);
  logic in_clock = 0, out_clock = 0, in_reset = 1, out_reset = 1, in_valid = 0, out_ready = 0;
  logic in_ready, in_void, out_valid;
  logic [7:0] in_data = 8'd100, out_data;
  always #(IN_PERIOD / 2.0) in_clock = !in_clock;
  initial begin
    #(PHASE);
    forever #(OUT_PERIOD / 2.0) out_clock = !out_clock;
  end
  integer stale = 0, fresh = 0, filled = 0, at;
  presilicon_async_fifo dut (.*);
  always @(negedge out_clock)
    if (out_valid && out_ready) begin
      if (out_data >= 8'd100) stale = stale + 1;
      else if (out_data == fresh) fresh = fresh + 1;
      else stale = stale + 1000;
    end
  task automatic quiet;
    repeat (12) @(negedge in_clock);
    repeat (12) @(negedge out_clock);
    repeat (12) @(negedge in_clock);
  endtask
  initial begin
    quiet();
    in_reset = 0;
    out_reset = 0;
    quiet();
    while (in_ready) begin
      in_valid = 1;
      @(negedge in_clock);
      in_data = in_data + 1;
      filled = filled + 1;
    end
    in_valid = 0;
    repeat (PHASE % 7) @(negedge in_clock);
    if (SIDE == 0) begin
      in_reset = 1;
      @(negedge in_clock) in_reset = 0;
    end else begin
      @(negedge out_clock) out_reset = 1;
      @(negedge out_clock) out_reset = 0;
    end
    quiet();
    out_ready = 1;
    quiet();
    for (at = 0; at < 50; at = at + 1) begin
      in_data = at;
      in_valid = 1;
      while (!in_ready) @(negedge in_clock);
      @(negedge in_clock);
    end
    in_valid = 0;
    quiet();
    repeat (40) @(negedge out_clock);
    $display("%0d filled, %0d stale, %0d fresh", filled, stale, fresh);
    $finish;
  end
endmodule
