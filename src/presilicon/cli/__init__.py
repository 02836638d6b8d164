"""The command line: a thin translation of the same Python calls."""
