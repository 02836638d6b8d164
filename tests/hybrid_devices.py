"""Fake devices and placements for tests of the runtime."""

import random
import time

import torch

from presilicon.records import Mode, Pool, Problem, Schedule, Started, Task
from presilicon.scheduling import DeviceLostError, TorchDevice
from presilicon.study import capture_steps, join_steps

REFERENCE = "cpu"


class Board(TorchDevice):
    """A device with memory of its own."""

    def __init__(self, name="board", *, fails_at=None, forgets=False, without=(), delay_s=0.0, wrong=False):
        super().__init__("cpu")
        self.name, self.fails_at, self.forgets, self.without = name, fails_at, forgets, without
        self.delay_s, self.wrong, self.calls, self.is_gone = delay_s, wrong, 0, False

    def covers(self, func, args, kwargs):
        return func._schema.name not in self.without

    def run(self, func, args, kwargs):
        self.calls += 1
        if self.fails_at is not None and self.calls >= self.fails_at:
            self.is_gone = True
            raise DeviceLostError(f"{self.name} fell off the bus")
        time.sleep(self.delay_s)
        result = super().run(func, args, kwargs)
        if self.wrong and isinstance(result, torch.Tensor | tuple) is False and func._schema.name == "aten::mm":
            self.unwrap(result).add_(1e-2)
        return result

    def get(self, tensor):
        if self.is_gone and self.forgets:
            raise DeviceLostError(f"{self.name} does not answer")
        return super().get(tensor)


def place(workload, batch_size, choose, *, units=2, time_s=1e-4, clock=1.0):
    """A problem and a schedule: `choose(index, op)` gives the units of the board that run an op, or ()."""
    step = capture_steps(workload, batch_size)
    return place_graph(join_steps(workload, step, "work", None), choose, units=units, time_s=time_s, clock=clock)


def place_graph(graph, choose, *, units=2, time_s=1e-4, clock=1.0):
    pools = (
        Pool(name="cpu", units=1, idle_w=10.0, runtime=("cpu",)),
        Pool(name="board", units=units, idle_w=1.0),
    )
    tasks, started = [], []
    for index, op in enumerate(graph.ops):
        on_board = tuple(choose(index, op))
        modes = [
            Mode(device="cpu", time_s=time_s, average_w=30.0, peak_w=30.0),
            Mode(device="board", units=max(len(on_board), 1), time_s=time_s, average_w=4.0, peak_w=4.0, clock=clock),
        ]
        tasks.append(
            Task(
                id=index, kind=op.kind, deps=op.deps, modes=tuple(modes), name=op.name, operator=op.operator,
                shape=op.shape, next_readers=op.next_readers,
            )
        )  # fmt: skip
        mode, where = (modes[1], on_board) if on_board else (modes[0], (0,))
        started.append(Started(index, mode, where, index * time_s))
    problem = Problem(name=graph.name, tasks=tuple(tasks), pools=pools, batch_size=graph.batch_size)
    return problem, Schedule(solver="test", started=tuple(started))


def at_random(seed, share=0.6, units=2):
    """A choice of one unit for some ops."""
    source = random.Random(seed)
    return lambda index, op: (source.randrange(units),) if source.random() < share else ()
