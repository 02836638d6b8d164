"""Inspection of one training step: losses by rounding, and the first number that is not finite."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch
from msgspec import Struct
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from presilicon.formats import Format
from presilicon.records import BugClass, Finding, Role, RoleShares

UNDERFLOW, OVERFLOW, SATURATION = 0.5, 0.001, 0.05
"""Shares of a layer's numbers above which rounding is reported."""


class _Count(Struct):
    """Numbers of one layer and role that rounding changed."""

    nonzero: int = 0
    finite: int = 0
    underflowed: int = 0
    overflowed: int = 0
    saturated: int = 0
    fits_data: bool = False
    """Whether the format has a scale or a shared exponent that follows the data."""


_SUMMED = ("nonzero", "finite", "underflowed", "overflowed", "saturated")


class Probe:
    """Sees the tensors of one step before and after they are rounded."""

    def __init__(self, step: int) -> None:
        self.step = step
        self.counts: dict[tuple[str, Role], _Count] = {}
        self.first: Finding | None = None

    @torch.no_grad()
    def __call__(self, layer: str, role: Role, before: Tensor, after: Tensor, fmt: Format) -> None:
        """Count the effects of rounding one tensor."""
        finite_before, finite_after = before.isfinite(), after.isfinite()
        count = self.counts.setdefault((layer, role), _Count())
        count.nonzero += int((before != 0).sum())
        count.finite += int(finite_before.sum())
        count.underflowed += int(((before != 0) & (after == 0)).sum())
        overflowed = int((finite_before & ~finite_after).sum())
        count.overflowed += overflowed
        largest = getattr(fmt, "max", None)
        if isinstance(largest, float):
            count.saturated += int(((before.abs() > largest) & (after.abs() == largest)).sum())
        count.fits_data = fmt.is_blocked or getattr(fmt, "scale", None) in ("tensor", "channel")
        if overflowed:
            message = (
                f"{role} of {name_layer(layer)} overflowed {fmt}; a format with more exponent bits, or a smaller loss "
            )
            share = overflowed / before.numel()
            self._blame("produced", "conceptual", layer, role, message + "scale, would hold it", share)
        elif not bool(finite_before.all()):
            message = f"{role} of {name_layer(layer)} was not finite when it came in, and nothing rounded before it was"
            self._blame("passed on", "structural", layer, role, message)

    def _blame(
        self,
        origin: Literal["produced", "passed on"],
        bug: BugClass,
        layer: str,
        role: Role,
        message: str,
        share: float | None = None,
    ) -> None:
        """Keep the first number that is not finite; later ones are consequences of it."""
        if self.first is None:
            self.first = Finding(
                step=self.step,
                symptom="non-finite",
                bug=bug,
                layer=layer,
                role=role,
                origin=origin,
                share=share,
                message=message,
            )

    @contextmanager
    def watching(self, model: nn.Module) -> Iterator[None]:
        """A context that also inspects inputs and outputs of layers, to find one that produces non-finite numbers."""
        names = {module: name for name, module in model.named_modules()}
        leaves = [module for module in names if not any(module.children())]

        def look(module: nn.Module, inputs: Any, output: Any) -> None:
            if self.first is not None:
                return
            layer = names[module]
            if not is_finite(inputs):
                message = (
                    f"{name_layer(layer)} was handed numbers that are not finite, and no layer before it made them: "
                )
                advice = "look at what the model computes between its layers"
                self._blame("passed on", "structural", layer, "activation", message + advice)
            elif not is_finite(output):
                message = (
                    f"{name_layer(layer)} ({type(module).__name__}) made a number that is not finite of finite ones"
                )
                self._blame("produced", "structural", layer, "activation", message)

        handles = [module.register_forward_hook(look) for module in leaves]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def shares(self) -> list[RoleShares]:
        """Shares over all layers, for each role that was rounded."""
        totals: dict[Role, _Count] = {}
        for (_, role), count in self.counts.items():
            total = totals.setdefault(role, _Count())
            for field in _SUMMED:
                setattr(total, field, getattr(total, field) + getattr(count, field))
        return [
            RoleShares(
                step=self.step,
                role=role,
                underflow=count.underflowed / max(count.nonzero, 1),
                overflow=count.overflowed / max(count.finite, 1),
                saturation=count.saturated / max(count.finite, 1),
            )
            for role, count in totals.items()
        ]

    def findings(self) -> Iterator[Finding]:
        """Findings for layers whose numbers underflow, overflow or saturate too often."""
        for (layer, role), count in self.counts.items():
            for symptom, share, limit, words in (
                ("underflow", count.underflowed / max(count.nonzero, 1), UNDERFLOW, "became zero"),
                ("overflow", count.overflowed / max(count.finite, 1), OVERFLOW, "overflowed"),
                ("saturation", count.saturated / max(count.finite, 1), SATURATION, "were held at the largest value"),
            ):
                if share > limit:
                    small = symptom == "underflow" and role in ("error", "gradient")
                    advice = "a loss scale lifts them" if small else "more exponent bits hold them"
                    if count.fits_data:
                        advice = "smaller groups, or more bits, hold them"
                    yield Finding(
                        step=self.step,
                        symptom=symptom,  # type: ignore[arg-type]
                        bug="conceptual",
                        layer=layer,
                        role=role,
                        share=share,
                        message=f"{share:.0%} of the {role} of {name_layer(layer)} {words} in rounding; {advice}",
                    )


RELUS = frozenset(
    (functional.relu, functional.relu_, torch.relu, torch.relu_, Tensor.relu, Tensor.relu_, functional.relu6)
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
