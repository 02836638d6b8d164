"""Settings that were equal between designs, and the rules of a strict comparison."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any

from presilicon.base import ConfigError, RunFailedError
from presilicon.records import Fairness, Pair, Result
from presilicon.study.join.pairs import compare_seeds
from presilicon.study.join.statistics import CONFIDENCE

if TYPE_CHECKING:
    from torch import Tensor

    from presilicon.workloads import Workload

STRICT_SEEDS = 5
"""Fewer seeds than this are refused by a strict comparison."""

_SAME_AREA = 0.005
"""Difference of areas, as a fraction, up to which they are called equal: arrays have whole rows and columns."""

SHARED = 0.01
"""Fraction of a split that may also be in another: data sets contain some images twice."""

_EQUAL: dict[str, str] = {
    "model": "network",
    "data": "data and splits",
    "loss": "loss",
    "clip_norm": "gradients clipped at a norm of {}",
    "accuracy": "measure of accuracy",
    "metric": "metric",
    "optimizer": "optimizer with its hyperparameters",
    "schedule": "learning-rate schedule {}",
    "augment": "augmentation",
    "batch_size": "batch size {}",
    "accumulate": "{} micro-batches a batch",
    "target": "target {} on the validation split",
    "evaluate_every": "an evaluation every {} samples",
    "sustain": "an arrival held over {} evaluations",
    "max_steps": "a budget of {} samples",
    "milestones": "milestones {}",
    "stop_hopeless": "an early stop of hopeless runs",
    "seeds": "seeds {} (the same initial weights and batches)",
    "device": "device {}",
    "versions": "versions of the software",
}


_OTHER_TRAINING = {
    "model": "network before methods",
    "batch_size": "batch size {} of the workload",
    "seeds": "seeds {} (the same initial weights)",
}
"""Words for designs that train differently: with other methods, or with updates of other sizes."""

_OPTIONAL = ("metric", "schedule", "augment", "accumulate", "clip_norm")
"""Settings that a workload may be without."""

IRRELEVANT = frozenset(["name", "description", "installed", "example", "evaluation_batch"])
"""Fields of a workload's description that change no result of a comparison."""


def compare_all(results: Sequence[Result], *, confidence: float = CONFIDENCE) -> tuple[Pair, ...]:
    """Every pair of designs, seed by seed, in the given order."""
    return tuple(
        compare_seeds(first.name, first.seeds, second.name, second.seeds, confidence=confidence)
        for first, second in combinations(results, 2)
    )


def fairness(results: Sequence[Result], *, strict: bool = False) -> Fairness:
    """Settings that the results share and settings that differ, from their provenance."""
    equal, differing = [], []
    trains_alike = all(_training(result) == _training(results[0]) for result in results)
    for field, words in (_EQUAL if trains_alike else _EQUAL | _OTHER_TRAINING).items():
        values = [_setting(result, field) for result in results]
        if field in _OPTIONAL and any(values):
            values = [value or "none" for value in values]
        if None in values or not any(values):  # not recorded, or an option that nobody used
            continue
        amounts = [_in_samples(result, field, value) for result, value in zip(results, values, strict=True)]
        if all(amount == amounts[0] for amount in amounts):
            equal.append(words.format(_spell(amounts[0])))
        elif any(value != values[0] for value in values):  # otherwise only the batch size differs
            differing.append(f"{field}: {_by_design(results, values)}")
    methods = [[method["name"] for method in _training(result)[0] or ()] for result in results]
    if len(results) > 1 and methods[0] and all(names == methods[0] for names in methods):
        equal.append(f"training with {' and '.join(methods[0])}")
    return Fairness(
        held_equal=tuple(equal), differing=tuple(differing), strict=strict, unequal_hardware=unequal_hardware(results)
    )


_HARDWARE: dict[str, dict[str, str]] = {
    "memory": {"sram_kib": "{:g} KiB", "memories": "{}", "memory_gib": "{:g} GiB"},
    "bandwidth": {"dram_gb_s": "{:g} GB/s", "memory_gb_s": "{:g} GB/s", "link_gb_s": "{:g} GB/s between chips"},
}
"""Fields of machines by what they are about, and how they are written."""


def unequal_hardware(results: Sequence[Result]) -> tuple[str, ...]:
    """Sentences on area, memory and bandwidth that differ between designs; areas by more than half a percent."""
    sentences = []
    areas = [result.area_mm2 for result in results]
    known = [mm2 for mm2 in areas if mm2 is not None]
    if known and (len(known) < len(areas) or max(known) > (1 + _SAME_AREA) * min(known)):
        words = ["unknown" if mm2 is None else f"{mm2:.4g} mm2" for mm2 in areas]
        sentences.append(f"area: {_by_design(results, words)}")
    for quantity, fields in _HARDWARE.items():
        values = [_amounts(result, fields) for result in results]
        if any(value != values[0] for value in values):
            sentences.append(f"{quantity}: {_by_design(results, values)}")
    return tuple(sentences)


def _amounts(result: Result, fields: dict[str, str]) -> str:
    """The amount of a quantity (memory, bandwidth) that a machine has, in words."""
    machine = result.provenance.get("design", {}).get("machine", {})
    amounts = {field: machine[field] for field in fields if machine.get(field)}
    if "memories" in amounts:
        amounts["memories"] = " and ".join(f"{level['name']} {level['kib']:g} KiB" for level in amounts["memories"])
    return " and ".join(fields[field].format(amount) for field, amount in amounts.items()) or "the default"


def check_start(workload: Workload, own: Workload, *, seeds: int, seed: int) -> None:
    """Refuse, before training, what a strict comparison does not allow.

    `own` is the workload as it comes, `workload` the workload in use: a comparison whose rules were changed is not
    strict.

    Raises:
        ConfigError: lists all problems and what each of them could hide.
    """
    # In samples, because another batch size makes steps of another size.
    samples, own_samples = workload.batch_size, own.batch_size
    rules = {
        f"finer evaluation: every {workload.evaluate_every} steps in place of the workload's {own.evaluate_every}; the "
        "more often one looks, the sooner a lucky look comes":
            workload.evaluate_every * samples < own.evaluate_every * own_samples,
        f"a shorter hold: {workload.sustain} evaluations in place of the workload's {own.sustain}; a single good look "
        "is no arrival":
            workload.sustain < own.sustain,
        f"a chosen threshold: target {workload.target} in place of the workload's {own.target}; it could be set where "
        "one design arrives and another does not":
            workload.target != own.target,
        f"a threshold out of reach: {workload.max_steps} steps in place of the workload's {own.max_steps}; a budget "
        "could be set so that the slower design never arrives":
            workload.max_steps * samples < own.max_steps * own_samples,
        "runs given up early: stop_hopeless ends a run before its budget is spent; whether it would have missed is "
        "then a guess":
            workload.stop_hopeless,
    }  # fmt: skip
    problems = [*_seed_problems(list(range(seed, seed + seeds))), *(rule for rule, broken in rules.items() if broken)]
    described = workload.describe(), own.describe()
    for field in ("batch_size", "accumulate", "optimizer", "schedule", "clip_norm", "augment"):
        value, default = (_spell(description.get(field, "none")) for description in described)
        if value != default:
            problems.append(
                f"chosen hyperparameters: {field} {value} in place of the workload's {default}; they could suit one "
                "design better than another"
            )
    problems += _data_problems(workload)
    _refuse(problems, ConfigError)


def check_strict(results: Sequence[Result]) -> None:
    """Refuse results that a strict comparison does not allow.

    Raises:
        RunFailedError: lists all problems.
    """
    _refuse(strict_problems(results), RunFailedError)


def strict_problems(results: Sequence[Result]) -> tuple[str, ...]:
    """Reasons why results, which may come from several evaluations, are not a strict comparison."""
    problems: list[str] = []
    for result in results:
        problems += _seed_problems([seed.seed for seed in result.seeds], result.name)
        if not any(seed.steps_to_accuracy is not None for seed in result.seeds):
            problems.append(
                f"a threshold out of reach: no seed of {result.name} held {result.target:.4g}; a comparison needs a "
                "target that all designs reach"
            )
    for difference in fairness(results).differing:
        field = difference.partition(":")[0]
        why = {
            "evaluate_every": "finer evaluation of one design",
            "sustain": "a shorter hold for one design",
            "seeds": "other seeds for one design",
            "target": "another threshold for one design",
            "device": "another device for one design",
            "versions": "other software for one design",
        }.get(field, "hyperparameters chosen for each design")
        problems.append(f"{why}: {difference}")
    return tuple(problems)


def _seed_problems(seeds: Sequence[int], name: str = "") -> list[str]:
    whose = f" of {name}" if name else ""
    problems = []
    if len(set(seeds)) < STRICT_SEEDS:
        problems.append(
            f"best of n: {len(set(seeds))} seeds{whose}, at least {STRICT_SEEDS} are wanted; with fewer, luck decides"
        )
    if sorted(seeds) != list(range(len(seeds))):
        problems.append(f"seeds picked by hand{whose}: {_spell(list(seeds))}; strict ones are 0, 1, 2, ...")
    return problems


def _data_problems(workload: Workload) -> list[str]:
    """Problems of splits that share examples, so that training data or the test split decide."""
    from presilicon.workloads import all_inputs

    load_data, _ = workload.require_data()
    splits = load_data()
    train, validation, test = (
        {example for inputs in all_inputs(getattr(splits, name), name) for example in _bytes(inputs)}
        for name in ("train", "validation", "test")
    )
    problems = []
    for one, other, what in (
        (validation, test, "the test split decides: {} of {} validation examples are test examples"),
        (validation, train, "trained on what decides: {} of {} validation examples are training examples"),
        (test, train, "trained on the test: {} of {} test examples are training examples"),
    ):
        shared = sum(example in other for example in one)
        if shared > SHARED * len(one):
            problems.append(what.format(shared, len(one)))
    return problems


def _bytes(inputs: Tensor) -> list[bytes]:
    return [example.numpy().tobytes() for example in inputs.detach().cpu().contiguous()]


def _refuse(problems: Sequence[str], kind: type[ConfigError] | type[RunFailedError]) -> None:
    if problems:
        listed = "\n".join(f"  - {problem}" for problem in problems)
        raise kind(f"this is not a strict comparison:\n{listed}")


def _setting(result: Result, field: str) -> Any:
    """A setting of the workload, or of the evaluation as a whole."""
    provenance = result.provenance
    return provenance.get("workload", {}).get(field, provenance.get(field))


def _in_samples(result: Result, field: str, value: Any) -> Any:
    """A number of steps as samples, because steps of different machines are not the same."""
    return value * _setting(result, "batch_size") if field in ("evaluate_every", "max_steps") else value


def _training(result: Result) -> tuple[Any, Any]:
    """Methods of a design, and the samples of its updates."""
    return result.provenance.get("design", {}).get("methods"), result.provenance.get("samples_per_update")


def _by_design(results: Sequence[Result], values: Sequence[Any]) -> str:
    return ", ".join(f"{result.name} {_spell(value)}" for result, value in zip(results, values, strict=True))


def _spell(value: Any) -> str:
    if isinstance(value, list | tuple) and value and all(isinstance(item, int) for item in value):
        run = list(value) == list(range(value[0], value[0] + len(value)))
        return f"{value[0]} to {value[-1]}" if run and len(value) > 2 else ", ".join(map(str, value))
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
