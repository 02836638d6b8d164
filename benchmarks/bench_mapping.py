"""Our mappings against those of ZigZag, on its machines and networks, priced by its model.

    python -m venv zigzag && zigzag/bin/pip install zigzag-dse six
    python benchmarks/bench_mapping.py --zigzag zigzag/bin/python [--networks alexnet,resnet18] [--machine tpu_like]

For each layer: the energy of ZigZag's best mapping in our model over that in its own; the energy-delay product of our
mapping over that of its best, both priced by ZigZag; and the seconds of both searches. Ours is the best of a few, for a
DRAM that is wider than ZigZag's: there, tensors that are loaded once share its port at no cost. Equal layers are mapped
once.
"""

import argparse
import json
import re
import subprocess
import tempfile
import time
from collections.abc import Iterator
from math import inf
from pathlib import Path

import msgspec
import numpy as np
import yaml

from presilicon.base import ConfigError
from presilicon.simulation.mapping import mapper, numba_kernels
from presilicon.simulation.mapping.mapper import find_mapping
from presilicon.simulation.mapping.nest import Loop, MappedArray, Precision, Store
from presilicon.simulation.mapping.problem import DIMS, Contraction

PEER = Path(__file__).with_name("zigzag_peer.py")
OPERANDS = {"I1": "X", "I2": "W", "O": "Y"}
NAMES = {"B": "b", "K": "k", "C": "c", "OY": "y", "OX": "x", "FY": "r", "FX": "s", "G": "g", "D": "b"}
REGISTER_BITS = 32
"""A sum is read and written in every cycle, whatever the mapping; ZigZag charges it to the innermost memory."""


def machine_of(path: str) -> MappedArray:
    """A machine of ZigZag's as ours. Energies are per access of the widest port."""
    description = yaml.safe_load(Path(path).read_text())
    array = description["operational_array"]
    stores, sums = [], 0.0
    for name, memory in description["memories"].items():
        widths = {
            kind: max(port["bandwidth_max"] for port in memory["ports"] if kind in port["type"])
            for kind in ("read", "write")
        }
        if not sums and "O" in memory["operands"]:
            sums = REGISTER_BITS * memory["r_cost"] / widths["read"]
        stores.append(
            Store(
                name=name,
                holds=frozenset(OPERANDS[operand] for operand in memory["operands"]),
                bits=inf if name == "dram" else memory["size"],
                serves=frozenset(
                    axis for axis, dim in enumerate(array["dimensions"]) if dim in memory["served_dimensions"]
                ),
                read_pj=memory["r_cost"] / widths["read"],
                write_pj=memory["w_cost"] / widths["write"],
                read_bits=widths["read"],
                write_bits=widths["write"],
                word_bits=min(port["bandwidth_min"] for port in memory["ports"]),
                has_one_port=any(port["type"] == "read_write" for port in memory["ports"]),
            )
        )
    return MappedArray(axes=tuple(array["sizes"]), stores=tuple(stores), mac_pj=array["unit_energy"] + sums)


def wider(machine: MappedArray, factor: int) -> MappedArray:
    """The machine with a DRAM of more bandwidth, and a port for each direction."""
    dram = machine.stores[-1]
    dram = msgspec.structs.replace(
        dram, read_bits=factor * dram.read_bits, write_bits=factor * dram.write_bits, has_one_port=False
    )
    return msgspec.structs.replace(machine, stores=(*machine.stores[:-1], dram))


def candidates(problem: Contraction, machine: MappedArray, precision: Precision, spatial) -> Iterator[tuple[Loop, ...]]:
    """Orders of loops to try; neighbours over one dimension also as one loop, which ZigZag allots differently."""
    for factor, loops, tries in ((1, 6, 1000), (4, 8, 2000), (100, 12, 3000)):
        try:
            found = find_mapping(problem, wider(machine, factor), precision, spatial, most_loops=loops, tries=tries)
        except ConfigError:
            continue
        yield found.nest.loops
        joined: list[Loop] = []
        for loop in found.nest.loops:
            if joined and joined[-1].dim == loop.dim:
                joined[-1] = Loop(loop.dim, joined[-1].count * loop.count)
            else:
                joined.append(loop)
        yield tuple(joined)


def problem_of(row: dict) -> Contraction:
    sizes = {NAMES[name]: size for name, size in row["dims"].items()}
    strides = {axis: int(step) for relation in row["windows"] for step, axis in re.findall(r"(\d+)\*O([XY])", relation)}
    stride = strides.get("Y", 1), strides.get("X", 1)
    inside = (sizes.get("y", 1) * stride[0], sizes.get("x", 1) * stride[1]) if sizes.get("r", 1) > 1 else None
    return Contraction(sizes=tuple(sizes.get(dim, 1) for dim in DIMS), stride=stride, input_size=inside)


def spatial_of(row: dict) -> tuple[tuple[Loop, ...], ...]:
    return tuple(
        tuple(Loop(NAMES[dim], round(count)) for dim, count in part.items()) for part in row["spatial"].values()
    )


def price_here(problem: Contraction, machine: MappedArray, precision: Precision, spatial, order: list) -> float:
    """The energy of an order of loops in our model."""
    facts = mapper._facts(problem, machine, precision, spatial)
    dims = np.array([DIMS.index(NAMES[dim]) for dim, _ in order], np.int64)
    counts = np.array([count for _, count in order], np.int64)
    stores = len(machine.stores) + 1
    cuts, space = np.zeros((stores, 3), np.int64), numba_kernels.make_space(len(order))
    if not numba_kernels.allocate(facts, dims, counts, cuts, space):
        return float("nan")
    return numba_kernels.price(facts, dims, counts, cuts, space, np.zeros((stores, 2)), np.zeros((stores, 2, 4)))[1]


def run(python: str, *arguments: str) -> dict:
    done = subprocess.run([python, str(PEER), *arguments], check=True, capture_output=True, text=True)
    return json.loads(done.stdout.strip().splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--zigzag", required=True, help="the Python of an environment with zigzag-dse")
    parser.add_argument("--networks", default="alexnet,resnet18")
    parser.add_argument("--machine", default="tpu_like")
    parser.add_argument("--limit", default="6", help="ZigZag's lpf_limit; 6 is its default")
    arguments = parser.parse_args()
    for network in arguments.networks.split(","):
        theirs = run(arguments.zigzag, "best", network, arguments.machine, arguments.limit)
        machine, precision = machine_of(theirs["machine"]), None
        orders, seconds, mapped = [], 0.0, {}
        for row in theirs["rows"]:
            bits = row["bits"]
            precision = Precision(bits={"X": bits["I"], "W": bits["W"], "Y": bits["O_final"]}, sum_bits=bits["O"])
            problem, spatial = problem_of(row), spatial_of(row)
            names = {dim: name for name, dim in NAMES.items() if name in row["dims"]}
            start = time.perf_counter()
            if (problem, spatial) not in mapped:
                mapped[problem, spatial] = list(candidates(problem, machine, precision, spatial))
            seconds += time.perf_counter() - start
            orders.append([[[names[loop.dim], loop.count] for loop in order] for order in mapped[problem, spatial]])
            row["here"] = price_here(problem, machine, precision, spatial, row["order"])
        with tempfile.TemporaryDirectory() as folder:
            (result, wanted) = Path(folder) / "theirs.json", Path(folder) / "orders.json"
            result.write_text(json.dumps(theirs))
            wanted.write_text(json.dumps(orders))
            priced = run(arguments.zigzag, "price", str(result), str(wanted))
        worst = 0.0
        for row, prices in zip(theirs["rows"], priced, strict=True):
            product = min(price[0] * price[1] for price in prices if price is not None)
            ratio = product / (row["energy"] * row["latency"])
            worst = max(worst, ratio)
            print(f"{network}, {row['layer']}: energy here {row['here'] / row['energy']:.3f}, product {ratio:.4f}")
        faster = theirs["seconds"] / seconds
        print(
            f"{network}: product at most {worst:.4f} (wanted: 1); {seconds:.2f} s here, {theirs['seconds']:.1f} s in "
            f"ZigZag, {faster:.0f} times as fast (wanted: 100)"
        )


if __name__ == "__main__":
    main()
