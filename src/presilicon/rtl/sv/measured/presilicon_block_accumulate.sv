// A running sum of vectors in block floating point: MANTISSA bits per lane, one exponent for all lanes. It is no part of
// the instrument; it is here to be measured against the same sum in fixed point.
//
//   align       the block with the smaller exponent is shifted right (toward minus infinity)
//   add         one bit more
//   look        does any lane need that bit?
//   normalize   if so, all lanes move right by one, and the exponent rises
//
// The next sum needs what the last one left: one vector every four cycles.
module presilicon_block_accumulate #(
    parameter int LANES = 16,
    parameter int MANTISSA = 8,
    parameter int EXPONENT = 8
) (
    input  logic                               clock,
    input  logic                               reset,
    input  logic                               in_valid,
    output logic                               in_ready,
    input  logic                               in_first,
    input  logic signed [        EXPONENT-1:0] in_exponent,
    input  logic        [LANES*MANTISSA-1:0]   in_mantissas,
    output logic signed [        EXPONENT-1:0] exponent,
    output logic        [LANES*MANTISSA-1:0]   mantissas
);
  localparam int SHIFT = $clog2(MANTISSA + 1);

  logic [1:0] phase;  // 0 waits for a vector
  assign in_ready = phase == 2'd0;

  wire signed [EXPONENT:0] apart = {exponent[EXPONENT-1], exponent} - {in_exponent[EXPONENT-1], in_exponent};
  wire smaller = apart[EXPONENT];  // the sum has the smaller exponent
  wire [EXPONENT:0] distance = smaller ? -apart : apart;
  wire [SHIFT-1:0] shift = distance > (EXPONENT + 1)'(MANTISSA) ? SHIFT'(MANTISSA) : distance[SHIFT-1:0];

  logic [LANES*MANTISSA-1:0] aligned_sum, aligned_in;
  logic [LANES*(MANTISSA+1)-1:0] sums;
  logic [LANES-1:0] overflows;
  logic is_over;

  always_ff @(posedge clock)
    if (reset) begin
      phase <= 2'd0;
      exponent <= '0;
    end else
      case (phase)
        2'd0:
        if (in_valid) begin
          phase <= 2'd1;
          exponent <= in_first || smaller ? in_exponent : exponent;
        end
        2'd1: phase <= 2'd2;
        2'd2: phase <= 2'd3;
        default: begin
          phase <= 2'd0;
          exponent <= is_over ? exponent + 1'b1 : exponent;
        end
      endcase

  always_ff @(posedge clock) is_over <= |overflows;

  generate
    for (genvar n = 0; n < LANES; n++) begin : lane
      wire signed [MANTISSA-1:0] ours = mantissas[n*MANTISSA+:MANTISSA];
      wire signed [MANTISSA-1:0] theirs = in_mantissas[n*MANTISSA+:MANTISSA];
      // Of their own, so that both shifts keep the sign whatever stands beside them.
      wire signed [MANTISSA-1:0] ours_moved = ours >>> shift;
      wire signed [MANTISSA-1:0] theirs_moved = theirs >>> shift;
      wire signed [MANTISSA-1:0] sum_in = aligned_in[n*MANTISSA+:MANTISSA];
      wire signed [MANTISSA-1:0] sum_ours = aligned_sum[n*MANTISSA+:MANTISSA];
      wire signed [MANTISSA:0] total = sums[n*(MANTISSA+1)+:MANTISSA+1];
      assign overflows[n] = total[MANTISSA] != total[MANTISSA-1];
      always_ff @(posedge clock) begin
        if (phase == 2'd0) begin
          aligned_sum[n*MANTISSA+:MANTISSA] <= in_first ? '0 : smaller ? ours_moved : ours;
          aligned_in[n*MANTISSA+:MANTISSA] <= smaller || in_first ? theirs : theirs_moved;
        end
        sums[n*(MANTISSA+1)+:MANTISSA+1] <= sum_in + sum_ours;
        if (phase == 2'd3) mantissas[n*MANTISSA+:MANTISSA] <= is_over ? total[MANTISSA:1] : total[MANTISSA-1:0];
      end
    end
  endgenerate
endmodule

// The same sum in fixed point, saturating: one vector every cycle.
module presilicon_fixed_accumulate #(
    parameter int LANES = 16,
    parameter int WORD  = 16
) (
    input  logic                  clock,
    input  logic                  reset,
    input  logic                  in_valid,
    output logic                  in_ready,
    input  logic                  in_first,
    input  logic [LANES*WORD-1:0] in_words,
    output logic [LANES*WORD-1:0] words
);
  assign in_ready = 1'b1;
  generate
    for (genvar n = 0; n < LANES; n++) begin : lane
      wire signed [WORD-1:0] ours = in_first ? '0 : words[n*WORD+:WORD];
      wire signed [WORD-1:0] theirs = in_words[n*WORD+:WORD];
      wire signed [WORD:0] total = ours + theirs;
      wire fits = total[WORD] == total[WORD-1];
      always_ff @(posedge clock)
        if (reset) words[n*WORD+:WORD] <= '0;
        else if (in_valid)
          words[n*WORD+:WORD] <= fits ? total[WORD-1:0] : {total[WORD], {(WORD - 1) {~total[WORD]}}};
    end
  endgenerate
endmodule
