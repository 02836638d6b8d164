// The sum of LANES signed words without loss, one level of adders in a cycle.
module presilicon_exact_sum #(
    parameter int LANES = 16,
    parameter int WORD = 32
) (
    input  logic                          clock,
    input  logic [        LANES*WORD-1:0] in,
    output logic [WORD+$clog2(LANES)-1:0] sum
);
  generate
    if (LANES == 1) begin : leaf
      assign sum = in;
      wire unused = &{1'b0, clock};
    end else begin : level
      logic [LANES/2*(WORD+1)-1:0] half;
      always_ff @(posedge clock) for (int pair = 0; pair < LANES / 2; pair++)
            half[pair*(WORD+1)+:WORD+1] <= {in[(2*pair+1)*WORD-1], in[2*pair*WORD+:WORD]}
                + {in[(2*pair+2)*WORD-1], in[(2*pair+1)*WORD+:WORD]};
      presilicon_exact_sum #(
          .LANES(LANES / 2),
          .WORD (WORD + 1)
      ) rest (
          .clock,
          .in(half),
          .sum
      );
    end
  endgenerate
endmodule
