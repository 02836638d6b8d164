// How many cycles a chain spends in each block; what the blocks are built with follows from these.
/* verilator lint_off UNUSEDSIGNAL */  // no function needs all bits
function automatic integer filter_cycles(input integer lanes);
  filter_cycles = 5 + $clog2(lanes) + 2 + 1;
endfunction

// From `execute` to `retire`: products of fixed point, sums and products of floats take longer.
function automatic integer vector_latency(input integer functions, input integer is_float);
  vector_latency = functions[2] || (is_float != 0 && functions[1:0] != 0) ? 6 : 1;
endfunction

function automatic integer vector_cycles(input integer functions, input integer is_float);
  vector_cycles = 3 + vector_latency(functions, is_float) + 1;
endfunction

// Of the slowest tree that is built.
function automatic integer tree_cycles(input integer lanes, input integer functions, input integer is_float);
  integer levels, sum, product;
  levels = $clog2(lanes);
  sum = functions[0] ? (is_float != 0 ? 5 * levels : levels + 1) : levels;
  product = functions[1] ? 5 * levels : levels;
  tree_cycles = sum > product ? sum : product;
  if (tree_cycles == 0) tree_cycles = 1;
endfunction

function automatic integer reduce_cycles(input integer lanes, input integer functions, input integer is_float);
  reduce_cycles = 2 + tree_cycles(lanes, functions, is_float) + 1;
endfunction
/* verilator lint_on UNUSEDSIGNAL */
