// The sum of a group of products and a number z, as a tensor core adds: everything is aligned to the largest exponent,
// cut toward zero ALIGN bits below it, and added as integers. The exponent of a product is the sum of its operands'.
// With FLOORED, subnormal numbers have the exponent of the smallest normal one, and a zero has that of 2^-133.
module presilicon_group_aligned #(
    parameter int WIDTH = 4,
    parameter int BITS = 8,  // of a product's significand
    parameter int FRACTION = 6,  // of these, below its exponent
    parameter int ALIGN = 24,
    parameter bit FLOORED = 0,
    parameter int Z = 'hff5e0,
    parameter int SUM = 32,  // ALIGN + 2 + $clog2(WIDTH + 1)
    localparam int Z_WORD = Z & 63
) (
    input  logic        [     WIDTH-1:0] signs,
    input  logic        [  12*WIDTH-1:0] exponents,
    input  logic        [BITS*WIDTH-1:0] significands,
    input  logic signed [          11:0] scale,         // exponent that multiplies the products
    input  logic        [    Z_WORD-1:0] z,
    output logic                         sign,
    output logic signed [          11:0] exponent,      // of the highest bit
    output logic        [       SUM-1:0] magnitude,
    output logic                         z_nan,
    output logic                         z_infinity,
    output logic                         z_sign
);
  `include "presilicon_format.svh"
  localparam int LEAVES = 1 << $clog2(WIDTH + 1);
  localparam logic signed [11:0] LOW = FLOORED ? -12'sd133 : -12'sd1024;
  localparam int Z_BITS = significand_bits(Z);

  logic signed [11:0] z_exponent;
  logic [Z_BITS-1:0] z_significand;
  presilicon_unpack #(
      .FORMAT(Z),
      .SIGNIFICAND(Z_BITS),
      .NORMALIZE(!FLOORED)
  ) unpack (
      .code(z),
      .sign(z_sign),
      .exponent(z_exponent),
      .significand(z_significand),
      .nan(z_nan),
      .infinity(z_infinity)
  );

  // A tree of maxima: node n above nodes 2 n and 2 n + 1, the terms in the last nodes.
  logic [12*2*LEAVES-1:12] tree;
  generate
    for (genvar leaf = 0; leaf < LEAVES; leaf++) begin : leaves
      if (leaf < WIDTH) begin : product
        assign tree[12*(LEAVES+leaf)+:12] = |significands[BITS*leaf+:BITS] ? exponents[12*leaf+:12] : LOW;
      end else if (leaf == WIDTH) begin : sum
        assign tree[12*(LEAVES+leaf)+:12] = |z_significand ? z_exponent - scale : LOW;
      end else begin : none
        assign tree[12*(LEAVES+leaf)+:12] = 12'h800;
      end
    end
    for (genvar node = 1; node < LEAVES; node++) begin : nodes
      wire signed [11:0] one = tree[12*2*node+:12];
      wire signed [11:0] other = tree[12*(2*node+1)+:12];
      assign tree[12*node+:12] = one > other ? one : other;
    end
  endgenerate
  wire signed [11:0] largest = tree[23:12];

  localparam int UNITS = ALIGN + 2;
  logic [UNITS*(WIDTH+1)-1:0] units;
  generate
    for (genvar lane = 0; lane < WIDTH; lane++) begin : lanes
      presilicon_align #(
          .BITS(BITS),
          .FRACTION(FRACTION),
          .ALIGN(ALIGN)
      ) align (
          .significand(significands[BITS*lane+:BITS]),
          .distance(largest - tree[12*(LEAVES+lane)+:12]),
          .units(units[UNITS*lane+:UNITS])
      );
    end
  endgenerate
  presilicon_align #(
      .BITS(Z_BITS),
      .FRACTION(Z_BITS - 1),
      .ALIGN(ALIGN)
  ) align_z (
      .significand(z_significand),
      .distance(largest - tree[12*(LEAVES+WIDTH)+:12]),
      .units(units[UNITS*WIDTH+:UNITS])
  );

  presilicon_signed_sum #(
      .COUNT(WIDTH + 1),
      .BITS (UNITS),
      .SUM  (SUM)
  ) add (
      .signs({z_sign, signs}),
      .magnitudes(units),
      .sign,
      .magnitude
  );
  assign exponent = largest + scale + 12'(SUM - 1 - ALIGN);
endmodule
