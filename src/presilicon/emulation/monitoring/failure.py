"""Failures of formats, in words."""

from collections.abc import Iterator

from presilicon.emulation.monitoring.recorder import ModuleRun, Rounding
from presilicon.formats import Format, short_name
from presilicon.records import Failure, FailureKind, Limits, MonitoredRole

_PLURALS: dict[MonitoredRole, str] = {
    "weight": "weights",
    "activation": "activations",
    "error": "errors",
    "gradient": "gradients",
    "output": "outputs",
}


def failures_of(entry: Rounding | ModuleRun, limits: Limits) -> Iterator[Failure]:
    """The failures that a recorded tensor shows."""
    yield from _failures_of_rounding(entry, limits) if isinstance(entry, Rounding) else _failures_of_module(entry)


def _failures_of_rounding(rounding: Rounding, limits: Limits) -> Iterator[Failure]:
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
    if numbers.underflow > limits.underflow:
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
