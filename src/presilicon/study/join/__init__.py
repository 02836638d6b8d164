"""Steps to accuracy and the cost of a step, joined and judged: evaluations, their statistics and comparisons."""
