// One lane of the filter: a word against every boundary of a row, or its class against every range's mask.
//
//   cycle 2    key and class of the word that came a cycle before
//   cycle 3    RANGES + 1 signed comparisons
//   cycle 4    in which range
module presilicon_filter_lane #(
    parameter int RANGES = 4,
    parameter int WORD = 32,
    parameter bit FLOAT = 0,
    parameter int EXPONENT = 8,
    parameter int FRACTION = 16,  // or mantissa bits
    parameter int KEY = WORD + 1 > 6 ? WORD + 1 : 6
) (
    input  logic                      clock,
    input  logic [          WORD-1:0] in_word,
    input  logic [(RANGES+1)*KEY-1:0] row_keys,    // two cycles after the word
    input  logic                      row_classes,
    input  logic                      row_known,
    output logic [        RANGES-1:0] held
);
  logic [WORD-1:0] word;
  always_ff @(posedge clock) word <= in_word;

  logic signed [WORD:0] key;
  logic [5:0] class_;  // nan, +inf, -inf, subnormal, zero, normal
  logic nan;
  if (FLOAT) begin : floats
    localparam logic [WORD-2:0] INFINITY = {{EXPONENT{1'b1}}, {FRACTION{1'b0}}};
    wire [WORD-2:0] magnitude = word[WORD-2:0];
    wire [5:0] kind;
    assign kind[0] = magnitude > INFINITY;
    assign kind[1] = magnitude == INFINITY && !word[WORD-1];
    assign kind[2] = magnitude == INFINITY && word[WORD-1];
    assign kind[3] = magnitude != '0 && magnitude[WORD-2-:EXPONENT] == '0;
    assign kind[4] = magnitude == '0;
    assign kind[5] = magnitude < INFINITY && magnitude[WORD-2-:EXPONENT] != '0;
    always_ff @(posedge clock) begin
        key <= word[WORD-1] ? -$signed({2'b0, magnitude}) : $signed({2'b0, magnitude});
        class_ <= kind;
        nan <= kind[0];
      end
  end else begin : fixed
    always_ff @(posedge clock) begin
        key <= {word[WORD-1], word};
        class_ <= word == '0 ? 6'b010000 : 6'b100000;
        nan <= 1'b0;
      end
  end

  logic [RANGES:0] above;  // key > boundary
  logic [RANGES-1:0] member;
  logic by_class, nowhere;
  always_ff @(posedge clock) begin
      by_class <= row_classes;
      nowhere <= !row_known || (nan && !row_classes);
      for (int m = 0; m <= RANGES; m++) above[m] <= key > $signed(row_keys[m*KEY+:WORD+1]);
      for (int m = 0; m < RANGES; m++) member[m] <= |(class_ & row_keys[m*KEY+:6]);
    end
  // low < x <= high
  always_ff @(posedge clock) held <= nowhere ? '0 : by_class ? member : above[RANGES-1:0] & ~above[RANGES:1];
endmodule
