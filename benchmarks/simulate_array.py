"""Cycles per second of a 16 x 16 systolic array in co-simulation: `python benchmarks/simulate_array.py [DESIGN]`.

The first run compiles the circuit.
"""

import sys
import time
from pathlib import Path

import numpy as np

from presilicon.designs import load_design
from presilicon.records import PRODUCT_PHASES
from presilicon.rtl import ArrayModel, array_circuit

EXAMPLE = Path(__file__).parent.parent / "examples" / "array.toml"
SAMPLES, FEATURES = 1024, 64


def main() -> None:
    """Run the three products of a layer and print the rate of the second run."""
    design = load_design(sys.argv[1] if len(sys.argv) > 1 else EXAMPLE)
    circuit = array_circuit(design, ("0", "2"), samples=SAMPLES, features=FEATURES)
    start = time.perf_counter()
    model = ArrayModel(circuit)
    print(f"{circuit.rows} x {circuit.cols} cells compiled or loaded in {time.perf_counter() - start:.1f} s")
    random = np.random.default_rng(0)
    shapes = {"weight": (FEATURES, FEATURES), "activation": (SAMPLES, FEATURES), "error": (SAMPLES, FEATURES)}
    codes = {role: random.integers(0, 1 << getattr(circuit, role).bits, shape) for role, shape in shapes.items()}
    for _ in range(2):
        start, busy = time.perf_counter(), time.process_time()
        run = model.run(PRODUCT_PHASES, **codes)
        seconds, cpu_s = time.perf_counter() - start, time.process_time() - busy
    print(f"{run.total} cycles in {seconds:.2f} s: {run.total / seconds:,.0f} cycles per second", end="")
    print(f", {run.total / cpu_s:,.0f} per second of CPU time")


if __name__ == "__main__":
    main()
