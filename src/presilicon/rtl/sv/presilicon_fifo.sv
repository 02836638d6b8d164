// A queue of PLACES entries, a power of two, with one more in its output register. `count` is that of the memory.
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
  logic [PLACE-1:0] write, read;
  wire move = count != '0 && (!out_valid || out_ready);
  always_ff @(posedge clock) begin
    if (in_valid) memory[write] <= in_data;
    if (move) out_data <= memory[read];
    write <= write + PLACE'(in_valid);
    read <= read + PLACE'(move);
    count <= count + COUNT'(in_valid) - COUNT'(move);
    out_valid <= move || (out_valid && !out_ready);
    if (reset) begin
      write <= '0;
      read <= '0;
      count <= '0;
      out_valid <= 1'b0;
    end
  end
endmodule
