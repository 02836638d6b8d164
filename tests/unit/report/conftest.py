"""Made-up comparisons: shaped like real ones, but no measurement of anything."""

import math
import random
from statistics import median

import pytest
from msgspec.structs import replace

from presilicon.records import Comparison, CurvePoint, Fairness, Interval, Pair, Probability, Result, SeedResult

NAMES = (
    "fp32-systolic",
    "bf16-systolic",
    "fp8-systolic",
    "bfp4-systolic",
    "posit8-ring",
    "mxfp6-systolic",
    "log8-systolic",
    "fixed16-array",
    "fast-bfp-systolic",
    "adagp-bf16-systolic",
)
COST = (96e-6, 41e-6, 21.3e-6, 14e-6, 33e-6, 18e-6, 25e-6, 52e-6, 15e-6, 30e-6)
SPEED = (150, 152, 165, 240, 170, 175, 400, 160, 190, 155)


def interval(values, seeds):
    """The median and the extremes, infinity as None."""
    ordered = sorted(math.inf if value is None else value for value in values)
    middle = median(ordered) if math.isfinite(ordered[len(ordered) // 2]) else math.inf
    return Interval(*(None if math.isinf(value) else float(value) for value in (middle, ordered[0], ordered[-1])))


def make_seed(index, seed, *, target, budget, ceiling, speed=None, cost=None):
    generator = random.Random(1000 * index + seed)
    time_per_step = cost or COST[index % 10]
    watts = 0.22 + 0.05 * (index % 4)
    pace = (speed or SPEED[index % 10]) * generator.uniform(0.85, 1.2) / 4
    top = min(ceiling + generator.uniform(-0.004, 0.004), 0.999)
    curve, held, crossing = [], 0, None
    for step in range(10, budget + 1, 10):
        noise = generator.gauss(0, 0.006) * (1.3 - step / budget)
        accuracy = min(max(top - (top - 0.1) * math.exp(-step / pace) + noise, 0.05), 1.0)
        time_s = step * time_per_step
        accuracy = round(accuracy * 360) / 360
        curve.append(CurvePoint(step=step, value=accuracy, time_s=time_s, energy_j=time_s * watts))
        held = held + 1 if accuracy >= target else 0
        if held == 3:
            crossing = curve[-3]
            break
    return SeedResult(
        seed=seed,
        steps_to_accuracy=crossing.step if crossing else None,
        time_to_accuracy_s=crossing.time_s if crossing else None,
        energy_to_accuracy_j=crossing.energy_j if crossing else None,
        value=curve[-1].value - 0.004,
        steps=curve[-1].step,
        ending="target" if crossing else "budget",
        curve=tuple(curve),
    )


def make_result(index, *, seeds=5, target=0.97, budget=600, ceiling=0.99, name=None, speed=None, cost=None):
    runs = tuple(
        make_seed(index, seed, target=target, budget=budget, ceiling=ceiling, speed=speed, cost=cost)
        for seed in range(seeds)
    )
    name = name or NAMES[index % 10]
    return Result(
        name=name,
        workload="digits-cnn",
        target=target,
        steps_to_accuracy=interval([seed.steps_to_accuracy for seed in runs], seeds),
        time_to_accuracy_s=interval([seed.time_to_accuracy_s for seed in runs], seeds),
        energy_to_accuracy_j=interval([seed.energy_to_accuracy_j for seed in runs], seeds),
        reached=f"{sum(seed.steps_to_accuracy is not None for seed in runs)}/{seeds}",
        value=median(seed.value for seed in runs),
        time_per_step_s=cost or COST[index % 10],
        energy_per_step_j=(cost or COST[index % 10]) * (0.22 + 0.05 * (index % 4)),
        memory_bytes=(2.4 - 0.2 * index) * 2**20,
        area_mm2=None if index % 3 == 1 else 31.7 / (index + 1),
        seeds=runs,
        provenance={
            "config_hash": f"{index:x}c9d01fb60f0a5e2" * 4,
            "seeds": list(range(seeds)),
            "versions": {"presilicon": "0.1.0", "python": "3.11.7", "torch": "2.13.0", "numba": None},
            "commit": "f48b3aa6b0c507f1181f82417047b42ae030e101",
            "design": {"name": name, "machine": {f"field{number}": number for number in range(18)}},
            "workload": {"name": "digits-cnn", "target": target, "sustain": 3, "batch_size": 32},
            "interval": "median; low and high are the extremes (made up for this test)",
            "energy": {
                "technology": "made-up-45nm",
                "source": "nowhere (made up for this test)",
                "figures": [f"float_multiply at {bits}: {bits / 10} pJ (assumed)" for bits in range(4, 16)],
            },
        },
    )


def make_comparison(count=3, **options):
    """Designs that reach the target, soonest not first."""
    return Comparison(designs=tuple(make_result(index, **options) for index in range(count)))


def make_mixed_comparison(seeds=5):
    """One design whose seeds all arrive, one that mostly does, one that rarely does, one that never does."""
    return Comparison(
        designs=(
            make_result(0, seeds=seeds),
            make_result(2, seeds=seeds, budget=300, ceiling=0.982),
            make_result(3, seeds=seeds, budget=260, ceiling=0.981),
            make_result(6, seeds=seeds, ceiling=0.93),
        )
    )


@pytest.fixture
def build():
    """The builders, for tests that vary them."""
    return {"comparison": make_comparison, "mixed": make_mixed_comparison, "result": make_result}


@pytest.fixture(scope="session")
def comparison():
    return make_comparison()


@pytest.fixture
def mixed():
    return make_mixed_comparison()


@pytest.fixture
def judged():
    """A comparison with all that says how far it can be trusted."""
    first, second = make_mixed_comparison().designs[:2]
    return Comparison(
        designs=(
            replace(first, reach_probability=Probability(1.0, 0.5655, 1.0), expected_time_to_accuracy_s=0.02),
            replace(
                second,
                reached="4/5",
                reach_probability=Probability(0.8, 0.3755, 0.9638),
                expected_time_to_accuracy_s=0.0057,
                expected_energy_to_accuracy_j=0.0018,
            ),
        ),
        pairs=(
            Pair(
                first=first.name, second=second.name, seeds=5, wins=1, losses=3, ties=1, probability_faster=0.125,
                sign_test_p=0.625,
            ),
        ),
        fairness=Fairness(held_equal=("batch size 32", "seeds 0 to 4"), differing=("optimizer: a b",), strict=True),
    )  # fmt: skip
