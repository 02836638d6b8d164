// `in`, a cycle later if CUT, else at once. Without `enable` the register holds.
module presilicon_cut #(
    parameter int BITS = 8,
    parameter bit CUT  = 1
) (
    input  logic            clock,
    input  logic            enable,
    input  logic [BITS-1:0] in,
    output logic [BITS-1:0] out
);
  generate
    if (CUT) begin : cut
      always_ff @(posedge clock) if (enable) out <= in;
    end else begin : wired
      assign out = in;
      wire unused = &{1'b0, clock, enable};
    end
  endgenerate
endmodule
