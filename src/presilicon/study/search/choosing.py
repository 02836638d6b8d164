"""One design chosen under limits: simulate all, train the promising a little, the best in full on paired seeds.

Each step leaves points out for a reason that is recorded (`DecisionEvent`):

1. *refused*: a limit is broken by what simulation knows (area, power, time and energy of a step).
2. *outdone*: another point trains bit for bit alike and takes less time (or energy) per sample. It comes back where
   the cheaper one breaks a limit that only training tells: points that train alike share their traces.
3. *left out*: more than `promising` remain, and it is not among those with the least time per sample; or, after a short
   training, others need less time to the value that half of them reach.
4. The rest is trained in full, with the reference, on the same seeds; runs that cannot reach the target are stopped.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf, isfinite
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from presilicon.base import Condition, ConfigError, RunFailedError, to_toml
from presilicon.designs import Design, Technology, figure_name
from presilicon.records import (
    SIMULATED,
    Breach,
    Comparison,
    Decision,
    DecisionEvent,
    Direction,
    PointRecord,
    Recommendation,
    Relaxation,
    Result,
    Trace,
    ranked,
)
from presilicon.simulation import area
from presilicon.study.join.prices import PriceStep, price_trace
from presilicon.study.search.file import Choosing, PointTraining
from presilicon.study.search.front import broken_limit
from presilicon.study.search.points import Point, price_point
from presilicon.study.search.training import (
    POINT_RUNS,
    TrainedPoint,
    few_steps,
    prepare_point,
    record_comparison,
    result_of,
    trained_record,
)

if TYPE_CHECKING:
    from presilicon.study.search.work import SweepWork

FINAL = "final"
RECOMMENDED_FILE = "recommended.toml"
_COST = {"time": "time_per_sample_s", "energy": "energy_per_sample_j"}
_FACTOR = 2.0
"""Factor by which figures of technology tables are multiplied and divided."""


class Candidate(NamedTuple):
    """A point that may be chosen, with its simulated record and what its training needs."""

    point: Point
    record: PointRecord
    trained: TrainedPoint
    alike: tuple["Candidate", ...] = ()
    """Points that train bit for bit alike and cost more per sample, the cheapest first."""


class DesignChoice:
    """A choice while it is made."""

    def __init__(self, work: "SweepWork", choosing: Choosing, training: PointTraining) -> None:
        self.work, self.choosing = work, choosing
        self.training = replace(training, stop_hopeless=True)
        self.cost = _COST[choosing.by]
        self.limits = work.study.limits

    def decide(self, point: Point | PointRecord, decision: Decision, reason: str) -> None:
        """Record a decision, once."""
        event = DecisionEvent(point=point.key, number=point.number, decision=decision, reason=reason)
        self.work.runner.record(event)

    def choose(self, points: Sequence[Point]) -> Recommendation:
        """The recommended design.

        Raises:
            ConfigError: no point meets the limits.
            RunFailedError: none of the designs that were trained meets them.
        """
        simulated = {point.key: self.work.table.records[point.key, "simulated"] for point in points}
        candidates = self._trained_apart(self._allowed(points, simulated), simulated)
        finalists = self._best(self._promising(candidates))
        trained, comparison = self._train_in_full([self._reference(), *finalists])
        return self._recommend(trained, comparison, points, simulated)

    def _allowed(self, points: Sequence[Point], simulated: dict[str, PointRecord]) -> list[Point]:
        allowed = []
        for point in points:
            record = simulated[point.key]
            broken = None if record.error else broken_limit(record, self.limits, known=True)
            if record.error:
                self.decide(point, "refused", record.error)
            elif broken is not None:
                self.decide(point, "refused", f"{broken.name} is {record.metric(broken.name):.4g}, limit {broken}")
            else:
                allowed.append(point)
        return allowed

    def _trained_apart(self, points: Sequence[Point], simulated: dict[str, PointRecord]) -> list[Candidate]:
        """The cheapest point of each training; the least cost per sample first."""
        best: dict[str, Candidate] = {}
        for point in sorted(points, key=lambda point: simulated[point.key].metric(self.cost)):
            record = simulated[point.key]
            try:
                trained = prepare_point(point, self.training, self.work.run.path)
            except ConfigError as error:
                self.decide(point, "refused", str(error))
                continue
            if trained.key not in best:
                best[trained.key] = Candidate(point, record, trained)
                continue
            winner = best[trained.key]
            best[trained.key] = winner._replace(alike=(*winner.alike, Candidate(point, record, trained)))
            ratio = record.metric(self.cost) / winner.record.metric(self.cost)
            reason = f"trains as point {winner.point.number} does and takes {ratio:.3g} times the {self.choosing.by}"
            self.decide(point, "outdone", reason)
        if not best:
            raise ConfigError("no point that meets the limits can be trained; the decisions in events.jsonl say why")
        return list(best.values())

    def _promising(self, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        most = self.choosing.promising
        for rank, candidate in enumerate(candidates[most:], start=most + 1):
            cost, unit = candidate.record.metric(self.cost), self.cost.rpartition("_")[2]
            reason = f"{cost:.4g} {unit} per sample is rank {rank}; {most} are tried"
            self.decide(candidate.point, "left out", reason)
        return candidates[:most]

    def _best(self, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        """Those with the least cost to a value that half of them reach in a short training."""
        most = self.choosing.best
        if len(candidates) <= most:
            return candidates
        workload = candidates[0].trained.workload
        short = few_steps(self.training, workload, self.choosing.few_steps, self.choosing.tries)
        tried = [prepare_point(candidate.point, short, self.work.run.path) for candidate in candidates]
        errors = self.work.train(tried, "try")
        candidates = self._without(candidates, {prepared.point.key: errors.get(prepared.key) for prepared in tried})
        traces = {prepared.point.key: prepared.traces() for prepared in tried if prepared.key not in errors}
        better, sustain = workload.measure.direction, workload.sustain
        finals = {key: median(_final(trace, sustain, better) for trace in own) for key, own in traces.items()}
        goal = median([final for final in finals.values() if isfinite(final)] or [0.0])
        scores = {}
        for candidate in candidates:
            price = price_point(candidate.point, self.work.graphs).prices
            scores[candidate.point.key] = median(
                _cost_to(trace, price, goal, better, self.choosing.by) for trace in traces[candidate.point.key]
            )
        sign = -1.0 if better == "higher" else 1.0
        ranking = sorted(
            candidates,
            key=lambda candidate: (
                scores[candidate.point.key],
                sign * finals[candidate.point.key],
                candidate.point.number,
            ),
        )
        for rank, candidate in enumerate(ranking, start=1):
            score = scores[candidate.point.key]
            came = f"reaches {goal:.4g} after {score:.4g} {'s' if self.choosing.by == 'time' else 'J'}"
            missed = f"has {finals[candidate.point.key]:.4g} in the end and does not hold {goal:.4g}"
            reason = f"rank {rank} of {len(ranking)} at {short.max_steps} steps: {missed if score == inf else came}"
            self.decide(candidate.point, "tried" if rank <= most else "left out", reason)
        return ranking[:most]

    def _without(self, candidates: Sequence[Candidate], errors: Mapping[str, str | None]) -> list[Candidate]:
        """The candidates that could be trained; at least one must be."""
        for candidate in candidates:
            error = errors.get(candidate.point.key)
            if error:
                self.decide(candidate.point, "refused", error)
        able = [candidate for candidate in candidates if not errors.get(candidate.point.key)]
        if not able:
            raise RunFailedError(
                f"none of the designs can be trained; the first: {next(filter(None, errors.values()))}"
            )
        return able

    def _reference(self) -> Candidate:
        """The first design of the study as it is."""
        study = self.work.study
        point = Point(number=0, workload=study.workloads[0], design=study.designs[0])
        trained = prepare_point(point, self.training, self.work.run.path)
        self.work.simulate([point])
        return Candidate(point, self.work.table.records[point.key, "simulated"], trained)

    def _train_in_full(self, candidates: Sequence[Candidate]) -> tuple[Sequence[Candidate], Comparison]:
        """The candidates that could be trained, and how they compare; the first is the reference.

        Raises:
            RunFailedError: the reference cannot be trained.
        """
        errors = self.work.train([candidate.trained for candidate in candidates], "train")
        reference, *others = candidates
        if reference.trained.key in errors:
            raise RunFailedError(f"the reference cannot be trained: {errors[reference.trained.key]}")
        others = self._without(others, {one.point.key: errors.get(one.trained.key) for one in others})
        candidates = [reference, *map(self._within_limits, others)]
        trained = _named_apart([candidate.trained for candidate in candidates])
        comparison = record_comparison(trained, self.work.run.path, FINAL, sensitivity=self.choosing.sensitivity)
        for candidate, result in zip(candidates, comparison.designs, strict=True):
            self.work.table.append([trained_record(candidate.point, candidate.record, result, FINAL)])
        return candidates, comparison

    def _within_limits(self, candidate: Candidate) -> Candidate:
        """The cheapest to accuracy of the points that train as a candidate does and meet all limits; else itself."""
        allowed = []
        for number, other in enumerate((candidate, *candidate.alike)):
            result = result_of(other.trained, self.work.run.path)
            record = trained_record(other.point, other.record, result, FINAL)
            if broken_limit(record, self.limits) is None:
                allowed.append((_cost(result, self.choosing.by), number, other))
        return min(allowed)[2] if allowed else candidate

    def _recommend(
        self,
        candidates: Sequence[Candidate],
        comparison: Comparison,
        points: Sequence[Point],
        simulated: dict[str, PointRecord],
    ) -> Recommendation:
        by = self.choosing.by
        able: list[tuple[float, int, Candidate, Result, PointRecord]] = []
        for candidate, result in zip(candidates, comparison.designs, strict=True):
            record = self.work.table.records[candidate.point.key, "trained"]
            broken = broken_limit(record, self.limits)
            if broken is not None:
                value = record.metric(broken.name)
                self.decide(candidate.point, "refused", f"{broken.name} is {value:.4g}, limit {broken}")
            elif _cost(result, by) < inf:
                able.append((_cost(result, by), len(able), candidate, result, record))
        if not able:
            raise RunFailedError(
                "none of the designs that were trained reaches the target within the limits; the comparison is in "
                f"{POINT_RUNS}/{FINAL}, the decisions in events.jsonl"
            )
        (least, _, winner, result, record), *others = sorted(able, key=lambda entry: entry[:2])
        for cost, _, candidate, *_ in others:
            reason = f"{cost / least:.3g} times the {by} to accuracy of the recommended design"
            self.decide(candidate.point, "trained", reason)
        self.decide(winner.point, "recommended", f"least {by} to accuracy of {len(able)} designs that meet the limits")
        design = winner.trained.design
        recommendation = Recommendation(
            design=result.name,
            number=winner.point.number,
            by=by,
            reference=comparison.designs[0].name,
            comparison=comparison,
            limits=tuple(map(str, self.limits)),
            metrics=record.metrics,
            relaxations=(
                *self._relaxations(winner, points, simulated),
                *self._trained_relaxations(candidates, comparison, least),
            ),
            breaches=tuple(self._breaches(winner)) if self.choosing.sensitivity else None,
            file=RECOMMENDED_FILE,
            options=winner.point.workload_options,
        )
        self.work.run.write_file(RECOMMENDED_FILE, design_file(design, recommendation))
        return recommendation

    def _relaxations(
        self, winner: Candidate, points: Sequence[Point], simulated: dict[str, PointRecord]
    ) -> Iterator[Relaxation]:
        """For each limit, the best point that only this limit refuses and that trains as the winner does."""
        own = winner.record.metric(self.cost)
        usable = [(simulated[point.key].metric(self.cost), point) for point in points if not simulated[point.key].error]
        cheaper = sorted((entry for entry in usable if entry[0] < 0.99 * own), key=lambda entry: entry[0])
        for limit, others in self._each_limit():
            for cost, point in cheaper:
                record = simulated[point.key]
                is_alone = limit.name in record.metrics and broken_limit(record, others, known=True) is None
                if is_alone and self._trains_as(point, winner):
                    yield _relaxation(limit, point, record, own / cost, trains_alike=True)
                    break

    def _each_limit(self) -> Iterator[tuple[Condition, list[Condition]]]:
        """Each limit, and the others."""
        return ((limit, [other for other in self.limits if other != limit]) for limit in self.limits)

    def _trains_as(self, point: Point, winner: Candidate) -> bool:
        try:
            return prepare_point(point, self.training, self.work.run.path).key == winner.trained.key
        except ConfigError:  # it cannot be trained at all
            return False

    def _trained_relaxations(
        self, candidates: Sequence[Candidate], comparison: Comparison, least: float
    ) -> Iterator[Relaxation]:
        """For each limit on what training gives, the best trained design that only this limit refuses."""
        costs = [_cost(result, self.choosing.by) for result in comparison.designs]
        trained = sorted(zip(costs, candidates, strict=True), key=lambda entry: entry[0])
        for limit, others in self._each_limit():
            for cost, candidate in trained if limit.name not in SIMULATED else ():
                record = self.work.table.records[candidate.point.key, "trained"]
                if cost < least and broken_limit(record, others) is None:
                    yield _relaxation(limit, candidate.point, record, least / cost, trains_alike=False)
                    break

    def _breaches(self, winner: Candidate) -> Iterator[Breach]:
        """Figures of the technology table that take the winner over a limit, times or divided by two."""
        design, table = winner.trained.design, winner.trained.design.technology
        limits = [limit for limit in self.limits if limit.name in ("area_mm2", "power_w", "energy_per_step_j")]
        if table is None or not limits:
            return
        prices = price_point(winner.point, self.work.graphs).prices
        for path in table.entries():
            for factor in (_FACTOR, 1 / _FACTOR):
                scaled = table.scaled(path, factor)
                metrics = _scaled_metrics(design, prices.with_technology, scaled)
                for limit in limits:
                    if not limit.holds(metrics[limit.name]):
                        yield Breach(
                            technology=table.name,
                            entry=figure_name(table, path),
                            factor=factor,
                            condition=str(limit),
                            value=metrics[limit.name],
                        )


def _relaxation(limit: Condition, point: Point, record: PointRecord, gain: float, *, trains_alike: bool) -> Relaxation:
    return Relaxation(
        condition=str(limit), design=point.label, number=point.number, gain=gain, value=record.metric(limit.name),
        trains_alike=trains_alike,
    )  # fmt: skip


def _scaled_metrics(
    design: Design, with_technology: Callable[[Technology], PriceStep], table: Technology
) -> dict[str, float]:
    from presilicon.records import StepFacts

    cost, mm2 = with_technology(table)(StepFacts()), area(design, table).mm2
    return {
        "area_mm2": inf if mm2 is None else mm2,
        "power_w": cost.energy_j / cost.time_s,
        "energy_per_step_j": cost.energy_j,
    }


def _named_apart(trained: Sequence[TrainedPoint]) -> list[TrainedPoint]:
    """The points under names of their own: the reference's is marked, and labels that round alike get a number."""
    counts = Counter(prepared.design.name for prepared in trained[1:])
    apart = []
    for prepared in trained:
        name, number = prepared.design.name, prepared.point.number
        mark = " (reference)" if not number else f" (point {number})" if counts[name] > 1 else ""
        apart.append(prepared._replace(design=replace(prepared.design, name=f"{name}{mark}")))
    return apart


def _final(trace: Trace, count: int, better: Direction) -> float:
    """The median of the last evaluations, as many as must hold the target; one that is no number is the worst."""
    values = [ranked(point.value, better) for point in trace.evaluations[-count:]]
    return median(values) if values else ranked(None, better)


def _cost_to(trace: Trace, price: PriceStep, goal: float, better: str, by: str) -> float:
    """Time or energy until a value was first reached; infinite if it never was."""
    seed = price_trace(trace, price, goal, 1, better=better)  # type: ignore[arg-type]
    cost = seed.time_to_accuracy_s if by == "time" else seed.energy_to_accuracy_j
    return inf if cost is None else cost


def _cost(result: Result, by: str) -> float:
    value = (result.time_to_accuracy_s if by == "time" else result.energy_to_accuracy_j).median
    return inf if value is None else value


def design_file(design: Design, recommendation: Recommendation) -> str:
    """The recommended design as TOML that every command takes, with the evidence in comments."""
    pairs = [
        pair for pair in recommendation.comparison.pairs
        if {pair.first, pair.second} == {recommendation.reference, recommendation.design}
    ]  # fmt: skip
    lines = [f"# recommended: least {recommendation.by} to accuracy of the designs that were trained"]
    lines += [f"# limit: {limit}" for limit in recommendation.limits]
    lines += [f"# trained with {recommendation.options}"] if recommendation.options else []
    for pair in pairs:
        ratio = pair.time_ratio if recommendation.by == "time" else pair.energy_ratio
        if ratio is not None and ratio.median is not None:
            low, high = (f"{end:.3g}" if end is not None else "-" for end in (ratio.low, ratio.high))
            lines.append(f"# {pair.second} over {pair.first}: {ratio.median:.3g} ({low} to {high}), {pair.seeds} seeds")
    return "\n".join([*lines, to_toml(design.to_plain(), design)])
