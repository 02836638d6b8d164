"""The search for a mapping: exact where there are few orders of loops, pruned where there are many."""

from collections.abc import Sequence
from functools import lru_cache
from math import factorial, prod

import numpy as np
from msgspec import Struct

from presilicon.base import ConfigError
from presilicon.simulation.mapping import numba_kernels as kernel
from presilicon.simulation.mapping.nest import (
    Loop,
    MappedArray,
    Mapping,
    Precision,
    Price,
    copies_of,
    filled_share,
    price_mapping,
    tile_of,
)
from presilicon.simulation.mapping.problem import DIMS, RELEVANT, TENSORS, Contraction, Dim

Objective = str
OBJECTIVES = {"time": kernel.TIME, "energy": kernel.ENERGY, "product": kernel.PRODUCT}
TRIES = 20_000
"""Orders of loops that are tried: all, or so many where there are more."""


class BestMapping(Struct, frozen=True, kw_only=True):
    """The best mapping that was found."""

    nest: Mapping
    price: Price
    tried: int
    is_exact: bool
    """Whether every order of the loops was tried."""


def find_mapping(
    problem: Contraction,
    machine: MappedArray,
    precision: Precision,
    spatial: tuple[tuple[Loop, ...], ...],
    *,
    objective: Objective = "product",
    tries: int = TRIES,
    most_loops: int = 12,
) -> BestMapping:
    """The order of loops, and the parts of them that memories hold, with the least of the objective.

    Raises:
        ConfigError: a memory cannot hold one tile.
    """
    loops = temporal_loops(problem, spatial, most_loops)
    facts = _facts(problem, machine, precision, spatial)
    dims = np.array([DIMS.index(loop.dim) for loop in loops], np.int64)
    counts = np.array([loop.count for loop in loops], np.int64)
    kinds = sorted(set(loops), key=lambda loop: (DIMS.index(loop.dim), loop.count))
    ranks = np.array([kinds.index(loop) for loop in loops], np.int64)
    orders = factorial(len(loops)) // prod(factorial(loops.count(kind)) for kind in kinds)
    exact = orders <= tries
    order, goal, tried = kernel.search(facts, dims, counts, ranks, OBJECTIVES[objective], exact, tries, 1)
    if not goal < np.inf:
        raise ConfigError(_too_small(problem, machine, precision, spatial))
    cuts = np.zeros((len(machine.stores) + 1, 3), np.int64)
    kernel.allocate(facts, dims[order], counts[order], cuts, kernel.make_space(len(dims)))
    nest = Mapping(
        spatial=spatial,
        loops=tuple(loops[i] for i in order),
        cuts={
            tensor: tuple(int(cuts[index + 1, number]) for index in machine.chain(tensor))
            for number, tensor in enumerate(TENSORS)
        },
    )
    return BestMapping(
        nest=nest, price=price_mapping(problem, machine, nest, precision), tried=int(tried), is_exact=exact
    )


def temporal_loops(problem: Contraction, spatial: Sequence[Sequence[Loop]], most: int) -> list[Loop]:
    """The prime factors of what is left of each dimension; the smallest of a dimension are joined if they are many."""
    unrolled: dict[Dim, int] = dict.fromkeys(DIMS, 1)
    for axis in spatial:
        for loop in axis:
            unrolled[loop.dim] *= loop.count
    factors = {dim: list(_factors(-(-size // unrolled[dim]))) for dim, size in zip(DIMS, problem.sizes, strict=True)}
    while sum(map(len, factors.values())) > most and any(len(parts) > 1 for parts in factors.values()):
        dim = min((dim for dim in DIMS if len(factors[dim]) > 1), key=lambda dim: factors[dim][0] * factors[dim][1])
        first, second, *rest = factors[dim]
        factors[dim] = sorted([first * second, *rest])
    return [Loop(dim, count) for dim in DIMS for count in factors[dim]]


@lru_cache(maxsize=4096)
def _factors(size: int) -> tuple[int, ...]:
    """Prime factors in rising order. A large prime is rounded up to a number that has more of them.

    >>> _factors(12), _factors(1), _factors(50257)
    ((2, 2, 3), (), (2, 2, 2, 2, 2, 2, 2, 3, 131))
    """
    found, rest, divisor = [], size, 2
    while divisor * divisor <= rest:
        while rest % divisor == 0:
            found.append(divisor)
            rest //= divisor
        divisor += 1
    if rest > 1:
        found.append(rest)
    if found and found[-1] > 128 and found[-1] * found[-1] > size:
        step = 1 << max(1, size.bit_length() - 9)
        while size % step == 0:
            step *= 2
        return _factors(-(-size // step) * step)
    return tuple(sorted(found))


def _facts(
    problem: Contraction, machine: MappedArray, precision: Precision, spatial: tuple[tuple[Loop, ...], ...]
) -> kernel.Facts:
    nest = Mapping(spatial=spatial, loops=(), cuts={})
    nothing = machine.stores[0]
    bare = type(nothing)(name="", holds=frozenset(), serves=frozenset())
    stores = (bare, *machine.stores)
    reduced = set(DIMS) - RELEVANT[problem.result]
    inputs = problem.input_size or (1 << 40,) * 3
    return kernel.Facts(
        relevant=np.array([[dim in RELEVANT[tensor] for dim in DIMS] for tensor in TENSORS]),
        result=TENSORS.index(problem.result),
        windows=np.array(
            (*(n for pair in zip(problem.stride, problem.dilation, strict=True) for n in pair), *inputs), np.int64
        ),
        bits=np.array([*(precision.bits[tensor] for tensor in TENSORS), precision.sum_bits], np.float64),
        spatial=np.array([[tile_of(nest, store, 0)[dim] for dim in DIMS] for store in stores], np.int64),
        copies=np.array([copies_of(nest, store) for store in stores], np.float64),
        split=np.array(
            [
                any(
                    loop.dim in reduced
                    for axis, part in enumerate(spatial)
                    if axis not in store.serves
                    for loop in part
                )
                for store in stores
            ]
        ),
        holds=np.array([[tensor in store.holds for tensor in TENSORS] for store in stores]),
        last=np.array([machine.chain(tensor)[-1] + 1 for tensor in TENSORS], np.int64),
        capacity=np.array([store.bits for store in stores], np.float64),
        rates=np.array(
            [[store.read_pj, store.write_pj, store.read_bits, store.write_bits, store.word_bits] for store in stores],
            np.float64,
        ),
        one_port=np.array([store.has_one_port for store in stores]),
        doubled=np.array([store.is_doubled for store in stores]),
        share=np.array([filled_share(problem, spatial, tensor) for tensor in TENSORS], np.float64),
        macs=float(problem.macs),
        mac_pj=machine.mac_pj,
        stays=-1 if machine.stays is None else TENSORS.index(machine.stays),
        switch_cycles=machine.switch_cycles,
    )


def _too_small(
    problem: Contraction, machine: MappedArray, precision: Precision, spatial: tuple[tuple[Loop, ...], ...]
) -> str:
    """The message for a hierarchy that cannot hold one tile, with the store."""
    nest = Mapping(spatial=spatial, loops=(), cuts={})
    for store in machine.stores:
        tile = tile_of(nest, store, 0)
        bits = {
            tensor: problem.footprint(tensor, tile)
            * (precision.sum_bits if tensor == problem.result else precision.bits[tensor])
            for tensor in store.holds
        }
        if sum(bits.values()) > store.bits:
            needs = ", ".join(f"{tensor} {size:g}" for tensor, size in sorted(bits.items()))
            return f'memory "{store.name}" has {store.bits:g} bits, but one tile needs {sum(bits.values()):g}: {needs}'
    return "no memory holds the whole of a tensor: give the outermost level of each tensor room for it"
