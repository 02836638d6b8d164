// Blocks and the instrument's own state as packets, byte by byte. The status that reports an image comes behind the frames
// that were accepted before that image, and before those behind it: a frame's image is that of the last status.
module presilicon_packetizer #(
    parameter int LANES = 16,
    parameter int WORD = 32,
    parameter int TAPS = 1,
    parameter int COUNT = $clog2(LANES) + 1,
    parameter int TAP = TAPS > 1 ? $clog2(TAPS) : 1,
    parameter int TAG = TAP + 33  // tap, side, number
) (
    input logic clock,
    input logic reset,

    input  logic                  block_valid,
    output logic                  block_ready,
    input  logic                  block_last,
    input  logic [       TAG-1:0] block_tag,
    input  logic [     COUNT-1:0] block_count,
    input  logic [LANES*WORD-1:0] block_data,

    input  logic               exchange,     // an image takes effect; frames behind it have another side
    input  logic               none_ahead,   // no frame that was accepted before the last exchange waits
    input  logic               report,       // an image was taken or refused
    output logic               report_busy,  // its status has not begun yet
    input  logic               changed,      // a count of dropped frames
    input  logic [       31:0] image,
    input  logic [       15:0] taken,
    input  logic [       15:0] refused,
    input  logic [        7:0] refusal,
    input  logic [32*TAPS-1:0] dropped,

    output logic       out_valid,
    input  logic       out_ready,
    output logic [7:0] out_data
);
  localparam int WORD_BYTES = (WORD + 7) / 8;
  localparam int WORD_BYTE = $clog2(WORD_BYTES + 1);
  localparam int STATUS_BYTES = 10 + 4 * TAPS;
  localparam logic [2:0] REST = 0, HEAD = 1, WORDS = 2, STATUS = 3, CRC = 4;

  function automatic [15:0] crc16_byte(input [15:0] crc, input [7:0] data);
    integer step;
    begin
      crc16_byte = crc ^ {data, 8'b0};
      for (step = 0; step < 8; step = step + 1)
        crc16_byte = crc16_byte[15] ? (crc16_byte << 1) ^ 16'h1021 : crc16_byte << 1;
    end
  endfunction

  logic [2:0] state;
  logic [3:0] place;  // of a byte in the header or checksum
  logic [7:0] number;
  logic [87:0] head;  // what is left of the header
  logic is_status;
  logic [LANES*WORD-1:0] words;
  logic [COUNT-1:0] words_left;
  logic [WORD_BYTE-1:0] byte_;  // of the word
  logic [8*STATUS_BYTES-1:0] status;
  logic [8:0] status_left;
  logic [15:0] crc;
  logic told;  // no count has changed since the last status
  logic just_told;  // no block has come since; counts that change all the time must not keep blocks back
  logic between;  // the packet before was the last of its frame
  logic reporting;
  logic side, side_told;  // of frames behind the last exchange, and behind its status

  wire step = !out_valid || out_ready;
  // A status of dropped frames waits for that of an image: it would report that image too soon.
  wire report_due = side == side_told || none_ahead || (block_valid && block_tag[32] == side);
  wire status_due = reporting ? report_due : block_valid && !told && !just_told && side == side_told;
  wire start_status = state == REST && between && status_due;
  wire start_block = state == REST && block_valid && !start_status;
  assign block_ready = start_block;
  assign report_busy = reporting || report;

  wire [8*WORD_BYTES-1:0] word = (8 * WORD_BYTES)'($signed(words[WORD-1:0]));
  logic [7:0] next;
  always_comb
    case (state)
      HEAD: next = head[7:0];
      WORDS: next = word[8*byte_+:8];
      STATUS: next = status[7:0];
      default: next = place == 4'd0 ? crc[7:0] : crc[15:8];
    endcase
  wire [15:0] length = 16'(block_count) * 16'(WORD_BYTES);
  wire [7:0] tap = 8'(block_tag[TAG-1:33]);

  always_ff @(posedge clock) begin
    if (step) out_valid <= 1'b0;
    if (start_status || start_block) begin
      state <= HEAD;
      place <= '0;
      number <= number + 8'd1;
      is_status <= start_status;
      words <= block_data;
      words_left <= block_count;
      byte_ <= '0;
      status_left <= 9'(STATUS_BYTES);
      head <= start_status ? {16'(STATUS_BYTES), 32'd0, number, 8'd0, 8'h02, 16'h5CD1}
          : {length, block_tag[31:0], number, tap, block_last, 7'd1, 16'h5CD1};
    end
    if (start_block) begin
      between <= block_last;
      just_told <= 1'b0;
    end
    if (start_status) begin
      status <= {dropped, 8'(TAPS), refusal, refused, taken, image};
      told <= 1'b1;
      just_told <= 1'b1;
      reporting <= 1'b0;
      side_told <= side;
    end
    if (exchange) side <= ~side;
    if (report) reporting <= 1'b1;
    if (changed) told <= 1'b0;
    if (state != REST && step) begin
      out_valid <= 1'b1;
      out_data <= next;
      crc <= state == HEAD && place < 4'd2 ? '1 : crc16_byte(crc, next);
      case (state)
        HEAD: begin
          head <= head >> 8;
          place <= place + 4'd1;
          if (place == 4'd10) begin
            place <= '0;
            state <= is_status ? STATUS : words_left == '0 ? CRC : WORDS;
          end
        end
        WORDS: begin
          byte_ <= byte_ + 1'b1;
          if (byte_ == WORD_BYTE'(WORD_BYTES - 1)) begin
            byte_ <= '0;
            words <= words >> WORD;
            words_left <= words_left - 1'b1;
            if (words_left == COUNT'(1)) state <= CRC;
          end
        end
        STATUS: begin
          status <= status >> 8;
          status_left <= status_left - 9'd1;
          if (status_left == 9'd1) state <= CRC;
        end
        default: begin
          crc <= crc;
          place <= place + 4'd1;
          if (place == 4'd1) state <= REST;
        end
      endcase
    end
    if (reset) begin
      state <= REST;
      out_valid <= 1'b0;
      number <= '0;
      told <= 1'b1;
      just_told <= 1'b0;
      between <= 1'b1;
      reporting <= 1'b0;
      side <= 1'b0;
      side_told <= 1'b0;
    end
  end
endmodule
