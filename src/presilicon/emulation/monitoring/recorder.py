"""Recording of tensors in the order in which a model computes them, on their devices, and the failures they show."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from presilicon.emulation.monitoring.statistics import Measurement, PendingMeasurement, is_surely_finite, measure
from presilicon.formats import Format, short_name
from presilicon.ops import functions, rectifies
from presilicon.records import Failure, FailureKind, Limits, MonitoredRole, ProductPhase, Role

if TYPE_CHECKING:
    from presilicon.emulation.layer_plan import LayerPlan

RELUS = frozenset(function for function, name in functions().items() if rectifies(name))


class Rounding(NamedTuple):
    """A tensor that was rounded."""

    step: int
    layer: str
    role: MonitoredRole
    product: ProductPhase | None
    """The backward product that it was rounded for again; None for the first rounding."""
    format: Format
    measurement: Measurement = Measurement()


class ModuleRun(NamedTuple):
    """A forward pass of a module without children."""

    step: int
    layer: str
    kind: str
    """Class of the module."""
    bad_inputs: float = 0.0
    """Numbers that are not finite."""
    bad_outputs: float = 0.0


class Recorder:
    """Sees the tensors of monitored steps before and after rounding; nothing waits for the device until `drain`."""

    sees_all = False
    """Whether operands that are exact, or that an earlier product has rounded, are seen too."""
    measures_blocks = False

    def __init__(self) -> None:
        self._pending: list[tuple[Rounding | ModuleRun, PendingMeasurement]] = []

    def is_due(self, step: int) -> bool:
        """Whether a step is recorded."""
        return True

    def wants(self, layer: str, role: MonitoredRole) -> bool:
        """Whether tensors of a role are recorded in a layer."""
        return True

    def what_if_plan(self, layer: str, step: int) -> "LayerPlan | None":
        """The plan whose formats are recorded, if they are not those that the model computes in."""
        return None

    def see_rounding(
        self,
        step: int,
        layer: str,
        role: Role,
        product: ProductPhase | None,
        before: Tensor,
        after: Tensor,
        fmt: Format,
        amax: Tensor | None = None,
    ) -> None:
        """Record a tensor before and after it was rounded to a format; `amax` is what a delayed scale follows."""
        row = measure(before, after, fmt, blocks=self.measures_blocks, amax=amax)
        self._pending.append((Rounding(step, layer, role, product, fmt), row))

    def see_module(self, step: int, layer: str, module: nn.Module, inputs: Any, output: Any, call: int) -> None:
        """Record the inputs and outputs of a module without children; `call` numbers its calls in a forward pass."""
        inside, outside = _floating(inputs), _floating(output)
        if outside:
            values = torch.stack([_not_finite(tensors, outside[0]) for tensors in (inside, outside)])
            row = PendingMeasurement(("bad_inputs", "bad_outputs"), values, {})
            self._pending.append((ModuleRun(step, layer, type(module).__name__), row))

    def see_relu(self, layer: str, output: Tensor, call: int) -> None:
        """Called with the result of a ReLU."""

    def drain(self) -> Iterator[Rounding | ModuleRun]:
        """Everything recorded since the last call, in order; waits once for each device."""
        pending, self._pending = self._pending, []
        by_device: dict[torch.device, list[Tensor]] = {}
        for _, row in pending:
            by_device.setdefault(row.values.device, []).append(row.values)
        values = {device: iter(torch.cat(rows).tolist()) for device, rows in by_device.items()}
        for entry, row in pending:
            numbers = [next(values[row.values.device]) for _ in row.names]
            if isinstance(entry, Rounding):
                yield entry._replace(measurement=row.read(numbers))
            else:
                yield entry._replace(bad_inputs=numbers[0], bad_outputs=numbers[1])


def _floating(value: Any) -> list[Tensor]:
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, Tensor) and leaf.is_floating_point()]


def _not_finite(tensors: list[Tensor], like: Tensor) -> Tensor:
    """The number of infinities and NaN, as float64 on the device of `like`."""
    total = torch.zeros((), dtype=torch.float64, device=like.device)
    for tensor in tensors:
        if is_surely_finite(tensor.detach()):
            continue
        # A finite number times 0 is 0: fewer passes than `isfinite` makes.
        total = total + (tensor.detach() * 0).count_nonzero().to(like.device, non_blocking=True)
    return total


_PLURALS: dict[MonitoredRole, str] = {
    "weight": "weights",
    "activation": "activations",
    "error": "errors",
    "gradient": "gradients",
    "output": "outputs",
}


def failures_of(entry: Rounding | ModuleRun, limits: Limits, largest: float = 0.0) -> Iterator[Failure]:
    """The failures that a recorded tensor shows; `largest` is the largest number in its role and step."""
    if isinstance(entry, Rounding):
        yield from _failures_of_rounding(entry, limits, largest)
    else:
        yield from _failures_of_module(entry)


def _failures_of_rounding(rounding: Rounding, limits: Limits, largest: float) -> Iterator[Failure]:
    numbers, label = rounding.measurement, short_name(rounding.format.along(-1))
    subject = f"{_PLURALS.get(rounding.role, rounding.role)} of {rounding.layer or 'the model'}"
    if rounding.product is not None:
        subject += f" ({rounding.product})"
    if numbers.nonfinite:
        yield _failure(rounding, "non-finite", f"{subject} hold {_count(numbers.nans, numbers.nonfinite)}", label)
    above = numbers.overflow + numbers.saturation
    if above > limits.overflow:
        text = f"{_percent(above)} {_beyond(rounding.format)}, largest {numbers.largest:.2g}"
        yield _failure(rounding, "overflow", f"{subject} overflow {label}: {text}", label)
    if numbers.underflow > limits.underflow and numbers.largest > limits.negligible * largest:
        text = f"{_percent(numbers.underflow)} of the nonzero become 0, largest {numbers.largest:.2g}"
        yield _failure(rounding, "underflow", f"{subject} underflow {label}: {text}", label)


def _failures_of_module(run: ModuleRun) -> Iterator[Failure]:
    if run.bad_outputs and not run.bad_inputs:
        name = f"{run.kind} {run.layer or '(root)'}"
        message = f"step {run.step}: {name} makes {run.bad_outputs:.0f} infinities or NaN of finite numbers"
        yield Failure(step=run.step, layer=run.layer, role="output", symptom="non-finite", format="", message=message)


def _failure(rounding: Rounding, symptom: FailureKind, text: str, label: str) -> Failure:
    return Failure(
        step=rounding.step,
        layer=rounding.layer,
        role=rounding.role,
        product=rounding.product,
        symptom=symptom,
        format=label,
        message=f"step {rounding.step}: {text}",
        statistics=rounding.measurement.statistics(),
    )


def _count(nans: float, nonfinite: int) -> str:
    return f"{nans:.0f} NaN and {nonfinite - nans:.0f} infinities"


def _beyond(fmt: Format) -> str:
    largest = getattr(fmt, "max", None)
    return f"above {largest:g}" if isinstance(largest, float) else "beyond its range"


def _percent(share: float) -> str:
    """A share with two digits: "0.8%", "73%"."""
    return f"{share * 100:.2g}%" if share < 0.995 else "100%"
