// One lane of the vector unit: its column of the scratchpad, its word of the carried vector, and its arithmetic.
//
// What it is to do in `fetch`, `execute` and `retire` comes a cycle before and is copied here.
module presilicon_vector_lane #(
    parameter int WORD = 32,
    parameter bit FLOAT = 0,
    parameter int EXPONENT = 8,
    parameter int FRACTION = 16,  // or mantissa bits
    parameter int BIAS = 127,
    parameter logic [5:0] FUNCTIONS = 6'h3f,
    parameter int ROW = 4,  // bits
    parameter int LATENCY = 6
) (
    input  logic               clock,
    input  logic               reset,
    input  logic [   WORD-1:0] in_data,          // a cycle before `compare`
    output logic [   WORD-1:0] out_data,
    input  logic [    ROW-1:0] fetch_row,
    input  logic               fetch_memory,     // s is the row, or the result of one of the stages, or 0
    input  logic [LATENCY-1:0] fetch_forward,
    input  logic               fetch_load,       // x is the carried vector
    input  logic               save_early,       // the result of the last `execute` is to be carried,
    input  logic               save_late,        // or the late one
    input  logic [        6:0] execute_flags,    // x, s from the last `execute`; absolute, smaller, greater, sub, add
    input  logic               retire_cache,
    input  logic [    ROW-1:0] retire_row,
    input  logic               retire_late,
    input  logic               retire_multiply
);
  logic [ROW-1:0] read_row, write_row;
  logic [LATENCY-1:0] forward;
  logic memory, load, carry_early, carry_late, write, take_late, late_multiply;
  logic [6:0] flags;
  presilicon_copy #(
      .BITS(2 * ROW + LATENCY + 14)
  ) copy (
      .clock,
      .reset,
      .in({
        fetch_row,
        fetch_memory,
        fetch_forward,
        fetch_load,
        save_early,
        save_late,
        execute_flags,
        retire_cache,
        retire_row,
        retire_late,
        retire_multiply
      }),
      .out({
        read_row, memory, forward, load, carry_early, carry_late, flags, write, write_row, take_late, late_multiply
      })
  );

  logic [WORD-1:0] data_compare, data_decode, data_fetch, x, s, carried, early, early_last, late;
  logic [LATENCY*WORD-1:0] results;
  wire [WORD-1:0] result = take_late ? late : results[(LATENCY-1)*WORD+:WORD];

  (* ram_style = "distributed" *) logic [WORD-1:0] scratchpad[2**ROW];
  always_ff @(posedge clock) if (write) scratchpad[write_row] <= result;

  logic [WORD-1:0] operand;
  always_comb begin
    operand = scratchpad[read_row] & {WORD{memory}};
    for (int stage = 1; stage < LATENCY - 1; stage++)
      operand = operand | (results[stage*WORD+:WORD] & {WORD{forward[stage]}});
    if (LATENCY > 1) operand = operand | (result & {WORD{forward[LATENCY-1]}});
  end

  wire [WORD-1:0] carried_now = carry_early ? early_last : carry_late ? late : carried;
  always_ff @(posedge clock) begin
    data_compare <= in_data;
    data_decode <= data_compare;
    data_fetch <= data_decode;
    carried <= carried_now;
    s <= operand;
    x <= load ? carried_now : data_fetch;
    early_last <= early;
    out_data <= result;
    if (reset) carried <= '0;
  end

  presilicon_alu_lane #(
      .WORD(WORD),
      .FLOAT(FLOAT),
      .EXPONENT(EXPONENT),
      .FRACTION(FRACTION),
      .BIAS(BIAS),
      .FUNCTIONS(FUNCTIONS)
  ) unit (
      .clock,
      .add(flags[0]),
      .sub(flags[1]),
      .greater(flags[2]),
      .smaller(flags[3]),
      .absolute(flags[4]),
      .late_multiply,
      .x(flags[6] ? early_last : x),
      .s(flags[5] ? early_last : s),
      .early,
      .late
  );
  generate
    if (LATENCY > 1) begin : stages
      logic [(LATENCY-1)*WORD-1:0] kept;
      always_ff @(posedge clock) kept <= ((LATENCY - 1) * WORD)'({kept, early});
      assign results = {kept, early};
    end else begin : no_stages
      assign results = early;
    end
  endgenerate
  wire unused = &{1'b0, forward};
endmodule
