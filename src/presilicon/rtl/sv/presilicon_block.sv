// One of the blocks that a chain goes through: 0 nothing, 1 filter and matrix reduce, 2 vector unit, 3 scalar reduce.
module presilicon_block #(
    parameter int KIND = 0,
    parameter int LANES = 16,
    parameter int RANGES = 4,
    parameter int WORD = 32,
    parameter bit FLOAT = 0,
    parameter int EXPONENT = 8,
    parameter int FRACTION = 16,
    parameter int BIAS = 127,
    parameter int RANGE_ROWS = 8,
    parameter int SCRATCHPAD_ROWS = 16,
    parameter int ALU = 63,
    parameter int REDUCE = 15,
    parameter int KEY = WORD + 1 > 6 ? WORD + 1 : 6
) (
    input  logic                  clock,
    input  logic                  reset,
    input  logic [          39:0] in_control,
    input  logic [LANES*WORD-1:0] in_data,
    output logic [          39:0] out_control,
    output logic [LANES*WORD-1:0] out_data,
    input  logic                  key_write,
    input  logic [           7:0] key_row,
    input  logic [           8:0] key_column,
    input  logic                  key_classes,
    input  logic [       KEY-1:0] key_data,
    input  logic                  exchange,
    input  logic                  discard
);
  generate
    if (KIND == 1) begin : filter
      presilicon_filter #(
          .LANES(LANES),
          .RANGES(RANGES),
          .WORD(WORD),
          .FLOAT(FLOAT),
          .EXPONENT(EXPONENT),
          .FRACTION(FRACTION),
          .BIAS(BIAS),
          .ROWS(RANGE_ROWS)
      ) unit (
          .clock,
          .reset,
          .in_control,
          .in_data,
          .out_control,
          .out_data,
          .key_write,
          .key_row,
          .key_column,
          .key_classes,
          .key_data,
          .exchange,
          .discard
      );
    end else if (KIND == 2) begin : alu
      presilicon_vector_alu #(
          .LANES(LANES),
          .WORD(WORD),
          .FLOAT(FLOAT),
          .EXPONENT(EXPONENT),
          .FRACTION(FRACTION),
          .BIAS(BIAS),
          .FUNCTIONS(6'(ALU)),
          .ROWS(SCRATCHPAD_ROWS)
      ) unit (
          .clock,
          .reset,
          .in_control,
          .in_data,
          .out_control,
          .out_data
      );
    end else if (KIND == 3) begin : reduce
      presilicon_scalar_reduce #(
          .LANES(LANES),
          .WORD(WORD),
          .FLOAT(FLOAT),
          .EXPONENT(EXPONENT),
          .FRACTION(FRACTION),
          .BIAS(BIAS),
          .FUNCTIONS(4'(REDUCE))
      ) unit (
          .clock,
          .reset,
          .in_control,
          .in_data,
          .out_control,
          .out_data
      );
    end else begin : nothing
      assign out_control = in_control;
      assign out_data = in_data;
    end
    if (KIND != 1) begin : no_rows
      wire unused = &{1'b0, clock, reset, key_write, key_row, key_column, key_classes, key_data, exchange, discard};
    end
  endgenerate
endmodule
