// A queue of PLACES entries, a power of two, with two more in registers behind it: memory answers late in a cycle.
// `count` is without the last of them. Not dissolved: wide data have a queue for every lane, in step with the others.
(* keep_hierarchy = "yes" *)
module presilicon_fifo #(
    parameter int BITS = 8,
    parameter int PLACES = 16,
    parameter int COUNT = $clog2(PLACES) + 1
) (
    input  logic             clock,
    input  logic             reset,
    input  logic             in_valid,  // not while `count` is PLACES
    input  logic [ BITS-1:0] in_data,
    output logic             out_valid,
    input  logic             out_ready,
    output logic [ BITS-1:0] out_data,
    output logic [COUNT-1:0] count
);
  localparam int PLACE = $clog2(PLACES);
  logic [BITS-1:0] memory[PLACES];
  logic [BITS-1:0] answer;
  logic [PLACE-1:0] write, read;
  logic [COUNT-1:0] stored;
  logic answer_valid;
  wire leave = answer_valid && (!out_valid || out_ready);
  wire move = stored != '0 && (!answer_valid || leave);
  always_ff @(posedge clock) begin
    if (in_valid) memory[write] <= in_data;
    if (move) answer <= memory[read];
    if (leave) out_data <= answer;
    write <= write + PLACE'(in_valid);
    read <= read + PLACE'(move);
    stored <= stored + COUNT'(in_valid) - COUNT'(move);
    count <= count + COUNT'(in_valid) - COUNT'(leave);
    answer_valid <= move || (answer_valid && !leave);
    out_valid <= leave || (out_valid && !out_ready);
    if (reset) begin
      write <= '0;
      read <= '0;
      stored <= '0;
      count <= '0;
      answer_valid <= 1'b0;
      out_valid <= 1'b0;
    end
  end
endmodule
