// A significand in units of 2^-ALIGN below an exponent that is `distance` above its own, cut toward zero. FRACTION of its
// bits stand below its exponent.
module presilicon_align #(
    parameter int BITS = 8,
    parameter int FRACTION = 6,
    parameter int ALIGN = 24
) (
    input  logic [BITS-1:0] significand,
    input  logic [    11:0] distance,
    output logic [ALIGN+1:0] units
);
  localparam int PLACES = ALIGN > FRACTION ? ALIGN : FRACTION;
  localparam int WIDE = PLACES + 2;
  wire [WIDE-1:0] placed = WIDE'(significand) << (PLACES - FRACTION);
  wire [WIDE-1:0] lowered = |distance[11:6] ? '0 : placed >> distance[5:0];
  assign units = lowered[WIDE-1-:ALIGN+2];
  generate
    if (PLACES > ALIGN) begin : cut_off
      wire unused = &{1'b0, lowered[PLACES-ALIGN-1:0]};
    end
  endgenerate
endmodule
