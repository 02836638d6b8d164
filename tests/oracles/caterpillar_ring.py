"""Slow reference of CATERPILLAR's ring: links stepped cycle by cycle, collectives and products of all cores.

A core sends to the next one only. Chunks are stored before they are sent on. In products, a core has room for two
panels (or two buckets of sums): one that it works with, one that arrives or leaves. Products of a core are those of
`oracles.caterpillar`, on panels padded to one size.
"""

from collections import deque
from collections.abc import Callable, Sequence
from math import ceil
from typing import NamedTuple

from oracles.caterpillar import Matrix, Vector, run_core_gemm


class Ring(NamedTuple):
    """Cores, words that each sends in a cycle, and cycles that a word then needs."""

    cores: int
    ring_words: int
    hop_cycles: int


class Moved(NamedTuple):
    """What a collective took."""

    cycles: int
    steps: int
    """Messages that each core sent."""
    words: int
    """The most that one core sent."""


class Links:
    """One message at a time leaves each core, and arrives some cycles after its last word has left."""

    def __init__(self, ring: Ring) -> None:
        self.ring = ring
        self.queues: list[deque[tuple[int, list[float]]]] = [deque() for _ in range(ring.cores)]
        self.left = [0] * ring.cores
        self.flying: list[tuple[int, int, int, list[float]]] = []
        self.sent_words, self.sent = [0] * ring.cores, [0] * ring.cores

    def send(self, core: int, tag: int, message: list[float]) -> None:
        """Put a message on the way to the next core."""
        self.queues[core].append((tag, message))
        if len(self.queues[core]) == 1:
            self.left[core] = len(message)

    def step(self) -> tuple[list[tuple[int, int]], list[tuple[int, int, list[float]]]]:
        """One cycle: (core, tag) of what has left, and (core, tag, message) of what has arrived, at its end."""
        gone = []
        flying = [(after - 1, there, tag, message) for after, there, tag, message in self.flying]
        for core, queue in enumerate(self.queues):
            if not queue:
                continue
            self.left[core] -= self.ring.ring_words
            if self.left[core] <= 0:
                tag, message = queue.popleft()
                gone.append((core, tag))
                flying.append((self.ring.hop_cycles, (core + 1) % self.ring.cores, tag, message))
                self.left[core] = len(queue[0][1]) if queue else 0
                self.sent_words[core] += len(message)
                self.sent[core] += 1
        self.flying = [entry for entry in flying if entry[0] > 0]
        return gone, [(there, tag, message) for after, there, tag, message in flying if after <= 0]

    def moved(self, cycles: int) -> Moved:
        """What the links have done."""
        return Moved(cycles, max(self.sent), max(self.sent_words))


def run_all_gather(chunks: Sequence[Vector], ring: Ring) -> tuple[list[list[list[float]]], Moved]:
    """What each core holds in the end: the chunks of all, in order."""
    n, links, cycles = ring.cores, Links(ring), 0
    held: list[dict[int, list[float]]] = [{core: list(chunks[core])} for core in range(n)]
    for core in range(n) if n > 1 else ():
        links.send(core, core, list(chunks[core]))
    while any(len(have) < n for have in held):
        for core, tag, chunk in links.step()[1]:
            held[core][tag] = chunk
            if tag != (core + 1) % n:  # the next core had it first
                links.send(core, tag, chunk)
        cycles += 1
    return [[have[tag] for tag in range(n)] for have in held], links.moved(cycles)


def run_reduce_scatter(vectors: Sequence[Sequence[Vector]], ring: Ring) -> tuple[list[list[float]], Moved]:
    """vectors[core][chunk]: in the end each core holds the sum of its own chunk over all cores.

    A bucket starts behind the core that it is for and goes around; every core adds to it what it has.
    """
    n, links, cycles = ring.cores, Links(ring), 0
    result: dict[int, list[float]] = {0: list(vectors[0][0])} if n == 1 else {}
    for core in range(n) if n > 1 else ():
        tag = (core - 1) % n
        links.send(core, tag, list(vectors[core][tag]))
    while len(result) < n:
        for core, tag, bucket in links.step()[1]:
            added = [left + right for left, right in zip(bucket, vectors[core][tag], strict=True)]
            if tag == core:
                result[core] = added
            else:
                links.send(core, tag, added)
        cycles += 1
    return [result[core] for core in range(n)], links.moved(cycles)


def run_all_reduce(vectors: Sequence[Sequence[Vector]], ring: Ring) -> tuple[list[list[list[float]]], Moved]:
    """The bucket algorithm: the sums of all chunks, on every core."""
    scattered, first = run_reduce_scatter(vectors, ring)
    gathered, second = run_all_gather(scattered, ring)
    return gathered, Moved(*(left + right for left, right in zip(first, second, strict=True)))


def run_circulating(panel_words: int, compute: Callable[[int, int], int], ring: Ring) -> int:
    """Cycles until every core has computed with every panel; `compute(core, tag)` does so and says how long it took."""
    n, links, cycles, missing = ring.cores, Links(ring), 0, ring.cores**2
    held: list[dict[int, set[str]]] = [{core: set()} for core in range(n)]
    """For each panel that a core has room for: what is done with it."""
    to_compute = [deque([core]) for core in range(n)]
    to_send = [deque([core] if n > 1 else []) for core in range(n)]
    if n == 1:
        held[0][0].add("sent")
    busy: dict[int, tuple[int, int]] = {}
    while missing:
        for core in range(n):
            there = (core + 1) % n
            if to_send[core] and len(held[there]) < 2:
                tag = to_send[core].popleft()
                held[there][tag] = {"sent"} if tag == (there + 1) % n else set()
                links.send(core, tag, [0.0] * panel_words)
            if core not in busy and to_compute[core]:
                tag = to_compute[core].popleft()
                busy[core] = (tag, compute(core, tag))
        gone, arrived = links.step()
        for core, tag in gone:
            _mark(held[core], tag, "sent")
        for core, (tag, left) in list(busy.items()):
            busy[core] = (tag, left - 1)
            if left == 1:
                del busy[core]
                _mark(held[core], tag, "computed")
                missing -= 1
        for core, tag, _ in arrived:
            to_compute[core].append(tag)
            if "sent" not in held[core][tag]:
                to_send[core].append(tag)
        cycles += 1
    return cycles


def run_buckets(bucket_words: int, compute: Callable[[int, int], int], ring: Ring) -> int:
    """Cycles until every core has its bucket, with the products of all cores in it."""
    n, links, cycles = ring.cores, Links(ring), 0
    order = [deque((core - 1 - step) % n for step in range(n)) for core in range(n)]
    held: list[dict[int, set[str]]] = [{} for _ in range(n)]
    busy: dict[int, tuple[int, int]] = {}
    finished: set[int] = set()
    while len(finished) < n:
        for core in range(n):
            if core not in busy and order[core] and len(held[core]) < 2:
                is_first, tag = len(order[core]) == n, order[core].popleft()
                held[core][tag] = {"arrived"} if is_first else set()
                busy[core] = (tag, compute(core, tag))
        gone, arrived = links.step()
        for core, tag in gone:
            del held[core][tag]
        for core, (tag, left) in list(busy.items()):
            busy[core] = (tag, left - 1)
            if left == 1:
                del busy[core]
                held[core][tag].add("computed")
        for core, tag, _ in arrived:
            assert tag in held[core], "a bucket arrived before there was room for it"
            held[core][tag].add("arrived")
        for core in range(n):
            for tag, done in held[core].items():
                if done == {"arrived", "computed"}:
                    if tag == core:
                        finished.add(core)
                    else:
                        done.add("sending")
                        links.send(core, tag, [0.0] * bucket_words)
        cycles += 1
    return cycles


def run_ring_forward(x: Matrix, w: Matrix, ring: Ring, nr: int, stages: int) -> tuple[list[list[float]], int]:
    """X W with the columns of W spread over the cores, and panels of X going around."""
    rows, depth, width = len(x), ceil(len(w) / ring.cores), ceil(len(w[0]) / ring.cores)
    sums = [[[0.0] * width for _ in x] for _ in range(ring.cores)]

    def compute(core: int, tag: int) -> int:
        a, b = _block(x, 0, tag * depth, rows, depth), _block(w, tag * depth, core * width, depth, width)
        sums[core], cycles, _ = run_core_gemm(a, b, sums[core], nr, stages)
        return cycles

    cycles = run_circulating(rows * depth, compute, ring)
    return [[value for core in sums for value in core[row]][: len(w[0])] for row in range(rows)], cycles


def run_ring_input_grad(e: Matrix, w: Matrix, ring: Ring, nr: int, stages: int) -> tuple[list[list[float]], int]:
    """E W^T with W where the forward product has it, and buckets of sums going around."""
    rows, depth, width = len(e), ceil(len(w) / ring.cores), ceil(len(w[0]) / ring.cores)
    buckets = [[[0.0] * depth for _ in e] for _ in range(ring.cores)]

    def compute(core: int, tag: int) -> int:
        a, b = _block(e, 0, core * width, rows, width), _block(w, tag * depth, core * width, depth, width)
        columns = [list(line) for line in zip(*b, strict=True)]
        buckets[tag], cycles, _ = run_core_gemm(a, columns, buckets[tag], nr, stages)
        return cycles

    cycles = run_buckets(rows * depth, compute, ring)
    return [[value for bucket in buckets for value in bucket[row]][: len(w)] for row in range(rows)], cycles


def run_ring_weight_grad(x: Matrix, e: Matrix, ring: Ring, nr: int, stages: int) -> tuple[list[list[float]], int]:
    """X^T E: each core makes the gradients of its own weights, from its errors and all panels of X."""
    rows, depth, width = len(x), ceil(len(x[0]) / ring.cores), ceil(len(e[0]) / ring.cores)
    parts: list[list[list[list[float]]]] = [[[] for _ in range(ring.cores)] for _ in range(ring.cores)]

    def compute(core: int, tag: int) -> int:
        panel = _block(x, 0, tag * depth, rows, depth)
        columns = [list(line) for line in zip(*panel, strict=True)]
        zeros = [[0.0] * width for _ in range(depth)]
        parts[tag][core], cycles, _ = run_core_gemm(columns, _block(e, 0, core * width, rows, width), zeros, nr, stages)
        return cycles

    cycles = run_circulating(rows * depth, compute, ring)
    lines = [[value for part in parts[tag] for value in part[row]] for tag in range(ring.cores) for row in range(depth)]
    return [line[: len(e[0])] for line in lines[: len(x[0])]], cycles


def _block(matrix: Matrix, top: int, left: int, height: int, width: int) -> list[list[float]]:
    """A block of the matrix, with zeros where it lies beyond."""
    return [
        [matrix[i][j] if i < len(matrix) and j < len(matrix[0]) else 0.0 for j in range(left, left + width)]
        for i in range(top, top + height)
    ]


def _mark(held: dict[int, set[str]], tag: int, done: str) -> None:
    """A panel that was computed with and sent on makes room."""
    held[tag].add(done)
    if held[tag] == {"sent", "computed"}:
        del held[tag]
