"""CATERPILLAR's closed forms against PEs and links that are stepped cycle by cycle, with numpy as oracle of values."""

import random
from math import ceil

import numpy as np
import pytest

from oracles.caterpillar import run_core_gemm, run_core_gemv, run_core_update
from oracles.caterpillar_ring import (
    Ring,
    run_all_gather,
    run_all_reduce,
    run_buckets,
    run_circulating,
    run_reduce_scatter,
    run_ring_forward,
    run_ring_input_grad,
    run_ring_weight_grad,
)
from presilicon.designs import load_design
from presilicon.records import Gemm
from presilicon.simulation.caterpillar.cycles import (
    all_gather_cycles,
    circulate_cycles,
    core_gemm_cycles,
    core_gemv_cycles,
    core_update_cycles,
    message_cycles,
)
from presilicon.simulation.caterpillar.products import Bits, product_moves, update_moves

WORDS = Bits(1, 1, 1)


def matrix(draw: random.Random, rows: int, cols: int) -> list[list[float]]:
    return [[float(draw.randint(-9, 9)) for _ in range(cols)] for _ in range(rows)]


def equal(left: object, right: np.ndarray) -> bool:
    return bool((np.array(left) == right).all())


def a_machine(**fields: object):
    settings = [f"machine.{name}={value}" for name, value in fields.items()]
    return load_design("caterpillar-small", ["machine.schedule=minibatch", *settings]).machine


def test_core_gemm_values_cycles_and_words() -> None:
    draw, seen = random.Random(1), set()
    for _ in range(250):
        m, k, n = (draw.randint(1, 9) for _ in range(3))
        nr, stages = draw.randint(1, 4), draw.randint(1, 5)
        a, b, c = matrix(draw, m, k), matrix(draw, k, n), matrix(draw, m, n)
        values, cycles, counts = run_core_gemm(a, b, c, nr, stages)
        assert equal(values, np.array(c) + np.array(a) @ np.array(b))
        assert core_gemm_cycles(m, k, n, nr, stages) == cycles
        assert counts.operands == m * k * ceil(n / nr) + k * n * ceil(m / nr)
        machine = a_machine(nr=nr, cores=1, mac_stages=stages)
        moves = product_moves(Gemm(m, k, n), "weight_grad", WORDS, 1, machine)
        assert (moves.cycles, moves.bus) == (cycles, counts.operands)
        seen.add((k == 1, m > nr, n > nr))
    assert len(seen) == 8


@pytest.mark.parametrize("transposed", [False, True], ids=["W x", "W^T e"])
def test_core_gemv_values_cycles_and_words(transposed: bool) -> None:
    draw = random.Random(transposed)
    for _ in range(150):
        rows, cols, nr, stages = draw.randint(1, 12), draw.randint(1, 12), draw.randint(1, 4), draw.randint(1, 5)
        w = matrix(draw, rows, cols)
        m, k = (cols, rows) if transposed else (rows, cols)
        x, y = matrix(draw, 1, k)[0], matrix(draw, 1, m)[0]
        values, cycles, counts = run_core_gemv(w, x, y, nr, stages, transposed=transposed)
        used = np.array(w).T if transposed else np.array(w)
        assert equal(values, np.array(y) + used @ np.array(x))
        assert core_gemv_cycles(m, k, nr, stages) == cycles
        assert counts == (m * k, k * ceil(m / nr))


def test_core_update_values_cycles_and_words() -> None:
    draw = random.Random(2)
    for _ in range(200):
        m, k, nr, stages, port = (draw.randint(1, most) for most in (12, 12, 4, 5, 5))
        w, e, x = matrix(draw, m, k), matrix(draw, 1, m)[0], matrix(draw, 1, k)[0]
        values, cycles, counts = run_core_update(w, e, x, nr, stages, port)
        assert equal(values, np.array(w) + np.outer(e, x))
        assert core_update_cycles(m, k, nr, stages, port) == cycles
        moves = update_moves(k, m, WORDS, 1, a_machine(nr=nr, cores=1, mac_stages=stages, port_words=port))
        assert (moves.cycles, moves.mem_a, moves.bus) == (cycles, counts.weights, counts.operands)


def test_collectives_values_cycles_steps_and_words() -> None:
    draw = random.Random(3)
    for _ in range(150):
        ring = Ring(draw.randint(1, 7), draw.randint(1, 4), draw.randint(0, 4))
        n, words = ring.cores, draw.randint(ring.cores, 40)
        vectors = [matrix(draw, 1, words)[0] for _ in range(n)]
        chunks = [[list(part) for part in np.array_split(vector, n)] for vector in vectors]
        total = np.sum(vectors, axis=0)
        gathered, moved = run_all_gather(chunks[0], ring)
        assert all(equal(np.concatenate(have), np.array(vectors[0])) for have in gathered)
        assert (moved.cycles, moved.steps) == (all_gather_cycles(words, *ring), n - 1)
        scattered, moved = run_reduce_scatter(chunks, ring)
        assert equal(np.concatenate(scattered), total)
        assert (moved.cycles, moved.steps) == (all_gather_cycles(words, *ring), n - 1)
        reduced, moved = run_all_reduce(chunks, ring)
        assert all(equal(np.concatenate(have), total) for have in reduced)
        assert (moved.cycles, moved.steps) == (2 * all_gather_cycles(words, *ring), 2 * (n - 1))
        if words % n == 0:
            assert moved.words == 2 * (n - 1) * words // n


@pytest.mark.parametrize("run", [run_circulating, run_buckets])
def test_circulation_hides_the_shorter_of_compute_and_transfer(run) -> None:
    draw, seen = random.Random(4), set()
    for _ in range(150):
        ring = Ring(draw.randint(1, 7), draw.randint(1, 4), draw.randint(0, 4))
        words, compute = draw.randint(1, 30), draw.randint(1, 30)
        assert run(words, lambda core, tag, compute=compute: compute, ring) == circulate_cycles(compute, words, *ring)
        seen.add(compute > message_cycles(words, *ring[1:]))
    assert seen == {True, False}


PHASES = {
    "forward": (run_ring_forward, lambda x, w, e: (x, w), lambda x, w, e: x @ w),
    "input_grad": (run_ring_input_grad, lambda x, w, e: (e, w), lambda x, w, e: e @ w.T),
    "weight_grad": (run_ring_weight_grad, lambda x, w, e: (x, e), lambda x, w, e: x.T @ e),
}


@pytest.mark.parametrize("phase", PHASES)
def test_products_on_all_cores(phase: str) -> None:
    draw = random.Random(phase)
    run, factors, product = PHASES[phase]
    for _ in range(80):
        ring = Ring(draw.randint(1, 6), draw.randint(1, 3), draw.randint(0, 3))
        rows, inputs, outputs = (draw.randint(2, 8) for _ in range(3))
        nr, stages = draw.randint(1, 3), draw.randint(1, 3)
        x, w, e = matrix(draw, rows, inputs), matrix(draw, inputs, outputs), matrix(draw, rows, outputs)
        values, cycles = run(*factors(x, w, e), ring, nr, stages)
        assert equal(values, product(np.array(x), np.array(w), np.array(e)))
        sides = {
            "forward": (rows, inputs, outputs),
            "input_grad": (rows, outputs, inputs),
            "weight_grad": (inputs, rows, outputs),
        }
        machine = a_machine(
            nr=nr, cores=ring.cores, mac_stages=stages, ring_words=ring.ring_words, hop_cycles=ring.hop_cycles
        )
        assert product_moves(Gemm(*sides[phase]), phase, WORDS, ring.cores, machine).cycles == cycles


@pytest.mark.parametrize("phase", PHASES)
def test_products_spread_over_samples_are_the_same_forms_transposed(phase: str) -> None:
    draw = random.Random(phase)
    for _ in range(40):
        ring = Ring(draw.randint(1, 6), draw.randint(1, 3), draw.randint(0, 3))
        rows, inputs, outputs = (draw.randint(2, 8) for _ in range(3))
        x, w, e = (np.array(matrix(draw, *size)) for size in ((rows, inputs), (inputs, outputs), (rows, outputs)))
        if phase == "forward":  # panels of W go around, columns of X^T are spread
            (values, cycles), sides = run_ring_forward(w.T, x.T, ring, 2, 3), (rows, inputs, outputs)
            assert equal(values, (x @ w).T)
        elif phase == "input_grad":
            (values, cycles), sides = run_ring_weight_grad(w.T, e.T, ring, 2, 3), (rows, outputs, inputs)
            assert equal(values, (e @ w.T).T)
        else:
            (values, cycles), sides = run_ring_input_grad(e.T, x.T, ring, 2, 3), (inputs, rows, outputs)
            assert equal(values, (x.T @ e).T)
        machine = a_machine(
            nr=2, cores=ring.cores, mac_stages=3, ring_words=ring.ring_words, hop_cycles=ring.hop_cycles,
            batch_over="samples",
        )  # fmt: skip
        assert product_moves(Gemm(*sides), phase, WORDS, ring.cores, machine).cycles == cycles


@pytest.mark.parametrize("phase", PHASES)
def test_words_of_products_on_all_cores_are_those_of_every_core_and_link(phase: str) -> None:
    draw = random.Random(phase)
    for _ in range(40):
        cores, nr = draw.randint(1, 4), draw.randint(1, 3)
        rows, inputs, outputs = draw.randint(2, 5), cores * draw.randint(1, 4), cores * draw.randint(1, 4)
        machine = a_machine(nr=nr, cores=cores)
        panel, mine = inputs // cores, outputs // cores
        if phase == "forward":
            sides, part, around = (rows, inputs, outputs), (rows, panel, mine), rows * panel
        elif phase == "input_grad":
            sides, part, around = (rows, outputs, inputs), (rows, mine, panel), rows * panel
        else:
            sides, part, around = (inputs, rows, outputs), (panel, rows, mine), rows * panel
        m, k, n = part
        _, _, counts = run_core_gemm(matrix(draw, m, k), matrix(draw, k, n), matrix(draw, m, n), nr, 4)
        chunks = [matrix(draw, 1, around)[0] for _ in range(cores)]
        _, moved = run_all_gather(chunks, Ring(cores, 4, 2))
        moves = product_moves(Gemm(*sides), phase, WORDS, cores, machine)
        assert moves.bus == cores**2 * counts.operands
        assert moves.ring == cores * moved.words
        # Besides operands and sums, MEM B is read and written for every word on the ring.
        sums = 2 * rows * inputs * cores if phase == "input_grad" else 2 * rows * outputs * cores
        sums = 2 * inputs * outputs if phase == "weight_grad" else sums
        assert moves.mem_a + moves.mem_b == moves.bus + sums + 2 * moves.ring


def test_gemv_on_the_ring_takes_the_faster_way() -> None:
    draw, seen = random.Random(5), set()
    for _ in range(200):
        nr, cores, k, n = draw.randint(1, 4), draw.randint(1, 8), draw.randint(1, 300), draw.randint(1, 300)
        machine = a_machine(nr=nr, cores=cores, ring_words=draw.randint(1, 4), hop_cycles=draw.randint(0, 9))
        link, mine, chunk = (cores, machine.ring_words, machine.hop_cycles), ceil(n / cores), ceil(k / cores)
        around = circulate_cycles(core_gemv_cycles(mine, chunk, nr, 4), chunk, *link)
        first = all_gather_cycles(k, *link) + core_gemv_cycles(mine, k, nr, 4)
        assert product_moves(Gemm(1, k, n), "forward", WORDS, cores, machine).cycles == min(around, first)
        assert product_moves(Gemm(1, n, k), "input_grad", WORDS, cores, machine).cycles == min(
            circulate_cycles(core_gemv_cycles(chunk, mine, nr, 4), chunk, *link),
            core_gemv_cycles(k, mine, nr, 4) + all_gather_cycles(k, *link),
        )
        seen.add(around < first)
    assert seen == {True, False}


def test_the_comparison_can_fail() -> None:
    a, b, c = [[1.0, 2.0]], [[3.0], [4.0]], [[5.0]]
    values, cycles, _ = run_core_gemm(a, b, c, 2, 4)
    assert values != [[11.0]]  # without what was there before
    assert cycles != core_gemm_cycles(1, 2, 1, 2, 3)  # a stage less
    # A judge without the neighbours' additions, or without the port's bursts, would agree with these.
    _, cycles, _ = run_core_gemv([[1.0] * 4] * 4, [1.0] * 4, [0.0] * 4, 2, 1)
    assert cycles != 2 * 2 + 1 + 2
    _, cycles, _ = run_core_update([[1.0] * 8] * 8, [1.0] * 8, [1.0] * 8, 1, 1, 1)
    assert cycles != 64 + 1 + 2
    # W is not its transpose: values are judged, not only cycles.
    w, x = [[1.0, 2.0], [3.0, 4.0]], [1.0, 0.0]
    assert run_core_gemv(w, x, [0.0, 0.0], 2, 1)[0] != run_core_gemv(w, x, [0.0, 0.0], 2, 1, transposed=True)[0]
    assert run_circulating(8, lambda core, tag: 3, Ring(4, 1, 2)) != 4 * 3
