// Random words of stochastic rounding, from a 16-bit shift register (taps 16, 15, 13, 4). Output number e of a unit begins
// e steps after the seed; each rounding moves the register on by JUMP, a matrix over GF(2) with row r in bits 16 r to
// 16 r + 15: a single step for a unit that computes one output, as many steps as there are outputs for one of several.
module presilicon_lfsr #(
    parameter int DRAWS = 1,  // words of a cycle
    parameter logic [255:0] JUMP = 256'h1
) (
    input  logic                       clock,
    input  logic                       reset,    // takes the seed
    input  logic                       enable,
    input  logic [               15:0] seed,
    input  logic                       first,    // a new output begins
    input  logic [$clog2(DRAWS+1)-1:0] count,    // words that are used
    output logic [       16*DRAWS-1:0] draws
);
  logic [15:0] base, state;
  wire [15:0] now = first ? base : state;
  logic [16*(DRAWS+1)-1:0] ahead;
  assign ahead[15:0] = now;
  generate
    for (genvar draw = 0; draw < DRAWS; draw++) begin : jumps
      for (genvar bit_ = 0; bit_ < 16; bit_++) begin : row
        assign ahead[16*(draw+1)+bit_] = ^(ahead[16*draw+:16] & JUMP[16*bit_+:16]);
      end
    end
  endgenerate
  assign draws = ahead[16*DRAWS-1:0];
  always_ff @(posedge clock)
    if (reset) begin
      base  <= seed;
      state <= seed;
    end else if (enable) begin
      if (first) base <= {base[0] ^ base[1] ^ base[3] ^ base[12], base[15:1]};
      state <= ahead[16*count+:16];
    end
endmodule
