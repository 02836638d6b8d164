"""Settings of every test run."""

import os

# Tensors in tests are small and workers share the cores: several threads each would mostly wait for one another.
os.environ.setdefault("OMP_NUM_THREADS", "1")
