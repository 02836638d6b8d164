"""Recurrent layers in a captured step: ops that capture records per time step and a library merges into few kernels.

Capture unrolls a recurrent layer over time: every time step has products of its own with the same weights. A library
multiplies the inputs of all time steps at once, and the gradients of the weights too. Only products with the state
follow one another: a chain of time steps, in which the layers of a stack overlap, one time step behind the other, and
the directions of a bidirectional layer run side by side. Gates are computed on the way.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from msgspec import Struct, structs

from presilicon.records import Gemm, Op


class Recurrence(Struct, frozen=True, kw_only=True):
    """Changes that a library's recurrent layers make to a step, by indices of ops."""

    merged: dict[int, Gemm]
    """Products that stand for those of several time steps or layers."""
    links: frozenset[int]
    """Products with the state, each of which waits for the one before."""
    absorbed: frozenset[int]
    """Ops whose work another one does."""


def find_recurrence(ops: Sequence[Op]) -> Recurrence:
    """The recurrent layers of a step; empty if it has none."""
    merged: dict[int, Gemm] = {}
    links: set[int] = set()
    absorbed: set[int] = set()
    for unit, phase in dict.fromkeys((op.layer, op.phase) for op in ops if op.recurrent and op.phase != "update"):
        inside = [op for op in ops if op.recurrent and op.layer == unit]
        sources = _sources(inside)
        run = [op for op in inside if op.phase == phase]
        absorbed.update(op.index for op in run)
        chain = [op for op in run if op.gemm and phase != "weight_grad" and len(sources.get(op.inputs[1].id, ())) > 1]
        merged |= dict(_at_once([op for op in run if op.gemm and op not in chain]))
        if chain:
            layers = len({next(iter(source)) for source in sources.values() if len(source) == 1})
            wave = dict(_wavefront(chain, max(layers, 1)))
            merged |= wave
            links |= wave.keys()
    return Recurrence(merged=merged, links=frozenset(links), absorbed=frozenset(absorbed - merged.keys()))


def _sources(ops: Sequence[Op]) -> dict[int, set[int]]:
    """Storages that each weight multiplies in the forward pass: one of inputs, or the state of every time step."""
    sources: dict[int, set[int]] = defaultdict(set)
    for op in ops:
        if op.gemm and op.phase == "forward":
            sources[op.inputs[1].id].add(op.inputs[0].id)
    return sources


def _at_once(products: Sequence[Op]) -> Iterator[tuple[int, Gemm]]:
    """One product for those of all time steps with the same weight, or that add up to its gradient."""
    groups: dict[tuple[int, Gemm], list[Op]] = defaultdict(list)
    for op in products:
        assert op.gemm is not None
        groups[0 if op.phase == "weight_grad" else op.inputs[1].id, op.gemm].append(op)
    for (_, gemm), group in groups.items():
        side = "k" if group[0].phase == "weight_grad" else "m"
        yield group[0].index, structs.replace(gemm, **{side: getattr(gemm, side) * len(group)})


def _wavefront(chain: Sequence[Op], layers: int) -> Iterator[tuple[int, Gemm]]:
    """The links of a chain: in each, the products of all layers that have reached it, in both directions."""
    weights = len({op.inputs[1].id for op in chain})
    times = len(chain) // weights
    layers = layers if weights % layers == 0 else 1
    for link, op in zip(range(times + layers - 1), chain, strict=False):
        assert op.gemm is not None
        active = min(link + 1, layers, times, times + layers - 1 - link)
        yield op.index, structs.replace(op.gemm, count=active * weights // layers)
