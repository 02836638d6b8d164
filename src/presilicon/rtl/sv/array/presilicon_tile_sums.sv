// Adds up the sums of an array's tiles, vector by vector: the first tile's is rounded to TOTAL, each further one is added
// and rounded. Sums that are not complete wait in a memory under their address. A complete vector is valid two cycles
// after its last tile's came; an address may come again after three.
module presilicon_tile_sums #(
    parameter int LANES = 4,
    parameter int PARTIAL = 'hff5e0,
    parameter int TOTAL = 'hff5e0,
    parameter int ROUNDING = 0,
    parameter int ADDRESS = 8,
    parameter int TAG = 1,  // bits that go along with a vector
    localparam int SUM = PARTIAL & 63,
    localparam int WORD = TOTAL & 63
) (
    input  logic                  clock,
    input  logic                  reset,
    input  logic                  enable,
    input  logic                  in_valid,
    input  logic                  in_first,    // tile
    input  logic                  in_last,
    input  logic [   ADDRESS-1:0] in_address,
    input  logic [       TAG-1:0] in_tag,
    input  logic [ LANES*SUM-1:0] in_sums,
    output logic                  out_valid,
    output logic [       TAG-1:0] out_tag,
    output logic [LANES*WORD-1:0] out
);
  `include "presilicon_format.svh"
  localparam bit FIXED = format_kind(TOTAL) != 0;
  localparam int TERM = FIXED ? SUM + 1 : 15 + significand_bits(PARTIAL);
  logic [LANES*WORD-1:0] memory[1 << ADDRESS];
  logic [LANES*WORD-1:0] waiting, totals;
  logic [LANES*SUM-1:0] sums;
  logic valid, first, last;
  logic [ADDRESS-1:0] address;
  logic [TAG-1:0] tag;
  generate
    for (genvar lane = 0; lane < LANES; lane++) begin : lanes
      logic [TERM-1:0] term;
      presilicon_mac_term #(
          .LEFT(PARTIAL),
          .RIGHT(PARTIAL),
          .FIXED(FIXED),
          .ONE(1),
          .OFFSET(format_bias(TOTAL)),
          .TERM(TERM)
      ) unpack (
          .left(sums[lane*SUM+:SUM]),
          .right({SUM{1'b0}}),
          .draw(16'd0),
          .term
      );
      // A zero of the same sign leaves the first sum as it is, be it -0.
      wire keeps_sign = !FIXED && format_has_negative_zero(TOTAL) != 0 && term[TERM-1];
      presilicon_mac_sum #(
          .Z(TOTAL),
          .OUT(TOTAL),
          .ROUNDING(ROUNDING),
          .TERM(TERM),
          .FRACTION(format_fraction(PARTIAL))
      ) add (
          .term,
          .z(first ? {keeps_sign, {(WORD - 1) {1'b0}}} : waiting[lane*WORD+:WORD]),
          .draw(16'd0),
          .sum(totals[lane*WORD+:WORD])
      );
    end
  endgenerate
  always_ff @(posedge clock) begin
    if (enable) begin
      waiting <= memory[in_address];
      {valid, first, last, address, tag, sums} <= {in_valid, in_first, in_last, in_address, in_tag, in_sums};
      if (valid && !last) memory[address] <= totals;
      {out_valid, out_tag, out} <= {valid && last, tag, totals};
    end
    if (reset) {valid, out_valid} <= 2'b00;
  end
endmodule
