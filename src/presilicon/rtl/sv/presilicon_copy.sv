// A register that is a copy of others on purpose: each drives what lies near it. A module that is not dissolved keeps
// synthesis from merging the copies again.
(* keep_hierarchy = "yes" *)
module presilicon_copy #(
    parameter int BITS = 1
) (
    input  logic            clock,
    input  logic            reset,
    input  logic [BITS-1:0] in,
    output logic [BITS-1:0] out
);
  always_ff @(posedge clock) begin
    out <= in;
    if (reset) out <= '0;
  end
endmodule
