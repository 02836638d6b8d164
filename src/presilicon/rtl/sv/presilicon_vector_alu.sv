// The vector unit: an operation with a scratchpad row or with the carried vector.
//
//   compare    which chains on their way write the row
//   decode     who holds its newest value: one of them, or the scratchpad
//   fetch      scratchpad row and carried vector are read
//   execute    sums of fixed point, max, min, abs and words that merely pass are ready at the end of this cycle
//   retire     LATENCY - 1 cycles later: products (and sums of floats) are ready; the row is written
//
// A result that is ready is handed to the chain in `fetch` from any stage on the way to `retire`; to the chain right
// behind it from a register, at the begin of `execute`. A chain that needs a late result must come LATENCY cycles
// behind: the compiler sees to that, and there is no interlock.
//
// What the lanes are to do is decided here, a cycle ahead; every lane has its own copy of that.
module presilicon_vector_alu #(
    parameter int LANES = 16,
    parameter int WORD = 32,
    parameter bit FLOAT = 0,
    parameter int EXPONENT = 8,
    parameter int FRACTION = 16,  // or mantissa bits
    parameter int BIAS = 127,
    parameter logic [5:0] FUNCTIONS = 6'h3f,
    parameter int ROWS = 16
) (
    input  logic                  clock,
    input  logic                  reset,
    input  logic [          39:0] in_control,
    input  logic [LANES*WORD-1:0] in_data,
    output logic [          39:0] out_control,
    output logic [LANES*WORD-1:0] out_data
);
  `include "presilicon_chain.svh"
  `include "presilicon_latency.svh"
  localparam bit LATE_SUMS = FLOAT && |FUNCTIONS[1:0];
  localparam int LATENCY = vector_latency(int'(FUNCTIONS), int'(FLOAT));
  localparam int ROW = ROWS > 1 ? $clog2(ROWS) : 1;

  // ---- the chains on their way. Stage 0 is `execute`, stage LATENCY - 1 is `retire`.
  logic [C_BITS-1:0] compare, decode, fetch;
  logic [LATENCY*C_BITS-1:0] stages;
  logic [LATENCY-1:0] late, multiplies;  // whose results come late; products among them
  wire [C_BITS-1:0] retire = stages[(LATENCY-1)*C_BITS+:C_BITS];
  wire [(LATENCY+2)*C_BITS-1:0] ahead = {stages, fetch, decode};  // before the chain in `compare`, the nearest first
  wire [2:0] operation = fetch[C_ALU+:3];
  wire multiply = FUNCTIONS[2] && operation == 3'd3;
  wire [LATENCY:0] late_next = {late, multiply || (LATE_SUMS && (operation == 3'd1 || operation == 3'd2))};
  wire [LATENCY:0] multiplies_next = {multiplies, multiply};
  always_ff @(posedge clock) begin
    compare <= in_control;
    decode <= compare;
    fetch <= decode;
    stages <= ahead[C_BITS+:LATENCY*C_BITS];
    late <= late_next[LATENCY-1:0];
    multiplies <= multiplies_next[LATENCY-1:0];
    out_control <= retire;
    if (reset) begin
      compare <= '0;
      decode <= '0;
      fetch <= '0;
      stages <= '0;
      out_control <= '0;
    end
  end

  // ---- compare: which chains ahead write the row. Of those LATENCY are still on their way when it is fetched, the
  // two before them have been written by then.
  logic [LATENCY+1:0] hits;
  logic [2**ROW-1:0] written;
  logic was_written;
  wire [ROW-1:0] row = compare[C_ALU_ROW+:ROW];
  always_ff @(posedge clock) begin
    for (int chain = 0; chain < LATENCY + 2; chain++)
      hits[chain] <= ahead[chain*C_BITS+C_CACHE] && ahead[chain*C_BITS+C_CACHE_ROW+:ROW] == row;
    was_written <= written[row];
    if (retire[C_CACHE]) written[retire[C_CACHE_ROW+:ROW]] <= 1'b1;
    if (reset) written <= '0;
  end

  // ---- decode: the newest of them, or the scratchpad, which is zero until it is written
  logic [LATENCY-1:0] newest;
  logic forward_execute;  // from the chain right ahead
  wire absolute = FUNCTIONS[5] && decode[C_ALU+:3] == 3'd6;  // with 0, not with a row
  always_comb
    for (int chain = 0; chain < LATENCY; chain++)
      newest[chain] = !absolute && hits[chain] && (hits & ((LATENCY + 2)'(1) << chain) - 1'b1) == '0;
  wire from_memory = !absolute && hits[LATENCY-1:0] == '0 && (was_written || hits[LATENCY+1:LATENCY] != '0);
  always_ff @(posedge clock) forward_execute <= newest[0];

  // ---- carried vector: written early, or late unless a newer chain has written it meanwhile
  logic save_early;  // by the chain in `execute`
  logic [LATENCY-1:0] saves;  // late ones under way, by their stages
  wire [LATENCY:0] saves_next = {saves & ~{LATENCY{save_early}}, fetch[C_SAVE] && late_next[0]};
  always_ff @(posedge clock) begin
    save_early <= fetch[C_SAVE] && !late_next[0];
    saves <= saves_next[LATENCY-1:0];
    if (reset) begin
      save_early <= 1'b0;
      saves <= '0;
    end
  end
  wire unused = &{1'b0, saves_next, late_next, multiplies_next};

  generate
    for (genvar n = 0; n < LANES; n++) begin : lane
      presilicon_vector_lane #(
          .WORD(WORD),
          .FLOAT(FLOAT),
          .EXPONENT(EXPONENT),
          .FRACTION(FRACTION),
          .BIAS(BIAS),
          .FUNCTIONS(FUNCTIONS),
          .ROW(ROW),
          .LATENCY(LATENCY)
      ) unit (
          .clock,
          .reset,
          .in_data(in_data[n*WORD+:WORD]),
          .out_data(out_data[n*WORD+:WORD]),
          .fetch_row(decode[C_ALU_ROW+:ROW]),
          .fetch_memory(from_memory),
          .fetch_forward(newest),
          .fetch_load(decode[C_LOAD]),
          .save_early,
          .save_late(LATENCY > 1 && saves_next[LATENCY-1]),
          .execute_flags({
            fetch[C_LOAD] && save_early,
            forward_execute,
            FUNCTIONS[5] && operation == 3'd6,
            FUNCTIONS[4] && operation == 3'd5,
            FUNCTIONS[3] && operation == 3'd4,
            FUNCTIONS[1] && operation == 3'd2,
            FUNCTIONS[0] && operation == 3'd1
          }),
          .retire_cache(ahead[LATENCY*C_BITS+C_CACHE]),
          .retire_row(ahead[LATENCY*C_BITS+C_CACHE_ROW+:ROW]),
          .retire_late(late_next[LATENCY-1]),
          .retire_multiply(multiplies_next[LATENCY-1])
      );
    end
  endgenerate
endmodule
