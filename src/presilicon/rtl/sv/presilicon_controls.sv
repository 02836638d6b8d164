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
  generate
    for (genvar r = 0; r < CONTROLS; r++) begin : register
      logic touched;
      logic [31:0] next, value;
      always_ff @(posedge clock) begin
        if (control_write && control_index == 5'(r)) begin
          next <= control_value;
          touched <= 1'b1;
        end
        if (exchange && touched) value <= next;
        if (exchange || discard) touched <= 1'b0;
        if (reset) begin
          touched <= 1'b0;
          value <= '0;
        end
      end
      assign controls[32*r+:32] = value;
    end
    if (CONTROLS == 0) begin : none
      wire unused = &{1'b0, clock, reset, control_write, control_index, control_value, exchange, discard};
    end
  endgenerate
  assign controls[32*CONTROLS+:32] = '0;
endmodule
