// x * y in fixed point, 5 cycles: the exact product shifted right by FRACTION, toward minus infinity, then saturated.
// The product of an end of the range is an end.
// Operands are split in halves for the multipliers of the hardware. These stand far from everything else: a register
// before and two behind each of them share the way.
module presilicon_fixed_multiply #(
    parameter int WORD = 32,
    parameter int FRACTION = 16
) (
    input  logic                   clock,
    input  logic        [WORD-1:0] x,
    input  logic        [WORD-1:0] y,
    output logic signed [WORD-1:0] product
);
  localparam int LOW = WORD / 2;
  localparam int HIGH = WORD - LOW;  // the upper half has the sign
  localparam int WHOLE = 2 * WORD;

  logic [WORD-1:0] x_near, y_near;
  always_ff @(posedge clock) {x_near, y_near} <= {x, y};
  wire signed [LOW:0] x_low = {1'b0, x_near[LOW-1:0]};
  wire signed [LOW:0] y_low = {1'b0, y_near[LOW-1:0]};
  wire signed [HIGH-1:0] x_high = x_near[WORD-1:LOW];
  wire signed [HIGH-1:0] y_high = y_near[WORD-1:LOW];

  wire x_end = x_near[WORD-2:0] == {(WORD - 1) {~x_near[WORD-1]}};
  wire y_end = y_near[WORD-2:0] == {(WORD - 1) {~y_near[WORD-1]}};
  logic [2:0] ended, negative;  // behind the operands, at the parts and at the exact product
  always_ff @(posedge clock) begin
    ended <= {ended[1:0], x_end || y_end};
    negative <= {negative[1:0], x_near[WORD-1] ^ y_near[WORD-1]};
  end

  localparam int PARTS = 2 * LOW + 2 + 2 * (LOW + HIGH + 1) + 2 * HIGH;
  logic [PARTS-1:0] parts_far;
  logic signed [2*LOW+1:0] low_low;
  logic signed [LOW+HIGH:0] low_high, high_low;
  logic signed [2*HIGH-1:0] high_high;
  wire signed [2*LOW+1:0] low_low_far = x_low * y_low;
  wire signed [LOW+HIGH:0] low_high_far = x_low * y_high;
  wire signed [LOW+HIGH:0] high_low_far = x_high * y_low;
  wire signed [2*HIGH-1:0] high_high_far = x_high * y_high;
  always_ff @(posedge clock) begin
    parts_far <= {high_high_far, high_low_far, low_high_far, low_low_far};
    {high_high, high_low, low_high, low_low} <= parts_far;
  end

  // The lowest LOW bits are final: the additions begin above them.
  localparam int UPPER = WHOLE - LOW;
  wire signed [UPPER-1:0] outer = {high_high, low_low[2*LOW-1:LOW]};
  logic signed [WHOLE-1:0] exact;
  always_ff @(posedge clock)
    exact <= {outer + (UPPER'(low_high) + UPPER'(high_low)), low_low[LOW-1:0]};
  wire unused = &{1'b0, low_low[2*LOW+1:2*LOW]};

  wire signed [WHOLE-1:0] shifted = exact >>> FRACTION;
  wire fits = shifted[WHOLE-1:WORD-1] == {(WHOLE - WORD + 1) {shifted[WHOLE-1]}};
  wire sign = ended[2] ? negative[2] : shifted[WHOLE-1];
  always_ff @(posedge clock) product <= fits && !ended[2] ? shifted[WORD-1:0] : {sign, {(WORD - 1) {~sign}}};
endmodule
