"""Cards: layers measured on a GPU, and the machine that they describe."""
