"""Inspection of one training step: losses by rounding, and the first number that is not finite."""

from collections.abc import Iterator
from typing import Any, Literal

import torch
from torch import Tensor, nn

from presilicon.emulation.monitoring.recorder import ModuleRun, Recorder, Rounding
from presilicon.emulation.monitoring.statistics import Measurement
from presilicon.formats import Format
from presilicon.records import BugClass, Finding, Limits, MonitoredRole, RoleShares

UNDERFLOW, OVERFLOW, SATURATION = 0.5, 0.001, 0.05
"""Shares of a layer's numbers above which rounding is reported."""
_NEGLIGIBLE = Limits().negligible


class Probe(Recorder):
    """Sees the tensors of one step before and after they are rounded."""

    def __init__(self, step: int) -> None:
        super().__init__()
        self.step = step
        self._measurements: dict[tuple[str, MonitoredRole], Measurement] = {}
        self._formats: dict[tuple[str, MonitoredRole], Format] = {}
        self._first: Finding | None = None
        self._relus: list[tuple[str, Tensor]] = []
        self._ends: list[str] = []
        self._norms: Tensor | None = None

    def at(self, step: int) -> "Probe":
        """A probe of another step that is a replay of this one, in the same memory."""
        other = Probe(step)
        other._pending = [(entry._replace(step=step), row) for entry, row in self._pending]
        other._relus, other._ends, other._norms = self._relus, self._ends, self._norms
        return other

    def see_relu(self, layer: str, output: Tensor, call: int) -> None:
        """Note the share of a ReLU's units that are zero for the whole batch."""
        if output.numel():
            self._relus.append((layer, (output.detach() == 0).all(dim=0).double().mean()))

    def see_gradients(self, model: nn.Module) -> None:
        """Note the sizes of the first and the last layer's gradients."""
        own = [(name, p.grad) for name, p in model.named_parameters() if p.grad is not None and p.dim() > 1]
        if len(own) > 1:
            ends = own[0], own[-1]
            self._ends = [name.rpartition(".")[0] for name, _ in ends]
            self._norms = torch.stack([gradient.norm() for _, gradient in ends])

    @property
    def dead(self) -> list[tuple[str, float]]:
        """The layer of each ReLU, and the share of its units that are zero for the whole batch."""
        return [(layer, float(share)) for layer, share in self._relus]

    @property
    def gradient_ratio(self) -> tuple[str, float] | None:
        """The first layer, and the norm of its gradient over that of the last; None where that means nothing."""
        first, last = (0.0, 0.0) if self._norms is None else self._norms.tolist()
        return (self._ends[0], first / last) if last > 0 else None

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
        largest: dict[MonitoredRole, float] = {}
        for (_, role), numbers in self._measurements.items():
            largest[role] = max(numbers.largest, largest.get(role, 0.0))
        for (layer, role), numbers in self._measurements.items():
            matters = numbers.largest > _NEGLIGIBLE * largest[role]
            fmt = self._formats[layer, role]
            fits_data = fmt.is_blocked or getattr(fmt, "scale", None) in ("tensor", "channel")
            for symptom, share, limit, words in (
                ("underflow", numbers.underflow * matters, UNDERFLOW, "became zero"),
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


def is_finite(value: Any) -> bool:
    """Whether every number in a tensor, or in tensors in lists and tuples, is finite."""
    if isinstance(value, Tensor):
        return not value.is_floating_point() or bool(value.isfinite().all())
    return all(is_finite(part) for part in value) if isinstance(value, list | tuple) else True


def name_layer(layer: str) -> str:
    """The name of a layer for a sentence."""
    return f'layer "{layer}"' if layer else "the model"
