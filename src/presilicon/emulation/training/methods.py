"""The training methods of a design in one run: nested around the parts of each step."""

from collections.abc import Sequence
from typing import Any, Literal

from torch import nn

from presilicon.base import ConfigError, PresiliconError, RunFailedError, Source, decode_config, to_plain
from presilicon.designs import (
    METHODS,
    AttachedMethod,
    Method,
    Proceed,
    RoleFormat,
    TrainingRun,
    TrainingStep,
    decode_format,
)
from presilicon.emulation.emulation import Emulation
from presilicon.records import Stateful, StepFacts

Part = Literal["step", "forward", "backward", "update"]


def transform_model(model: nn.Module, methods: Sequence[Method]) -> nn.Module:
    """The model after the transformations of all methods, in order."""
    for method in methods:
        with METHODS.errors_of(method.member_name):
            transformed: object = method.transform(model)
        if not isinstance(transformed, nn.Module):
            raise ConfigError(
                f'method "{method.member_name}": transform must return a torch.nn.Module, not {transformed!r}'
            )
        model = transformed
    return model


class AttachedMethods:
    """The methods of one run, the first of them outermost."""

    def __init__(self, methods: Sequence[Method], training: TrainingRun) -> None:
        self._attached: list[tuple[str, AttachedMethod]] = []
        for method in methods:
            name = method.member_name
            with METHODS.errors_of(name):
                attached: object = method.attach(training)
            if not isinstance(attached, AttachedMethod):
                raise ConfigError(f'method "{name}": attach must return an AttachedMethod, not {attached!r}')
            self._attached.append((name, attached))

    def __bool__(self) -> bool:
        return bool(self._attached)

    def run(self, part: Part, step: TrainingStep, inner: Proceed) -> None:
        """Run a part of a step, with all methods around it."""
        proceed = inner
        for name, method in reversed(self._attached):
            proceed = _wrapped(name, method, part, step, proceed)
        proceed()

    def facts(self, step: TrainingStep, facts: StepFacts) -> StepFacts:
        """The facts of a step with those of all methods."""
        for name, method in self._attached:
            with METHODS.errors_of(name):
                facts = checked_facts(f'method "{name}": facts', method.facts(step, facts))
        return facts

    def states(self) -> dict[str, Stateful]:
        """The state of each method, by name."""
        return {f'method "{name}"': _MethodState(name, method) for name, method in self._attached}


def checked_facts(source: str, facts: object) -> StepFacts:
    """Facts that can be priced: of the right type, hashable, with densities and shares between 0 and 1."""
    if not isinstance(facts, StepFacts):
        raise ConfigError(f"{source} must return StepFacts, not {facts!r}")
    try:
        hash(facts)
    except TypeError as error:
        raise ConfigError(f"{source} must be hashable: give tuples, not lists ({error})") from None
    for fact in facts.layers:
        if fact.density is not None and not 0 <= fact.density <= 1:
            raise ConfigError(
                f'{source}: the density of {fact.role} in layer "{fact.layer}" must be between 0 and 1, not '
                f"{fact.density!r}"
            )
    for own in facts.products:
        if not 0 <= own.share <= 1:
            raise ConfigError(
                f'{source}: the share of the {own.product} product of layer "{own.layer}" must be between 0 and '
                f"1, not {own.share!r}"
            )
    return facts


class SetFormats:
    """The formats that methods have set, as state of a run."""

    def __init__(self, emulation: Emulation) -> None:
        self._emulation = emulation

    def state_dict(self) -> dict[str, Any]:
        """The formats as text, by layer and role."""
        return {layer: to_plain(dict(formats)) for layer, formats in self._emulation.set_formats.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Set the formats again."""
        for layer, formats in state.items():
            for role, plain in formats.items():
                self._emulation.set_format(
                    layer, role, decode_config(plain, RoleFormat, Source("checkpoint"), decode_format)
                )


def _wrapped(name: str, method: AttachedMethod, part: Part, step: TrainingStep, inner: Proceed) -> Proceed:
    if getattr(type(method), part) is getattr(AttachedMethod, part):
        return inner

    def call() -> None:
        inside: list[Exception] = []
        calls = 0

        def proceed() -> None:
            nonlocal calls
            calls += 1
            if calls > 1:
                raise ConfigError(f'method "{name}" called proceed() twice in the {part} of step {step.number}')
            try:
                inner()
            except Exception as error:
                inside.append(error)
                raise

        try:
            getattr(method, part)(step, proceed)
        except Exception as error:
            if error in inside or isinstance(error, PresiliconError):
                raise
            raise RunFailedError(
                f'method "{name}" failed in the {part} of step {step.number}: {type(error).__name__}: {error}'
            ) from error

    return call


class _MethodState:
    """The state of a method; one that does not fit is an error that names the method."""

    def __init__(self, name: str, method: AttachedMethod) -> None:
        self._name, self._method = name, method

    def state_dict(self) -> dict[str, Any]:
        try:
            return self._method.state_dict()
        except Exception as error:
            raise RunFailedError(
                f'the state of method "{self._name}" cannot be saved: {type(error).__name__}: {error}'
            ) from error

    def load_state_dict(self, state: dict[str, Any]) -> None:
        try:
            self._method.load_state_dict(state)
        except Exception as error:
            reason = f"{error} is missing" if isinstance(error, KeyError) else error
            raise ConfigError(
                f'the state of method "{self._name}" in the checkpoint does not fit ({reason}); delete the checkpoint '
                "to start again"
            ) from error
