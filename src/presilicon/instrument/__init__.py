"""On-chip debug: firmware, bit-exact models, the host side of the live stream."""
