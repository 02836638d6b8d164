// A chain on its way through the blocks: one vector of control bits. Conditions have been decided before it is issued.
// An empty cycle is all zeros.
/* verilator lint_off UNUSEDPARAM */  // no block needs all of them
localparam int C_VALID = 0;  // a chain, or a token
localparam int C_END = 1;  // the last chain of an outer frame's last vector
localparam int C_ABORT = 2;  // no chain: the frame under way is broken off
localparam int C_FILTER = 3;
localparam int C_AXIS = 4;  // 0: a count for each range, 1: for each lane
localparam int C_RANGE_ROW = 5;  // 8 bits
localparam int C_ALU = 13;  // 3 bits: 0 pass, 1 add, 2 sub, 3 mul, 4 max, 5 min, 6 abs
localparam int C_ALU_ROW = 16;  // 8 bits
localparam int C_CACHE = 24;
localparam int C_CACHE_ROW = 25;  // 8 bits
localparam int C_LOAD = 33;
localparam int C_SAVE = 34;
localparam int C_REDUCE = 35;  // 3 bits: 0 none, 1 sum, 2 product, 3 max, 4 min
localparam int C_COMMIT = 38;  // 2 bits: 0 none, 1 one word, 2 M, 3 N
localparam int C_BITS = 40;
/* verilator lint_on UNUSEDPARAM */
