"""Settings of every test run."""

import os

# Tensors in tests are small and workers share the cores: several threads each would mostly wait for one another.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Tests simulate few cycles of each circuit: compiling it takes longer. The long ones in tests/cross/rtl undo this.
os.environ.setdefault("PRESILICON_CXXFLAGS", "-O0")
