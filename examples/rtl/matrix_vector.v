// y = A * x, eight rows at a time, from a memory that the host fills. Plain Verilog-2001, written for no instrument.
module mac_cell #(parameter W = 8, parameter ACC = 24) (clk, rst_n, clear, step, a, b, acc);
  input clk, rst_n, clear, step;
  input signed [W-1:0] a, b;
  output signed [ACC-1:0] acc;
  reg signed [ACC-1:0] acc;
  always @(posedge clk or negedge rst_n)
    if (!rst_n) acc <= {ACC{1'b0}};
    else if (clear) acc <= {ACC{1'b0}};
    else if (step) acc <= acc + a * b;
endmodule

module matrix_vector (clk, rst_n, write, address, value, start, busy, done, checksum);
  parameter ROWS = 8, COLUMNS = 16;
  input clk, rst_n, write, start;
  input [7:0] address;   // 0 to 127: the matrix, column by column; 128 on: the vector
  input [7:0] value;
  output busy, done;
  output [23:0] checksum;
  reg busy, done;
  reg [23:0] checksum;

  reg [7:0] matrix [0:ROWS*COLUMNS-1];
  reg [7:0] operand [0:COLUMNS-1];
  always @(posedge clk) begin
    if (write && !address[7]) matrix[address[6:0]] <= value;
    if (write && address[7]) operand[address[3:0]] <= value;
  end

  reg [4:0] column;
  reg stepping, clearing, finished;
  reg [7:0] x;
  reg [6:0] base;
  always @(posedge clk or negedge rst_n)
    if (!rst_n) begin
      busy <= 1'b0; stepping <= 1'b0; clearing <= 1'b0; finished <= 1'b0; done <= 1'b0; column <= 5'd0;
    end else begin
      clearing <= start && !busy;
      finished <= stepping && column == COLUMNS;
      done <= finished;
      if (start && !busy) begin busy <= 1'b1; column <= 5'd0; end
      else if (busy && column != COLUMNS) column <= column + 5'd1;
      stepping <= busy && column != COLUMNS;
      x <= operand[column[3:0]];
      base <= {column[3:0], 3'd0};
      if (finished) busy <= 1'b0;
    end

  wire [ROWS*24-1:0] sums;
  genvar r;
  generate
    for (r = 0; r < ROWS; r = r + 1) begin : row
      wire [7:0] weight = matrix[base + r];
      mac_cell #(.W(8), .ACC(24)) cell_ (
        .clk(clk), .rst_n(rst_n), .clear(clearing), .step(stepping), .a(weight), .b(x), .acc(sums[r*24 +: 24])
      );
    end
  endgenerate

  integer n;
  always @(posedge clk or negedge rst_n)
    if (!rst_n) checksum <= 24'd0;
    else if (finished) checksum <= checksum ^ sums[23:0] ^ {sums[191:184], sums[100:85]};
endmodule
