// Committed words, appended to one another: a block leaves whenever LANES words are there, and at the end of a frame
// what is left (`out_end`, perhaps without words). `out_abort` is no block: the words of the frame under way are void.
//
// A commit is turned so that its word 0 comes to lie behind the words that wait; the turn takes a cycle for every two
// levels. The last chain of a frame may complete a block and leave a rest: two blocks, of which the second waits in
// `spare`. There is always room for it: a frame has no more blocks than chains.
module presilicon_packer #(
    parameter int LANES = 16,
    parameter int RANGES = 4,
    parameter int WORD = 32,
    parameter int COUNT = $clog2(LANES) + 1
) (
    input  logic                  clock,
    input  logic                  reset,
    input  logic                  enable,      // of all blocks: `go` a cycle later
    output logic                  go,          // low while too many blocks wait for the reader
    input  logic [          39:0] in_control,
    input  logic [LANES*WORD-1:0] in_data,
    output logic                  out_valid,
    input  logic                  out_ready,
    output logic                  out_end,
    output logic                  out_abort,
    output logic [     COUNT-1:0] out_count,
    output logic [LANES*WORD-1:0] out_data,
    output logic                  idle
);
  `include "presilicon_chain.svh"
  localparam int LEVELS = $clog2(LANES);
  localparam int TURNS = (LEVELS + 1) / 2;  // cycles of turning
  localparam int VECTOR = LANES * WORD;
  localparam logic [COUNT-1:0] ALL = COUNT'(LANES);

  // ---- how many words wait
  logic [COUNT-1:0] fill;
  logic [COUNT-1:0] size;
  always_comb
    case (in_control[C_COMMIT+:2])
      2'd1: size = COUNT'(1);
      2'd2: size = COUNT'(RANGES);
      2'd3: size = ALL;
      default: size = '0;
    endcase
  wire [COUNT:0] total = {1'b0, fill} + {1'b0, size};
  wire full = total >= {1'b0, ALL};
  wire [COUNT-1:0] rest = full ? COUNT'(total - {1'b0, ALL}) : total[COUNT-1:0];
  wire ends = in_control[C_END];
  wire aborts = in_control[C_ABORT];
  always_ff @(posedge clock) begin
    if (enable) fill <= ends || aborts ? '0 : rest;
    if (reset) fill <= '0;
  end

  // ---- the turn
  localparam int ORDERS = 2 * COUNT + 3;
  logic [COUNT-1:0] fill_turned, rest_turned;
  logic full_turned, ends_turned, aborts_turned;
  logic [VECTOR-1:0] turned;
  generate
    if (TURNS == 0) begin : no_turn
      assign {fill_turned, rest_turned, full_turned, ends_turned, aborts_turned} = {fill, rest, full, ends, aborts};
      assign turned = in_data;
    end else begin : turn
      presilicon_control_delay #(
          .BITS (ORDERS),
          .DELAY(TURNS)
      ) orders (
          .clock,
          .reset,
          .enable,
          .in ({fill, rest, full, ends, aborts}),
          .out({fill_turned, rest_turned, full_turned, ends_turned, aborts_turned})
      );
      for (genvar level = 0; level < LEVELS; level++) begin : at
        localparam int SHIFT = (1 << level) * WORD;
        logic [VECTOR-1:0] from, moved, to;
        logic [LEVELS-1:0] amount, amount_to;
        if (level == 0) begin : first
          assign from = in_data;
          assign amount = fill[LEVELS-1:0];
        end else begin : next
          assign from = at[level-1].to;
          assign amount = at[level-1].amount_to;
        end
        assign moved = amount[level] ? {from[VECTOR-SHIFT-1:0], from[VECTOR-1:VECTOR-SHIFT]} : from;
        if (level % 2 == 1 || level == LEVELS - 1) begin : registered
          always_ff @(posedge clock)
            if (enable) begin
              to <= moved;
              amount_to <= amount;
            end
        end else begin : passed
          assign to = moved;
          assign amount_to = amount;
        end
      end
      assign turned = at[LEVELS-1].to;
      wire unused_amount = &{1'b0, at[LEVELS-1].amount_to};
    end
  endgenerate

  // ---- blocks
  logic [VECTOR-1:0] waiting, joined;
  always_comb
    for (int n = 0; n < LANES; n++)
      joined[n*WORD+:WORD] = COUNT'(n) < fill_turned ? waiting[n*WORD+:WORD] : turned[n*WORD+:WORD];
  always_ff @(posedge clock) if (enable) waiting <= full_turned ? turned : joined;

  wire gives_two = full_turned && ends_turned && rest_turned != '0;
  wire gives = full_turned || ends_turned || aborts_turned;
  wire now_end = ends_turned && !gives_two;
  wire [COUNT-1:0] now_count = aborts_turned ? '0 : full_turned ? ALL : rest_turned;

  // ---- the way out: a short queue, so that no path leads from the reader through the whole circuit
  localparam int PLACES = 8;
  localparam int ENTRY = 2 + COUNT + VECTOR;
  logic spare_valid;
  logic [ENTRY-1:0] spare;
  logic [$clog2(PLACES):0] queued;
  // Two cycles pass until the blocks stop coming, and one may be in `spare`.
  assign go = queued <= ($clog2(PLACES) + 1)'(PLACES - 4);
  wire comes = enable && gives;
  wire [ENTRY-1:0] now = {now_end, aborts_turned, now_count, joined};
  always_ff @(posedge clock) begin
    spare_valid <= spare_valid ? comes : comes && gives_two;
    spare <= spare_valid ? now : {1'b1, 1'b0, rest_turned, turned};
    if (reset) begin
      spare_valid <= 1'b0;
    end
  end
  presilicon_fifo #(
      .BITS  (ENTRY),
      .PLACES(PLACES)
  ) queue (
      .clock,
      .reset,
      .in_valid(spare_valid || comes),
      .in_data(spare_valid ? spare : now),
      .out_valid,
      .out_ready,
      .out_data({out_end, out_abort, out_count, out_data}),
      .count(queued)
  );
  assign idle = !out_valid && !spare_valid && queued == '0;
  wire unused = &{1'b0, in_control};
endmodule
