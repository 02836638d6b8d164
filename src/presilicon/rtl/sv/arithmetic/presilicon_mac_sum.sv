// A term of `presilicon_mac_term` plus z, rounded once to OUT, within the cycle. The sum of nothing yet is +0.
module presilicon_mac_sum #(
    parameter int Z = 'hff5e0,
    parameter int OUT = 'hff5e0,
    parameter int ROUNDING = 0,
    parameter int TERM = 63,
    parameter int FRACTION = 0,  // bits of a fixed-point term after the point
    localparam int Z_WORD = Z & 63,
    localparam int OUT_WORD = OUT & 63
) (
    input  logic [    TERM-1:0] term,
    input  logic [  Z_WORD-1:0] z,
    input  logic [        15:0] draw,
    output logic [OUT_WORD-1:0] sum
);
  `include "presilicon_format.svh"
  generate
    if (format_kind(OUT) == 0) begin : float
      presilicon_term_sum #(
          .Z(Z),
          .OUT(OUT),
          .ROUNDING(ROUNDING),
          .BITS(TERM - 15),
          .SLACK(1),
          .CUTS(0)
      ) add (
          .clock(1'b0),
          .enable(1'b0),
          .sign(term[TERM-1]),
          .nan(term[TERM-2]),
          .infinity(term[TERM-3]),
          .exponent(term[TERM-4-:12]),
          .significand(term[TERM-16:0]),
          .z,
          .draw,
          .sum
      );
    end else begin : fixed
      presilicon_fixed_sum #(
          .Z(Z),
          .OUT(OUT),
          .ROUNDING(ROUNDING),
          .BITS(TERM),
          .FRACTION(FRACTION)
      ) add (
          .term,
          .z,
          .draw,
          .sum
      );
    end
  endgenerate
endmodule
