"""The cost of training steps on a design, and of a whole trace: a sum over steps, equal steps priced once."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate
from math import floor
from typing import Any

from msgspec import structs

from presilicon.base import ConfigError, format_bytes, located
from presilicon.designs import METHODS, MINIBATCH, Design, Method, Numerics, Technology, UpdateRule
from presilicon.ops import Operator
from presilicon.records import (
    Arrival,
    Cost,
    CurvePoint,
    Direction,
    MethodFact,
    SeedResult,
    StepFacts,
    StepGraph,
    Trace,
    finite,
)
from presilicon.simulation import MatchedTimes, put_times, simulate
from presilicon.workloads import Workload, step_graph

PriceStep = Callable[[StepFacts], Cost]
Transform = Callable[[Any], Any]


class StepGraphs:
    """The captured steps of a workload's model after the transformations of methods, by batch size."""

    def __init__(
        self,
        workload: Workload,
        methods: Sequence[Method] = (),
        operators: Sequence[Operator] = (),
        update_rule: UpdateRule = MINIBATCH,
    ) -> None:
        """`operators` replace whole functions, which are captured as the operators; chips share a batch."""
        self._workload, self._methods, self._operators, self._rule = workload, methods, operators, update_rule
        self._graphs: dict[int | None, StepGraph] = {}

    def __call__(self, samples: int | None = None, transform: Transform | None = None) -> StepGraph:
        """The step of a batch of `samples`, or of the workload's own size, after one more change of the model.

        It is the share of one chip.

        Raises:
            ConfigError: the chips cannot share the batch evenly.
        """
        if transform is not None:
            return self._capture(samples, transform)
        if samples not in self._graphs:
            self._graphs[samples] = self._capture(samples, None)
        return self._graphs[samples]

    def keep(self, graph: StepGraph) -> None:
        """Use a graph that was captured before as the step of the workload's own batch size."""
        self._graphs[None] = graph

    def _capture(self, samples: int | None, transform: Transform | None) -> StepGraph:
        if self._operators:
            transform = partial(_replacing, self._operators, transform)
        workload = self._workload
        share = self._rule.batch_per_chip(workload.name, samples or workload.batch_size, workload.accumulate)
        return step_graph(with_methods(workload, self._methods, transform), share)

    def for_design(self, design: Design) -> "StepGraphs":
        """The steps that a design's methods and operators leave to each of its chips."""
        rule = design.machine.update_rule
        operators = [operator for operator in design.numerics.make_operators() if not operator.is_inner]
        if design.methods or operators or rule != self._rule:
            return StepGraphs(self._workload, design.methods, operators, rule)
        return self


def _replacing(operators: Sequence[Operator], transform: Transform | None, model: Any) -> Any:
    """The model with functions replaced, and everything else in float32."""
    from presilicon.emulation import emulate_

    model = emulate_(model if transform is None else transform(model), Numerics(), operators=operators)
    for module in model.modules():
        for hooks in (module._forward_pre_hooks, module._forward_hooks):
            hooks.update({key: _CapturedHook(hook) for key, hook in hooks.items()})
    return model


class _CapturedHook:
    """A hook of emulation that a capture keeps; it leaves others out, to see the model and not how it is emulated."""

    def __init__(self, hook: Callable[..., Any]) -> None:
        self.hook = hook

    def __call__(self, *arguments: Any) -> Any:
        return self.hook(*arguments)


def with_methods(workload: Workload, methods: Sequence[Method], transform: Transform | None = None) -> Workload:
    """The workload with its model as methods transform it, and after one more change if there is one."""
    if not methods and transform is None:
        return workload
    return replace(workload, model=partial(_make_model, workload.model, methods, transform))


def _make_model(make: Callable[[], Any], methods: Sequence[Method], transform: Transform | None) -> Any:
    from presilicon.emulation import transform_model

    model = transform_model(make(), methods)
    return model if transform is None else transform(model)


class StepPrices:
    """Cost of the steps of one design, each kind of step simulated once; call it with the facts of a step.

    Times of another simulator or a profiler take the place of ours where they are given.
    """

    def __init__(self, graphs: StepGraphs, design: Design, times: MatchedTimes | None = None) -> None:
        self._graphs, self._design, self._times = graphs, design, times
        self._costs: dict[StepFacts, Cost] = {}

    def __call__(self, facts: StepFacts = StepFacts()) -> Cost:
        """The cost of a step; by default one with the design's static numerics."""
        if facts not in self._costs:
            cost = simulate(self.graph(facts), self._design, facts)
            self._costs[facts] = cost if self._times is None else put_times(cost, self._times)[0]
        return self._costs[facts]

    def graph(self, facts: StepFacts = StepFacts()) -> StepGraph:
        """The step that hardware for the design's methods runs, given its facts."""
        graph = self._graphs(facts.samples)
        captured = {op.name for op in graph.ops}
        for method in self._design.methods:
            name = method.member_name
            with METHODS.errors_of(name):
                graph = method.rewrite(graph, facts, partial(self._graphs, facts.samples))
            if not isinstance(graph, StepGraph):
                raise ConfigError(f'method "{name}": rewrite must return a StepGraph, not {graph!r}')
        added = frozenset(op.name for op in graph.ops if op.name not in captured)
        return structs.replace(graph, added=added) if added else graph

    def with_technology(self, technology: Technology | None) -> PriceStep:
        """Prices of the same steps with another technology table; not cached, since every table is used once."""
        return lambda facts: simulate(self.graph(facts), self._design, facts, technology=technology)


def check_step_taps(design: Design, graph: StepGraph) -> None:
    """Check that a design's instrument can be wired to the layers of a step and programmed.

    Raises:
        ConfigError: a pattern matches no layer, or the hardware is too small for the aggregations.
    """
    if design.instrument is None or not design.instrument.taps:
        return
    from presilicon.instrument import check_taps

    with located(f'design "{design.name}"'):
        # Products of the model itself, as those of tied weights, cannot be tapped beside those of its layers.
        check_taps(design.instrument, [layer for layer in graph.weighted_layers if layer] or [""])


def price_remarks(design: Design, cost: Cost, memory_bytes: float) -> tuple[str, ...]:
    """Sentences on what the price of a step rests on and leaves out, and on one that the memory does not hold."""
    remarks = [*design.machine.numerics_remarks(design.numerics)]
    if design.instrument is not None and design.technology is None:
        remarks.append("the machine has no technology table: area and energy of the instrument are not in the result")
    memory_gib = design.machine.memory_gib
    if memory_gib is not None and memory_bytes > memory_gib * 2**30:
        remarks.append(
            f"the step holds {format_bytes(memory_bytes)}, and the memory of the machine is "
            f"{format_bytes(memory_gib * 2**30)}: it does not fit"
        )
    if cost.measured is not None:
        remarks.append(cost.measured.text)
    if cost.unknown_operators:
        names = ", ".join(cost.unknown_operators)
        remarks.append(f"the op table has no entry for {names}: they are priced by what torch says of their kind")
    return tuple(remarks)


def unpriced_methods(design: Design, kinds: Collection[StepFacts], prices: StepPrices) -> tuple[str, ...]:
    """Sentences on methods of which the price of steps of these kinds shows nothing."""
    remarks = []
    for method in design.methods:
        name, rewrites = method.member_name, type(method).rewrite is not Method.rewrite
        own = {kind: tuple(fact for fact in kind.methods if fact.method == name) for kind in kinds}
        names = sorted({fact.name for facts in own.values() for fact in facts})
        if names and (not rewrites or _are_ignored(own, prices)):
            remarks.append(
                f'nothing prices the facts of method "{name}" ({", ".join(names)}): steps cost the same with any'
            )
        elif not names and not rewrites and type(method).transform is Method.transform and _have_no_facts(kinds):
            remarks.append(f'method "{name}" reported no facts and rewrites no step: nothing of it is in the price')
    return tuple(remarks)


def _are_ignored(own: Mapping[StepFacts, tuple[MethodFact, ...]], prices: StepPrices) -> bool:
    """Whether steps that differ in the facts of a method alone are rewritten alike."""
    alike: dict[StepFacts, set[StepFacts]] = {}
    for kind, facts in own.items():
        others = tuple(fact for fact in kind.methods if fact not in facts)
        alike.setdefault(structs.replace(kind, methods=others), set()).add(kind)
    compared = [[prices.graph(kind) for kind in group] for group in alike.values() if len(group) > 1]
    return bool(compared) and all(graph == graphs[0] for graphs in compared for graph in graphs)


def _have_no_facts(kinds: Collection[StepFacts]) -> bool:
    return all(kind == StepFacts(numerics_step=kind.numerics_step) for kind in kinds)


def price_trace(
    trace: Trace,
    price_step: PriceStep,
    target: float,
    sustain: int,
    *,
    milestones: Sequence[float] = (),
    better: Direction = "higher",
) -> SeedResult:
    """Time and energy of `trace` up to where `target` was first held, and the whole accuracy curve.

    A crossing between two steps costs the share of the step that it takes.
    """
    prices: dict[StepFacts, Cost] = {}
    times, energies = [0.0], [0.0]
    for run in trace.priced_runs():
        if run.facts not in prices:
            prices[run.facts] = price_step(run.facts)
        times += [prices[run.facts].time_s] * run.count
        energies += [prices[run.facts].energy_j] * run.count
    time_s, energy_j = list(accumulate(times)), list(accumulate(energies))

    def arrival(goal: float) -> Arrival:
        at = trace.crossing(goal, sustain, better)
        if at is None:
            return Arrival(target=goal, steps=None, samples=None, updates=None, time_s=None, energy_j=None)
        time, energy = _between(time_s, at.step), _between(energy_j, at.step)
        return Arrival(target=goal, steps=at.step, samples=at.samples, updates=at.updates, time_s=time, energy_j=energy)

    reached = arrival(target)
    return SeedResult(
        seed=trace.seed,
        steps_to_accuracy=reached.steps,
        samples_to_accuracy=reached.samples,
        updates_to_accuracy=reached.updates,
        time_to_accuracy_s=reached.time_s,
        energy_to_accuracy_j=reached.energy_j,
        value=finite(trace.test_value),
        steps=trace.steps,
        ending=trace.ending,
        reason=trace.reason,
        findings=trace.findings,
        milestones=tuple(map(arrival, milestones)),
        fingerprint=trace.fingerprint,
        time_s=time_s[-1],
        energy_j=energy_j[-1],
        curve=tuple(
            CurvePoint(
                step=point.step,
                samples=point.samples,
                value=finite(point.value),
                time_s=time_s[point.step],
                energy_j=energy_j[point.step],
            )
            for point in trace.evaluations
        ),
    )


def _between(totals: Sequence[float], step: float) -> float:
    """The running total after a fractional number of steps.

    >>> _between([0.0, 2.0, 3.0], 1.5)
    2.5
    """
    whole = floor(step)
    return totals[whole] if whole == step else totals[whole] + (step - whole) * (totals[whole + 1] - totals[whole])
