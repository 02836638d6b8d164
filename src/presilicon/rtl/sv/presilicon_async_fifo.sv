// A queue from one clock to another. Pointers cross in Gray code through two registers, so that a pointer that is
// caught while it changes is the old one or the new one. Each side has its own synchronous reset; when the circuit starts,
// both must be held until both clocks have run for a few cycles.
//
// Later a reset of one side, be it a single cycle, empties the queue: it reaches the other side at once, asynchronously,
// and that side is released by its own clock. The first side waits for it, so that neither sees pointers of before.
module presilicon_async_fifo #(
    parameter int BITS = 8,
    parameter int PLACES = 16  // a power of two, at least 4
) (
    input  logic            in_clock,
    input  logic            in_reset,
    output logic            in_void,   // this side is in reset
    input  logic            in_valid,
    output logic            in_ready,
    input  logic [BITS-1:0] in_data,

    input  logic            out_clock,
    input  logic            out_reset,
    output logic            out_valid,
    input  logic            out_ready,
    output logic [BITS-1:0] out_data
);
  localparam int PLACE = $clog2(PLACES);
  logic [BITS-1:0] memory[PLACES];

  logic [PLACE:0] write, write_gray, write_seen_1, write_seen;
  logic [PLACE:0] read, read_gray, read_seen_1, read_seen;

  /* verilator lint_off SYNCASYNCNET */  // a reset of one side sets registers of the other
  logic in_asks, out_asks;  // a reset came
  (* ASYNC_REG = "TRUE" *) logic [1:0] in_obeys, out_obeys;  // reset by the other side
  (* ASYNC_REG = "TRUE" *) logic [1:0] in_waits, out_waits;  // until the other side has obeyed
  always_ff @(posedge in_clock) in_asks <= in_reset;
  always_ff @(posedge out_clock) out_asks <= out_reset;
  always_ff @(posedge in_clock or posedge out_asks)
    if (out_asks) in_obeys <= 2'b11;
    else in_obeys <= {in_obeys[0], 1'b0};
  always_ff @(posedge out_clock or posedge in_asks)
    if (in_asks) out_obeys <= 2'b11;
    else out_obeys <= {out_obeys[0], 1'b0};
  wire in_obeyed = in_obeys[1];
  wire out_obeyed = out_obeys[1];
  always_ff @(posedge in_clock or posedge out_obeyed)
    if (out_obeyed) in_waits <= 2'b11;
    else in_waits <= {in_waits[0], 1'b0};
  always_ff @(posedge out_clock or posedge in_obeyed)
    if (in_obeyed) out_waits <= 2'b11;
    else out_waits <= {out_waits[0], 1'b0};
  assign in_void = in_reset || in_asks || in_obeyed || in_waits[1];
  wire out_void = out_reset || out_asks || out_obeyed || out_waits[1];
  /* verilator lint_on SYNCASYNCNET */

  wire push = in_valid && in_ready;
  wire [PLACE:0] write_next = write + (PLACE + 1)'(push);
  always_ff @(posedge in_clock) begin
    if (push) memory[write[PLACE-1:0]] <= in_data;
    write <= write_next;
    write_gray <= write_next ^ (write_next >> 1);
    read_seen_1 <= read_gray;
    read_seen <= read_seen_1;
    if (in_void) begin
      write <= '0;
      write_gray <= '0;
      read_seen_1 <= '0;
      read_seen <= '0;
    end
  end
  // Full: the same place, a lap apart; in Gray code the two highest bits differ and the others do not.
  assign in_ready = write_gray != {~read_seen[PLACE:PLACE-1], read_seen[PLACE-2:0]};

  wire there = read_gray != write_seen;
  wire move = there && (!out_valid || out_ready);
  wire [PLACE:0] read_next = read + (PLACE + 1)'(move);
  always_ff @(posedge out_clock) begin
    if (move) out_data <= memory[read[PLACE-1:0]];
    out_valid <= move || (out_valid && !out_ready);
    read <= read_next;
    read_gray <= read_next ^ (read_next >> 1);
    write_seen_1 <= write_gray;
    write_seen <= write_seen_1;
    if (out_void) begin
      out_valid <= 1'b0;
      read <= '0;
      read_gray <= '0;
      write_seen_1 <= '0;
      write_seen <= '0;
    end
  end
endmodule
