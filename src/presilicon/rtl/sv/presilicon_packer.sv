// Committed words, appended to one another: a block leaves whenever LANES words are there, and at the end of a frame
// what is left (`out_end`, perhaps without words). `out_abort` is no block: the words of the frame under way are void.
//
// A commit is turned so that its word 0 comes to lie behind the words that wait; the turn takes a cycle for every two
// levels. The last chain of a frame may complete a block and leave a rest: two blocks, of which the second waits in
// `spare`. There is always room for it: a frame has no more blocks than chains. What the lanes are to do is decided
// while the words are turned, and copied for every lane.
module presilicon_packer #(
    parameter int LANES = 16,
    parameter int RANGES = 4,
    parameter int WORD = 32,
    parameter int TAG = 1,
    parameter int FLIGHT = 64,  // chains that may still come when `go` has fallen
    parameter int COUNT = $clog2(LANES) + 1
) (
    input  logic                  clock,
    input  logic                  reset,
    output logic                  go,          // low while too many blocks wait for the reader
    input  logic [          39:0] in_control,
    input  logic [LANES*WORD-1:0] in_data,
    input  logic [       TAG-1:0] tag,         // of the frame whose blocks come out of the turn
    output logic                  tag_pop,
    output logic                  out_valid,
    input  logic                  out_ready,
    output logic                  out_end,
    output logic                  out_abort,
    output logic [     COUNT-1:0] out_count,
    output logic [LANES*WORD-1:0] out_data,
    output logic [       TAG-1:0] out_tag,
    output logic                  idle
);
  `include "presilicon_chain.svh"
  localparam int LEVELS = $clog2(LANES);
  localparam int TURNS = (LEVELS + 1) / 2;  // cycles of turning
  localparam int VECTOR = LANES * WORD;
  localparam logic [COUNT-1:0] ALL = COUNT'(LANES);

  // ---- how many words wait, and what that makes of a chain
  logic [COUNT-1:0] fill, fill_1, rest_1;
  logic full_1, ends_1, aborts_1;
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
    fill <= ends || aborts ? '0 : rest;
    {fill_1, rest_1, full_1, ends_1, aborts_1} <= {fill, rest, full, ends, aborts};
    if (reset) begin
      fill <= '0;
      {fill_1, rest_1, full_1, ends_1, aborts_1} <= '0;
    end
  end

  // ---- which blocks leave: this one, then perhaps a second; while one is in `spare`, this one goes there instead
  localparam int LABEL = 2 + COUNT;
  logic spare_1;
  logic [LABEL-1:0] spare_label;
  wire gives_two = full_1 && ends_1 && rest_1 != '0;
  wire gives = full_1 || ends_1 || aborts_1;
  wire [LABEL-1:0] label = {ends_1 && !gives_two, aborts_1, aborts_1 ? '0 : full_1 ? ALL : rest_1};
  always_ff @(posedge clock) begin
    spare_1 <= spare_1 ? gives : gives_two;
    spare_label <= spare_1 ? label : {1'b1, 1'b0, rest_1};
    if (reset) spare_1 <= 1'b0;
  end

  // ---- the turn
  localparam int ORDERS = COUNT + 3 + LABEL;
  logic [COUNT-1:0] fill_next;
  logic full_next, spare_next, block_next, block_now, block_valid;
  logic [LABEL-1:0] label_next, label_now, block_label;
  presilicon_control_delay #(
      .BITS (ORDERS),
      .DELAY(TURNS)
  ) orders (
      .clock,
      .reset,
      .in ({fill_1, full_1, spare_1, spare_1 || gives, spare_1 ? spare_label : label}),
      .out({fill_next, full_next, spare_next, block_next, label_next})
  );
  // Part t of these is as it is before turn t.
  logic [(TURNS+1)*VECTOR-1:0] words;
  logic [(TURNS+1)*COUNT-1:0] amounts;
  presilicon_delay #(
      .BITS (VECTOR),
      .DELAY(2)
  ) data_delay (
      .clock,
      .reset,
      .in (in_data),
      .out(words[VECTOR-1:0])
  );
  assign amounts[COUNT-1:0] = fill_1;
  generate
    for (genvar turn = 0; turn < TURNS; turn++) begin : turns
      localparam int STEP = 1 << (2 * turn);
      wire [COUNT-1:0] amount_now = amounts[turn*COUNT+:COUNT];
      // Here and not in the port list: Icarus takes no genvar there.
      wire [1:0] steps_now = {2 * turn + 1 < LEVELS && amount_now[2*turn+1], amount_now[2*turn]};
      logic [COUNT-1:0] amount;
      always_ff @(posedge clock) amount <= amount_now;
      assign amounts[(turn+1)*COUNT+:COUNT] = amount;
      for (genvar n = 0; n < LANES; n++) begin : lane
        localparam int ONE = (n + 3 * LANES - STEP) % LANES;  // the lane from which a turn by one step comes
        localparam int TWO = (n + 3 * LANES - 2 * STEP) % LANES;
        localparam int THREE = (n + 3 * LANES - 3 * STEP) % LANES;
        logic [1:0] steps;
        logic [WORD-1:0] word;
        presilicon_copy #(
            .BITS(2)
        ) copy (
            .clock,
            .reset,
            .in (steps_now),
            .out(steps)
        );
        always_ff @(posedge clock)
          case (steps)
            2'd0: word <= words[turn*VECTOR+n*WORD+:WORD];
            2'd1: word <= words[turn*VECTOR+ONE*WORD+:WORD];
            2'd2: word <= words[turn*VECTOR+TWO*WORD+:WORD];
            default: word <= words[turn*VECTOR+THREE*WORD+:WORD];
          endcase
        assign words[(turn+1)*VECTOR+n*WORD+:WORD] = word;
      end
    end
  endgenerate
  wire unused = &{1'b0, in_control, amounts};

  // ---- blocks
  logic [VECTOR-1:0] waiting, block;
  generate
    for (genvar n = 0; n < LANES; n++) begin : lane
      logic keeps, full_now, spare_now;
      logic [WORD-1:0] spare;
      wire [WORD-1:0] turned = words[TURNS*VECTOR+n*WORD+:WORD];
      wire [WORD-1:0] joined = keeps ? waiting[n*WORD+:WORD] : turned;
      presilicon_copy #(
          .BITS(3)
      ) copy (
          .clock,
          .reset,
          .in ({COUNT'(n) < fill_next, full_next, spare_next}),
          .out({keeps, full_now, spare_now})
      );
      always_ff @(posedge clock) begin
        waiting[n*WORD+:WORD] <= full_now ? turned : joined;
        spare <= spare_now ? joined : turned;
        block[n*WORD+:WORD] <= spare_now ? spare : joined;
      end
    end
  endgenerate
  always_ff @(posedge clock) begin
    {block_now, label_now} <= {block_next, label_next};
    {block_valid, block_label} <= {block_now, label_now};
    if (reset) begin
      block_now <= 1'b0;
      block_valid <= 1'b0;
    end
  end

  // ---- the way out: a queue with room for what is under way, so that the blocks never stand still
  localparam int PLACES = 1 << $clog2(FLIGHT + 8);
  localparam int PLACE = $clog2(PLACES);
  logic [PLACE:0] queued;
  assign tag_pop = block_valid && |block_label[LABEL-1-:2];
  always_ff @(posedge clock) go <= !reset && queued < (PLACE + 1)'(PLACES - FLIGHT - 4);
  presilicon_fifo #(
      .BITS  (TAG + LABEL),
      .PLACES(PLACES)
  ) labels (
      .clock,
      .reset,
      .in_valid(block_valid),
      .in_data({tag, block_label}),
      .out_valid,
      .out_ready,
      .out_data({out_tag, out_end, out_abort, out_count}),
      .count(queued)
  );
  generate
    for (genvar n = 0; n < LANES; n++) begin : queue
      /* verilator lint_off PINCONNECTEMPTY */  // these are as those of `labels`
      presilicon_fifo #(
          .BITS  (WORD),
          .PLACES(PLACES)
      ) words (
          .clock,
          .reset,
          .in_valid(block_valid),
          .in_data(block[n*WORD+:WORD]),
          .out_valid(),
          .out_ready,
          .out_data(out_data[n*WORD+:WORD]),
          .count()
      );
      /* verilator lint_on PINCONNECTEMPTY */
    end
  endgenerate
  assign idle = !out_valid && queued == '0;
endmodule
