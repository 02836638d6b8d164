// A tap of another clock. The tapped circuit is not held up: when the queue is full, the rest of the outer frame is passed over,
// and so are the frames that begin before the loss could be told. Each of them is told by one entry with `out_lost`.
module presilicon_tap_crossing #(
    parameter int BITS = 64,
    parameter int PLACES = 16
) (
    input logic            tap_clock,
    input logic            tap_reset,
    input logic            tap_valid,
    input logic [     1:0] tap_last,
    input logic [BITS-1:0] tap_data,

    input  logic            clock,
    input  logic            reset,
    output logic            out_valid,
    output logic            out_lost,
    output logic [     1:0] out_last,
    output logic [BITS-1:0] out_data
);
  logic ready, void_, passing;  // passing over the rest of a frame
  logic [15:0] losses;  // frames lost and not told yet
  wire tell = losses != '0;
  // A vector that finds no place, or comes while an earlier loss is untold: its frame is passed over from here on.
  wire refuse = tap_valid && !passing && (tell || !ready);
  wire vector = tap_valid && !passing && !refuse;
  wire ends = tap_valid && tap_last[1];
  always_ff @(posedge tap_clock) begin
    passing <= (passing || refuse) && !ends;
    losses <= losses + 16'(refuse && losses != '1) - 16'(tell && ready);
    if (void_) begin
      passing <= 1'b0;
      losses <= '0;
    end
  end

  presilicon_async_fifo #(
      .BITS  (BITS + 3),
      .PLACES(PLACES)
  ) queue (
      .in_clock(tap_clock),
      .in_reset(tap_reset),
      .in_void(void_),
      .in_valid(tell || vector),
      .in_ready(ready),
      .in_data({tell, tap_last, tap_data}),
      .out_clock(clock),
      .out_reset(reset),
      .out_valid,
      .out_ready(1'b1),
      .out_data({out_lost, out_last, out_data})
  );
endmodule
