// Runs the chains of a tap's program for every vector: fetches chains, waits their bubbles, decides their conditions.
//
// What comes in is a vector or a token. Vectors of another tap, and an exchange of firmware, wait until the pipeline is
// empty. A program is in one of two banks; the loader writes the one that is not in force.
module presilicon_sequencer #(
    parameter int LANES = 16,
    parameter int ELEMENT = 32,
    parameter int WORD = 32,
    parameter bit FLOAT = 0,
    parameter int CHAINS = 16,
    parameter int TAPS = 1,
    parameter bit FLUSH = 0,
    parameter int TAG = 1,
    parameter int PIPELINE = 32,  // cycles from here until a chain has left the packer
    parameter int TAP = TAPS > 1 ? $clog2(TAPS) : 1
) (
    input logic clock,
    input logic reset,
    input logic go,  // room for what chains may give; low, none is issued

    input  logic                     in_valid,
    output logic                     in_ready,
    input  logic [              1:0] in_kind,   // 0 vector, 1 frame broken off, 2 exchange of firmware, 3 exchange, then vector
    input  logic [          TAP-1:0] in_tap,
    input  logic [              1:0] in_last,
    input  logic [          TAG-1:0] in_tag,    // of the frame
    input  logic [LANES*ELEMENT-1:0] in_data,

    output logic [          39:0] out_control,
    output logic [LANES*WORD-1:0] out_data,
    output logic                  tag_push,     // a frame's first chain
    output logic [       TAG-1:0] tag,
    output logic                  idle,

    input  logic           chain_write,
    input  logic [    7:0] chain_index,
    input  logic [   71:0] chain_data,        // bytes 0 to 8 of a chain
    input  logic           program_write,
    input  logic [TAP-1:0] program_tap,
    input  logic [    7:0] program_first,
    input  logic [    7:0] program_count,
    input  logic           exchange_program,  // with the exchange: the program too
    output logic           exchange
);
  `include "presilicon_chain.svh"
  localparam int CHAIN = CHAINS > 1 ? $clog2(CHAINS) : 1;
  localparam int DRAIN = $clog2(PIPELINE + 1);
  localparam logic [1:0] VECTOR = 2'd0, BREAK = 2'd1, EXCHANGE = 2'd2;  // 3: both, an exchange and a vector

  // ---- program memory
  logic bank;
  (* ram_style = "distributed" *) logic [71:0] chains[2**(CHAIN+1)];
  logic [7:0] firsts[2*2**TAP];
  logic [7:0] counts[2*2**TAP];
  logic [2*2**TAP-1:0] watched;
  // What the loader says is taken a cycle later, so that it may come from far away.
  logic write_chain, write_program;
  logic [CHAIN-1:0] write_index;
  logic [71:0] write_data;
  logic [TAP-1:0] write_tap;
  logic [7:0] write_first, write_count;
  always_ff @(posedge clock) begin
    {write_chain, write_index, write_data} <= {chain_write, chain_index[CHAIN-1:0], chain_data};
    {write_program, write_tap, write_first, write_count} <= {program_write, program_tap, program_first, program_count};
    if (write_chain) chains[{~bank, write_index}] <= write_data;
    if (write_program) begin
      firsts[{~bank, write_tap}] <= write_first;
      counts[{~bank, write_tap}] <= write_count;
      watched[{~bank, write_tap}] <= write_count != 0;
    end
    if (exchange && exchange_program) bank <= ~bank;
    if (reset) begin
      {write_chain, write_program} <= '0;
      bank <= 1'b0;
      watched <= '0;
    end
  end

  // ---- the vector under way, with its frame flags
  logic valid, consume;
  logic [1:0] kind, last, first;
  logic [TAP-1:0] tap;
  logic [2**TAP-1:0] begins_0, begins_1;  // whether a tap's next vector is the first of a frame
  assign in_ready = !valid || consume;
  wire take = in_valid && in_ready;
  always_ff @(posedge clock) begin
    if (take) begin
      {kind, tap, last, tag} <= {in_kind, in_tap, in_last, in_tag};
      first <= {begins_1[in_tap], begins_0[in_tap]};
      if (in_kind != EXCHANGE) begin
        begins_0[in_tap] <= in_last[0] || in_kind == BREAK;
        begins_1[in_tap] <= in_last[1] || in_kind == BREAK;
      end
    end
    else if (exchange) kind <= VECTOR;
    valid <= take || (valid && !consume);
    if (reset) begin
      valid <= 1'b0;
      begins_0 <= '1;
      begins_1 <= '1;
    end
  end

  // ---- the program under way, and its next chain, fetched ahead
  logic program_valid, program_empty;
  logic [TAP-1:0] program_of;
  logic is_its_program;  // of the tap of the vector under way
  logic [CHAIN-1:0] program_begin, program_end, fetch;
  logic chain_valid, chain_first, chain_last;
  logic [71:0] chain;
  logic [7:0] bubbles;
  logic [DRAIN-1:0] drain;
  logic drained;  // `drain` is 0

  wire is_vector = valid && kind == VECTOR;
  wire ready = is_vector && program_valid && is_its_program;
  wire switch_program = is_vector && !ready && drained;
  wire issue = go && ready && chain_valid && bubbles == '0;
  wire skip = go && ready && program_empty;  // nothing runs, but a frame may end
  wire abort = go && valid && kind == BREAK;
  assign exchange = valid && kind[1] && drained;
  assign consume = (issue && chain_last) || skip || abort || (exchange && kind == EXCHANGE);
  assign idle = !valid && drained;

  wire [TAP:0] place = {bank, tap};
  wire [71:0] fetched = chains[{bank, fetch}];
  always_ff @(posedge clock) begin
    if (switch_program) begin
      program_valid <= 1'b1;
      program_of <= tap;
      program_empty <= !watched[place];
      program_begin <= firsts[place][CHAIN-1:0];
      program_end <= CHAIN'(firsts[place] + counts[place] - 8'd1);
      fetch <= firsts[place][CHAIN-1:0];
      chain_valid <= 1'b0;
    end else if (program_valid && !program_empty && (!chain_valid || issue)) begin
      chain_valid <= 1'b1;
      chain <= fetched;
      chain_first <= fetch == program_begin;
      chain_last <= fetch == program_end;
      bubbles <= fetched[47:40];
      fetch <= fetch == program_end ? program_begin : fetch + 1'b1;
    end else if (chain_valid && bubbles != '0) bubbles <= bubbles - 8'd1;
    if (switch_program) is_its_program <= 1'b1;
    else if (take) is_its_program <= program_of == in_tap;
    if (exchange) begin
      program_valid <= 1'b0;
      chain_valid <= 1'b0;
    end
    if (issue || skip || abort) begin
      drain <= DRAIN'(PIPELINE);
      drained <= 1'b0;
    end else if (!drained) begin
      drain <= drain - 1'b1;
      drained <= drain == DRAIN'(1);
    end
    if (reset) begin
      program_valid <= 1'b0;
      chain_valid <= 1'b0;
      drain <= '0;
      drained <= 1'b1;
    end
  end
  assign tag_push = ((issue && chain_first) || skip) && first[1];

  // ---- conditions, and the chain on its way
  wire [7:0] holds = {~last[1], last[1], ~first[1], first[1], ~last[0], last[0], ~first[0], first[0]};
  wire do_alu = (chain[55:48] & ~holds) == '0;
  wire do_cache = (chain[63:56] & ~holds) == '0;
  wire do_commit = (chain[71:64] & ~holds) == '0;
  logic [C_BITS-1:0] control, control_next;
  always_ff @(posedge clock) begin
    control <= '0;
    if (issue) begin
      control[C_VALID] <= 1'b1;
      control[C_END] <= FLUSH && chain_last && last[1];
      control[C_FILTER] <= chain[0];
      control[C_AXIS] <= chain[1];
      control[C_RANGE_ROW+:8] <= chain[15:8];
      control[C_ALU+:3] <= do_alu ? chain[18:16] : 3'd0;
      control[C_ALU_ROW+:8] <= chain[31:24];
      control[C_CACHE] <= chain[2] && do_cache;
      control[C_CACHE_ROW+:8] <= chain[39:32];
      control[C_LOAD] <= chain[3];
      control[C_SAVE] <= chain[4];
      control[C_REDUCE+:3] <= chain[22:20];
      control[C_COMMIT+:2] <= do_commit ? chain[6:5] : 2'd0;
    end else begin
      control[C_VALID] <= skip || abort;
      control[C_END] <= FLUSH && skip && last[1];
      control[C_ABORT] <= abort;
    end
    control_next <= control;
    out_control <= control_next;
    if (reset) begin
      control <= '0;
      control_next <= '0;
      out_control <= '0;
    end
  end
  wire unused = &{1'b0, chain[7], chain[19], chain[23], chain[47:40], chain_index};

  // ---- elements become words; every lane takes its own two cycles after `take`
  logic taken_next;
  always_ff @(posedge clock) taken_next <= take && !reset;
  generate
    for (genvar n = 0; n < LANES; n++) begin : lane
      logic taken;
      logic [ELEMENT-1:0] came_1, came, element;
      logic [WORD-1:0] word;
      presilicon_copy #(
          .BITS(1)
      ) copy (
          .clock,
          .reset,
          .in (taken_next),
          .out(taken)
      );
      if (FLOAT) begin : floats
        assign word = WORD'(element) << (WORD - ELEMENT);
      end else begin : fixed
        assign word = WORD'($signed(element));
      end
      always_ff @(posedge clock) begin
        came_1 <= in_data[n*ELEMENT+:ELEMENT];
        came <= came_1;
        if (taken) element <= came;
        out_data[n*WORD+:WORD] <= word;
      end
    end
  endgenerate
endmodule
