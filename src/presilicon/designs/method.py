"""Training methods: changes to training that hardware is built for, and the extension point that finds them.

A method is one class: its fields are a `[[methods]]` table of a design, and its functions are the places where it takes
part. The package's own methods live in `presilicon.methods`. Other packages register theirs:

    [project.entry-points."presilicon.methods"]
    my-method = "my_package.method:MyMethod"
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from presilicon.base import ConfigError, Extensible, ExtensionPoint, read_value, unknown
from presilicon.records import Role, StepFacts, StepGraph

if TYPE_CHECKING:
    from torch import Generator, Tensor, nn
    from torch.optim import Optimizer

    from presilicon.designs.design import Design
    from presilicon.designs.numerics import Numerics, RoleFormat

Proceed = Callable[[], None]
"""Runs the rest of a part: the methods that follow in the design, then the part itself."""


class Capture(Protocol):
    """Captures the step graph of a design's model again, at the batch size of the step in question."""

    def __call__(self, transform: Callable[[Any], Any] | None = None) -> StepGraph:
        """The graph, after one more change of the model if `transform` is given."""
        ...


class TrainingStep:
    """A training step in progress, as methods see it."""

    def __init__(self, number: int, samples_seen: int, batch_size: int, losses: Sequence[float]) -> None:
        self.number = number
        """Index of the step, from 0."""
        self.samples_seen = samples_seen
        """Samples of all steps before this one."""
        self.batch_size = batch_size
        """Samples of this step, on all chips together. A method may change it before the step proceeds."""
        self.losses = losses
        """Training losses of all steps before this one."""
        self.inputs: Any = None
        """The examples of the forward pass in progress."""
        self.targets: Any = None
        self.loss: Tensor | None = None
        """The loss of the forward pass in progress; a method that replaces the pass must set it."""
        self.share = 1.0
        """Share of the pass in its update: less than 1 with several chips or micro-batches."""
        self.loss_scale = 1.0
        """Factor on the loss in the backward pass, which gradients have until the update."""
        self.scale_is_known = False
        """Whether a method has read `gradient_scale` in this pass."""

    @property
    def gradient_scale(self) -> float:
        """Factor on the gradients of the pass in progress: the loss scale times its share.

        A method that computes gradients itself must multiply them by this factor.
        """
        self.scale_is_known = True
        return self.loss_scale * self.share


class TrainingRun(Protocol):
    """The view of a training run that an attached method gets."""

    @property
    def model(self) -> nn.Module:
        """The emulated model; its parameters are the master weights."""
        ...

    @property
    def optimizer(self) -> Optimizer:
        """The optimizer, with the learning rate of the next update."""
        ...

    @property
    def numerics(self) -> Numerics:
        """The design's numerics, without the formats that methods have set."""
        ...

    @property
    def train_samples(self) -> int | None:
        """Samples of an epoch; None for a stream of unknown length."""
        ...

    def set_format(self, layer: str, role: Role, role_format: RoleFormat | None) -> None:
        """Set the format of a layer's role from the next pass on; None returns to the design's own."""
        ...

    def format_of(self, layer: str, role: Role) -> RoleFormat:
        """The format of a layer's role in the passes of this step."""
        ...

    def generator(self, step: TrainingStep, purpose: str) -> Generator:
        """A random stream that depends on the run's seed, the step and `purpose` only."""
        ...


class AttachedMethod:
    """A method during one training run. It may act before, after or in place of each part of a step.

    Each part takes `proceed`, which runs the part: without a call of it, the part does not happen. With several
    methods, the first of the design is the outermost. A step has one forward and one backward pass for each chip,
    micro-batch or single sample, and an update for each update of the machine.
    """

    def step(self, step: TrainingStep, proceed: Proceed) -> None:
        """The whole step, before its batch is fetched."""
        proceed()

    def forward(self, step: TrainingStep, proceed: Proceed) -> None:
        """A forward pass, which sets `step.loss`."""
        proceed()

    def backward(self, step: TrainingStep, proceed: Proceed) -> None:
        """A backward pass, which adds to the gradients of the parameters."""
        proceed()

    def update(self, step: TrainingStep, proceed: Proceed) -> None:
        """An update of the weights from their gradients."""
        proceed()

    def facts(self, step: TrainingStep, facts: StepFacts) -> StepFacts:
        """The facts of the step that has ended, with the method's own added."""
        return facts

    def state_dict(self) -> dict[str, Any]:
        """State that is carried from step to step: tensors, numbers, strings, lists and dicts."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state."""


class Method(Extensible):
    """Base of training methods; all its places are optional.

    A method is a frozen struct of parameters whose tag is its name in design files:

        class MyMethod(
            Method, Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="name", tag="my-method"
        ):
            every: int = 10
    """

    __slots__ = ()
    tag_field: ClassVar[str] = "name"

    in_training: ClassVar[str] = "not described"
    """Its effect on training, in a few words, for tables."""
    in_hardware: ClassVar[str] = "not described"
    """Its effect on cost, in a few words, for tables."""

    def check_design(self, design: Design) -> None:
        """Check what the method demands of the rest of its design: the machine, the numerics, other methods.

        Raises:
            ConfigError: the combination cannot work, and why.
        """

    def transform(self, model: nn.Module) -> nn.Module:
        """The model with layers replaced, frozen or added, before it is captured and trained."""
        return model

    def attach(self, training: TrainingRun) -> AttachedMethod:
        """The object that takes part in one training run.

        Raises:
            ConfigError: the method cannot work with this model or its data.
        """
        return AttachedMethod()

    def rewrite(self, graph: StepGraph, facts: StepFacts, capture: Capture) -> StepGraph:
        """The graph of a step with the given facts, as hardware for this method would run it.

        A pure function: phases dropped, shapes changed, ops added, or another graph captured. Batch size, formats,
        densities and skipped phases need no rewriting: pricing takes them from the facts.
        """
        return graph


METHODS: ExtensionPoint[type[Method]] = ExtensionPoint(
    "presilicon.methods",
    "method",
    {
        "ada-gp": "presilicon.methods.ada_gp:AdaGp",
        "batch-growth": "presilicon.methods.batch_growth:BatchGrowth",
        "camel": "presilicon.methods.camel:Camel",
        "fast": "presilicon.methods.fast:Fast",
        "magnitude-pruning": "presilicon.methods.magnitude_pruning:MagnitudePruning",
        "measure-zeros": "presilicon.methods.measure_zeros:MeasureZeros",
        "procrustes": "presilicon.methods.procrustes:Procrustes",
        "tensordash": "presilicon.methods.tensordash:TensorDash",
    },
    Method,
)
"""The training methods by the `name` of a design's `[[methods]]` table."""

Method.members = METHODS


def method_tables(tables: Any, texts: Iterable[str]) -> list[dict[str, Any]]:
    """The `[[methods]]` tables of a design with those of `--method NAME` and `--method NAME.parameter=value`.

    A parameter of a method that is there already replaces that method's own.

    >>> method_tables([], ["batch-growth", "batch-growth.factor=4"])
    [{'name': 'batch-growth', 'factor': 4}]
    """
    extended: list[dict[str, Any]] = [dict(table) for table in tables] if isinstance(tables, list) else []
    for text in texts:
        path, equals, value = text.partition("=")
        name, dot, parameter = (part.strip() for part in path.partition("."))
        if name not in METHODS:
            raise ConfigError(f'--method "{text}": {unknown("method", name, METHODS.names())}')
        if bool(dot) != bool(equals) or (dot and not parameter):
            raise ConfigError(
                f'--method "{text}": write a name, or a name with a parameter, as in --method {name}.parameter=value'
            )
        table = next((table for table in extended if table.get("name") == name), None)
        if table is None:
            extended.append(table := {"name": name})
        if dot:
            table[parameter] = read_value(value)
    return extended
