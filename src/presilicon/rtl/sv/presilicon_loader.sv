// Takes images from a stream of bytes while the instrument runs. Everything is written to places that are not in
// force; an image that passes every check waits in `pending` until it is exchanged between two outer frames, any other
// is refused with a code and leaves nothing behind.
module presilicon_loader #(
    parameter int LANES = 16,
    parameter int RANGES = 4,
    parameter int WORD = 32,
    parameter bit FLOAT = 0,
    parameter int EXPONENT = 8,
    parameter int FRACTION = 16,
    parameter int RANGE_ROWS = 8,
    parameter int SCRATCHPAD_ROWS = 16,
    parameter int CHAINS = 16,
    parameter int TAPS = 1,
    parameter int CONTROLS = 4,
    parameter int ALU = 63,
    parameter int REDUCE = 15,
    parameter logic [2:0] BLOCKS = 3'h7,  // filter, vector unit, scalar reduce
    parameter int TAP = TAPS > 1 ? $clog2(TAPS) : 1,
    parameter int KEY = WORD + 1 > 6 ? WORD + 1 : 6
) (
    input logic clock,
    input logic reset,

    input  logic       byte_valid,
    output logic       byte_ready,
    input  logic [7:0] byte_data,

    output logic           chain_write,
    output logic [    7:0] chain_index,
    output logic [   71:0] chain_data,
    output logic           program_write,
    output logic [TAP-1:0] program_tap,
    output logic [    7:0] program_first,
    output logic [    7:0] program_count,
    output logic           key_write,
    output logic [    7:0] key_row,
    output logic [    8:0] key_column,
    output logic           key_classes,
    output logic [KEY-1:0] key_data,
    output logic           sampling_write,
    output logic [TAP-1:0] sampling_tap,
    output logic [   15:0] sampling_value,
    output logic           control_write,
    output logic [    4:0] control_index,
    output logic [   31:0] control_value,

    output logic        pending,        // an image waits to be exchanged
    input  logic        exchange,       // it is in force from the next cycle on; `pending` falls two later
    output logic        discard,        // an image was refused
    output logic        has_program,
    output logic        has_sampling,
    input  logic        report_busy,    // the report of the image before is still on its way
    output logic        report,         // an image was taken or refused
    output logic [31:0] image,          // CRC-32 of the image whose program is in force
    output logic [15:0] taken,
    output logic [15:0] refused,
    output logic [ 7:0] refusal
);
  `include "presilicon_crc32.svh"
  localparam int KEY_BYTES = (WORD + 1 + 7) / 8;
  localparam int ROW_BYTES = 2 + (RANGES + 1) * KEY_BYTES;
  localparam int LONGEST = 1 + 2 * TAPS + 12 * 255 + 1 + 255 * ROW_BYTES + 2 * TAPS + 1 + 255 * 5;
  localparam logic [95:0] GEOMETRY = {
    8'(TAPS - 1), 8'(CHAINS - 1), 8'(SCRATCHPAD_ROWS - 1), 8'(RANGE_ROWS - 1),
    8'(FRACTION), 8'(FLOAT ? EXPONENT : 0), 8'(FLOAT), 8'(WORD), 16'(RANGES), 16'(LANES)
  };
  localparam logic [15:0] BUILT = {1'b0, BLOCKS, 4'(REDUCE), 2'b00, 6'(ALU)};

  localparam logic [2:0] HUNT = 0, HEADER = 1, LENGTH = 2, PAYLOAD = 3, CHECKSUM = 4, JUDGE = 5, WAIT = 6;
  localparam logic [3:0] CHAIN_COUNT = 0, PROGRAMS = 1, CHAIN_BYTES = 2, ROW_COUNT = 3, ROW_HEAD = 4, ROW_KEYS = 5,
      SAMPLING = 6, CONTROL_COUNT = 7, CONTROL_BYTES = 8, BEYOND = 9;
  logic [2:0] state;
  logic [3:0] part;  // of the payload: what the next byte belongs to

  logic [31:0] crc, window;  // the last four bytes
  logic [1:0] found;  // bytes of the magic PSFW that have come
  logic [31:0] left;  // payload bytes to come
  logic one_left;
  logic [95:0] geometry;  // what is left of it
  logic [4:0] place;  // of a byte in the header
  logic [3:0] sections, unknown_sections;
  logic [15:0] features, used;
  logic bad_version, bad_geometry, too_long, beyond, bad_kind, bad_row_kind, outside;
  logic [7:0] items;  // chains, rows or registers to come
  logic [7:0] total;  // chains in the program
  logic [8:0] index;
  logic [3:0] step;  // byte within an item
  logic chain_look, exchanged;
  logic [95:0] gathered;  // the bytes of an item, the newest at the top

  wire take = byte_valid && byte_ready;
  assign byte_ready = state == HUNT || state == HEADER || state == PAYLOAD || state == CHECKSUM;
  wire [31:0] window_next = {byte_data, window[31:8]};
  wire [95:0] gathered_next = {byte_data, gathered[95:8]};

  // The part that begins once the sections below `from` are through; `sections` has those that the image announces.
  function automatic [3:0] after(input [3:0] announced, input [1:0] from);
    if (announced[0] && from == 2'd0) after = CHAIN_COUNT;
    else if (announced[1] && from <= 2'd1) after = ROW_COUNT;
    else if (announced[2] && from <= 2'd2) after = SAMPLING;
    else if (announced[3]) after = CONTROL_COUNT;
    else after = BEYOND;
  endfunction

  // What a chain uses, from its first three bytes.
  /* verilator lint_off UNUSEDSIGNAL */  // it needs no rows
  function automatic [15:0] uses(input [23:0] head);
    begin
      uses = 16'd0;
      if (head[19:16] != 4'd0) uses = uses | 16'd1 << (head[19:16] - 4'd1);
      if (head[22:20] != 3'd0) uses = uses | 16'd1 << (4'd7 + {1'b0, head[22:20]});
      uses[12] = uses[12] | head[0];
      uses[13] = uses[13] | (head[19:16] != 4'd0) | (|head[4:2]);
      uses[14] = uses[14] | (head[22:20] != 3'd0);
    end
  endfunction
  /* verilator lint_on UNUSEDSIGNAL */

  wire is_control = CONTROLS > 0 && {1'b0, gathered_next[63:56]} <= 9'(CONTROLS - 1);
  logic [7:0] code;
  always_comb begin
    code = 8'd0;
    if (bad_version) code = 8'd2;
    else if (bad_geometry) code = 8'd3;
    else if (too_long) code = 8'd4;
    else if (crc != 32'hDEBB20E3) code = 8'd5;  // the rest that a right checksum leaves
    else if (unknown_sections != '0 || bad_kind) code = 8'd6;
    else if (beyond || part != BEYOND) code = 8'd4;
    else if (used != features) code = 8'd3;
    else if (outside) code = 8'd6;
  end

  always_ff @(posedge clock) begin
    {chain_write, program_write, key_write, sampling_write, control_write, discard, report, chain_look} <= '0;
    if (take) begin
      window <= window_next;
      gathered <= gathered_next;
      crc <= crc32_byte(crc, byte_data);
    end
    case (state)
      HUNT:
      if (take) begin  // for PSFW
        if (byte_data == 8'h50) found <= 2'd1;
        else if (found == 2'd1 && byte_data == 8'h53) found <= 2'd2;
        else if (found == 2'd2 && byte_data == 8'h46) found <= 2'd3;
        else found <= 2'd0;
        if (found == 2'd3 && byte_data == 8'h57) state <= HEADER;
        place <= 5'd4;
        // The checksum covers the four bytes that were just found.
        crc <= crc32_byte(crc32_byte(crc32_byte(crc32_byte('1, 8'h50), 8'h53), 8'h46), 8'h57);
        {bad_version, bad_geometry, too_long, beyond, bad_kind, outside} <= '0;
        used <= '0;
        geometry <= GEOMETRY;
      end
      HEADER:
      if (take) begin
        place <= place + 5'd1;
        if (place == 5'd4) bad_version <= byte_data != 8'd1;
        if (place == 5'd5) {unknown_sections, sections} <= byte_data;
        if (place >= 5'd6 && place < 5'd18 && byte_data != geometry[7:0]) bad_geometry <= 1'b1;
        if (place >= 5'd6) geometry <= geometry >> 8;
        if (place == 5'd19) begin
          features <= gathered_next[95:80];
          if ((gathered_next[95:80] & ~BUILT) != '0) bad_geometry <= 1'b1;
        end
        if (place == 5'd23) begin
          state <= LENGTH;
          part <= after(sections, 2'd0);
          index <= '0;
          step <= '0;
          place <= '0;
        end
      end
      LENGTH: begin
        left <= window;
        one_left <= window == 32'd1;
        too_long <= window > 32'(LONGEST);
        state <= window > 32'(LONGEST) ? JUDGE : window == '0 ? CHECKSUM : PAYLOAD;
      end
      PAYLOAD:
      if (take) begin
        left <= left - 32'd1;
        one_left <= left == 32'd2;
        if (one_left) state <= CHECKSUM;
        case (part)
          CHAIN_COUNT: begin
            total <= byte_data;
            outside <= outside || {1'b0, byte_data} > 9'(CHAINS);
            part <= PROGRAMS;
          end
          PROGRAMS: begin
            step <= step ^ 4'd1;
            if (step[0]) begin
              program_write <= 1'b1;
              program_tap <= index[TAP-1:0];
              {program_count, program_first} <= gathered_next[95:80];
              outside <= outside || {1'b0, gathered_next[95:88]} + {1'b0, gathered_next[87:80]} > {1'b0, total};
              index <= index + 9'd1;
              if (index == 9'(TAPS - 1)) begin
                items <= total;
                index <= '0;
                part <= total == '0 ? after(sections, 2'd1) : CHAIN_BYTES;
              end
            end
          end
          CHAIN_BYTES: begin
            step <= step == 4'd11 ? 4'd0 : step + 4'd1;
            if (step == 4'd11) begin
              chain_write <= index < 9'(CHAINS);
              chain_index <= index[7:0];
              chain_data <= gathered_next[71:0];
              chain_look <= 1'b1;
              index <= index + 9'd1;
              items <= items - 8'd1;
              if (items == 8'd1) begin
                index <= '0;
                part <= after(sections, 2'd1);
              end
            end
          end
          ROW_COUNT: begin
            items <= byte_data;
            part <= byte_data == '0 ? after(sections, 2'd2) : ROW_HEAD;
          end
          ROW_HEAD: begin
            step <= step ^ 4'd1;
            if (step[0]) begin
              key_row <= gathered_next[87:80];
              key_classes <= byte_data[0];
              bad_row_kind <= byte_data > 8'd1;
              outside <= outside || {1'b0, gathered_next[87:80]} >= 9'(RANGE_ROWS);
              part <= ROW_KEYS;
            end
          end
          ROW_KEYS: begin
            step <= step == 4'(KEY_BYTES - 1) ? 4'd0 : step + 4'd1;
            if (step == 4'(KEY_BYTES - 1)) begin
              key_write <= {1'b0, key_row} < 9'(RANGE_ROWS);
              key_column <= index;
              key_data <= KEY'($signed(gathered_next[95-:8*KEY_BYTES]));
              index <= index + 9'd1;
              if (index == 9'(RANGES)) begin
                bad_kind <= bad_kind || bad_row_kind;
                index <= '0;
                items <= items - 8'd1;
                part <= items == 8'd1 ? after(sections, 2'd2) : ROW_HEAD;
              end
            end
          end
          SAMPLING: begin
            step <= step ^ 4'd1;
            if (step[0]) begin
              sampling_write <= 1'b1;
              sampling_tap <= index[TAP-1:0];
              sampling_value <= gathered_next[95:80];
              index <= index + 9'd1;
              if (index == 9'(TAPS - 1)) part <= after(sections, 2'd3);
            end
          end
          CONTROL_COUNT: begin
            items <= byte_data;
            part <= byte_data == '0 ? BEYOND : CONTROL_BYTES;
          end
          CONTROL_BYTES: begin
            step <= step == 4'd4 ? 4'd0 : step + 4'd1;
            if (step == 4'd4) begin
              control_write <= is_control;
              control_index <= gathered_next[60:56];
              control_value <= gathered_next[95:64];
              outside <= outside || !is_control;
              items <= items - 8'd1;
              if (items == 8'd1) part <= BEYOND;
            end
          end
          default: beyond <= 1'b1;
        endcase
      end
      CHECKSUM:
      if (take) begin
        place <= place + 5'd1;
        if (place == 5'd3) state <= JUDGE;
      end
      JUDGE:
      if (!report_busy) begin
        if (code == 8'd0) state <= WAIT;
        else begin
          state <= HUNT;
          discard <= 1'b1;
          report <= 1'b1;
          refused <= refused + 16'd1;
          refusal <= code;
        end
      end
      default:
      if (exchanged) begin
        state <= HUNT;
        report <= 1'b1;
        taken <= taken + 16'd1;
        if (sections[0]) image <= window;  // the four bytes of its checksum
      end
    endcase
    exchanged <= exchange;
    // A chain is looked at a cycle after it has come; the checksum leaves time for the last.
    if (chain_look) begin
      used <= used | uses(chain_data[23:0]);
      if (chain_data[19:16] > 4'd6 || chain_data[22:20] > 3'd4 || {1'b0, chain_data[15:8]} >= 9'(RANGE_ROWS)
          || {1'b0, chain_data[31:24]} >= 9'(SCRATCHPAD_ROWS) || {1'b0, chain_data[39:32]} >= 9'(SCRATCHPAD_ROWS))
        outside <= 1'b1;
    end
    if (reset) begin
      state <= HUNT;
      found <= 2'd0;
      {chain_look, exchanged} <= '0;
      {image, taken, refused, refusal} <= '0;
    end
  end
  wire unused = &{1'b0, gathered[7:0]};
  assign pending = state == WAIT;
  assign has_program = sections[0];
  assign has_sampling = sections[2];
endmodule
