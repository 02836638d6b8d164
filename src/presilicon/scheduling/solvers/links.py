"""Busy times of units, and links between devices and the host, for solvers that place one op after another."""

from bisect import bisect_left
from typing import Literal

from presilicon.records import Problem, Started, TensorMove


class BusyIntervals:
    """Busy intervals in order of time; intervals that touch are merged."""

    def __init__(self) -> None:
        self.begins: list[float] = []
        self.ends: list[float] = []

    def take(self, begin: float, end: float) -> None:
        """Occupy an interval that is free."""
        if end <= begin:
            return
        index = bisect_left(self.begins, begin)
        joins_before = index > 0 and self.ends[index - 1] >= begin - 1e-15
        joins_after = index < len(self.begins) and self.begins[index] <= end + 1e-15
        if joins_before and joins_after:
            self.ends[index - 1] = self.ends[index]
            del self.begins[index], self.ends[index]
        elif joins_before:
            self.ends[index - 1] = end
        elif joins_after:
            self.begins[index] = begin
        else:
            self.begins.insert(index, begin)
            self.ends.insert(index, end)

    def earliest(self, ready: float, length: float) -> float:
        """The first time from `ready` at which it is free for `length`."""
        index = bisect_left(self.ends, ready + 1e-15)
        begin = ready
        while index < len(self.begins) and self.begins[index] < begin + length - 1e-15:
            begin = self.ends[index]
            index += 1
        return begin


Direction = Literal["out", "in"]


class Links:
    """Moves that are placed so far. A tensor crosses a link when it is first needed, as early as the link allows."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._lanes: dict[tuple[str, Direction], list[BusyIntervals]] = {}
        for pool in problem.pools:
            self._lanes[pool.name, "out"] = [BusyIntervals() for _ in range(pool.units)]
            self._lanes[pool.name, "in"] = [BusyIntervals() for _ in range(pool.units)]
        self._arrived: dict[tuple[int, str], float] = {}
        """By task and pool; for the pool on which it was computed, the time at which the result is with the host."""
        self._moves: list[TensorMove] = []

    def arrival(self, producer: Started, target: str) -> float:
        """When a result could be on a device of a pool, if nothing else were moved before."""
        return self._move(producer, target, take=False)

    def bring(self, producer: Started, target: str) -> float:
        """When a result is on a device of a pool; it is moved there if it is not yet."""
        return self._move(producer, target, take=True)

    def leave(self, producer: Started) -> None:
        """A result goes to the host, from where others get it."""
        task, source = producer.task, producer.mode.device
        if (task, source) not in self._arrived:
            size = self._problem.tasks[task].bytes_out
            self._arrived[task, source] = self._hop(task, size, source, "out", producer.end_s, take=True)

    def finish(self, started: dict[int, Started]) -> tuple[TensorMove, ...]:
        """All moves of a step, with those for the next one."""
        for task in self._problem.tasks:
            for reader in task.next_readers:
                self.bring(started[task.id], started[reader].mode.device)
        for number, data in enumerate(self._problem.inputs):
            for device in sorted({started[reader].mode.device for reader in data.readers}):
                self._hop(number, data.bytes, device, "in", 0.0, take=True, from_host=True)
        return tuple(sorted(self._moves, key=lambda move: (move.start_s, move.task)))

    def _move(self, producer: Started, target: str, *, take: bool) -> float:
        task, source = producer.task, producer.mode.device
        if source == target:
            return producer.end_s
        known = self._arrived.get((task, target))
        if known is not None:
            return known
        size = self._problem.tasks[task].bytes_out
        if take:
            self.leave(producer)
        at_host = self._arrived.get((task, source))
        if at_host is None:
            at_host = self._hop(task, size, source, "out", producer.end_s, take=False)
        there = self._hop(task, size, target, "in", at_host, take=take)
        if take:
            self._arrived[task, target] = there
        return there

    def _hop(
        self, task: int, size: int, device: str, direction: Direction, ready: float, *, take: bool,
        from_host: bool = False,
    ) -> float:  # fmt: skip
        length = self._problem.hop_s(size, device)
        if not length:
            return ready
        begin = ready
        if self._problem.links_queue:
            lanes = self._lanes[device, direction]
            begin, number = min((lane.earliest(ready, length), number) for number, lane in enumerate(lanes))
            if take:
                lanes[number].take(begin, begin + length)
        if take:
            self._moves.append(TensorMove(task, device, direction, begin, begin + length, from_host))
        return begin + length
