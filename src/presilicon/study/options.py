"""The options of trainings, evaluations and schedules, each written once.

Requests, plans, study files and Python calls share them, and the command line is made of them: a field's type, default
and docstring are those of its option (`cli.options.options_of`).
"""

from collections.abc import Callable
from functools import wraps
from inspect import Parameter, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, TypeVar, get_type_hints

import msgspec
from msgspec import Meta, Struct

from presilicon.base import ConfigError, did_you_mean, file_stem

if TYPE_CHECKING:
    from presilicon.emulation import Checkpoint

F = TypeVar("F", bound=Callable[..., Any])
Seeds = int | Literal["auto"]
"""A number of seeds, or `auto` for as many as the ranking needs."""
Count = Annotated[int, Meta(ge=1)]
Sizing = Literal["work", "tensor", "im2col"]


class Flag(NamedTuple):
    """Where an option of the command line differs from the field that it gives."""

    name: str = ""
    metavar: str | None = None
    form: Any = None
    """A type of click in place of the field's."""


class TrainOptions(Struct, frozen=True, kw_only=True):
    """How designs are trained."""

    seed: int = 0
    """The first seed; the others follow it."""
    device: str = "cpu"
    """Where to emulate: cpu or cuda."""
    checkpoint_every: Count | None = None
    """Evaluations between two checkpoints of a training run.  [default: as many as take at most 3% of its time]"""
    any_processor: bool = False
    """Continue trainings that began on another kind of processor, whose bits differ; the result says so."""

    def checkpoint(self, folder: Path, name: str, seed: int) -> "Checkpoint":
        """The file in which a training is saved, whether of an evaluation or of a study."""
        from presilicon.emulation import Checkpoint

        path = folder / f"{file_stem(name)}-seed{seed}.safetensors"
        return Checkpoint(path, self.checkpoint_every, self.any_processor)


class EvaluateOptions(TrainOptions, frozen=True, kw_only=True):
    """How designs are evaluated and compared."""

    seeds: Seeds = 5
    """Training runs per design; auto: more and more until the ranking is decided."""
    max_seeds: Count | None = None
    """Limit for --seeds auto.  [default: 40]"""
    clock_ghz: float | None = None
    """Clock of the cycles in --times, in place of the design's own."""
    strict: bool = False
    """Refuse what flatters a design: few or chosen seeds, changed targets, budgets, evaluations or hyperparameters,
    shared splits."""
    strict_coverage: bool = False
    """Refuse a workload with products that emulation does not reach, before training starts."""
    sensitivity: bool = False
    """Say whether the rankings survive a factor of two in each figure of the technology tables."""


class RequestOptions(EvaluateOptions, frozen=True, kw_only=True):
    """The options of `presilicon evaluate`; workloads and files by name."""

    workload: Annotated[str, Flag(metavar="NAME")]
    """See `presilicon list workloads`; or a Python file of your own."""
    target: float | tuple[float, ...] | None = None
    """Value of the metric to reach, in place of the workload's own. May be repeated: training goes on to the hardest,
    and all are reported."""
    stop_hopeless: bool = False
    """Stop runs that cannot reach the target within their budget any more."""
    max_steps: Count | None = None
    """Training budget, in place of the workload's own."""
    evaluate_every: Count | None = None
    """Steps between evaluations on the validation split."""
    batch: Count | None = None
    """Samples of a step, on all chips; budget and evaluation interval keep their own."""
    accumulate: Count | None = None
    """Micro-batches whose gradients are added to one update."""
    optimizer: Annotated[str | None, Flag(metavar="NAME[(...)]")] = None
    """sgd, momentum, nesterov, adam, adamw, nadam, rmsprop or adagrad, with torch's parameters, as in
    'adamw(weight_decay=0.1)'; at torch's default rate unless --lr is given."""
    learning_rate: Annotated[float | None, Flag("lr")] = None
    """Learning rate, in place of the optimizer's."""
    schedule: Annotated[str | None, Flag(metavar="NAME[(...)]")] = None
    """Learning-rate schedule: constant, step, cosine or polynomial, as in 'cosine(warmup=100)': docs/workloads.md."""
    numerics: Annotated[tuple[str, ...], Flag(metavar="NAME[,NAME...]")] = ()
    """Recipes in place of each DESIGN's own numerics: see `presilicon list numerics`. Each is a design to compare."""
    methods: Annotated[tuple[str, ...], Flag("method", "NAME[.PARAMETER=VALUE]")] = ()
    """Training method of every design, or a parameter of one: see `presilicon list methods`. For designs with it beside
    those without, --vary methods=none,NAME."""
    settings: Annotated[tuple[str, ...], Flag("set", "PATH=VALUE")] = ()
    """Override a field of every design, as in --set machine.rows=64."""
    vary: Annotated[tuple[str, ...], Flag(metavar="PATH=VALUE,...")] = ()
    """One design for each value, as in --vary machine.rows=32,64. Several make every combination."""
    times: Annotated[tuple[str, ...], Flag(metavar="[DESIGN=]FILE")] = ()
    """Times of ops by another simulator or a profiler, in place of ours: see docs/simulation.md."""


class ScheduleOptions(Struct, frozen=True, kw_only=True):
    """The options of `presilicon schedule`."""

    workload: Annotated[str | None, Flag(metavar="NAME")] = None
    """See `presilicon list workloads`; or dcgan, a full step of it."""
    graph: Path | None = None
    """Instead of a workload: ops in a JSON file, {"ops": [{"id": 0, "kind": "Conv2D", "size": "M", ...}]}."""
    batch_size: Annotated[int | None, Meta(ge=1, le=1 << 24), Flag("batch")] = None
    """Samples of an update, on all copies of the model together; by default, each copy has the published number."""
    objective: Literal["energy", "throughput"] = "energy"
    """Least energy, no slower than GPU-only; or most samples per second."""
    cap_w: Annotated[float | None, Flag("power-cap", "W")] = None
    """Limit on the sum of the peak power of running ops and idle devices."""
    limit_s: Annotated[float | None, Flag("max-time", "S")] = None
    """Longest makespan for --objective energy; by default that of GPU-only."""
    solver: Literal["greedy", "heft", "anytime", "exact", "auto"] = "auto"
    """`auto` is exact for small steps and anytime for large ones."""
    time_limit_s: Annotated[float, Flag("time-limit", "S")] = 20.0
    """Time limit of the search."""
    transfers: bool = True
    """Moving tensors between devices takes time; with --no-transfers it is free."""
    optimistic_links: bool = False
    """Let moves over a link not wait for one another."""
    allow_parts: bool = False
    """Accept a --graph of several unconnected parts."""
    sizing: Annotated[Sizing, Flag("sizes")] = "work"
    """Times of a workload's ops: interpolated by FLOPs, or by size classes of tensor or im2col dimensions."""
    candidate_rule: Annotated[Literal["all", "and", "paper"], Flag("candidates")] = "all"
    """Greedy: which ops may leave the GPU, by thresholds on bandwidth and IPC."""
    literal: bool = False
    """Greedy: the published rules to the letter, without our repairs."""
    relief: float = 1.0
    """Speedup of the remaining GPU ops when others have left it."""
    sample_s: Annotated[float, Flag("sample", "S")] = 1e-3
    """Period of power readings."""
    lag_s: Annotated[float, Flag("lag", "S")] = 0.02
    """Period of the GPU-only clock controller."""
    seed: int = 0
    """Seed of the search."""
    settings: Annotated[tuple[str, ...], Flag("set", "PATH=VALUE")] = ()
    """Override a field of the system, as in --set devices.fpga.idle_w=0."""


class ExecutionOptions(Struct, frozen=True, kw_only=True):
    """The options of `presilicon schedule --execute`."""

    steps: Count = 50
    """Training steps of --execute."""
    measure: bool = True
    """--execute: measure ops here first; with --no-measure, use the system's table."""
    takeover: bool = True
    """--execute: the idle reference device takes ops of busy devices; with --no-takeover it does not."""
    mirror: bool = False
    """--execute: copy results to the host, to survive the loss of a device."""
    set_clocks: bool = False
    """--execute: set the clocks of GPUs as the schedule says (root)."""
    watts: float | None = None
    """--execute under a cap: power of the system, if it cannot be read."""


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
