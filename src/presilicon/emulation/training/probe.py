"""Inspection of one training step: losses by rounding, and the first number that is not finite."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from presilicon.emulation.monitoring.recorder import ModuleRun, Recorder, Rounding
from presilicon.emulation.monitoring.statistics import Measurement
from presilicon.formats import Format
from presilicon.records import BugClass, Finding, MonitoredRole, RoleShares

UNDERFLOW, OVERFLOW, SATURATION = 0.5, 0.001, 0.05
"""Shares of a layer's numbers above which rounding is reported."""


class Probe(Recorder):
    """Sees the tensors of one step before and after they are rounded."""

    def __init__(self, step: int) -> None:
        super().__init__()
        self.step = step
        self._measurements: dict[tuple[str, MonitoredRole], Measurement] = {}
        self._formats: dict[tuple[str, MonitoredRole], Format] = {}
        self._first: Finding | None = None

    @property
    def first(self) -> Finding | None:
        """The first number that is not finite; later ones are consequences of it."""
        self._read()
        return self._first

    @first.setter
    def first(self, finding: Finding) -> None:
        self._read()
        self._first = finding

    def _read(self) -> None:
        for entry in self.drain():
            if isinstance(entry, Rounding):
                key = (entry.layer, entry.role)
                self._measurements[key] = self._measurements.get(key, Measurement()).plus(entry.measurement)
                self._formats[key] = entry.format
            if self._first is None:
                self._first = self._blame_rounding(entry) if isinstance(entry, Rounding) else self._blame_module(entry)

    def _blame_rounding(self, rounding: Rounding) -> Finding | None:
        layer, role, numbers = rounding.layer, rounding.role, rounding.measurement
        if numbers.overflowed:
            message = (
                f"{role} of {name_layer(layer)} overflowed {rounding.format}; a format with more exponent bits, or a "
                "smaller loss scale, would hold it"
            )
            share = numbers.overflowed / numbers.numbers
            return self._not_finite("produced", "conceptual", layer, role, message, share)
        if numbers.nonfinite:
            message = f"{role} of {name_layer(layer)} was not finite when it came in, and nothing rounded before it was"
            return self._not_finite("passed on", "structural", layer, role, message)
        return None

    def _blame_module(self, run: ModuleRun) -> Finding | None:
        if run.bad_inputs:
            message = (
                f"{name_layer(run.layer)} was handed numbers that are not finite, and no layer before it made them: "
                "look at what the model computes between its layers"
            )
            return self._not_finite("passed on", "structural", run.layer, "activation", message)
        if run.bad_outputs:
            message = f"{name_layer(run.layer)} ({run.kind}) made a number that is not finite of finite ones"
            return self._not_finite("produced", "structural", run.layer, "activation", message)
        return None

    def _not_finite(
        self,
        origin: Literal["produced", "passed on"],
        bug: BugClass,
        layer: str,
        role: Any,
        message: str,
        share: float | None = None,
    ) -> Finding:
        return Finding(
            step=self.step,
            symptom="non-finite",
            bug=bug,
            layer=layer,
            role=role,
            origin=origin,
            share=share,
            message=message,
        )

    def shares(self) -> list[RoleShares]:
        """Shares over all layers, for each role that was rounded."""
        self._read()
        totals: dict[MonitoredRole, Measurement] = {}
        for (_, role), measurement in self._measurements.items():
            totals[role] = totals.get(role, Measurement()).plus(measurement)
        return [
            RoleShares(
                step=self.step,
                role=role,  # type: ignore[arg-type]
                underflow=total.underflow,
                overflow=total.overflow,
                saturation=total.saturation,
            )
            for role, total in totals.items()
        ]

    def findings(self) -> Iterator[Finding]:
        """Findings for layers whose numbers underflow, overflow or saturate too often."""
        self._read()
        for (layer, role), numbers in self._measurements.items():
            fmt = self._formats[layer, role]
            fits_data = fmt.is_blocked or getattr(fmt, "scale", None) in ("tensor", "channel")
            for symptom, share, limit, words in (
                ("underflow", numbers.underflow, UNDERFLOW, "became zero"),
                ("overflow", numbers.overflow, OVERFLOW, "overflowed"),
                ("saturation", numbers.saturation, SATURATION, "were held at the largest value"),
            ):
                if share > limit:
                    small = symptom == "underflow" and role in ("error", "gradient")
                    advice = "a loss scale lifts them" if small else "more exponent bits hold them"
                    if fits_data:
                        advice = "smaller groups, or more bits, hold them"
                    yield Finding(
                        step=self.step,
                        symptom=symptom,  # type: ignore[arg-type]
                        bug="conceptual",
                        layer=layer,
                        role=role,  # type: ignore[arg-type]
                        share=share,
                        message=f"{share:.0%} of the {role} of {name_layer(layer)} {words} in rounding; {advice}",
                    )


class WatchedFunctions(TorchFunctionMode):
    """A mode that calls `look` with the results of the watched torch functions."""

    def __init__(self, watched: frozenset[Callable[..., Any]], look: Callable[[Tensor], None]) -> None:
        super().__init__()
        self._watched, self._look = watched, look

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the function, then inspect its result."""
        output = func(*args, **(kwargs or {}))
        if func in self._watched:
            self._look(output)
        return output


@contextmanager
def running_layer(model: nn.Module) -> Iterator[Callable[[], str]]:
    """A context with a function that returns the innermost module whose forward pass is running."""
    running: list[str] = []
    handles = []
    for name, module in model.named_modules():
        handles.append(module.register_forward_pre_hook(lambda *_, name=name: running.append(name)))
        handles.append(module.register_forward_hook(lambda *_: _pop(running), always_call=True))
    try:
        yield lambda: running[-1] if running else ""
    finally:
        for handle in handles:
            handle.remove()


def _pop(running: list[str]) -> None:
    running.pop()


def is_finite(value: Any) -> bool:
    """Whether every number in a tensor, or in tensors in lists and tuples, is finite."""
    if isinstance(value, Tensor):
        return not value.is_floating_point() or bool(value.isfinite().all())
    return all(is_finite(part) for part in value) if isinstance(value, list | tuple) else True


def name_layer(layer: str) -> str:
    """The name of a layer for a sentence."""
    return f'layer "{layer}"' if layer else "the model"
