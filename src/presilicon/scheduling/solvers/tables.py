"""A problem as flat arrays for the Numba kernels."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from presilicon.records import Mode, Pool, Problem, Schedule, Started, TensorMove

Array = np.ndarray[Any, Any]


class Tables(NamedTuple):
    """Tasks, the modes of all tasks one after another, and pools."""

    dep_first: Array
    """Index in `deps` of the first dependency of each task, and the length of `deps`."""
    deps: Array
    follower_first: Array
    followers: Array
    reader_first: Array
    readers: Array
    """Tasks that read each result in the next step."""
    bytes_out: Array
    held: Array
    """Bytes that stay on the device of each task."""
    past_first: Array
    past: Array
    """What each task reads of the last step: results, and inputs, whose numbers follow those of the tasks."""
    input_bytes: Array
    input_first: Array
    input_readers: Array
    like_first: Array
    like: Array
    """Members of each class of alike tasks, as the repeated layers of a model have; `like_class` is that of a task."""
    like_class: Array
    mode_first: Array
    pool: Array
    """Pool index per mode. `units`, `time`, `extra_j` (energy above idle) and `extra_w` (peak power above idle) are
    also per mode."""
    units: Array
    time: Array
    extra_j: Array
    extra_w: Array
    pool_units: Array
    hop: Array
    """Seconds per byte between a unit of each pool and the host; 0 if transfers are free."""
    memory: Array
    """Bytes per pool; infinite if nothing can exceed it."""
    links_queue: Array
    """One truth: whether moves wait for one another."""


@lru_cache(maxsize=8)
def tables(problem: Problem) -> Tables:
    """The arrays of a problem."""
    tasks, pools = problem.tasks, problem.pools
    number = {pool.name: index for index, pool in enumerate(pools)}
    modes = [mode for task in tasks for mode in task.modes]
    past: list[list[int]] = [[] for _ in tasks]
    for row, readers in enumerate([*(task.next_readers for task in tasks), *(data.readers for data in problem.inputs)]):
        for reader in readers:
            past[reader].append(row)
    idle = [mode.units * problem.pool[mode.device].idle_w for mode in modes]
    classes = _alike(problem)
    members = np.argsort(classes, kind="stable")
    return Tables(
        dep_first=_firsts([len(task.deps) for task in tasks]),
        deps=np.array([dep for task in tasks for dep in task.deps], np.int64),
        follower_first=_firsts([len(followers) for followers in problem.followers]),
        followers=np.array([task for followers in problem.followers for task in followers], np.int64),
        reader_first=_firsts([len(task.next_readers) for task in tasks]),
        readers=np.array([reader for task in tasks for reader in task.next_readers], np.int64),
        bytes_out=np.array([task.bytes_out for task in tasks], np.float64),
        held=np.array([task.held_bytes for task in tasks], np.float64),
        past_first=_firsts([len(rows) for rows in past]),
        past=np.array([row for rows in past for row in rows], np.int64),
        input_bytes=np.array([data.bytes for data in problem.inputs], np.float64),
        input_first=_firsts([len(data.readers) for data in problem.inputs]),
        input_readers=np.array([reader for data in problem.inputs for reader in data.readers], np.int64),
        like_first=_firsts(np.bincount(classes).tolist()),
        like=members,
        like_class=classes,
        mode_first=_firsts([len(task.modes) for task in tasks]),
        pool=np.array([number[mode.device] for mode in modes], np.int64),
        units=np.array([mode.units for mode in modes], np.int64),
        time=np.array([mode.time_s for mode in modes], np.float64),
        extra_j=np.array([mode.time_s * (mode.average_w - w) for mode, w in zip(modes, idle, strict=True)], np.float64),
        extra_w=np.array([mode.peak_w - w for mode, w in zip(modes, idle, strict=True)], np.float64),
        pool_units=np.array([pool.units for pool in pools], np.int64),
        hop=np.array([1 / pool.bytes_per_s if pool.bytes_per_s else 0.0 for pool in pools], np.float64),
        memory=np.array([_memory(problem, pool) for pool in pools], np.float64),
        links_queue=np.array([problem.links_queue]),
    )


def _alike(problem: Problem) -> Array:
    """The class of each task: those of one kind with the same modes, bytes and kinds of neighbours are alike."""
    own: dict[Any, int] = {}
    first = [own.setdefault((task.kind, task.bytes_out, task.modes), len(own)) for task in problem.tasks]
    classes: dict[Any, int] = {}
    for task in problem.tasks:
        before, after = (sorted(first[other] for other in others) for others in (task.deps, problem.followers[task.id]))
        classes.setdefault((first[task.id], *before, -1, *after), len(classes))
        first.append(classes[first[task.id], *before, -1, *after])
    return np.array(first[len(problem.tasks) :], np.int64)


def _memory(problem: Problem, pool: Pool) -> float:
    """Memory of a pool, infinite if everything that could ever be on it fits at once."""
    if pool.memory_bytes is None:
        return np.inf
    everything = sum(task.held_bytes + (2 if task.next_readers else 1) * task.bytes_out for task in problem.tasks)
    everything += sum(2 * data.bytes for data in problem.inputs)
    return np.inf if everything <= pool.memory_bytes * pool.units else pool.memory_bytes * pool.units


def _firsts(lengths: list[int]) -> Array:
    return np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)


def empty_moves(problem: Problem) -> Array:
    """Room for the moves that `placing.place` writes."""
    pools = len(problem.pools)
    return np.empty((len(problem.tasks) * (pools + 1) + len(problem.inputs) * pools, 2))


def assemble(problem: Problem, choice: Array, starts: Array, moves: Sequence[TensorMove], solver: str) -> Schedule:
    """A schedule from the mode index of each task and the start times; units are assigned as they become free."""
    modes = [task.modes[int(index)] for task, index in zip(problem.tasks, choice, strict=True)]
    units = deal(problem, modes, starts)
    started = tuple(
        Started(task, mode, units[task], float(start))
        for task, (mode, start) in enumerate(zip(modes, starts, strict=True))
    )
    return Schedule(solver=solver, started=started, moves=tuple(moves))


def read_moves(problem: Problem, choice: Array, moves: Array) -> list[TensorMove]:
    """The moves that `placing.place` has written, for modes by index in each task."""
    pools, names = len(problem.pools), [pool.name for pool in problem.pools]
    listed = []
    for number in np.flatnonzero(moves[:, 1] > moves[:, 0]).tolist():
        begin, end = moves[number].tolist()
        task, slot = divmod(number, pools + 1)
        if task >= len(problem.tasks):
            task, slot = divmod(number - len(problem.tasks) * (pools + 1), pools)
            listed.append(TensorMove(task, names[slot], "in", begin, end, True))
        elif slot < pools:
            listed.append(TensorMove(task, names[slot], "in", begin, end))
        else:
            listed.append(TensorMove(task, problem.tasks[task].modes[int(choice[task])].device, "out", begin, end))
    return sorted(listed, key=lambda move: (move.start_s, move.task))


def deal(problem: Problem, modes: list[Mode], starts: Array) -> list[tuple[int, ...]]:
    """Units that each op occupies, if their numbers are known to suffice: those that have been free for longest."""
    free = {pool.name: [0.0] * pool.units for pool in problem.pools}
    dealt: list[tuple[int, ...]] = [()] * len(modes)
    # Ops of zero length come first: they occupy no time, but their units must be free too.
    for task in sorted(range(len(modes)), key=lambda task: (float(starts[task]), modes[task].time_s, task)):
        mode, ends = modes[task], free[modes[task].device]
        free_longest = sorted(sorted(range(len(ends)), key=lambda unit: (ends[unit], unit))[: mode.units])
        for unit in free_longest:
            ends[unit] = float(starts[task]) + mode.time_s
        dealt[task] = tuple(free_longest)
    return dealt
