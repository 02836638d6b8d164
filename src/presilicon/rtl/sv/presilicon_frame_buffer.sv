// Blocks on their way out, held back until their outer frame has ended. A frame that is broken off is taken back; one that fills
// the whole buffer alone is void: `overflow` asks for it to be broken off, `too_late` tells that it had ended already.
module presilicon_frame_buffer #(
    parameter int BITS = 512,  // of a block
    parameter int COUNT = 5,
    parameter int PLACES = 32,  // blocks, a power of two
    parameter int TAG = 17
) (
    input logic clock,
    input logic reset,

    input  logic             in_valid,
    output logic             in_ready,
    input  logic             in_end,
    input  logic             in_abort,
    input  logic [COUNT-1:0] in_count,
    input  logic [ BITS-1:0] in_data,
    input  logic [  TAG-1:0] in_tag,

    output logic             out_valid,  // a block of a frame that has ended
    input  logic             out_ready,
    output logic             out_last,   // the last of its frame
    output logic [  TAG-1:0] out_tag,
    output logic [COUNT-1:0] out_count,
    output logic [ BITS-1:0] out_data,
    output logic             none,       // no frame has ended and waits

    output logic           overflow,
    output logic           too_late,
    output logic [TAG-1:0] overflow_tag
);
  localparam int PLACE = $clog2(PLACES);
  logic [COUNT+BITS-1:0] memory[PLACES];
  logic [PLACE:0] write, frame, read;  // one bit more than a place, so that full differs from empty

  logic empty_so_far, void_;
  assign empty_so_far = write == frame;
  wire full = write - read == (PLACE + 1)'(PLACES);
  wire alone = frame == read;  // nothing will leave before this frame has ended
  wire keep = !in_abort && !void_ && (in_count != '0 || (in_end && empty_so_far));
  assign in_ready = !(keep && full && !alone);
  wire take = in_valid && in_ready;
  wire overflows = take && keep && full;
  wire push = take && keep && !full;
  wire [PLACE:0] write_next = write + (PLACE + 1)'(push);
  wire ends = take && in_end && !void_ && !overflows;

  always_ff @(posedge clock) begin
    if (push) memory[write[PLACE-1:0]] <= {in_count, in_data};
    write <= overflows || (take && in_abort) ? frame : write_next;
    if (ends) frame <= write_next;
    if (take) void_ <= (void_ || overflows) && !in_end && !in_abort;
    overflow <= overflows && !in_end;
    too_late <= take && in_end && (void_ || overflows);
    overflow_tag <= in_tag;
    if (reset) begin
      write <= '0;
      frame <= '0;
      void_ <= 1'b0;
      overflow <= 1'b0;
      too_late <= 1'b0;
    end
  end

  // ---- where the frames that have ended end, and whose they are
  (* ram_style = "distributed" *) logic [PLACE+1+TAG-1:0] frames[PLACES];
  logic [PLACE:0] frame_in, frame_out;
  logic [PLACE:0] head_end;
  logic [TAG-1:0] head_tag;
  assign {head_end, head_tag} = frames[frame_out[PLACE-1:0]];
  wire there = frame_in != frame_out;
  assign none = !there && !out_valid;
  wire move = there && (!out_valid || out_ready);
  wire last = read + 1'b1 == head_end;
  always_ff @(posedge clock) begin
    if (ends) frames[frame_in[PLACE-1:0]] <= {write_next, in_tag};
    frame_in <= frame_in + (PLACE + 1)'(ends);
    frame_out <= frame_out + (PLACE + 1)'(move && last);
    read <= read + (PLACE + 1)'(move);
    if (move) begin
      {out_count, out_data} <= memory[read[PLACE-1:0]];
      out_last <= last;
      out_tag <= head_tag;
    end
    out_valid <= move || (out_valid && !out_ready);
    if (reset) begin
      frame_in <= '0;
      frame_out <= '0;
      read <= '0;
      out_valid <= 1'b0;
    end
  end
endmodule
