// The sum of INPUTS numbers of BITS bits each, a power of two of them: a tree with a register after every level.
module presilicon_popcount #(
    parameter int INPUTS = 8,
    parameter int BITS = 1
) (
    input  logic                           clock,
    input  logic [        INPUTS*BITS-1:0] in,
    output logic [BITS+$clog2(INPUTS)-1:0] sum
);
  generate
    if (INPUTS == 1) begin : leaf
      assign sum = in;
      wire unused = &{1'b0, clock};
    end else begin : node
      logic [(INPUTS/2)*(BITS+1)-1:0] pairs;
      always_ff @(posedge clock) for (int pair = 0; pair < INPUTS / 2; pair++)
            pairs[pair*(BITS+1)+:BITS+1] <= {1'b0, in[2*pair*BITS+:BITS]} + {1'b0, in[(2*pair+1)*BITS+:BITS]};
      presilicon_popcount #(
          .INPUTS(INPUTS / 2),
          .BITS  (BITS + 1)
      ) rest (
          .clock,
          .in(pairs),
          .sum
      );
    end
  endgenerate
endmodule
