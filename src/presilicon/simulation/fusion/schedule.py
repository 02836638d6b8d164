"""A step over DRAM and the buffer: the transfers of each group, and the data that stays on chip between groups."""

from collections.abc import Container, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from presilicon.simulation.fusion.groups import Group
from presilicon.simulation.fusion.values import BEFORE, StepValues


class ValueTransfer(Struct, frozen=True, gc=False):
    """Bytes of a value between DRAM and the buffer, for one op."""

    value: int
    slot: int
    """Number of the group."""
    position: int
    """The op that is charged with it."""
    size_bytes: float


class Stay(NamedTuple):
    """Bytes of a value that stay on chip from one group to another."""

    value: int
    first: int
    last: int
    size_bytes: float


class Transfers(NamedTuple):
    """All transfers of a step; those of unfinished sums are not among them."""

    loads: list[ValueTransfer]
    stores: list[ValueTransfer]
    stays: tuple[Stay, ...] = ()
    """Data that needs none because it stays on chip, in the order of values and groups."""


class OpBytes(Struct, frozen=True, kw_only=True, gc=False):
    """Bytes of the inputs and outputs of an op."""

    tiled: tuple[float, ...]
    """Of each input, as often as the tiles of a product read it."""
    once: tuple[float, ...]
    """Of each input, each element that is used read once."""
    stores: tuple[float, ...]
    passes: tuple[int, ...]
    """How often each input is read; twice by a batch normalization on its own."""
    is_whole: tuple[bool, ...]
    """Whether all elements of each input are used."""


def find_transfers(groups: Sequence[Group], values: StepValues, sizes: Sequence[OpBytes]) -> Transfers:
    """Transfers of groups between which nothing stays on chip.

    In a group, data that it computes is not loaded, other data is loaded once (or as often as the tiles of its product
    need it), and data is stored if another group or the next step needs it. What the sums of a batch normalization
    load is charged to the op of the group that they follow.
    """
    home = [0] * len(sizes)
    gathered: set[int] = set()
    for slot, group in enumerate(groups):
        for position in group.members:
            home[position] = slot
        gathered.update(group.statistics)
    transfers = Transfers([], [])
    writers, pinned = values.writer, values.pinned
    for slot, group in enumerate(groups):
        shared: dict[int, tuple[int, float]] = {}
        charged = group.members[0]
        members = sorted((*group.members, *group.statistics)) if group.statistics else group.members
        for position in members:
            charged = position if home[position] == slot else charged
            for index, value in enumerate(values.reads[position]):
                writer = writers[value]
                if writer != BEFORE and home[writer] == slot and not pinned[value]:
                    continue
                if position == group.tiled:
                    transfers.loads.append(ValueTransfer(value, slot, position, sizes[position].tiled[index]))
                    continue
                passes = 1 if position in gathered else sizes[position].passes[index]
                size_bytes = sizes[position].once[index] * passes
                if value not in shared or size_bytes > shared[value][1]:
                    shared[value] = (shared[value][0] if value in shared else charged, size_bytes)
        transfers.loads.extend(ValueTransfer(value, slot, *charge) for value, charge in shared.items())
        for position in group.members:
            for value, size_bytes in zip(values.writes[position], sizes[position].stores, strict=True):
                leaves = values.outlives[value] or pinned[value]
                if not leaves:
                    for reader in values.readers[value]:
                        if home[reader] != slot:
                            leaves = True
                            break
                if leaves:
                    transfers.stores.append(ValueTransfer(value, slot, position, size_bytes))
    return transfers


def exchange(transfers: Transfers, imported: Container[int], exported: Container[int]) -> Transfers:
    """The transfers that are left if some values come from other cores, and some go there, without DRAM.

    What comes and does not stay until its last use is stored in place of being loaded for the first time. What goes is
    stored if it is loaded again here.
    """
    if imported == () and exported == ():
        return transfers
    loads: dict[int, list[ValueTransfer]] = {}
    for load in transfers.loads:
        loads.setdefault(load.value, []).append(load)
    left = Transfers([], [], transfers.stays)
    for value, own in loads.items():
        if value not in imported:
            left.loads.extend(own)
            continue
        first = min(own, key=lambda load: load.slot)
        later = [load for load in own if load is not first]
        again = max((load.size_bytes for load in later), default=0.0)
        left.loads.extend([*later, replace(first, size_bytes=min(first.size_bytes, again))])
    for store in transfers.stores:
        is_needed = store.value not in exported or any(load.size_bytes > 0 for load in loads.get(store.value, ()))
        left.stores.extend([store] if is_needed else [])
    return left


_Candidate = tuple[float, int, int, int, float]
"""Data that could stay on chip from its use in one group to its use in another: the space and time that it takes for
each byte that it saves; value, first and last group; bytes."""


def keep_on_chip(
    groups: Sequence[Group], values: StepValues, transfers: Transfers, buffer_bytes: float
) -> tuple[Transfers, list[float]]:
    """The transfers that are left if data stays in the buffer between groups, and the space that is then free.

    Beside what a group reserves, the buffer holds data from one use to the next; a share of a tensor can stay if there
    is no room for all of it. What saves the most bytes for its space and time goes first. A result is not stored if
    it stays until its last use and no later step needs it.
    """
    free = np.array([buffer_bytes - group.reserved_bytes for group in groups])
    loads: dict[int, dict[int, float]] = {}
    for load in transfers.loads:
        if not values.pinned[load.value]:
            at = loads.setdefault(load.value, {})
            at[load.slot] = at.get(load.slot, 0.0) + load.size_bytes
    stored = {transfer.value: transfer for transfer in transfers.stores}
    candidates = sorted(found for value in loads for found in _stays_of(value, loads[value], values, stored))
    stays: list[Stay] = []
    shares: dict[tuple[int, int], float] = {}
    used: dict[tuple[int, int], float] = {}
    for _, value, first, last, size_bytes in candidates:
        share = _fit(free, used, value, first, last, size_bytes)
        if share > 0:
            shares[value, last] = share
            stays.append(Stay(value, first, last, share * size_bytes))
    left = Transfers([], [], tuple(sorted(stays)))
    for load in transfers.loads:
        share = shares.get((load.value, load.slot), 0.0)
        left.loads.append(
            load if share == 0 else ValueTransfer(load.value, load.slot, load.position, load.size_bytes * (1 - share))
        )
    for store in transfers.stores:
        share = 0.0
        if not values.outlives[store.value] and store.value in loads:
            share = min(shares.get((store.value, slot), 0.0) for slot in loads[store.value])
        left.stores.append(store if share == 0 else replace(store, size_bytes=store.size_bytes * (1 - share)))
    return left, free.tolist()


def _stays_of(
    value: int, loads: Mapping[int, float], values: StepValues, stored: Mapping[int, ValueTransfer]
) -> list[_Candidate]:
    size_bytes = values.size_bytes[value]
    store = stored.get(value)
    if size_bytes == 0 or (store is None and len(loads) == 1):
        return []
    uses = sorted(loads) if store is None else [store.slot, *sorted(loads)]
    spared = 0.0 if store is None or values.outlives[value] else store.size_bytes / len(loads)
    return [
        ((last - first + 1) * size_bytes / max(loads[last] + spared, 1e-9), value, first, last, size_bytes)
        for first, last in pairwise(uses)
    ]


def _fit(
    free: NDArray[np.float64],
    used: dict[tuple[int, int], float],
    value: int,
    first: int,
    last: int,
    size_bytes: float,
) -> float:
    """Put as much of a value as fits into the buffer from one slot to another, and return its share.

    At its uses, a value that comes from before or stays until later is there already.
    """
    before, after = used.get((value, first), 0.0), used.get((value, last), 0.0)
    taken = min(size_bytes, float(free[first]) + before, float(free[last]) + after)
    if taken > 0 and last - first > 1:
        taken = min(taken, float(free[first + 1 : last].min()))
    if taken <= 0:
        return 0.0
    if taken > before:
        free[first] -= taken - before
        used[value, first] = taken
    if taken > after:
        free[last] -= taken - after
        used[value, last] = taken
    if last - first > 1:
        free[first + 1 : last] -= taken
    return taken / size_bytes
