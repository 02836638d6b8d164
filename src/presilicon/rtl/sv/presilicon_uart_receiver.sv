// Bytes from a serial line: 8 data bits, no parity, one stop bit. A byte that is not taken before the next one ends is lost.
module presilicon_uart_receiver #(
    parameter int CLOCKS_PER_BIT = 868  // 100 MHz at 115,200 baud
) (
    input  logic       clock,
    input  logic       reset,
    input  logic       line,
    output logic       valid,
    input  logic       ready,
    output logic [7:0] data
);
  localparam int TIME = $clog2(CLOCKS_PER_BIT + 1);
  logic line_1, line_2;
  logic [TIME-1:0] time_;
  logic [3:0] bits;  // still to come, with start and stop
  logic [7:0] gathered;
  always_ff @(posedge clock) begin
    line_1 <= line;
    line_2 <= line_1;
    if (ready) valid <= 1'b0;
    if (bits == '0) begin
      if (!line_2) begin
        bits <= 4'd10;
        time_ <= TIME'(CLOCKS_PER_BIT / 2);
      end
    end else if (time_ != '0) time_ <= time_ - 1'b1;
    else begin
      time_ <= TIME'(CLOCKS_PER_BIT - 1);
      bits <= bits - 4'd1;
      if (bits == 4'd10 && line_2) bits <= '0;  // no start bit after all
      if (bits <= 4'd9 && bits >= 4'd2) gathered <= {line_2, gathered[7:1]};
      if (bits == 4'd1 && line_2) begin
        valid <= 1'b1;
        data <= gathered;
      end
    end
    if (reset) begin
      line_1 <= 1'b1;
      line_2 <= 1'b1;
      bits <= '0;
      valid <= 1'b0;
    end
  end
endmodule
