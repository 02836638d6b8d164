"""Mappings: traffic by walking the loops, the kernel against the reference, and the search against all orders."""

import random
from itertools import permutations
from math import inf, prod

import numpy as np
import pytest
from msgspec.structs import replace

from oracles import loop_nest
from presilicon.base import ConfigError
from presilicon.records import Gemm
from presilicon.simulation.mapping import mapper, numba_kernels
from presilicon.simulation.mapping.mapper import _factors, find_mapping, temporal_loops
from presilicon.simulation.mapping.nest import (
    Loop,
    MappedArray,
    Mapping,
    Precision,
    Store,
    changes,
    check_mapping,
    price_mapping,
)
from presilicon.simulation.mapping.problem import DIMS, TENSORS, Contraction

PRECISION = Precision(bits={"X": 8, "W": 8, "Y": 16}, sum_bits=32)
ALL = frozenset(TENSORS)


def some_machine(rng: random.Random) -> MappedArray:
    registers = Store(
        name="registers", holds=frozenset(rng.sample(TENSORS, rng.randint(1, 3))), bits=rng.choice([64, 256, 1024]),
        serves=frozenset(rng.sample((0, 1), rng.randint(0, 1))), read_pj=0.1, write_pj=0.2,
        read_bits=rng.choice([32, 64]), write_bits=64,
    )  # fmt: skip
    buffer = Store(
        name="buffer", holds=ALL, bits=rng.choice([4096, 16384]), read_pj=1, write_pj=1.5, read_bits=128, write_bits=64,
        word_bits=rng.choice([1, 16, 64]), has_one_port=rng.random() < 0.5, is_doubled=rng.random() < 0.5,
    )  # fmt: skip
    dram = Store(name="dram", holds=ALL, read_pj=20, write_pj=20, read_bits=64, write_bits=64)
    return MappedArray(
        axes=(4, 4), stores=(registers, buffer, dram), mac_pj=0.5, switch_cycles=rng.choice([0, 7]),
        stays=rng.choice([None, "W", "Y"]),
    )  # fmt: skip


def some_problem(rng: random.Random) -> Contraction:
    return Contraction(
        sizes=tuple(rng.choice([1, 2, 3, 4, 6]) for _ in DIMS),
        result=rng.choice(TENSORS),
        stride=(rng.choice([1, 2]), 1, rng.choice([1, 2])),
        dilation=(1, rng.choice([1, 2]), rng.choice([1, 2])),
        input_size=rng.choice([None, (3, 4), (3, 4, 2)]),
    )


def unrolled(problem: Contraction) -> tuple[tuple[Loop, ...], ...]:
    return (Loop("c", min(4, problem.size("c"))),), (Loop("k", min(4, problem.size("k"))),)


def by_kernel(problem: Contraction, machine: MappedArray, nest: Mapping) -> tuple[float, float]:
    facts = mapper._facts(problem, machine, PRECISION, nest.spatial)
    dims = np.array([DIMS.index(loop.dim) for loop in nest.loops], np.int64)
    counts = np.array([loop.count for loop in nest.loops], np.int64)
    stores = len(machine.stores) + 1
    cuts, space = np.zeros((stores, 3), np.int64), numba_kernels.make_space(len(dims))
    assert numba_kernels.allocate(facts, dims, counts, cuts, space)
    return numba_kernels.price(facts, dims, counts, cuts, space, np.zeros((stores, 2)), np.zeros((stores, 2, 4)))


def test_parts_of_tensors_change_as_often_as_in_a_walk_through_the_loops() -> None:
    rng = random.Random(1)
    for _ in range(60):
        loops = tuple(Loop(rng.choice(DIMS), rng.randint(1, 3)) for _ in range(rng.randint(1, 6)))
        nest = Mapping(spatial=((), ()), loops=loops, cuts={})
        for tensor in TENSORS:
            for inner in range(len(loops) + 1):
                assert changes(nest, tensor, inner) == loop_nest.count_changes(loops, tensor, inner)


def test_tiles_touch_the_elements_that_their_loops_read() -> None:
    rng = random.Random(2)
    for _ in range(60):
        problem = some_problem(rng)
        tile = {dim: rng.randint(1, 4) for dim in DIMS}
        for tensor in TENSORS:
            found = problem.footprint(tensor, tile)
            exact = loop_nest.elements(problem, tensor, tile)
            assert found >= exact
            # Rows of windows may overlap in part; a dilation of 2 with even steps reads some twice.
            assert found == exact or (tensor == "X" and max(problem.dilation) > 1)


def test_the_kernel_has_the_prices_of_the_reference() -> None:
    rng = random.Random(0)
    compared = 0
    for _ in range(60):
        machine, problem = some_machine(rng), some_problem(rng)
        try:
            found = find_mapping(problem, machine, PRECISION, unrolled(problem), tries=100, most_loops=7)
        except ConfigError as error:
            assert "registers" in str(error) or "buffer" in str(error)  # noqa: PT017
            continue
        check_mapping(problem, machine, found.nest, PRECISION)
        assert by_kernel(problem, machine, found.nest) == pytest.approx(
            (found.price.cycles, found.price.energy_pj), rel=1e-9
        )
        compared += 1
    assert compared > 40


@pytest.mark.parametrize("objective", ["time", "energy", "product"])
def test_a_search_over_few_orders_finds_the_best_of_all(objective: str) -> None:
    problem = Contraction.of_gemm(Gemm(m=12, k=16, n=8))
    sram = Store(name="sram", holds=ALL, bits=600, read_pj=1, write_pj=1, read_bits=64, write_bits=64)
    dram = Store(name="dram", holds=ALL, read_pj=20, write_pj=20, read_bits=16, write_bits=16)
    machine, spatial = MappedArray(axes=(2, 2), stores=(sram, dram)), ((Loop("c", 2),), (Loop("k", 2),))
    found = find_mapping(problem, machine, PRECISION, spatial, objective=objective)
    assert found.is_exact
    goals = {"time": lambda t, e: t, "energy": lambda t, e: e, "product": lambda t, e: t * e}
    best = inf
    for order in set(permutations(temporal_loops(problem, spatial, 12))):
        try:
            goal = goals[objective](*by_kernel(problem, machine, Mapping(spatial=spatial, loops=order, cuts={})))
        except AssertionError:
            continue
        best = min(best, goal)
    assert goals[objective](found.price.cycles, found.price.energy_pj) == pytest.approx(best)


def test_traffic_is_never_below_what_must_move_and_more_room_never_adds_to_it() -> None:
    rng = random.Random(3)
    dram = Store(name="dram", holds=ALL, read_pj=1, write_pj=1)
    for _ in range(20):
        problem = Contraction(sizes=(1, rng.choice([8, 24]), 16, 32, rng.choice([1, 6]), 1, rng.choice([1, 3]), 1))
        before = inf
        for kilobits in (2, 8, 64, 4096):
            machine = MappedArray(axes=(4, 4), stores=(Store(name="sram", holds=ALL, bits=kilobits * 1024), dram))
            found = find_mapping(problem, machine, PRECISION, unrolled(problem), objective="energy", most_loops=7)
            read, written = found.price.traffic[1]
            assert read >= 8 * (problem.elements("X") + problem.elements("W"))
            assert written >= 16 * problem.elements("Y")
            assert read + written <= before * 1.0001
            before = read + written
        assert read + written == 8 * (problem.elements("X") + problem.elements("W")) + 16 * problem.elements("Y")


def test_the_same_mapping_is_never_slower_with_more_room_or_bandwidth() -> None:
    rng = random.Random(4)
    compared = 0
    for _ in range(40):
        machine, problem = some_machine(rng), some_problem(rng)
        try:
            nest = find_mapping(problem, machine, PRECISION, unrolled(problem), tries=50, most_loops=7).nest
        except ConfigError:
            continue
        before = price_mapping(problem, machine, nest, PRECISION)
        for index, store in enumerate(machine.stores):
            for change in (
                {"bits": 2 * store.bits},
                {"read_bits": 2 * store.read_bits, "write_bits": 4 * store.write_bits},
            ):
                stores = (*machine.stores[:index], replace(store, **change), *machine.stores[index + 1 :])
                after = price_mapping(problem, replace(machine, stores=stores), nest, PRECISION)
                assert after.cycles <= before.cycles
                assert after.energy_pj == before.energy_pj
                compared += 1
    assert compared > 100


def test_a_window_that_slides_fetches_each_input_once() -> None:
    problem = Contraction(sizes=(1, 1, 1, 1, 1, 8, 1, 3))
    cells = Store(name="window", holds=frozenset("X"), bits=3 * 8, serves=frozenset())
    machine = MappedArray(axes=(1, 1), stores=(cells, Store(name="dram", holds=ALL)))
    nest = Mapping(spatial=((), ()), loops=(Loop("s", 3), Loop("x", 8)), cuts={"X": (1, 2), "W": (2,), "Y": (2,)})
    fetched = [
        t for t in price_mapping(problem, machine, nest, PRECISION).transfers if t.upper == 1 and t.tensor == "X"
    ]
    # Ten inputs, not eight windows of three.
    assert sum(transfer.read * transfer.again for transfer in fetched) == 10 * 8


def test_a_memory_that_cannot_hold_one_tile_is_named() -> None:
    problem = Contraction.of_gemm(Gemm(m=8, k=8, n=8))
    tiny, dram = Store(name="scratchpad", holds=ALL, bits=64), Store(name="dram", holds=ALL)
    with pytest.raises(ConfigError, match='memory "scratchpad" has 64 bits, but one tile needs'):
        find_mapping(problem, MappedArray(axes=(4, 4), stores=(tiny, dram)), PRECISION, unrolled(problem))


def test_a_mapping_that_does_not_cover_the_product_is_refused() -> None:
    problem = Contraction.of_gemm(Gemm(m=8, k=8, n=8))
    machine = MappedArray(axes=(4, 4), stores=(Store(name="dram", holds=ALL),))
    nest = Mapping(
        spatial=unrolled(problem), loops=(Loop("b", 4), Loop("c", 2), Loop("k", 2)), cuts=dict.fromkeys(TENSORS, (3,))
    )
    with pytest.raises(ConfigError, match="covers 4 of dimension b, which has 8"):
        check_mapping(problem, machine, nest, PRECISION)


def test_the_three_products_of_a_layer_share_their_loops() -> None:
    forward = Contraction.of_gemm(Gemm(m=6, k=4, n=8))
    gradient = Contraction(sizes=forward.sizes, result="W")
    assert forward.macs == gradient.macs
    assert {tensor: gradient.elements(tensor) for tensor in TENSORS} == {"X": 24, "W": 32, "Y": 48}
    assert prod(forward.sizes) == 192


def test_every_size_has_factors_of_a_number_little_above_it() -> None:
    for size in (*range(1, 2000), 262, 50257, 65521, 1 << 20):
        assert size <= prod(_factors(size)) <= 1.02 * size + 1
