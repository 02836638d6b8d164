// A group of floats as a block with one exponent, 2 cycles: the shared exponent, then the rounded elements.
// Elements are floats of the format ELEMENT, fixed point, or sign and magnitude; the scale is 2^(code + CODE_ZERO).
// The exponent of the largest magnitude less EMAX is held between LOWEST and HIGHEST. With FLUSH, groups below LOWEST
// become zeros. With POISON, a group with NaN or an infinity has the scale code 255; without, NaN counts as 0, and an
// infinity as the largest float32.
module presilicon_block_convert #(
    parameter int IN = 'hff5e0,
    parameter int ELEMENT = 'h4000c5,
    parameter int GROUP = 16,
    parameter int ROUNDING = 0,
    parameter int EMAX = 0,
    parameter int LOWEST = -126,
    parameter int HIGHEST = 127,
    parameter int CODE_ZERO = -127,
    parameter bit FLUSH = 0,
    parameter bit POISON = 0,
    parameter logic [255:0] JUMP = 256'h1,
    localparam int IN_WORD = IN & 63,
    localparam int WORD = ELEMENT & 63
) (
    input  logic                     clock,
    input  logic                     reset,
    input  logic                     enable,
    input  logic [             15:0] seed,      // of stochastic rounding, taken at reset
    input  logic                     in_valid,
    input  logic [GROUP*IN_WORD-1:0] in,
    output logic                     out_valid,
    output logic [   GROUP*WORD-1:0] out,
    output logic [              7:0] out_scale
);
  `include "presilicon_format.svh"
  localparam int BITS = significand_bits(IN);
  localparam int LEAVES = 1 << $clog2(GROUP);
  localparam logic signed [11:0] NONE = -12'sd2000;

  logic [16*GROUP-1:0] draws, draws_1;
  presilicon_lfsr #(
      .DRAWS(GROUP),
      .JUMP (JUMP)
  ) lfsr (
      .clock,
      .reset,
      .enable(enable && in_valid),
      .seed,
      .first(1'b0),
      .count(($clog2(GROUP + 1))'(GROUP)),
      .draws
  );

  logic [GROUP-1:0] signs, nans, infinities, signs_1, nans_1, infinities_1;
  logic [12*GROUP-1:0] exponents, exponents_1;
  logic [BITS*GROUP-1:0] significands, significands_1;
  logic [12*2*LEAVES-1:12] tree;  // of maxima: node n above nodes 2 n and 2 n + 1
  generate
    for (genvar lane = 0; lane < GROUP; lane++) begin : lanes
      presilicon_unpack #(
          .FORMAT(IN),
          .SIGNIFICAND(BITS),
          .NORMALIZE(1)
      ) unpack (
          .code(in[IN_WORD*lane+:IN_WORD]),
          .sign(signs[lane]),
          .exponent(exponents[12*lane+:12]),
          .significand(significands[BITS*lane+:BITS]),
          .nan(nans[lane]),
          .infinity(infinities[lane])
      );
    end
    for (genvar leaf = 0; leaf < LEAVES; leaf++) begin : leaves
      if (leaf < GROUP) begin : number
        assign tree[12*(LEAVES+leaf)+:12] = infinities[leaf] ? 12'sd127
            : nans[leaf] || significands[BITS*leaf+:BITS] == '0 ? NONE : exponents[12*leaf+:12];
      end else begin : none
        assign tree[12*(LEAVES+leaf)+:12] = NONE;
      end
    end
    for (genvar node = 1; node < LEAVES; node++) begin : nodes
      wire signed [11:0] one = tree[12*2*node+:12];
      wire signed [11:0] other = tree[12*(2*node+1)+:12];
      assign tree[12*node+:12] = one > other ? one : other;
    end
  endgenerate
  wire signed [11:0] raw = $signed(tree[23:12]) - 12'(EMAX);
  wire signed [11:0] held = raw < 12'(LOWEST) ? 12'(LOWEST) : raw > 12'(HIGHEST) ? 12'(HIGHEST) : raw;

  logic valid_1, poisoned_1, flushed_1;
  logic signed [11:0] exponent_1;
  always_ff @(posedge clock) begin
    if (enable) begin
      valid_1 <= in_valid;
      out_valid <= valid_1;
      poisoned_1 <= POISON && (|nans || |infinities);
      flushed_1 <= FLUSH && raw < 12'(LOWEST);
      exponent_1 <= held;
      {signs_1, nans_1, infinities_1, exponents_1, significands_1, draws_1}
          <= {signs, nans, infinities, exponents, significands, draws};
      out_scale <= poisoned_1 ? 8'hff : flushed_1 ? 8'h00 : 8'(exponent_1 - 12'(CODE_ZERO));
    end
    if (reset) {valid_1, out_valid} <= '0;
  end

  // Fixed point is rounded as a float whose numbers are all subnormal: PLACES bits of magnitude and one above.
  localparam int KIND = format_kind(ELEMENT);
  localparam int PLACES = WORD - 1;
  localparam int ROUNDED = KIND == 0 ? ELEMENT : (PLACES + 2) | PLACES << 6 | NO_SPECIALS << 23;
  localparam int SATURATED = (ROUNDED & ~(3 << 27)) | SATURATE << 27;
  localparam int ROUNDED_WORD = ROUNDED & 63;
  generate
    for (genvar lane = 0; lane < GROUP; lane++) begin : elements
      wire is_zero = nans_1[lane] || flushed_1 || poisoned_1;
      wire sign = signs_1[lane] && !nans_1[lane] && !poisoned_1;
      wire signed [11:0] above = $signed(exponents_1[12*lane+:12]) - exponent_1;
      logic [ROUNDED_WORD-1:0] rounded;
      logic [WORD-1:0] element;
      presilicon_float_pack #(
          .FORMAT(SATURATED),
          .ROUNDING(ROUNDING),
          .BITS(BITS),
          .CUTS(0)
      ) pack (
          .clock(1'b0),
          .enable(1'b0),
          .sign,
          .top(KIND == 0 ? above + 12'(format_bias(ELEMENT)) : above),
          .significand(significands_1[BITS*lane+:BITS] & {BITS{!is_zero}}),
          .nan(1'b0),
          .infinity(infinities_1[lane] && !is_zero),
          .draw(draws_1[16*lane+:16]),
          .word(rounded)
      );
      if (KIND == 0) begin : float
        assign element = rounded;
      end else if (KIND == 2) begin : magnitude
        assign element = {rounded[PLACES+1], rounded[PLACES-1:0] | {PLACES{rounded[PLACES]}}};
      end else begin : complement
        wire [WORD-1:0] size = rounded[PLACES] ? {sign, {PLACES{!sign}}} : {1'b0, rounded[PLACES-1:0]};
        assign element = sign ? -size : size;
      end
      always_ff @(posedge clock) if (enable) out[WORD*lane+:WORD] <= element;
    end
  endgenerate
endmodule
