// One byte more into a CRC-32 (reflected 0x04C11DB7), as zlib computes it before the last inversion.
function automatic [31:0] crc32_byte(input [31:0] crc, input [7:0] data);
  integer step;
  begin
    crc32_byte = crc ^ {24'b0, data};
    for (step = 0; step < 8; step = step + 1)
      crc32_byte = crc32_byte[0] ? (crc32_byte >> 1) ^ 32'hEDB88320 : crc32_byte >> 1;
  end
endfunction
