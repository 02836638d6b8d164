// Bytes to a serial line: 8 data bits, no parity, one stop bit.
module presilicon_uart_transmitter #(
    parameter int CLOCKS_PER_BIT = 868  // 100 MHz at 115,200 baud
) (
    input  logic       clock,
    input  logic       reset,
    input  logic       valid,
    output logic       ready,
    input  logic [7:0] data,
    output logic       line
);
  localparam int TIME = $clog2(CLOCKS_PER_BIT + 1);
  logic [TIME-1:0] time_;
  logic [3:0] bits;  // still to go
  logic [9:0] frame;
  assign ready = bits == '0;
  assign line = frame[0];
  always_ff @(posedge clock) begin
    if (bits == '0) begin
      if (valid) begin
        frame <= {1'b1, data, 1'b0};
        bits <= 4'd10;
        time_ <= TIME'(CLOCKS_PER_BIT - 1);
      end
    end else if (time_ != '0) time_ <= time_ - 1'b1;
    else begin
      time_ <= TIME'(CLOCKS_PER_BIT - 1);
      frame <= {1'b1, frame[9:1]};
      bits <= bits - 4'd1;
    end
    if (reset) begin
      frame <= '1;
      bits <= '0;
    end
  end
endmodule
