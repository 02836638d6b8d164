"""The record of emulated training: facts of each step that change its cost, findings, and the sequence of steps."""

from collections.abc import Iterator
from hashlib import sha256
from math import isfinite
from typing import Literal

from msgspec import Struct, json
from msgspec.structs import replace

from presilicon.records.graph import ProductPhase, Role

Symptom = Literal[
    "non-finite", "overflow", "saturation", "underflow", "dead-relu", "vanishing", "exploding", "loss-scale", "data"
]
BugClass = Literal["data", "structural", "conceptual"]
"""`data`: the inputs. `structural`: the computation itself, such as a division by zero. `conceptual`: a choice that
does not suit the model, such as a format whose range is too small."""


class Finding(Struct, frozen=True, kw_only=True):
    """One finding of a diagnosis."""

    step: int
    symptom: Symptom
    bug: BugClass
    message: str
    """Observation and advice."""
    layer: str = ""
    role: Role | None = None
    origin: Literal["produced", "passed on", ""] = ""
    """For a number that is not finite: whether the layer produced it from finite inputs or passed it on."""
    share: float | None = None
    """Fraction of elements or steps that are affected."""


class RoleShares(Struct, frozen=True, kw_only=True):
    """Effect of rounding on the tensors of one role at an inspected step."""

    step: int
    role: Role
    underflow: float
    """Fraction of nonzero numbers that became zero."""
    overflow: float
    """Fraction of finite numbers that became infinite or no number."""
    saturation: float
    """Fraction of numbers beyond the largest value that were held at it."""


Ending = Literal["target", "budget", "hopeless", "diverged"]
"""`hopeless`: the run was stopped because it could not reach the target any more, by the rule of its workload."""
Direction = Literal["higher", "lower"]
"""Which values of a metric are better."""


class LayerFact(Struct, frozen=True, kw_only=True):
    """One role of one layer at a step, where it differs from the design's numerics."""

    layer: str
    role: Role
    product: ProductPhase | None = None
    """The product in which operands of the role have this format, or None for all that have no fact of their own."""
    format: str | None = None
    """Spelling of the format in use, or None for the design's own."""
    stored_bits: int | None = None
    """Bits of an element in memory, if more than the format needs."""
    density: float | None = None
    """Fraction of nonzero elements, or None if it was not measured."""


class MethodFact(Struct, frozen=True, kw_only=True):
    """A fact that a training method reports for its own rewrite of the step graph."""

    method: str
    name: str
    value: bool | int | float | str
    layer: str = ""


class ProductFact(Struct, frozen=True, kw_only=True):
    """A product of a layer at a step, on hardware that makes use of zeros."""

    layer: str
    product: ProductPhase
    zeros: str = "pairs"
    """What that hardware does with zeros, as in `machine.sparsity`: `gated`, `pairs`, `weights` or N:M."""
    share: float
    """Cycles (`gated`: multiplications) over those with zeros computed, simulated on measured zeros."""
    columns: int | None = None
    """Columns of cells for which the packing of weights was simulated."""


class StepFacts(Struct, frozen=True, kw_only=True):
    """Facts of a step that change its cost. Hashable: equal facts are priced once."""

    layers: tuple[LayerFact, ...] = ()
    products: tuple[ProductFact, ...] = ()
    samples: int | None = None
    """Samples of the step, on all chips together, or None for the workload's batch size."""
    numerics_step: int = 0
    """The step from which the design's numerics have been as they are: other than 0 if a schedule changed them."""
    methods: tuple[MethodFact, ...] = ()
    """Facts of training methods, beyond the common ones."""
    update_skipped: bool = False
    """The backward pass ran but its result was discarded, for example because of a loss-scale overflow."""
    backward_skipped: bool = False
    """Gradients were predicted, not computed: only the forward pass and the update ran."""

    def rounded(self) -> "StepFacts":
        """The same facts with densities and shares rounded to the nearest of three digits.

        >>> fact = LayerFact(layer="fc", role="activation", density=0.51234)
        >>> StepFacts(layers=(fact,)).rounded().layers[0].density
        0.512
        """
        layers = tuple(
            fact if fact.density is None else replace(fact, density=_three_digits(fact.density)) for fact in self.layers
        )
        products = tuple(replace(fact, share=_three_digits(fact.share)) for fact in self.products)
        return replace(self, layers=layers, products=products)


def _three_digits(share: float) -> float:
    return float(f"{share:.3g}")


EXACT_KINDS = 256
"""Kinds of steps of a trace that are priced as they were; with more, densities are rounded so that some coincide."""


class FactsRun(Struct, frozen=True):
    """`count` consecutive steps with the same facts."""

    facts: StepFacts
    count: int


class Evaluation(Struct, frozen=True, kw_only=True):
    """Results on the validation split after `step` training steps."""

    step: int
    samples: int
    """Training samples seen so far."""
    updates: int
    """Updates of the weights so far."""
    value: float
    """Of the workload's metric."""
    loss: float


class Crossing(Struct, frozen=True, kw_only=True):
    """The point at which training reached a target, between two evaluations."""

    step: float
    samples: float
    updates: float


class Trace(Struct, frozen=True, kw_only=True):
    """One emulated training run: facts and losses of every step, the validation metric at intervals."""

    seed: int
    losses: tuple[float, ...]
    """Training loss of each step, first step first."""
    runs: tuple[FactsRun, ...]
    """The facts of each step, run-length encoded; the counts add up to the number of steps."""
    evaluations: tuple[Evaluation, ...]
    test_value: float
    """The metric on the test split when training ended; it never affects training."""
    ending: Ending
    findings: tuple[Finding, ...] = ()
    """Findings of the diagnosis."""
    shares: tuple[RoleShares, ...] = ()
    """Effect of rounding on each role, at the steps that were inspected."""
    skipped: tuple[int, ...] = ()
    """Steps whose update the loss scale skipped."""
    reason: str = ""
    """Reason if training had to stop."""
    processors: tuple[str, ...] = ()
    """The kinds of processors that it was trained on: more than one if it was resumed elsewhere."""

    @property
    def steps(self) -> int:
        """Number of training steps."""
        return len(self.losses)

    def facts(self) -> Iterator[StepFacts]:
        """The facts of each step, in order."""
        for run in self.runs:
            for _ in range(run.count):
                yield run.facts

    @property
    def is_rounded(self) -> bool:
        """Whether it has too many kinds of steps to price each as it was."""
        return len({run.facts for run in self.runs}) > EXACT_KINDS

    def priced_runs(self) -> tuple[FactsRun, ...]:
        """The facts of each step as they are priced, run-length encoded: exact, or rounded if `is_rounded`."""
        if not self.is_rounded:
            return self.runs
        return tuple(FactsRun(run.facts.rounded(), run.count) for run in self.runs)

    @property
    def fingerprint(self) -> str:
        """A hash of every loss and evaluation: equal for runs that trained bit-identically.

        It is taken over the names that fields had in the first records, so that it compares with those of older runs.
        """
        evaluations = [
            {
                "step": point.step,
                "samples": point.samples,
                "updates": point.updates,
                "accuracy": point.value,
                "loss": point.loss,
            }
            for point in self.evaluations
        ]
        return sha256(json.encode((self.losses, evaluations, self.test_value))).hexdigest()[:16]

    def crossing(self, target: float, sustain: int, better: Direction = "higher") -> Crossing | None:
        """The point at which `target` was first reached, to be held for `sustain` consecutive evaluations, or None.

        This is the point where the line from the last evaluation that missed the target to the first that held it
        crosses the target. The first evaluation of a run has nothing before it, and after a value that is not finite
        there is no line: there it is the evaluation itself.

        >>> points = [
        ...     Evaluation(step=s, samples=32 * s, updates=s, value=a, loss=0.0)
        ...     for s, a in [(10, .75), (20, .5), (30, 1.), (40, .75)]
        ... ]
        >>> trace = Trace(seed=0, losses=(), runs=(), evaluations=tuple(points), test_value=.9, ending="budget")
        >>> trace.crossing(0.75, sustain=2)
        Crossing(step=25.0, samples=800.0, updates=25.0)
        """
        held = 0
        for index, point in enumerate(self.evaluations):
            held = held + 1 if reaches(point.value, target, better) else 0
            if held == sustain:
                first = index + 1 - sustain
                return _cross(self.evaluations[max(first - 1, 0)], self.evaluations[first], target)
        return None


def reaches(value: float, target: float, better: Direction = "higher") -> bool:
    """Whether a value of the metric is at the target or better; NaN never is."""
    return value >= target if better == "higher" else value <= target


def _cross(before: Evaluation, after: Evaluation, target: float) -> Crossing:
    """The point between two evaluations at which the line through them has the value `target`."""
    rise = after.value - before.value
    share = (target - before.value) / rise if before is not after and isfinite(rise) else 1.0
    return Crossing(
        step=before.step + share * (after.step - before.step),
        samples=before.samples + share * (after.samples - before.samples),
        updates=before.updates + share * (after.updates - before.updates),
    )
