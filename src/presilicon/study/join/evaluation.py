"""Time-to-accuracy and energy-to-accuracy of designs on a workload: emulation and simulation, joined.

`ps.evaluate`, `ps.compare` and `presilicon evaluate` describe their work as an `EvaluationPlan` and call `carry_out`.
"""

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import structs, to_builtins

from presilicon.designs import Design, load_design
from presilicon.emulation import TrainingRecord
from presilicon.records import (
    Comparison,
    DesignEvent,
    EvaluationEvent,
    Result,
    ResultEvent,
    SeedsAdded,
    Sensitivity,
    Trace,
)
from presilicon.runs import Run, StoredRun
from presilicon.simulation import MatchedTimes
from presilicon.study.instrumented import InstrumentTask, check_instrument
from presilicon.study.join.fairness import check_strict, compare_all, fairness, strict_problems
from presilicon.study.join.idle import idle_in_results
from presilicon.study.join.looks import look_confidence, looks_rule
from presilicon.study.join.pairs import undecided
from presilicon.study.join.plan import EvaluationPlan, Times
from presilicon.study.join.prices import StepGraphs, StepPrices, with_methods
from presilicon.study.join.request import EvaluateRequest, write_request
from presilicon.study.join.results import join_result, price_seeds
from presilicon.study.join.seeds import SeedTask, forget_data
from presilicon.study.join.sensitivity import sensitivity
from presilicon.study.join.times import match_designs
from presilicon.study.options import EvaluateOptions, takes_options
from presilicon.study.pool import LocalPool, OnEvent
from presilicon.study.runner import Runner, open_run
from presilicon.workloads import Workload, files_of, load_workload

CHECKPOINTS = "checkpoints"
"""The folder of a run in progress with its checkpoints."""


@takes_options(EvaluateOptions)
def evaluate(
    design: Design | str,
    workload: Workload | str,
    *,
    jobs: int = 1,
    times: Times | None = None,
    checkpoints: str | Path | None = None,
    out: str | Path | None = None,
    on_event: OnEvent | None = None,
    **options: Any,
) -> Result:
    """How long, and how many joules, `design` needs to train `workload` to its accuracy target.

    Trains `seeds` times (seeds `seed`, `seed` + 1, ...) with the design's numerics, prices every step on its machine,
    and returns medians with intervals. A string names a preset, a design file, or a workload of the package. `jobs` > 1
    trains in other processes: a script that does so needs the usual `if __name__ == "__main__":`. The numbers do not
    depend on `jobs`. `times` are times of ops by another simulator, or a file of them, in place of ours: see
    `presilicon.simulation.read_times`. `checkpoints` is a folder for checkpoints: the same call with the same folder
    continues where it was interrupted, to the same bits. `out` is a folder in which the run is recorded, as
    `presilicon evaluate` does. Other options are those of `compare`.
    """
    comparison = compare(
        [design], workload, jobs=jobs, times=times, checkpoints=checkpoints, out=out, on_event=on_event, **options
    )
    result: Result = comparison.designs[0]
    return result


@takes_options(EvaluateOptions)
def compare(
    designs: Sequence[Design | str],
    workload: Workload | str,
    *,
    jobs: int = 1,
    times: Times | Mapping[str, Times] | None = None,
    checkpoints: str | Path | None = None,
    out: str | Path | None = None,
    on_event: OnEvent | None = None,
    **options: Any,
) -> Comparison:
    """`evaluate` for several designs on the same workload and seeds: `presilicon evaluate` in Python.

    With `seeds="auto"` seeds are added, five at a time, until every pair of designs is separated by the paired interval
    of its times, or there are `max_seeds`. `on_event` is called with typed events (`presilicon.records.Event`) as they
    happen. `times` of several designs are given by design name; cycles in them are converted with `clock_ghz`. A
    `strict` comparison refuses the usual ways to flatter a design: few or chosen seeds, a target, budget or evaluation
    interval of one's own, splits that share examples. `strict_coverage` refuses a workload with products that emulation
    does not reach. `sensitivity` adds whether the rankings survive a factor of two in each figure of the technology
    tables. With `out` the run is recorded in a new directory there, and its checkpoints are kept in it until it has
    finished.

    Raises:
        ConfigError: an argument makes no sense, or is not strict.
        RunFailedError: training failed, or no seed of some design reached the target of a strict comparison.
    """
    plan = EvaluationPlan(
        designs=tuple(load_design(design) if isinstance(design, str) else design for design in designs),
        workload=load_workload(workload) if isinstance(workload, str) else workload,
        times=times,
        **options,
    )
    folder = None if checkpoints is None else Path(checkpoints)
    evaluated = carry_out(
        plan, jobs=jobs, checkpoints=folder, out=None if out is None else Path(out), on_event=on_event
    )
    if plan.strict:
        check_strict(evaluated.comparison.designs)
    return evaluated.comparison


class Evaluated(NamedTuple):
    """A comparison, and the run that recorded it."""

    comparison: Comparison
    run: Run | None


def carry_out(
    plan: EvaluationPlan,
    *,
    jobs: int = 1,
    checkpoints: Path | None = None,
    out: Path | None = None,
    request: EvaluateRequest | None = None,
    resumed: StoredRun | None = None,
    on_run: Callable[[Run], None] | None = None,
    on_event: OnEvent | None = None,
    write_report: Callable[[Run, Comparison], None] | None = None,
) -> Evaluated:
    """Train every design, price every step, compare, and record all of it: a study of one point.

    With `out` a new run is recorded there; with `resumed` that run continues. A `request` is saved with the run so that
    it can be resumed. `on_run` is called with the run before training starts, `write_report` before it ends.
    """
    plan.check()
    forget_data()
    if jobs > 1:
        plan.workload.require_picklable()
    study = Study(plan)
    run, folder = None, out if resumed is None else resumed.path.parent
    if folder is not None:
        run = open_run("evaluate", plan.config(), folder, plan.seed, resumed, plan.any_processor)
    runner = Runner(LocalPool(jobs, files=files_of(plan.workload)), run, on_event=on_event)
    with nullcontext() if run is None else run:
        if run is not None and resumed is None:
            if request is not None:
                write_request(run, request)
            run.log.extend(study.design_events())
        if run is not None and on_run is not None:
            on_run(run)
        study.train(runner, checkpoints if run is None or checkpoints is not None else run.path / CHECKPOINTS)
        if resumed is not None:  # a checkpoint may be ahead of the events that its process could still send
            for event in study.evaluations():
                runner.record(event)
        comparison = study.comparison()
        if run is not None:
            run.record(ResultEvent(comparison=to_builtins(comparison)))
            if write_report is not None:
                write_report(run, comparison)
    if run is not None:
        shutil.rmtree(run.path / CHECKPOINTS, ignore_errors=True)
    return Evaluated(comparison, run)


class Study:
    """A plan while it is carried out: the captured step, the prices of each design, and the traces."""

    def __init__(self, plan: EvaluationPlan, captured: Mapping[str, StepGraphs] | None = None) -> None:
        """`captured` has the steps of each design, after its methods, if they are there already."""
        self.plan = plan
        # Before any of the user's code runs, because it may leave something behind.
        self._described = {} if captured else {design.name: self._record(design).describe() for design in plan.designs}
        graphs = captured or {}
        plain = StepGraphs(plan.workload)
        steps = {design.name: graphs.get(design.name) or plain.for_design(design) for design in plan.designs}
        for design in plan.designs:
            steps[design.name]()  # a step that cannot be captured ends a study before it trains
            check_instrument(design, with_methods(plan.workload, design.methods))
        self._times: dict[str, MatchedTimes] = match_designs(plan.times, plan.designs, steps, plan.clock_ghz)
        self.prices = {
            design.name: StepPrices(steps[design.name], design, self._times.get(design.name)) for design in plan.designs
        }
        self.traces: tuple[tuple[Trace, ...], ...] = ()

    def train(self, runner: Runner, checkpoints: Path | None = None) -> None:
        """Train every seed of every design; instruments take commands from the run's directory and keep streams there.

        With `auto` seeds, more are added until the ranking is decided or there are as many as there may be.
        """
        looks = iter(self.plan.looks)
        self._train_up_to(next(looks), runner, checkpoints)
        for seeds in looks:
            pairs = self.undecided()
            if not pairs:
                break
            runner.record(SeedsAdded(seeds=seeds, undecided=pairs))
            self._train_up_to(seeds, runner, checkpoints)

    def _train_up_to(self, seeds: int, runner: Runner, checkpoints: Path | None) -> None:
        """Train the seeds that are missing from that many per design."""
        plan, directory = self.plan, None if runner.run is None else runner.run.path
        traces_before = self.traces or ((),) * len(plan.designs)
        missing = range(plan.seed + len(traces_before[0]), plan.seed + seeds)
        tasks = [
            SeedTask(
                design.name,
                self._record(design, seed),
                None if checkpoints is None else plan.checkpoint(checkpoints, design.name, seed),
                self._instrument_task(design, seed, directory),
                self._described.get(design.name),
            )
            for design in plan.designs
            for seed in missing
        ]
        traces = runner.train(tasks, device=plan.device)
        self.traces = tuple(
            (*before, *traces[index * len(missing) : (index + 1) * len(missing)])
            for index, before in enumerate(traces_before)
        )

    def _record(self, design: Design, seed: int = 0) -> TrainingRecord:
        return TrainingRecord.of_design(design, self.plan.workload, seed=seed, device=self.plan.device)

    def undecided(self) -> tuple[tuple[str, str], ...]:
        """The pairs of designs whose times-to-accuracy the seeds so far do not separate."""
        seeds = {
            design.name: price_seeds(self.plan.workload, traces, self.prices[design.name])
            for design, traces in zip(self.plan.designs, self.traces, strict=True)
        }
        return undecided(seeds, look_confidence(len(self.plan.looks)))

    def design_events(self) -> Iterator[DesignEvent]:
        """The designs, as events."""
        return (DesignEvent(design=design.name, config=design.to_plain()) for design in self.plan.designs)

    def evaluations(self) -> Iterator[EvaluationEvent]:
        """The evaluations of all traces, as events."""
        for design, traces in zip(self.plan.designs, self.traces, strict=True):
            for trace in traces:
                for point in trace.evaluations:
                    yield EvaluationEvent(design=design.name, seed=trace.seed, **structs.asdict(point))

    def comparison(self, workloads: Sequence[Workload] = ()) -> Comparison:
        """The trained designs priced and compared; `workloads` if each was trained with a variant of its own."""
        plan = self.plan
        own = workloads or (plan.workload,) * len(plan.designs)
        results = [
            join_result(
                design, workload, traces, self.prices[design.name], plan.device,
                self._times.get(design.name),
            )
            for design, workload, traces in zip(plan.designs, own, self.traces, strict=True)
        ]  # fmt: skip
        if plan.seeds == "auto":
            rule = {"seeds_added": looks_rule(plan.seed_limit)}
            results = [structs.replace(result, provenance=result.provenance | rule) for result in results]
        strict = plan.strict and not strict_problems(results)
        comparison = Comparison(
            designs=tuple(results),
            pairs=compare_all(results, confidence=look_confidence(len(plan.looks))),
            fairness=fairness(results, strict=strict),
            remarks=idle_in_results(results),
        )
        return structs.replace(comparison, sensitivity=self.sensitivity()) if plan.sensitivity else comparison

    def sensitivity(self, factor: float = 2.0) -> Sensitivity:
        """Whether the rankings survive `factor` in each figure of the technology tables."""
        _, target = self.plan.workload.require_data()
        return sensitivity(
            self.plan.designs, self.traces, self.prices, target, self.plan.workload.sustain,
            better=self.plan.workload.measure.direction, factor=factor,
        )  # fmt: skip

    def _instrument_task(self, design: Design, seed: int, directory: Path | None) -> InstrumentTask | None:
        """The design's instrument, if it watches this seed, with the duration of a step on the machine."""
        instrument = design.instrument
        if instrument is None or not (seed == self.plan.seed or instrument.seeds == "all"):
            return None
        return InstrumentTask(instrument, self.prices[design.name]().time_s, directory)
