// A two-layer perceptron that trains itself: forward, backward and update in fixed point, one sample at a time.
//
// Numbers are fixed(8, 8): 16 bits, 8 of them after the point. A sum of products is exact, then shifted right by 8
// toward minus infinity and saturated; an update adds -(rate * error * input) in the same way.
//
//   sample -> layer1 -> ReLU -> layer2 -> error = output - target
//             layer1 <- error through layer2's weights, where ReLU let it pass
//
// Weights are stored row by row: a row holds the weights of one output.
module mlp_layer #(
    parameter int INPUTS = 4,
    parameter int OUTPUTS = 4,
    parameter bit RELU = 1,
    parameter logic [OUTPUTS*INPUTS*16-1:0] START = '0
) (
    input  logic                  clk,
    input  logic                  rst,
    input  logic                  forward,
    input  logic                  update,
    input  logic [          15:0] rate,
    input  logic [ INPUTS*16-1:0] in,
    input  logic [OUTPUTS*16-1:0] error,
    output logic                  out_valid,
    output logic [OUTPUTS*16-1:0] out,
    output logic [ INPUTS*16-1:0] error_in    // the error of the inputs: the weights transposed, times `error`
);
  logic [OUTPUTS*INPUTS*16-1:0] weights;

  function automatic [15:0] shrink(input signed [47:0] wide);
    reg signed [47:0] shifted;
    begin
      shifted = wide >>> 8;
      if (shifted > 48'sd32767) shrink = 16'h7fff;
      else if (shifted < -48'sd32768) shrink = 16'h8000;
      else shrink = shifted[15:0];
    end
  endfunction

  logic signed [47:0] sums[OUTPUTS];
  logic signed [47:0] back[INPUTS];
  logic signed [47:0] steps;
  logic [15:0] slope;
  integer o, i;
  always_comb begin
    for (o = 0; o < OUTPUTS; o = o + 1) begin
      sums[o] = 0;
      for (i = 0; i < INPUTS; i = i + 1)
        sums[o] = sums[o] + $signed(weights[(o*INPUTS+i)*16+:16]) * $signed(in[i*16+:16]);
    end
    for (i = 0; i < INPUTS; i = i + 1) begin
      back[i] = 0;
      for (o = 0; o < OUTPUTS; o = o + 1)
        back[i] = back[i] + $signed(weights[(o*INPUTS+i)*16+:16]) * $signed(error[o*16+:16]);
      error_in[i*16+:16] = shrink(back[i]);
    end
  end

  integer row, column;
  always_ff @(posedge clk) begin
    out_valid <= forward;
    if (forward)
      for (row = 0; row < OUTPUTS; row = row + 1)
        out[row*16+:16] <= RELU && sums[row] < 0 ? 16'd0 : shrink(sums[row]);
    if (update)
      for (row = 0; row < OUTPUTS; row = row + 1)
        for (column = 0; column < INPUTS; column = column + 1) begin
          slope = shrink($signed(error[row*16+:16]) * $signed(in[column*16+:16]));
          steps = $signed(weights[(row*INPUTS+column)*16+:16]) * 48'sd256 - $signed(rate) * $signed(slope);
          weights[(row*INPUTS+column)*16+:16] <= shrink(steps);
        end
    if (rst) begin
      out_valid <= 1'b0;
      out <= '0;
      weights <= START;
    end
  end
endmodule

module mlp_training (
    input  logic        clk,
    input  logic        rst,
    input  logic [15:0] learning_rate,
    input  logic        sample_valid,
    output logic        sample_ready,
    input  logic [63:0] sample,         // 4 inputs
    input  logic [31:0] target,         // 2 outputs
    output logic        output_valid,
    output logic [31:0] prediction
);
  localparam logic [2:0] WAIT = 0, FORWARD_1 = 1, FORWARD_2 = 2, ERROR = 3, BACKWARD = 4, UPDATE = 5;
  localparam logic [255:0] START_1 = {
    16'h0040, 16'hffd0, 16'h0018, 16'h0050, 16'hffc8, 16'h0060, 16'h0028, 16'hffe8,
    16'h0038, 16'h0010, 16'hffb8, 16'h0048, 16'h0020, 16'hfff0, 16'h0058, 16'hffd8
  };
  localparam logic [127:0] START_2 = {
    16'h0030, 16'hffe0, 16'h0050, 16'hffc0, 16'hffd8, 16'h0048, 16'h0020, 16'h0060
  };

  logic [2:0] state;
  logic [63:0] inputs, hidden, hidden_error, hidden_back;
  logic [31:0] wanted, outputs, output_error;
  logic hidden_valid, outputs_valid, hidden_error_valid;
  assign sample_ready = state == WAIT;

  mlp_layer #(
      .INPUTS(4),
      .OUTPUTS(4),
      .RELU(1),
      .START(START_1)
  ) layer1 (
      .clk(clk),
      .rst(rst),
      .forward(state == FORWARD_1),
      .update(state == UPDATE),
      .rate(learning_rate),
      .in(inputs),
      .error(hidden_error),
      .out_valid(hidden_valid),
      .out(hidden),
      .error_in()
  );
  mlp_layer #(
      .INPUTS(4),
      .OUTPUTS(2),
      .RELU(0),
      .START(START_2)
  ) layer2 (
      .clk(clk),
      .rst(rst),
      .forward(state == FORWARD_2),
      .update(state == UPDATE),
      .rate(learning_rate),
      .in(hidden),
      .error(output_error),
      .out_valid(outputs_valid),
      .out(outputs),
      .error_in(hidden_back)
  );

  function automatic [15:0] difference(input signed [15:0] x, input signed [15:0] y);
    reg signed [16:0] wide;
    begin
      wide = x - y;
      difference = wide > 17'sd32767 ? 16'h7fff : wide < -17'sd32768 ? 16'h8000 : wide[15:0];
    end
  endfunction

  integer k;
  always_ff @(posedge clk) begin
    output_valid <= 1'b0;
    hidden_error_valid <= 1'b0;
    case (state)
      WAIT:
      if (sample_valid) begin
        inputs <= sample;
        wanted <= target;
        state <= FORWARD_1;
      end
      FORWARD_1: state <= FORWARD_2;
      FORWARD_2: state <= ERROR;
      ERROR: begin
        for (k = 0; k < 2; k = k + 1) output_error[k*16+:16] <= difference(outputs[k*16+:16], wanted[k*16+:16]);
        prediction <= outputs;
        output_valid <= outputs_valid;
        state <= BACKWARD;
      end
      BACKWARD: begin
        for (k = 0; k < 4; k = k + 1)
          hidden_error[k*16+:16] <= hidden[k*16+:16] == 16'd0 ? 16'd0 : hidden_back[k*16+:16];
        hidden_error_valid <= 1'b1;
        state <= UPDATE;
      end
      default: state <= WAIT;
    endcase
    if (rst) begin
      state <= WAIT;
      output_valid <= 1'b0;
      hidden_error_valid <= 1'b0;
      prediction <= '0;
    end
  end
  wire unused = hidden_valid;
endmodule
