// The vector unit: an operation with a scratchpad row or with the carried vector.
//
//   fetch      scratchpad row and carried vector are read
//   execute    sums of fixed point, max, min, abs and words that merely pass are ready at the end of this cycle
//   retire     LATENCY - 1 cycles later: products (and sums of floats) are ready; the row is written
//
// A result that is ready is handed to the chain in `fetch` from any stage on the way to `retire`; to the chain right
// behind it from a register, `early_last`, at the begin of `execute`. A chain that needs a late result must come LATENCY cycles behind: the compiler sees to that, and there is no interlock.
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
    input  logic                  enable,
    input  logic [          39:0] in_control,
    input  logic [LANES*WORD-1:0] in_data,
    output logic [          39:0] out_control,
    output logic [LANES*WORD-1:0] out_data
);
  `include "presilicon_chain.svh"
  localparam bit LATE_SUMS = FLOAT && |FUNCTIONS[1:0];
  localparam int LATENCY = FUNCTIONS[2] || LATE_SUMS ? 6 : 1;
  localparam int ROW = ROWS > 1 ? $clog2(ROWS) : 1;
  localparam int VECTOR = LANES * WORD;

  // Stage 0 is `execute`, stage LATENCY - 1 is `retire`.
  logic [C_BITS-1:0] control_fetch;
  logic [LATENCY*C_BITS-1:0] controls;
  logic [LATENCY*VECTOR-1:0] results;
  logic [VECTOR-1:0] data_fetch, x, s, early, early_last, late;
  logic [6:0] flags_next;

  wire [C_BITS-1:0] execute = controls[0+:C_BITS];
  // What the chain in `execute` does, decoded a cycle before.
  wire [2:0] operation = control_fetch[C_ALU+:3];
  wire absolute_next = FUNCTIONS[5] && operation == 3'd6;
  logic multiply, is_late;
  always_ff @(posedge clock)
    if (enable) begin
      multiply <= FUNCTIONS[2] && operation == 3'd3;
      is_late <= (FUNCTIONS[2] && operation == 3'd3) || (LATE_SUMS && (operation == 3'd1 || operation == 3'd2));
    end
  wire [C_BITS-1:0] retire = controls[(LATENCY-1)*C_BITS+:C_BITS];
  logic retire_late;
  wire [VECTOR-1:0] result = retire_late ? late : results[(LATENCY-1)*VECTOR+:VECTOR];

  // ---- which stage holds the newest write to the row that the incoming chain will read in the next cycle
  logic [LATENCY-1:0] hit, newest, forward;
  logic from_memory;  // no write is under way, and there was one
  logic [2**ROW-1:0] written;
  wire [ROW-1:0] in_row = in_control[C_ALU_ROW+:ROW];
  wire [ROW-1:0] write_row = retire[C_CACHE_ROW+:ROW];
  always_comb begin
    hit[0] = control_fetch[C_CACHE] && control_fetch[C_CACHE_ROW+:ROW] == in_control[C_ALU_ROW+:ROW];
    for (int stage = 1; stage < LATENCY; stage++)
      hit[stage] = controls[(stage-1)*C_BITS+C_CACHE]
          && controls[(stage-1)*C_BITS+C_CACHE_ROW+:ROW] == in_control[C_ALU_ROW+:ROW];
    newest = hit & (~hit + 1'b1);
  end
  always_ff @(posedge clock)
    if (enable) begin
      data_fetch <= in_data;
      forward <= newest;
      // A row that retires in this cycle can be read in the next.
      from_memory <= newest == '0 && (written[in_row] || (retire[C_CACHE] && write_row == in_row));
    end

  // ---- scratchpad; zero until it is written
  (* ram_style = "distributed" *) logic [VECTOR-1:0] scratchpad[2**ROW];
  wire [ROW-1:0] read_row = control_fetch[C_ALU_ROW+:ROW];
  always_ff @(posedge clock) begin
    if (enable && retire[C_CACHE]) begin
      scratchpad[write_row] <= result;
      written[write_row] <= 1'b1;
    end
    if (reset) written <= '0;
  end

  logic [VECTOR-1:0] operand;
  always_comb begin
    operand = scratchpad[read_row] & {VECTOR{from_memory}};
    for (int stage = 1; stage < LATENCY - 1; stage++)
      operand = operand | (results[stage*VECTOR+:VECTOR] & {VECTOR{forward[stage]}});
    if (LATENCY > 1) operand = operand | (result & {VECTOR{forward[LATENCY-1]}});
  end

  // ---- carried vector: written early, or late unless a newer chain has written it meanwhile
  logic [VECTOR-1:0] carried;
  logic [LATENCY-1:0] saves;  // late ones under way
  wire save_early = execute[C_SAVE] && !is_late;
  wire save_late = LATENCY > 1 && saves[LATENCY-1];
  logic save_last;  // `early_last` is to be carried
  wire [VECTOR-1:0] carried_now = save_last ? early_last : save_late ? late : carried;
  always_ff @(posedge clock) begin
    if (enable) begin
      carried <= carried_now;
      save_last <= save_early;
      saves <= LATENCY'({saves & ~{LATENCY{save_early}}, 1'b0} | {{LATENCY{1'b0}}, execute[C_SAVE] && is_late} << 1);
    end
    if (reset) begin
      carried <= '0;
      saves <= '0;
      save_last <= 1'b0;
    end
  end

  always_ff @(posedge clock)
    if (enable) begin
      s <= absolute_next ? '0 : operand;
      x <= control_fetch[C_LOAD] ? carried_now : data_fetch;
      early_last <= early;
    end

  // ---- execute to retire; every lane has its own copy of what it is to do
  assign flags_next = {
    control_fetch[C_LOAD] && save_early,  // x from `early_last`
    forward[0] && !absolute_next,  // s from `early_last`
    absolute_next,
    FUNCTIONS[4] && operation == 3'd5,
    FUNCTIONS[3] && operation == 3'd4,
    FUNCTIONS[1] && operation == 3'd2,
    FUNCTIONS[0] && operation == 3'd1
  };
  logic late_multiply;
  generate
    for (genvar n = 0; n < LANES; n++) begin : lane
      logic [6:0] flags;
      presilicon_copy #(
          .BITS(7)
      ) copy (
          .clock,
          .reset,
          .enable,
          .in (flags_next),
          .out(flags)
      );
      presilicon_alu_lane #(
          .WORD(WORD),
          .FLOAT(FLOAT),
          .EXPONENT(EXPONENT),
          .FRACTION(FRACTION),
          .BIAS(BIAS),
          .FUNCTIONS(FUNCTIONS)
      ) unit (
          .clock,
          .enable,
          .add(flags[0]),
          .sub(flags[1]),
          .greater(flags[2]),
          .smaller(flags[3]),
          .absolute(flags[4]),
          .late_multiply,
          .x(flags[6] ? early_last[n*WORD+:WORD] : x[n*WORD+:WORD]),
          .s(flags[5] ? early_last[n*WORD+:WORD] : s[n*WORD+:WORD]),
          .early(early[n*WORD+:WORD]),
          .late(late[n*WORD+:WORD])
      );
    end
    if (LATENCY > 1) begin : stages
      logic [LATENCY-1:1] lates, multiplies;
      logic [(LATENCY-1)*VECTOR-1:0] kept;
      always_ff @(posedge clock)
        if (enable) begin
          kept <= ((LATENCY-1)*VECTOR)'({kept, early});
          lates <= (LATENCY - 1)'({lates, is_late});
          multiplies <= (LATENCY - 1)'({multiplies, multiply});
        end
      assign results = {kept, early};
      assign retire_late = lates[LATENCY-1];
      assign late_multiply = multiplies[LATENCY-1];
    end else begin : no_stages
      assign results = early;
      assign retire_late = 1'b0;
      assign late_multiply = 1'b0;
      wire unused = &{1'b0, multiply};
    end
  endgenerate

  always_ff @(posedge clock) begin
    if (reset) begin
      control_fetch <= '0;
      controls <= '0;
      out_control <= '0;
    end else if (enable) begin
      control_fetch <= in_control;
      controls <= (LATENCY * C_BITS)'({controls, control_fetch});
      out_control <= retire;
    end
    if (enable) out_data <= result;
  end
endmodule
