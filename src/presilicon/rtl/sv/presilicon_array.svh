// Modes of the cells of a systolic array.
/* verilator lint_off UNUSEDPARAM */  // no module needs all of them
localparam logic [1:0] SUMS_DOWN = 2'd0, SUMS_RIGHT = 2'd1, SUMS_STAY = 2'd2, SUMS_LEAVE = 2'd3;
/* verilator lint_on UNUSEDPARAM */
