// x * y in fixed point, 5 cycles: the exact product shifted right by FRACTION, toward minus infinity, then saturated.
// Operands are split in halves, so that no stage is deeper than one hardware multiplier or one carry chain; they are
// registered first, since multipliers stand far from everything else.
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
  localparam int MIDDLE = LOW + HIGH + 2;
  localparam int WHOLE = 2 * WORD;

  logic [WORD-1:0] x_near, y_near;
  always_ff @(posedge clock) {x_near, y_near} <= {x, y};
  wire signed [LOW:0] x_low = {1'b0, x_near[LOW-1:0]};
  wire signed [LOW:0] y_low = {1'b0, y_near[LOW-1:0]};
  wire signed [HIGH-1:0] x_high = x_near[WORD-1:LOW];
  wire signed [HIGH-1:0] y_high = y_near[WORD-1:LOW];

  logic signed [2*LOW+1:0] low_low;
  logic signed [LOW+HIGH:0] low_high, high_low;
  logic signed [2*HIGH-1:0] high_high;
  always_ff @(posedge clock) begin
    low_low <= x_low * y_low;
    low_high <= x_low * y_high;
    high_low <= x_high * y_low;
    high_high <= x_high * y_high;
  end

  logic signed [WHOLE-1:0] outer;
  logic signed [MIDDLE-1:0] middle;
  always_ff @(posedge clock) begin
    outer <= {high_high, low_low[2*LOW-1:0]};
    middle <= MIDDLE'(low_high) + MIDDLE'(high_low);
  end
  wire unused = &{1'b0, low_low[2*LOW+1:2*LOW], middle};

  // The lowest LOW bits of `outer` are final: the last addition begins above them.
  logic signed [WHOLE-1:0] exact;
  always_ff @(posedge clock) exact <= {$signed(outer[WHOLE-1:LOW]) + (WHOLE - LOW)'(middle), outer[LOW-1:0]};

  wire signed [WHOLE-1:0] shifted = exact >>> FRACTION;
  wire fits = shifted[WHOLE-1:WORD-1] == {(WHOLE - WORD + 1) {shifted[WHOLE-1]}};
  always_ff @(posedge clock) product <= fits ? shifted[WORD-1:0] : {shifted[WHOLE-1], {(WORD - 1) {~shifted[WHOLE-1]}}};
endmodule
