"""Loops of compiled steps, and the bytes that they move, against those of torch's own compiler.

evidence/cards/compiled_loops.py compares more networks.
"""

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from multiprocessing import get_context
from pathlib import Path

import pytest
import torch

from oracles.compiled_networks import NETWORKS, classify, inductor_sizes
from presilicon.designs import RooflineMachine, StepFormats, load_design
from presilicon.records import StepFacts, StepGraph
from presilicon.simulation import executed_ops, launched_kernels
from presilicon.workloads import capture

pytest.importorskip("triton", reason="without Triton, Inductor does not lower for a GPU")

LOOPS, BYTES = 0.15, 0.1
"""Tolerances: a min-cut decides what Inductor computes again in the backward pass, and ours are simple rules."""


@pytest.fixture(scope="module")
def inductor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessPoolExecutor]:
    """A process that can pretend to have a GPU, and whose caches are thrown away."""
    cache_dir: Path = tmp_path_factory.mktemp("inductor")
    with pytest.MonkeyPatch.context() as patch, ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(cache_dir))
        yield pool


@cache
def graph_of(name: str) -> StepGraph:
    make, batch = NETWORKS[name]
    return capture(make().train(), batch(), loss=classify)


def loop_sizes(name: str, launch: str) -> list[float]:
    """Bytes of each of our loops."""
    design = load_design("h200", [f"machine.launch={launch}"], numerics="fp32")
    assert isinstance(design.machine, RooflineMachine)
    formats = StepFormats(design.numerics, StepFacts())
    ops = executed_ops(graph_of(name), formats, StepFacts())
    kernels = launched_kernels(ops, design.machine, formats)
    passes = [kernel for kernel in kernels if kernel.op.phase != "update"]
    alone = [kernel.size_bytes for kernel in passes if kernel.launches and kernel.op.gemm is None]
    return alone + [extra.size_bytes for kernel in passes for extra in kernel.extras]


@pytest.mark.parametrize("name", NETWORKS)
def test_loops_and_their_bytes_are_those_of_inductor(name: str, inductor: ProcessPoolExecutor) -> None:
    theirs = inductor.submit(inductor_sizes, name).result()
    compiled, eager = loop_sizes(name, "compile"), loop_sizes(name, "graph")
    assert len(compiled) == pytest.approx(len(theirs), rel=LOOPS)
    assert sum(compiled) == pytest.approx(sum(theirs), rel=BYTES)
    assert sum(eager) > (1 + 2 * BYTES) * sum(theirs)  # steps that are not compiled are far beyond


def test_a_chain_is_one_loop_for_the_oracle_and_its_gradient_another(inductor: ProcessPoolExecutor) -> None:
    """It reads weight and input, and adds the result up; the gradient reads both and writes one."""
    size = 64 * 32 * torch.float32.itemsize
    forward, backward = inductor.submit(inductor_sizes, "chain").result()
    assert forward == 2 * size + 4
    assert backward == 3 * size + 4
