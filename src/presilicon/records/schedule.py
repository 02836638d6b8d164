"""A training step to be placed on several devices, and a placement of it.

A `Problem` is complete: every op with every way to run it, the devices with their idle power, the links. Whoever
made it (a table, a simulator, a measurement) is no longer needed to schedule, to check, or to draw.
"""

from functools import cached_property
from itertools import pairwise
from typing import Literal

from msgspec import Struct

from presilicon.base import ConfigError


class Mode(Struct, frozen=True, gc=False, kw_only=True):
    """One way to run an op."""

    device: str
    """Name of a pool: `gpu`."""
    units: int = 1
    """Number of devices of the pool that it occupies."""
    time_s: float
    average_w: float
    """Over all the units, idle power included."""
    peak_w: float
    clock: float = 1.0
    """Fraction of the highest clock."""
    source: str = "table"
    """Where time and power come from: `table`, `interpolated`, `model`, `measured`, `simulated`."""

    @property
    def energy_j(self) -> float:
        """While it runs."""
        return self.time_s * self.average_w


class Task(Struct, frozen=True, gc=False, kw_only=True):
    """An op of the step with every way to run it."""

    id: int
    """Its place in the problem: an op comes after those that it depends on."""
    kind: str
    """`Conv2D`, as the characterization table names it."""
    size: str = ""
    """Size class: `S`, `M`, `L`, or empty where there is none."""
    bytes_out: int = 0
    deps: tuple[int, ...] = ()
    next_readers: tuple[int, ...] = ()
    """Tasks that read its result in the next step: an updated weight must reach their devices before this one ends."""
    held_bytes: int = 0
    """State that stays on its device from step to step, beside its result."""
    modes: tuple[Mode, ...]
    name: str = ""
    """Name in its source: a layer or an op."""
    operator: str = ""
    """Operator of a captured op, by which a runtime recognises it: `aten.mm.default`."""
    shape: tuple[int, ...] = ()
    """Shape of its first result."""


class HostInput(Struct, frozen=True, gc=False, kw_only=True):
    """Data of the next step, which its readers' devices get from the host during this one."""

    bytes: int
    readers: tuple[int, ...]


class Pool(Struct, frozen=True, gc=False, kw_only=True):
    """The devices of one kind."""

    name: str
    units: int
    idle_w: float
    """Idle power of one unit."""
    bytes_per_s: float | None = None
    """Bandwidth of the link between a unit and the host in each direction; None: transfers are free."""
    runtime: tuple[str, ...] = ()
    """Real devices of the units, one each, if a schedule is to be executed: `opencl:0.0/1`."""
    memory_bytes: float | None = None
    """Memory of one unit; None: unlimited. Tensors are spread over the units, whose memory counts together."""
    kernels: tuple[str, ...] | None = None
    """Kinds of ops that its units are configured for; None: all."""


class Problem(Struct, frozen=True, kw_only=True, dict=True):
    """A step to schedule."""

    name: str
    tasks: tuple[Task, ...]
    pools: tuple[Pool, ...]
    base_w: float = 0.0
    """Drawn all the time beside the devices: the host."""
    batch_size: int = 1
    inputs: tuple[HostInput, ...] = ()
    links_queue: bool = True
    """Whether a unit's link carries one tensor at a time in each direction; else moves do not wait for one another."""
    notes: tuple[str, ...] = ()
    """Assumptions behind it, one sentence each."""

    @cached_property
    def pool(self) -> dict[str, Pool]:
        """The pools by name."""
        return {pool.name: pool for pool in self.pools}

    @cached_property
    def followers(self) -> tuple[tuple[int, ...], ...]:
        """Tasks that depend on each task."""
        followers: list[list[int]] = [[] for _ in self.tasks]
        for task in self.tasks:
            for dep in task.deps:
                followers[dep].append(task.id)
        return tuple(map(tuple, followers))

    @cached_property
    def idle_w(self) -> float:
        """Power of the whole system when nothing runs."""
        return self.base_w + sum(pool.units * pool.idle_w for pool in self.pools)

    def hop_s(self, size: int, device: str) -> float:
        """Time of so many bytes over the link between a unit of a pool and the host."""
        rate = self.pool[device].bytes_per_s
        return 0.0 if rate is None else size / rate

    def move_s(self, size: int, source: str, target: str) -> float:
        """Time of moving so many bytes from a device of one pool to one of another: two hops through the host.

        Within a pool nothing moves.
        """
        return 0.0 if source == target else self.hop_s(size, source) + self.hop_s(size, target)

    def check(self) -> None:
        """Ops in order, each with a way to run that the system has.

        Raises:
            ConfigError: naming op, device and value.
        """
        for index, task in enumerate(self.tasks):
            label = f"op {task.id} ({task.kind}{' ' + task.size if task.size else ''})"
            if task.id != index:
                raise ConfigError(f"{label}: ops must be numbered from 0 in order; expected {index}")
            late = [dep for dep in task.deps if not 0 <= dep < index]
            if late:
                raise ConfigError(f"{label}: it depends on op {late[0]}, which does not come before it")
            if task.bytes_out < 0:
                raise ConfigError(f"{label}: bytes_out is {task.bytes_out}, below 0")
            unknown = [reader for reader in task.next_readers if not 0 <= reader < len(self.tasks)]
            if unknown:
                raise ConfigError(f"{label}: op {unknown[0]} cannot read its result in the next step: there is none")
            if not task.modes:
                raise ConfigError(f"{label}: no device of {', '.join(self.pool)} can run it")
            for mode in task.modes:
                self._check_mode(label, mode)
        for number, data in enumerate(self.inputs):
            if data.bytes < 0 or not all(0 <= reader < len(self.tasks) for reader in data.readers):
                raise ConfigError(f"input {number}: bytes must be at least 0, and its readers ops of the step")

    def _check_mode(self, label: str, mode: Mode) -> None:
        if mode.device not in self.pool:
            raise ConfigError(f"{label}: there is no device {mode.device}; the system has {', '.join(self.pool)}")
        if not 1 <= mode.units <= self.pool[mode.device].units:
            held = self.pool[mode.device].units
            raise ConfigError(f"{label}: it takes {mode.units} of {mode.device}, and there are {held}")
        for what, value in (("time", mode.time_s), ("average power", mode.average_w), ("peak power", mode.peak_w)):
            if not 0 <= value < float("inf"):
                raise ConfigError(
                    f"{label}: {what} on {mode.device} is {value}, expected a finite number of at least 0"
                )
        idle = mode.units * self.pool[mode.device].idle_w
        if mode.average_w < idle * (1 - 1e-9):
            raise ConfigError(
                f"{label}: average power on {mode.units} x {mode.device} must be at least its idle power of {idle:g} "
                f"W, not {mode.average_w:g} W; correct the op's power or lower idle_w of {mode.device}"
            )
        if mode.peak_w < mode.average_w * (1 - 1e-9):
            raise ConfigError(
                f"{label}: peak power on {mode.device} is {mode.peak_w:g} W, below its average of {mode.average_w:g} W"
            )


class Started(Struct, frozen=True, gc=False):
    """An op at its place and time."""

    task: int
    mode: Mode
    units: tuple[int, ...]
    """Which devices of the pool, from 0."""
    start_s: float

    @property
    def end_s(self) -> float:
        """Time at which it ends."""
        return self.start_s + self.mode.time_s


class TensorMove(Struct, frozen=True, gc=False):
    """A result on its way over a link between a pool and the host."""

    task: int
    """Whose result it is; of data from the host, the place in the problem's inputs."""
    device: str
    """The pool whose link carries it."""
    direction: Literal["out", "in"]
    start_s: float
    end_s: float
    from_host: bool = False
    """Whether it is data of the next step, which the host has."""


class Schedule(Struct, frozen=True, kw_only=True):
    """A placement of every op of a problem."""

    solver: str
    started: tuple[Started, ...]
    """One for each task, in the tasks' order."""
    moves: tuple[TensorMove, ...] = ()
    """Every result crosses its own link once, and that of each other pool that needs it once."""
    bound_j: float | None = None
    """No schedule within the same limits takes less energy: proven by the solver."""
    bound_s: float | None = None
    """No schedule within the same limits is shorter: proven by the solver."""
    notes: tuple[str, ...] = ()
    """Remarks of the solver for a reader: fallbacks, a time limit that was reached."""
    interrupted: bool = False
    """Whether the search was interrupted, so that this is the best schedule so far."""

    @property
    def makespan_s(self) -> float:
        """Time from the start to the end of the last op or move."""
        return max(0.0, *(op.end_s for op in self.started), *(move.end_s for move in self.moves))


class PowerTrace(Struct, frozen=True, kw_only=True):
    """Power over a step: constant from each time to the next."""

    times_s: tuple[float, ...]
    """One more than the powers: the last is the end."""
    average_w: tuple[float, ...]
    peak_w: tuple[float, ...]
    """With every running op at its own peak."""

    @property
    def energy_j(self) -> float:
        """The integral of the average power."""
        return sum(
            power * (end - start) for power, (start, end) in zip(self.average_w, pairwise(self.times_s), strict=True)
        )


class ScheduleCost(Struct, frozen=True, kw_only=True):
    """Cost of a schedule."""

    makespan_s: float
    energy_per_step_j: float
    average_power_w: float
    peak_power_w: float
    throughput_samples_per_s: float
    samples_per_j: float
    utilization: dict[str, float]
    """Busy share of each pool's units."""
    violations: int | None = None
    """Samples above the cap; None without one."""
