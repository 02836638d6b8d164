// One byte more into a CRC-32 (reflected 0x04C11DB7), as zlib computes it before the last inversion.
function automatic logic [31:0] crc32_byte(input logic [31:0] crc, input logic [7:0] data);
  logic [31:0] next;
  next = crc ^ {24'b0, data};
  for (int step = 0; step < 8; step++) next = next[0] ? (next >> 1) ^ 32'hEDB88320 : next >> 1;
  return next;
endfunction
