"""A schedule as it was executed on real devices, beside what was predicted."""

from typing import Literal

from msgspec import Struct


class Executed(Struct, frozen=True, gc=False, kw_only=True):
    """An op or a move that was executed; times from the start of its step."""

    kind: Literal["op", "in", "out"]
    name: str
    task: int
    """Its op in the schedule; -1 if it was not captured."""
    device: str
    """The pool and the unit: `fpga 0`."""
    start_s: float
    end_s: float
    bytes: int = 0
    """Bytes moved, for a move."""
    taken_from: str = ""
    """The device that should have run it."""


class UncoveredOp(Struct, frozen=True, kw_only=True):
    """An operator that stayed on the reference device because the device of the schedule has no kernel for it."""

    operator: str
    device: str
    calls: int


class Execution(Struct, frozen=True, kw_only=True):
    """Training steps that followed a schedule."""

    workload: str
    devices: dict[str, str]
    """The real device of each unit: `fpga 0` is `opencl:0.0/0`."""
    reference: str
    steps: int
    predicted_makespan_s: float
    makespans_s: tuple[float, ...]
    """From the start of the first op of each step to the end of its last op or move."""
    makespan_s: float
    """Median, without the first step, in which kernels are built and states are made."""
    makespan_error: float
    """How much longer than predicted, as a fraction of the prediction."""
    ops: int
    """Captured ops of a step."""
    offloaded: float
    """Share of the captured ops that did not run on the reference device."""
    ops_by_device: dict[str, int]
    """Calls of all steps."""
    takeovers: int
    """Ops that the idle reference device took from a busy device."""
    shown_step: int
    executed: tuple[Executed, ...]
    """Of the step whose makespan is the median."""
    lost: dict[str, str] = {}
    """Devices that failed, with the reason; their ops went to the reference device."""
    uncovered: tuple[UncoveredOp, ...] = ()
    uncaptured: dict[str, int] = {}
    """Calls of operators that the schedule does not have, which ran on the reference device."""
    losses: tuple[float, ...] = ()
    plain_losses: tuple[float, ...] = ()
    """Of the same training without the runtime."""
    power_source: str = ""
    cap_w: float | None = None
    highest_w: float | None = None
    """Highest power at the start of an op: the reading, and what the op adds."""
    forced: int = 0
    """Ops that started above the cap because nothing else ran and no device draws less."""
    notes: tuple[str, ...] = ()

    @property
    def largest_loss_difference(self) -> float | None:
        """Largest difference from the losses of plain torch, relative to them."""
        pairs = list(zip(self.losses, self.plain_losses, strict=False))
        return max((abs(ours - plain) / max(abs(plain), 1e-12) for ours, plain in pairs), default=None)
