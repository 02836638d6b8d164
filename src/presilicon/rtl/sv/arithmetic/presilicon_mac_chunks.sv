// Where a product, or a group of products, stands in its sum: counts up to the end of each chunk.
module presilicon_mac_chunks #(
    parameter int CHUNK = 0  // 0: the whole sum is one
) (
    input  logic clock,
    input  logic reset,
    input  logic enable,
    input  logic in_valid,
    input  logic in_first,     // of the sum
    input  logic in_last,
    output logic begins,       // a chunk
    output logic ends,         // a chunk
    output logic first_chunk
);
  generate
    if (CHUNK == 0) begin : whole
      assign begins = in_first;
      assign ends = in_last;
      assign first_chunk = 1'b1;
      wire unused = &{1'b0, clock, reset, enable, in_valid};
    end else begin : chunks
      localparam int COUNT = $clog2(CHUNK + 1);
      logic [COUNT-1:0] count;
      logic was_first;
      assign begins = in_first || count == '0;
      assign ends = in_last || (CHUNK == 1) || (!begins && count == COUNT'(CHUNK - 1));
      assign first_chunk = in_first || was_first;
      always_ff @(posedge clock)
        if (reset) {count, was_first} <= '0;
        else if (enable && in_valid) begin
          count <= ends ? '0 : begins ? COUNT'(1) : count + 1'b1;
          was_first <= first_chunk && !ends;
        end
    end
  endgenerate
endmodule
