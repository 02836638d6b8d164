"""Mappings of matrix products and convolutions: loops, tiles, and what each memory holds."""
