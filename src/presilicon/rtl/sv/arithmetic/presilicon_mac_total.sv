// The sum of chunks: the first one rounded to TOTAL, each further one added and rounded. Without TOTAL, sums of a single
// chunk pass within the cycle.
module presilicon_mac_total #(
    parameter int PARTIAL = 'hff5e0,
    parameter int TOTAL = 0,
    parameter int ROUNDING = 0,
    localparam int PARTIAL_WORD = PARTIAL & 63,
    localparam int WORD = TOTAL == 0 ? PARTIAL & 63 : TOTAL & 63
) (
    input  logic                    clock,
    input  logic                    reset,
    input  logic                    enable,
    input  logic                    in_valid,  // a chunk's sum
    input  logic                    in_first,  // of the first chunk
    input  logic                    in_last,   // of the last one
    input  logic [PARTIAL_WORD-1:0] partial,
    input  logic [            15:0] draw,
    output logic                    out_valid,
    output logic [        WORD-1:0] out
);
  `include "presilicon_format.svh"
  generate
    if (TOTAL == 0) begin : none
      assign out = partial;
      assign out_valid = in_valid && in_last;
      wire unused = &{1'b0, clock, reset, enable, in_first, draw};
    end else begin : total
      localparam bit FIXED = format_kind(TOTAL) != 0;
      localparam int TERM = FIXED ? PARTIAL_WORD + 1 : 15 + significand_bits(PARTIAL);
      logic [TERM-1:0] term;
      presilicon_mac_term #(
          .LEFT(PARTIAL),
          .RIGHT(PARTIAL),
          .FIXED(FIXED),
          .ONE(1),
          .OFFSET(format_bias(TOTAL)),
          .TERM(TERM)
      ) unpack (
          .left(partial),
          .right({PARTIAL_WORD{1'b0}}),
          .draw(16'd0),
          .term
      );
      // A zero of the same sign leaves the first sum as it is, be it -0.
      wire keeps_sign = !FIXED && format_has_negative_zero(TOTAL) != 0 && term[TERM-1];
      logic [WORD-1:0] sum;
      presilicon_mac_sum #(
          .Z(TOTAL),
          .OUT(TOTAL),
          .ROUNDING(ROUNDING),
          .TERM(TERM),
          .FRACTION(format_fraction(PARTIAL))
      ) add (
          .term,
          .z(in_first ? {keeps_sign, {(WORD - 1) {1'b0}}} : out),
          .draw,
          .sum
      );
      always_ff @(posedge clock) begin
        if (enable) out_valid <= in_valid && in_last;
        if (enable && in_valid) out <= sum;
        if (reset) out_valid <= 1'b0;
      end
    end
  endgenerate
endmodule
