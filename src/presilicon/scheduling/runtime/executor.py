"""Runs aten calls on several devices at once: a worker for each device, and one for each direction of its link.

Calls are submitted in program order with the versions of storages that they read and write; an op starts when its
operands have arrived on its device. Moves are jobs of their own, which start as soon as their source is ready, so that
the operands of the next op arrive while the device still works on the last one. Where an op runs decides only its time:
what it reads and writes follows from the versions.
"""

import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from heapq import heapify, heappop, heappush
from itertools import zip_longest
from typing import Any, Literal, NamedTuple

from presilicon.base import RunFailedError, torch
from presilicon.scheduling.runtime.devices import DeviceLostError, DeviceTensor, OpDevice, TorchDevice, map_leaves

Kind = Literal["op", "in", "out"]
POLL_S = 0.002
"""Longest time between two looks at the power sensor while an op waits for the cap."""
SWITCH_S = 5e-4
"""Longest time for which one thread of Python keeps the others waiting, instead of 5 ms: ops are shorter than that."""
KEPT = 50_000
"""Number of jobs of which everything is remembered."""
READERS = 16
"""Length of a list of readers above which finished ones are removed."""


class Ran(NamedTuple):
    """A job that was executed."""

    kind: Kind
    name: str
    task: int
    """Its task in the schedule; -1 if it was not captured."""
    step: int
    lane: str
    start_s: float
    end_s: float
    bytes: int = 0
    """Bytes moved, for a move."""
    taken_from: str = ""
    """The lane that it was taken from."""


class LaneChoice(NamedTuple):
    """A lane that can run an op, with its time and power above idle."""

    lane: "Lane"
    time_s: float
    added_w: float


class Version:
    """The contents of a storage between two writes, and where they are: one flat tensor for each lane."""

    __slots__ = ("dtype", "moves", "readers", "size", "tensors", "writer")

    def __init__(self, size: int, dtype: "torch.dtype") -> None:
        self.size, self.dtype = size, dtype
        self.writer: Job | None = None
        self.tensors: dict[str, DeviceTensor] = {}
        self.moves: dict[str, Job] = {}
        """Moves that bring it to a lane."""
        self.readers: list[Job] = []


class OpResult(NamedTuple):
    """A new tensor that an op returns."""

    version: Version
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class Job:
    """An op or a move."""

    __slots__ = (
        *("args", "choices", "clock", "done", "followers", "func", "kind", "kwargs", "lane", "name", "priority"),
        *("results", "step", "taken_from", "task", "version", "waiting", "writes"),
    )

    def __init__(self, kind: Kind, lane: "Lane", priority: float, name: str, task: int = -1, step: int = 0) -> None:
        self.kind, self.lane, self.priority, self.name, self.task, self.step = kind, lane, priority, name, task, step
        self.func: Any = None
        self.args: Any = ()
        self.kwargs: Any = {}
        self.version: Version | None = None
        self.results: Sequence[OpResult | None] = ()
        self.writes: Sequence[tuple[Version, Version]] = ()
        """The versions before and after, of storages that it writes in place."""
        self.choices: Sequence[LaneChoice] = ()
        self.clock = 1.0
        self.taken_from = ""
        self.waiting = 0
        self.done = False
        self.followers: list[Job] = []

    def on(self, lane: "Lane") -> LaneChoice | None:
        """Its time and power on a lane, if known."""
        return next((choice for choice in self.choices if choice.lane is lane), None)


class Lane:
    """A device with its queue of ready jobs; `ins` and `outs` are the queues of its link."""

    def __init__(self, label: str, device: OpDevice, lock: Any, bytes_per_s: float | None = None) -> None:
        self.label, self.device, self.bytes_per_s = label, device, bytes_per_s
        self.queue: list[tuple[float, int, Job]] = []
        self.wake = threading.Condition(lock)
        self.idle = False
        self.busy_until_s = 0.0
        self.lost = ""
        """Reason for which it is no longer used."""
        self.clock = 1.0
        self.ins: Lane
        self.outs: Lane


class Executor:
    """Runs jobs on lanes. The host's memory is the lane `host`; a reference device is never lost.

    Args:
        devices: by label, such as `fpga 0`; the CPU of torch among them works on the host's tensors in place.
        reference: label of the device that takes what others cannot run.
        takeover: whether the idle reference device takes ready ops that wait for a busy device, if it ends them sooner.
        mirror: whether every result is also copied to the host, so that a device can be lost with its memory.
        cap_w: power above which no op is started, by `sensor_w` and the power that running ops add to `idle_w`.
        set_clock: called with a lane's label and a fraction of the highest clock before an op at another clock.
    """

    def __init__(
        self,
        devices: dict[str, OpDevice],
        reference: str,
        *,
        bytes_per_s: dict[str, float | None] | None = None,
        takeover: bool = True,
        mirror: bool = False,
        cap_w: float | None = None,
        sensor_w: Callable[[], float] | None = None,
        idle_w: float = 0.0,
        set_clock: Callable[[str, float], None] | None = None,
    ) -> None:
        self.lock = threading.RLock()
        self.progress = threading.Condition(self.lock)
        rates = bytes_per_s or {}
        self.lanes = {label: Lane(label, device, self.lock, rates.get(label)) for label, device in devices.items()}
        on_host = [
            lane for lane in self.lanes.values() if type(lane.device) is TorchDevice and lane.device.name == "cpu"
        ]
        self.host = on_host[0] if on_host else Lane("host", TorchDevice("cpu"), self.lock)
        self.reference = self.lanes[reference]
        self.takeover, self.mirror, self.cap_w, self.sensor_w = takeover, mirror, cap_w, sensor_w
        self.idle_w, self.set_clock = idle_w, set_clock
        self.ran: deque[Ran] = deque(maxlen=KEPT)
        """The latest jobs."""
        self.calls: Counter[tuple[str, bool]] = Counter()
        """Ops, by lane and whether they were captured."""
        self.takeovers = 0
        self.spans_s: dict[int, tuple[float, float]] = {}
        """By step: start of its first job, end of its last."""
        self.lost: dict[str, str] = {}
        self.forced = 0
        """Ops that were started above the cap because nothing else ran and no device draws less."""
        self.highest_w: float | None = None
        """Highest power at the start of an op under a cap."""
        self.error: BaseException | None = None
        self._running: dict[int, float] = {}
        self._pending = self._count = 0
        self._closing = False
        self._began = time.perf_counter()
        self._threads: list[threading.Thread] = []
        for lane in {id(lane): lane for lane in (*self.lanes.values(), self.host)}.values():
            servers = [lane]
            if lane is not self.host:
                lane.ins, lane.outs = (Lane(lane.label, lane.device, self.lock) for _ in range(2))
                servers += [lane.ins, lane.outs]
            self._threads += [threading.Thread(target=self._serve, args=(server,), daemon=True) for server in servers]
        self._interval_s = sys.getswitchinterval()
        sys.setswitchinterval(SWITCH_S)
        for thread in self._threads:
            thread.start()

    def now_s(self) -> float:
        """Time since the executor was made."""
        return time.perf_counter() - self._began

    def submit(self, job: Job, reads: Iterable[Version]) -> None:
        """Queue an op. `reads` are the versions of all its operands, those that it overwrites in part included."""
        with self.lock:
            self._check()
            if self._closing:
                raise RunFailedError("the context of the runtime has ended")
            if job.lane.lost:
                job.lane = self.reference
            needs: set[Job | None] = set()
            for version in reads:
                needs.add(self._arrival(version, job.lane, job))
                self._add_reader(version, job)
            for before, after in job.writes:
                needs.update(before.readers)
                needs.add(before.writer)
                after.writer = job
            for result in job.results:
                if result is not None:
                    result.version.writer = job
            needs.discard(job)
            self._enqueue(job, needs)

    def prefetch(self, version: Version, lane: Lane, job: Job) -> None:
        """Bring a version to a lane whose ops will read it."""
        with self.lock:
            if not lane.lost:
                self._arrival(version, lane, job)

    def wait(self, version: Version) -> "torch.Tensor":
        """The flat contents of a version in host memory, when they are there."""
        with self.lock:
            self._check()
            arrival = self._arrival(version, self.host, None)
            self._wait(lambda: arrival is None or arrival.done)
        return self._host_tensor(version)

    def drain(self) -> None:
        """Wait for everything that was submitted."""
        with self.lock:
            self._wait(lambda: self._pending == 0)

    def close(self) -> None:
        """Stop the threads; jobs that have not started are dropped."""
        with self.lock:
            self._closing = True
            for lane in (*self.lanes.values(), self.host):
                for server in (lane, getattr(lane, "ins", lane), getattr(lane, "outs", lane)):
                    server.queue.clear()
                    server.wake.notify_all()
        for thread in self._threads:
            thread.join(timeout=30)
        sys.setswitchinterval(self._interval_s)

    def _check(self) -> None:
        if self.error is not None:
            raise self.error

    def _wait(self, until: Callable[[], bool]) -> None:
        while not until():
            self._check()
            self.progress.wait()
        self._check()

    @staticmethod
    def _add_reader(version: Version, job: Job) -> None:
        if len(version.readers) > READERS:
            version.readers = [reader for reader in version.readers if not reader.done]
        version.readers.append(job)

    def _arrival(self, version: Version, lane: Lane, reader: Job | None) -> Job | None:
        """The job after which a version is on a lane, queued if need be; None if it is there."""
        writer = version.writer
        if lane.label in version.tensors:
            return writer
        if lane.label in version.moves:
            return version.moves[lane.label]
        if writer is not None and not writer.done and writer.lane is lane:
            return writer
        priority, step = (reader.priority, reader.step) if reader is not None else (-1.0, -1)
        if lane is self.host:
            source = writer.lane if writer is not None else None
            if writer is None or writer.done:
                source = next((self.lanes[label] for label in version.tensors if label in self.lanes), source)
            assert source is not None, "a version that nobody writes is on the host"
            if source is self.host:
                return writer
            need, server, kind = writer, source.outs, "out"
        else:
            need, server, kind = self._arrival(version, self.host, reader), lane.ins, "in"
        task = writer.task if writer is not None else -1
        move = Job(kind, server, priority, "" if writer is None else writer.name, task, step)  # type: ignore[arg-type]
        move.version = version
        version.moves[lane.label] = move
        self._add_reader(version, move)
        self._enqueue(move, {need})
        return move

    def _enqueue(self, job: Job, needs: Iterable[Job | None]) -> None:
        self._pending += 1
        for need in needs:
            if need is not None and not need.done:
                need.followers.append(job)
                job.waiting += 1
        if not job.waiting:
            self._push(job)

    def _push(self, job: Job) -> None:
        if job.lane.lost and job.kind == "op":
            job.taken_from, job.lane = job.lane.label, self.reference
        lane = job.lane
        self._count += 1
        heappush(lane.queue, (job.priority, self._count, job))
        lane.wake.notify()
        if self.takeover and job.kind == "op" and lane is not self.reference and self.reference.idle:
            self.reference.wake.notify()

    def _finish(self, job: Job, record: Ran | None) -> None:
        with self.lock:
            job.done = True
            job.args = job.kwargs = job.version = None
            job.writes = job.results = ()
            if record is not None:
                self._note(record)
            for follower in job.followers:
                follower.waiting -= 1
                if not follower.waiting:
                    self._push(follower)
            job.followers = []
            self._pending -= 1
            self.progress.notify_all()

    def _note(self, record: Ran) -> None:
        self.ran.append(record)
        if record.step >= 0:
            first_s, last_s = self.spans_s.get(record.step, (record.start_s, record.end_s))
            self.spans_s[record.step] = min(first_s, record.start_s), max(last_s, record.end_s)
        if record.kind == "op":
            self.calls[record.lane, record.task >= 0] += 1
            self.takeovers += bool(record.taken_from) and record.taken_from not in self.lost

    def _serve(self, server: Lane) -> None:
        while True:
            with self.lock:
                job = self._next(server)
            if job is None:
                return
            try:
                record = self._move(job) if job.kind != "op" else self._run(server, job)
                if record is not None:
                    self._finish(job, record)
            except Exception as error:
                self._handle(server, job, error)

    def _next(self, server: Lane) -> Job | None:
        while not self._closing:
            if server.queue:
                return heappop(server.queue)[2]
            if server is self.reference and self.takeover and (job := self._take_over()) is not None:
                return job
            server.idle = True
            server.wake.wait()
            server.idle = False
        return None

    def _take_over(self) -> Job | None:
        """A ready op of a busy device that the reference device would end sooner; the device's first, if it is idle."""
        now_s = self.now_s()
        for lane in self.lanes.values():
            free_s = max(now_s, lane.busy_until_s)
            for position, (_, _, job) in enumerate(sorted(lane.queue, key=lambda entry: entry[:2])):
                there, here = job.on(lane), job.on(self.reference)
                if there is None or here is None or lane is self.reference:
                    break
                free_s += there.time_s
                if position == 0 and lane.idle:
                    continue
                if now_s + here.time_s + self._fetch_s(job, lane) < free_s:
                    lane.queue = [entry for entry in lane.queue if entry[2] is not job]
                    heapify(lane.queue)
                    job.taken_from, job.lane = lane.label, self.reference
                    return job
        return None

    def _fetch_s(self, job: Job, lane: Lane) -> float:
        """Estimated time of moving the operands of a job from its lane to the reference device."""
        versions: dict[int, Version] = {id(leaf._storage): leaf._storage for leaf in operands_of(job.args)}
        absent = [version for version in versions.values() if self.reference.label not in version.tensors]
        rates = [rate for rate in (lane.bytes_per_s, self.reference.bytes_per_s) if rate is not None]
        return sum(version.size * version.dtype.itemsize / rate for version in absent for rate in rates)

    def _run(self, lane: Lane, job: Job) -> Ran | None:
        """Run an op on a lane; None if it went to another lane that draws less power."""
        choice = job.on(lane)
        if self.cap_w is not None and not self._admit(lane, job, choice):
            return None
        if self.set_clock is not None and job.clock != lane.clock:
            self.set_clock(lane.label, job.clock)
            lane.clock = job.clock
        start_s = self.now_s()
        lane.busy_until_s = start_s + (choice.time_s if choice is not None else 0.0)
        try:
            args, kwargs = (map_leaves(lambda leaf: self._operand(leaf, lane), part) for part in (job.args, job.kwargs))
            output = lane.device.run(job.func, args, kwargs)
            self._finish_writes(lane, job)
            outputs = output if isinstance(output, (tuple, list)) else (output,)
            for tensor, result in zip_longest(outputs, job.results):
                if result is not None:
                    result.version.tensors = {lane.label: self._settled(lane, job, tensor, result)}
            for before, after in job.writes:
                after.tensors = {lane.label: before.tensors[lane.label]}
            if self.mirror:
                self._copy_to_host(lane, [after for _, after in job.writes] + [r.version for r in job.results if r])
        finally:
            with self.lock:
                self._running.pop(id(job), None)
        return Ran("op", job.name, job.task, job.step, lane.label, start_s, self.now_s(), 0, job.taken_from)

    def _finish_writes(self, lane: Lane, job: Job) -> None:
        """Wait for an op; if the device fails now, what the op writes in place may have been written in part."""
        try:
            lane.device.synchronize()
        except Exception as error:
            if job.writes and not self.mirror and lane is not self.reference:
                raise RunFailedError(
                    f"{lane.label} failed while {job.name} wrote a tensor in place ({error}), so that its contents are "
                    "unknown; keep copies on the host with mirror=True"
                ) from error
            raise

    def _copy_to_host(self, lane: Lane, versions: Iterable[Version]) -> None:
        try:
            for version in versions:
                self._host_tensor(version)
        except RunFailedError as error:
            raise DeviceLostError(f"{lane.label} failed while a result was read back") from error

    def _operand(self, leaf: Any, lane: Lane) -> Any:
        if not isinstance(leaf, DeviceTensor):
            return leaf
        version = leaf._storage
        flat = version.tensors.get(lane.label)
        if flat is None:
            flat = version.tensors[lane.label] = self._put(lane, self._host_tensor(version))
        return flat.view(leaf.shape, leaf.strides, leaf.offset)

    def _settled(self, lane: Lane, job: Job, tensor: DeviceTensor | None, result: OpResult) -> DeviceTensor:
        """The flat tensor of a result, with the strides that its readers expect."""
        size = result.version.size
        if tensor is None or (size and tuple(tensor.shape) != tuple(result.shape)):
            shape = "nothing" if tensor is None else f"shape {list(tensor.shape)}"
            raise RunFailedError(
                f"{job.name} on {lane.label} gave {shape} where the meta device says shape {list(result.shape)}, so "
                "that its readers cannot be followed; keep what calls it outside of the context"
            )
        same = all(
            stride == wanted or side < 2
            for side, stride, wanted in zip(result.shape, tensor.strides, result.strides, strict=True)
        )
        if (same and tensor.offset == 0) or size == 0:
            return tensor.view((size,), (1,), 0)
        values = torch.empty_strided(result.shape, result.strides, dtype=tensor.dtype)
        values.copy_(self._get(lane, tensor))
        return self._put(lane, values.as_strided((size,), (1,), 0))

    def _get(self, lane: Lane, tensor: DeviceTensor) -> "torch.Tensor":
        found: torch.Tensor = TorchDevice.unwrap(tensor) if lane is self.host else lane.device.get(tensor)
        return found

    def _put(self, lane: Lane, tensor: "torch.Tensor") -> DeviceTensor:
        put: DeviceTensor = TorchDevice.wrap(tensor) if lane is self.host else lane.device.put(tensor)
        return put

    def _host_tensor(self, version: Version) -> "torch.Tensor":
        """The flat contents of a finished version on the host, fetched from wherever they are."""
        flat = version.tensors.get(self.host.label)
        if flat is not None:
            return self._get(self.host, flat)
        labels = [label for label in list(version.tensors) if label in self.lanes]
        reasons: list[str] = []
        for label in sorted(labels, key=lambda label: bool(self.lanes[label].lost)):
            try:
                tensor = self.lanes[label].device.get(version.tensors[label])
            except Exception as error:
                reasons.append(str(error))
                continue
            version.tensors[self.host.label] = TorchDevice.wrap(tensor)
            return tensor
        where = ", ".join(version.tensors) or "no device"
        raise RunFailedError(
            f"the contents of a tensor on {where} cannot be read back ({'; '.join(reasons) or 'it has none'}); keep "
            "copies on the host with mirror=True"
        )

    def _move(self, job: Job) -> Ran:
        version, lane, start_s = job.version, job.lane, self.now_s()
        assert version is not None
        if job.kind == "out":
            self._host_tensor(version)
        elif not self.lanes[lane.label].lost and lane.label not in version.tensors:
            version.tensors[lane.label] = lane.device.put(self._host_tensor(version))
        size = version.size * version.dtype.itemsize
        return Ran(job.kind, job.name, job.task, job.step, lane.label, start_s, self.now_s(), size)

    def _handle(self, server: Lane, job: Job, error: Exception) -> None:
        """A failed device loses its ops to the reference device; any other failure ends the execution."""
        lane = self.lanes.get(server.label)
        is_ours = isinstance(error, RunFailedError) and not isinstance(error, DeviceLostError)
        if lane in (None, self.reference, self.host) or is_ours:
            with self.lock:
                self.error = self.error or error  # the first one is the cause of those that follow
            self._finish(job, None)
            return
        assert lane is not None
        with self.lock:
            if not lane.lost:
                lane.lost = f"{job.name}: {error}"
                self.lost[lane.label] = lane.lost
            stranded = [entry[2] for entry in lane.queue]
            lane.queue = []
            for left in [job, *stranded] if job.kind == "op" else stranded:
                self._push(left)
        if job.kind != "op":
            self._finish(job, None)  # readers fetch what they need themselves

    def _admit(self, lane: Lane, job: Job, choice: LaneChoice | None) -> bool:
        """Wait until an op fits under the cap; False if it was handed to a lane on which it fits now."""
        assert self.cap_w is not None
        added_w = choice.added_w if choice is not None else 0.0
        with self.lock:
            while True:
                modelled_w = self.idle_w + sum(self._running.values())
                power_w = modelled_w if self.sensor_w is None else max(self.sensor_w(), modelled_w)
                if power_w + added_w <= self.cap_w + 1e-9:
                    break
                for other in job.choices:
                    if other.added_w < added_w and power_w + other.added_w <= self.cap_w and not other.lane.lost:
                        job.taken_from, job.lane = lane.label, other.lane
                        self._push(job)
                        return False
                if not self._running:
                    self.forced += 1
                    break
                self.progress.wait(POLL_S)
            self._running[id(job)] = added_w
            self.highest_w = max(self.highest_w or 0.0, power_w + added_w)
        return True


def operands_of(value: Any) -> list[DeviceTensor]:
    """The tensors in nested arguments."""
    if isinstance(value, DeviceTensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [leaf for part in value for leaf in operands_of(part)]
    if isinstance(value, dict):
        return operands_of(list(value.values()))
    return []
