"""Vector ops as sequences of steps, each computed in the format of its role."""
