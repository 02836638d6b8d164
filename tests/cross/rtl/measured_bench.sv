// Feeds a file of vectors to the circuits that are measured beside the instrument, and prints what comes out.
module measured_bench;
  localparam N = 4, WIDTH = 16, BINS = 16, VECTORS = 64;
  reg clk = 0, rst = 1;
  always #1 clk = ~clk;

  reg [1:0] mode;
  reg signed [WIDTH-1:0] low = -16'sd100;
  reg [5:0] shift = 4;
  reg in_valid = 0, in_last = 0, accepted = 0;
  wire in_ready, out_valid;
  reg [N*WIDTH-1:0] in_data;
  wire [N*WIDTH-1:0] out_data;
  presilicon_baseline_instrument #(.N(N), .WIDTH(WIDTH), .BINS(BINS)) baseline (.*);
  always @(posedge clk) begin
    accepted <= in_valid & in_ready;
    if (out_valid) $display("baseline %0d %h", mode, out_data);
  end

  reg block_valid = 0, block_first = 0, block_accepted = 0;
  wire block_ready;
  reg signed [7:0] block_exponent;
  reg [N*8-1:0] block_mantissas;
  wire signed [7:0] exponent;
  wire [N*8-1:0] mantissas;
  presilicon_block_accumulate #(.LANES(N), .MANTISSA(8), .EXPONENT(8)) block (
      .clock(clk), .reset(rst), .in_valid(block_valid), .in_ready(block_ready), .in_first(block_first),
      .in_exponent(block_exponent), .in_mantissas(block_mantissas), .exponent, .mantissas);
  always @(posedge clk) block_accepted <= block_valid & block_ready;

  reg [N*WIDTH:0] vectors[0:VECTORS-1];
  reg [N*8+8:0] blocks[0:VECTORS-1];
  integer i, k;
  initial begin
    $readmemh("vectors.hex", vectors);
    $readmemh("blocks.hex", blocks);
    for (k = 0; k < 3; k = k + 1) begin
      mode = k;
      rst = 1;
      repeat (4) @(negedge clk);
      rst = 0;
      for (i = 0; i < VECTORS; i = i + 1) begin
        in_valid = 1;
        {in_last, in_data} = vectors[i];
        @(negedge clk);
        while (!accepted) @(negedge clk);
      end
      in_valid = 0;
      repeat (60) @(negedge clk);
    end
    for (i = 0; i < VECTORS; i = i + 1) begin
      block_valid = 1;
      {block_first, block_exponent, block_mantissas} = blocks[i];
      @(negedge clk);
      while (!block_accepted) @(negedge clk);
      block_valid = 0;
      repeat (4) @(negedge clk);
      $display("block %0d %h", exponent, mantissas);
    end
    $finish;
  end
endmodule
