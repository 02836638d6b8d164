"""The options of trainings and evaluations, each written once: requests, plans, studies and Python calls share them."""

from collections.abc import Callable
from functools import wraps
from inspect import Parameter, signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints

import msgspec
from msgspec import Struct

from presilicon.base import ConfigError, did_you_mean, file_stem
from presilicon.study.join.looks import MAX_SEEDS, Seeds, check_seeds, seed_looks

if TYPE_CHECKING:
    from presilicon.emulation import Checkpoint

F = TypeVar("F", bound=Callable[..., Any])


class TrainOptions(Struct, frozen=True, kw_only=True):
    """How designs are trained."""

    seed: int = 0
    """The first seed."""
    device: str = "cpu"
    """Where to emulate: `cpu`, `cuda` or `cuda:N`."""
    checkpoint_every: int | None = None
    """Evaluations between two checkpoints; None: as often as a small part of the time allows."""
    any_processor: bool = False
    """Whether trainings may continue that began on another kind of processor; the result says so."""

    def checkpoint(self, folder: Path, name: str, seed: int) -> "Checkpoint":
        """The file in which a training is saved, whether of an evaluation or of a study."""
        from presilicon.emulation import Checkpoint

        path = folder / f"{file_stem(name)}-seed{seed}.safetensors"
        return Checkpoint(path, self.checkpoint_every, self.any_processor)


class EvaluateOptions(TrainOptions, frozen=True, kw_only=True):
    """How designs are evaluated and compared."""

    seeds: Seeds = 5
    """Trainings of each design; with `auto`, five at a time are added until every pair of designs is separated."""
    max_seeds: int | None = None
    """The most that `auto` seeds may become."""
    clock_ghz: float | None = None
    """Clock of the cycles in given times, in place of the design's own."""
    strict: bool = False
    """Whether to refuse the usual ways to flatter a design."""
    strict_coverage: bool = False
    """Whether to refuse a workload with products that emulation does not reach."""
    sensitivity: bool = False
    """Whether to say if the rankings survive a factor of two in each figure of the technology tables."""

    @property
    def seed_limit(self) -> int:
        """The most seeds that `auto` may use."""
        return MAX_SEEDS if self.max_seeds is None else self.max_seeds

    @property
    def looks(self) -> tuple[int, ...]:
        """The numbers of seeds after which the ranking is looked at; seeds are added until it is decided."""
        return seed_looks(self.seeds, self.seed_limit)

    def check_seeds(self, designs: int) -> None:
        """Refuse a number of seeds that makes no sense for that many designs."""
        if self.max_seeds is not None and self.seeds != "auto":
            raise ConfigError("--max-seeds limits --seeds auto: give that, or leave it out")
        check_seeds(self.seeds, self.seed_limit, designs)


def shared_fields(options: Struct, kind: type[Struct]) -> dict[str, Any]:
    """The fields of some options that another kind of options has too."""
    return {name: getattr(options, name) for name in options.__struct_fields__ if name in kind.__struct_fields__}


def takes_options(kind: type[Struct]) -> Callable[[F], F]:
    """A function whose `**options` are the fields of a kind of options: it shows them, and refuses others."""

    def decorate(function: F) -> F:
        hints, defaults = get_type_hints(kind), {field.name: field.default for field in msgspec.structs.fields(kind)}
        own = [each for each in signature(function).parameters.values() if each.kind is not Parameter.VAR_KEYWORD]
        keywords = [
            Parameter(name, Parameter.KEYWORD_ONLY, default=defaults[name], annotation=hints[name]) for name in defaults
        ]

        @wraps(function)
        def call(*args: Any, **given: Any) -> Any:
            allowed = [each.name for each in own] + list(defaults)
            for name in given.keys() - set(allowed):
                raise ConfigError(f"{function.__name__}: no option {name}: {did_you_mean(name, allowed)}")
            return function(*args, **given)

        call.__signature__ = signature(function).replace(parameters=[*own, *keywords])  # type: ignore[attr-defined]
        return call  # type: ignore[return-value]

    return decorate
