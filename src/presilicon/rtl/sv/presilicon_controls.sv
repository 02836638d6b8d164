// Registers that the host writes and the user's circuit reads. What an image writes is kept aside until its exchange.
module presilicon_controls #(
    parameter int CONTROLS = 4
) (
    input  logic                    clock,
    input  logic                    reset,
    input  logic                    control_write,
    input  logic [             4:0] control_index,
    input  logic [            31:0] control_value,
    input  logic                    exchange,
    input  logic                    discard,
    output logic [32*CONTROLS+31:0] controls        // and 32 bits of 0, so that none is a width too
);
  // What the loader says is taken a cycle later, so that it may come from far away.
  logic write, swap, forget;
  logic [4:0] index;
  logic [31:0] written;
  always_ff @(posedge clock) begin
    {index, written} <= {control_index, control_value};
    {write, swap, forget} <= {control_write, exchange, discard};
    if (reset) {write, swap, forget} <= '0;
  end
  generate
    for (genvar r = 0; r < CONTROLS; r++) begin : register
      logic touched;
      logic [31:0] next, value;
      always_ff @(posedge clock) begin
        if (write && index == 5'(r)) begin
          next <= written;
          touched <= 1'b1;
        end
        if (swap && touched) value <= next;
        if (swap || forget) touched <= 1'b0;
        if (reset) begin
          touched <= 1'b0;
          value <= '0;
        end
      end
      assign controls[32*r+:32] = value;
    end
    if (CONTROLS == 0) begin : none
      wire unused = &{1'b0, write, index, written, swap, forget};
    end
  endgenerate
  assign controls[32*CONTROLS+:32] = '0;
endmodule
