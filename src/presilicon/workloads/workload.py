"""A workload: a model, its optimizer, and to evaluate it, data, a metric and the target to reach."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from functools import partial
from math import ceil, isfinite
from typing import TYPE_CHECKING, Any

from presilicon.base import ConfigError, Content, content_of, derive_seed, located
from presilicon.workloads.reading.splits import Splits
from presilicon.workloads.settings.metric import Metric
from presilicon.workloads.settings.schedule import LearningRateSchedule

if TYPE_CHECKING:
    from torch import Generator, Tensor, nn
    from torch.optim import Optimizer


def cross_entropy(output: Tensor, target: Tensor) -> Tensor:
    """Mean cross-entropy of unnormalised class scores against class indices."""
    from torch.nn import functional

    return functional.cross_entropy(output, target)


def argmax_accuracy(output: Tensor, target: Tensor) -> float:
    """The fraction of rows whose highest score is that of the target class; NaN scores count as wrong."""
    right = (output.argmax(dim=-1) == target) & ~output.isnan().any(dim=-1)
    return float(right.float().mean())


def sgd(
    parameters: Iterable[nn.Parameter], learning_rate: float = 0.1, momentum: float = 0.9, weight_decay: float = 0.0
) -> Optimizer:
    """Stochastic gradient descent, one parameter at a time, so that each update is a separate op."""
    from torch.optim import SGD

    return SGD(parameters, lr=learning_rate, momentum=momentum, weight_decay=weight_decay, foreach=False)


def adamw(
    parameters: Iterable[nn.Parameter],
    learning_rate: float = 1e-4,
    betas: tuple[float, float] = (0.9, 0.999),
    weight_decay: float = 0.01,
) -> Optimizer:
    """Adam with decoupled weight decay (plain Adam when that is 0), one parameter at a time."""
    from torch.optim import AdamW

    return AdamW(parameters, lr=learning_rate, betas=betas, weight_decay=weight_decay, foreach=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A torch model, its optimizer, and its data with the target to reach on the validation split.

    A workload without data has an `example` of its batches instead: it can be simulated but not trained.

    Seeds are trained in other processes, so callables should be functions of a module or `functools.partial` of such
    functions; a lambda only works in a single process.

    >>> Workload(name="mine", model=dict, data=dict, target=0.9).batch_size
    64
    >>> Workload(name="mine", model=dict, data=dict, target=97)
    Traceback (most recent call last):
    presilicon.base.errors.ConfigError: workload "mine": target must be above 0 and at most 1, not 97
    >>> Workload(name="mine", model=dict, example=dict).can_evaluate
    False
    """

    name: str
    model: Callable[[], nn.Module]
    """Creates the model with fresh weights; called after the run's seed is set."""
    data: Callable[[], Splits] | None = None
    """Returns the same splits at every call, independent of the run's seed."""
    installed: Callable[[], object] | None = None
    """Raises `MissingToolError`, with the command that helps, if the data are not installed; called before training."""
    target: float | None = None
    """The value of the metric to reach on the validation split; required with data."""
    milestones: tuple[float, ...] = ()
    """Easier targets to report on the way; training goes on to `target`."""
    example: Callable[[int], tuple[Any, Any]] | None = None
    """Inputs and targets of a batch of a given size, preferably meta tensors; by default as in the training split."""
    augment: Callable[[Tensor, Generator], Tensor] | None = None
    """Changes the inputs of a training batch with random numbers of the generator, which is on their device."""
    description: str = ""
    loss: Callable[[Tensor, Tensor], Tensor] = cross_entropy
    """Computes a scalar from the model's output and the targets."""
    optimizer: Callable[[Iterable[nn.Parameter]], Optimizer] = sgd
    schedule: LearningRateSchedule | str | None = None
    """Learning-rate schedule, such as `"cosine(warmup=100)"`; without one the rate stays as it is."""
    clip_norm: float | None = None
    """Limit for the norm of all gradients together, after unscaling; larger gradients are scaled down."""
    accuracy: Callable[[Tensor, Tensor], float] = argmax_accuracy
    """Computes a number between 0 and 1 from outputs and targets of a split: the short form of a metric."""
    metric: Metric | None = None
    """What is measured on a split and compared with the target, in place of `accuracy`."""
    batch_size: int = 64
    evaluate_every: int = 10
    """Training steps between two evaluations of the validation split."""
    accumulate: int = 1
    """Micro-batches of a batch, whose gradients are added up before one update; a divisor of the batch size."""
    evaluation_batch: int = 1024
    """Examples in a piece of a split when it is evaluated; fewer need less memory."""
    sustain: int = 3
    """Consecutive evaluations that must reach the target."""
    max_steps: int = 2000
    """Budget: training stops here if the target has not been held."""
    stop_hopeless: bool = False
    """Whether to stop a run that cannot reach the target within its budget any more, by a conservative rule."""

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.strip():
            raise ConfigError(f"a workload's name must be a non-empty string, not {self.name!r}")
        where = f'workload "{self.name}"'
        for field in ("model", "data", "installed", "example", "augment", "loss", "optimizer", "accuracy"):
            value = getattr(self, field)
            if not (callable(value) or (value is None and field in ("data", "installed", "example", "augment"))):
                raise ConfigError(f"{where}: {field} must be a function, not {type(value).__name__}")
        for field in _COUNTS:
            value = getattr(self, field)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ConfigError(f"{where}: {field} must be a whole number of at least 1, not {value!r}")
        if self.batch_size % self.accumulate:
            raise ConfigError(
                f"{where}: batch_size must be divisible by accumulate, not {self.batch_size} by {self.accumulate}"
            )
        if isinstance(self.schedule, str):
            with located(where):
                object.__setattr__(self, "schedule", LearningRateSchedule.parse(self.schedule))
        elif not isinstance(self.schedule, LearningRateSchedule | None):
            raise ConfigError(f"{where}: schedule must be a Schedule or its text, not {type(self.schedule).__name__}")
        if not isinstance(self.metric, Metric | None):
            raise ConfigError(f"{where}: metric must be a Metric, not {type(self.metric).__name__}")
        if self.metric is not None and self.accuracy is not argmax_accuracy:
            raise ConfigError(f"{where}: give a metric or an accuracy, not both")
        if self.clip_norm is not None and not (isinstance(self.clip_norm, int | float) and self.clip_norm > 0):
            raise ConfigError(f"{where}: clip_norm must be above 0, or None for no clipping, not {self.clip_norm!r}")
        if self.data is None and self.example is None:
            raise ConfigError(f"{where}: it needs data and a target to be trained, or an example batch to be simulated")
        if self.data is None and self.target is not None:
            raise ConfigError(f"{where}: the target {self.target!r} needs data to reach it on")
        if self.data is not None:
            with located(where):
                self.measure.check_target(self.target)
                self._check_milestones()
        if not isinstance(self.stop_hopeless, bool):
            raise ConfigError(f"{where}: stop_hopeless must be True or False, not {self.stop_hopeless!r}")

    def _check_milestones(self) -> None:
        if not isinstance(self.milestones, tuple):
            raise ConfigError(f"milestones must be a tuple of numbers, not {self.milestones!r}")
        for milestone in self.milestones:
            try:
                self.measure.check_target(milestone)
            except ConfigError as error:
                raise ConfigError(f"milestones: a {error}") from None
            if self.target is None or self.measure.reaches(milestone, self.target):
                raise ConfigError(f"milestones must be easier than the target {self.target}, not {milestone!r}")

    @property
    def measure(self) -> Metric:
        """The metric in use: its own, or its accuracy."""
        return self.metric or Metric(name="accuracy", compute=self.accuracy, better="higher", low=0, high=1)

    @property
    def can_evaluate(self) -> bool:
        """Whether it has data to train on. Every workload can be simulated."""
        return self.data is not None

    def require_data(self) -> tuple[Callable[[], Splits], float]:
        """The function that loads its splits, and its target.

        Raises:
            ConfigError: it has no data, or, when the function is called, the data are not `Splits`.
            MissingToolError: its data are not installed.
        """
        if self.data is None or self.target is None:
            raise ConfigError(
                f'workload "{self.name}" has no data, so it can be simulated but not trained; '
                "`presilicon list workloads` shows which can be evaluated"
            )
        if self.installed is not None:
            self.installed()
        return self._load_splits, self.target

    def _load_splits(self) -> Splits:
        from presilicon.workloads.reading.randomness import PrivateRandom

        with PrivateRandom(derive_seed(0, "splits")):
            splits: object = None if self.data is None else self.data()
        if not isinstance(splits, Splits):
            raise ConfigError(
                f'workload "{self.name}": data() must return Splits(train, validation, test), '
                f"not {type(splits).__name__}"
            )
        return splits

    def rate_factor(self, samples: int, samples_per_update: int) -> float:
        """The factor on the optimizer's learning rates after `samples` training samples.

        >>> workload = Workload(name="mine", model=dict, example=dict, batch_size=10, max_steps=100, schedule="cosine")
        >>> workload.rate_factor(samples=500, samples_per_update=10)
        0.5
        """
        if not isinstance(self.schedule, LearningRateSchedule):
            return 1.0
        return self.schedule.factor(samples / self.batch_size, self.max_steps) * self.schedule.scale(samples_per_update)

    def with_batch(self, size: int) -> Workload:
        """The same workload with batches of another size: budget, evaluation interval and schedule keep their samples.

        >>> workload = Workload(name="mine", model=dict, example=dict, batch_size=32, max_steps=100)
        >>> larger = workload.with_batch(128)
        >>> larger.max_steps, larger.evaluate_every
        (25, 3)
        """
        ratio = self.batch_size / size if isinstance(size, int) and size > 0 else 1.0  # other sizes are refused below
        return replace(
            self,
            batch_size=size,
            max_steps=ceil(self.max_steps * ratio),
            evaluate_every=ceil(self.evaluate_every * ratio),
            schedule=self.schedule.stretched(ratio) if isinstance(self.schedule, LearningRateSchedule) else None,
        )

    def batch(self, size: int) -> tuple[Any, Any]:
        """Inputs and targets of a batch of `size` examples for capture, which uses only shapes and types."""
        if self.example is not None:
            return self.example(size)
        from presilicon.workloads.reading.examples import example_shapes

        return example_shapes(self.require_data()[0]().train, size)

    def describe(self) -> dict[str, Any]:
        """The workload as plain data, for provenance and hashing.

        Functions are described by their qualified names, and those of the user's by a digest of their content besides.

        >>> workload = Workload(name="mine", model=dict, data=dict, target=0.9, optimizer=partial(sgd, momentum=0.0))
        >>> workload.describe()["optimizer"]
        'presilicon.workloads.workload.sgd(momentum=0.0)'
        """
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        present = {name: value for name, value in values.items() if value is not None and value != _ADDED.get(name)}
        if self.metric is not None:
            del present["accuracy"]
        return {name: _plain(value, name) for name, value in present.items()}

    def content(self) -> Content:
        """The content of its functions, with everything of the user's that they lead to."""
        contents = [content_of(getattr(self, name), name) for name in _FUNCTIONS]
        return Content(
            content_of([content.digest for content in contents]).digest,
            tuple(place for content in contents for place in content.unknown),
            frozenset().union(*(content.modules for content in contents)),
        )

    def require_picklable(self) -> None:
        """Check that the workload can be sent to another process.

        Raises:
            ConfigError: a field cannot be pickled; the message names it and what to use instead.
        """
        for field in fields(self):
            try:
                pickle.dumps(getattr(self, field.name))
            except (pickle.PicklingError, AttributeError, TypeError) as error:
                raise ConfigError(
                    f'workload "{self.name}": {field.name} cannot be sent to another process ({error}); '
                    "use a function of a module or functools.partial of one, or run with a single job"
                ) from error


_COUNTS = ("batch_size", "accumulate", "evaluate_every", "evaluation_batch", "sustain", "max_steps")
"""Fields that are whole numbers of at least 1."""

_ADDED = {"accumulate": 1, "evaluation_batch": 1024, "milestones": (), "stop_hopeless": False}
"""Defaults that a description leaves out, so that workloads without these keep their hash."""


_FUNCTIONS = ("model", "data", "augment", "loss", "optimizer", "accuracy", "metric")
"""Fields whose functions decide what is trained and measured."""


def _plain(value: object, name: str) -> object:
    if isinstance(value, LearningRateSchedule):
        return str(value)
    if isinstance(value, Metric):
        return {field.name: _plain(getattr(value, field.name), f"{name}.{field.name}") for field in fields(value)}
    if isinstance(value, float) and not isfinite(value):
        return str(value)
    if not callable(value):
        return value
    content = content_of(value, name)
    return f"{_spell(value)} #{content.digest[:12]}" if content.modules or content.unknown else _spell(value)


def _spell(value: object) -> str:
    """A function or an argument of one as people write it; its content says what it does."""
    if isinstance(value, partial):
        arguments = [_spell(argument) for argument in value.args]
        arguments += [f"{name}={_spell(argument)}" for name, argument in value.keywords.items()]
        return f"{_spell(value.func)}({', '.join(arguments)})"
    if callable(value):
        named = value if hasattr(value, "__qualname__") else type(value)
        file = getattr(sys.modules.get(named.__module__), "__stem__", None)  # of a file of the user's
        module = "__main__" if named.__module__ == "__mp_main__" else named.__module__  # in a worker of a script's
        return f"{file or module}.{named.__qualname__}"
    if value is None or isinstance(value, bool | int | float | str):
        return repr(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_spell, value))}]"
    # The repr of an arbitrary object may contain its address, which differs from run to run.
    return f"{type(value).__module__}.{type(value).__qualname__}"
