"""DRAM traffic of our mappings and of AccelForge's optimal ones, of single products and of fused pairs.

    python3.12 -m venv accelforge
    accelforge/bin/pip install accelforge  # with --no-deps and its other packages, where hwcomponents is not to be had
    python benchmarks/bench_accelforge.py --accelforge accelforge/bin/python

Only traffic between DRAM and one buffer costs energy, a unit for each bit, so that no model of components is needed: a
stub stands for hwcomponents, and one for Graphviz's dot.
"""

import argparse
import json
import os
import subprocess
import tempfile
import time
from itertools import product
from pathlib import Path

from presilicon.designs import Design, Numerics, RoleFormat
from presilicon.formats import MacUnit, parse
from presilicon.records import Gemm, Op, StepGraph, TensorRef
from presilicon.simulation import ElementBytes, Memory, SystolicMachine, least_traffic, simulate

SINGLE = [(64, 64, 64, 4096), (64, 64, 64, 1000), (256, 128, 512, 16384), (512, 512, 512, 65536),
          (128, 768, 256, 20000), (196, 1152, 128, 32768), (784, 256, 64, 32768), (49, 512, 2048, 65536)]  # fmt: skip
"""Rows, reduction and columns of a product of bytes, and bytes of the buffer."""
PAIRS = [(4096, 128, 128, 128, 65536), (1024, 256, 512, 256, 327680), (1024, 256, 512, 256, 65536),
         (256, 512, 512, 512, 131072)]  # fmt: skip
"""Rows, reduction, columns of a product and of the next one, and bytes of the buffer."""
WORKER = """
import json, sys, time
import accelforge as af
for data in json.loads(sys.argv[1]):
    begin = time.process_time()
    spec = af.Spec.from_yaml("machine.yaml", data.pop("work"), jinja_parse_data=data)
    spec.mapper.metrics = af.Metrics.ENERGY
    energy = spec.map_workload_to_arch(print_progress=False).energy()
    print("RESULT", json.dumps([float(energy) / 8, time.process_time() - begin]), flush=True)
"""
ACTIONS = (
    "[{name: read, energy: %d, throughput: inf, latency: 0}, {name: write, energy: %d, throughput: inf, latency: 0}]"
)
MACHINE = f"""
arch:
  nodes:
  - !Memory {{name: dram, size: inf, leak_power: 0, area: 0, tensors: {{keep: ~Intermediates, may_keep: All}},
      actions: {ACTIONS % (1, 1)}}}
  - !Memory {{name: buffer, size: {{{{SIZE}}}}, leak_power: 0, area: 0, tensors: {{keep: All}},
      actions: {ACTIONS % (0, 0)}}}
  - !Compute {{name: cell, leak_power: 0, area: 0,
      actions: [{{name: compute, energy: 0, throughput: 1, latency: 0}}]}}
"""


def workload(*products: tuple[str, str, str, str, str, str]) -> str:
    """Products of named tensors: left, right and result, and the axes of rows, reduction and columns."""
    axes = dict.fromkeys(axis for names in products for axis in names[3:])
    lines = ["workload:", "  iteration_space_shape:", *(f"    {axis}: 0 <= {axis} < {{{{{axis}}}}}" for axis in axes)]
    lines += ["  bits_per_value: {All: 8}", "  einsums:"]
    for left, right, result, m, k, n in products:
        lines += [
            f"  - name: to{result}",
            "    tensor_accesses:",
            f"    - {{name: {left}, projection: [{m}, {k}]}}",
            f"    - {{name: {right}, projection: [{k}, {n}]}}",
            f"    - {{name: {result}, projection: [{m}, {n}], output: True}}",
            f"    renames: {{input: {left}, weight: {right}, output: {result}}}",
        ]
    return "\n".join(lines) + "\n"


def by_accelforge(python: str) -> list[tuple[float, float]]:
    """Bytes and CPU seconds of each case."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "machine.yaml").write_text(MACHINE)
        (place / "single.yaml").write_text(workload(("A", "B", "C", "m", "k", "n")))
        (place / "pair.yaml").write_text(workload(("A", "B", "H", "m", "k", "n"), ("H", "V", "C", "m", "n", "q")))
        stub = place / "stubs" / "hwcomponents"
        stub.mkdir(parents=True)
        names = "get_models = lambda *a, **k: []\nget_model = get_action_cost = None\n"
        (stub / "__init__.py").write_text(f"class ComponentModel: pass\n{names}")
        (stub / "find_models.py").write_text("get_models_in_module = lambda *a, **k: []\n")
        (place / "dot").write_text("#!/bin/sh\ncat > /dev/null\necho '<svg/>'\n")
        (place / "dot").chmod(0o755)
        cases = [{"work": "single.yaml", "m": m, "k": k, "n": n, "SIZE": 8 * size} for m, k, n, size in SINGLE]
        cases += [{"work": "pair.yaml", "m": m, "k": k, "n": n, "q": q, "SIZE": 8 * size} for m, k, n, q, size in PAIRS]
        environment = os.environ | {"PYTHONPATH": str(stub.parent), "PATH": f"{place}:{os.environ['PATH']}"}
        command = [python, "-c", WORKER, json.dumps(cases)]
        done = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, check=True)
    lines = [line.removeprefix("RESULT ") for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    return [tuple(json.loads(line)) for line in lines]


def fused(m: int, k: int, n: int, q: int, size: int) -> float:
    """DRAM bytes of two products on a machine with a buffer of that size."""
    byte = parse("fixed(4, 4)")
    roles = ("weight", "activation", "error", "gradient", "master", "state")
    numerics = Numerics(**dict.fromkeys(roles, RoleFormat(byte)), mac=MacUnit(accumulate=byte))
    machine = SystolicMachine(
        rows=1, cols=1, clock_ghz=1.0, dram_gb_s=0.001, objective="energy",
        memories=(Memory(name="buffer", kib=size / 1024, doubled=False, gb_s=1e9),),
    )  # fmt: skip
    shapes = [
        ((m, k), "activation"),
        ((k, n), "weight"),
        ((m, n), "activation"),
        ((n, q), "weight"),
        ((m, q), "activation"),
    ]
    a, b, h, v, c = (TensorRef(number, *own) for number, own in enumerate(shapes))
    ops = [
        Op(index=number, name=name, kind="gemm", operator="aten.mm", phase="forward", layer=name, inputs=inputs,
           outputs=(output,), flops=gemm.flops, gemm=gemm)
        for number, (name, inputs, output, gemm) in enumerate(
            [("first", (a, b), h, Gemm(m, k, n)), ("second", (h, v), c, Gemm(m, n, q))]
        )
    ]  # fmt: skip
    graph = StepGraph(name="pair", batch_size=m, ops=tuple(ops))
    return simulate(graph, Design(name="plain", machine=machine, numerics=numerics)).bytes_dram


def with_divisors(m: int, k: int, n: int, size: int) -> int:
    """The least traffic of tiles that divide the sizes, by trying all."""
    best = 1 << 62
    for rows, depth, columns in product(*([d for d in range(1, side + 1) if side % d == 0] for side in (m, k, n))):
        if rows * depth + depth * columns + rows * columns <= size:
            left, right, sums = m * k * (n // columns), k * n * (m // rows), m * n * (2 * (k // depth) - 1)
            best = min(best, left + right + m * n, left + k * n + sums, m * k + right + sums)
    return best


def main() -> None:
    """Print the traffic of every case by both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--accelforge", required=True, help="a Python that has AccelForge")
    theirs = by_accelforge(parser.parse_args().accelforge)
    for case, (their_bytes, their_s) in zip([*SINGLE, *PAIRS], theirs, strict=True):
        begin = time.process_time()
        own = fused(*case) if len(case) == 5 else least_traffic(Gemm(*case[:3]), ElementBytes(1, 1, 1), case[3])
        own += 0 if len(case) == 5 else case[0] * case[2]
        own_s = time.process_time() - begin
        sizes = f"{' x '.join(map(str, case[:-1]))} in {case[-1]} B"
        print(
            f"{sizes:>35}: AccelForge {their_bytes:>9,.0f} B ({their_s:.1f} s), ours {own:>9,.0f} B ({own_s:.3f} s), ",
            end="",
        )
        print(f"{own / their_bytes:.3f} of it" + (f"; {with_divisors(*case):,} by divisors" if len(case) == 4 else ""))


if __name__ == "__main__":
    main()
