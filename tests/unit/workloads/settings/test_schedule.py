"""Learning-rate schedules, with torch's own schedulers as the oracle."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.optim import SGD
from torch.optim.lr_scheduler import (
    CosineAnnealingLR,
    LinearLR,
    LRScheduler,
    MultiStepLR,
    PolynomialLR,
    SequentialLR,
    StepLR,
)

from presilicon import ConfigError
from presilicon.workloads import LearningRateSchedule

TOTAL = 60
RATE = 0.3


def rates_of(scheduler: Callable[[SGD], LRScheduler]) -> list[float]:
    """The rate of each step with one of torch's schedulers."""
    optimizer = SGD([torch.nn.Parameter(torch.zeros(1))], lr=RATE)
    schedule = scheduler(optimizer)
    rates = []
    for _ in range(TOTAL):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return rates


def after_warmup(optimizer: SGD, steps: int, start: float, then: LRScheduler) -> LRScheduler:
    warmup = LinearLR(optimizer, start_factor=start, end_factor=1.0, total_iters=steps)
    return SequentialLR(optimizer, [warmup, then], milestones=[steps])


@pytest.mark.parametrize(
    ("text", "scheduler"),
    [
        ("cosine", lambda o: CosineAnnealingLR(o, TOTAL)),
        ("cosine(final=0.1)", lambda o: CosineAnnealingLR(o, TOTAL, eta_min=0.1 * RATE)),
        (
            "cosine(warmup=10, start=0.2, final=0.05)",
            lambda o: after_warmup(o, 10, 0.2, CosineAnnealingLR(o, TOTAL - 10, eta_min=0.05 * RATE)),
        ),
        ("step(every=7, factor=0.5)", lambda o: StepLR(o, 7, gamma=0.5)),
        ("step(milestones=[11, 40])", lambda o: MultiStepLR(o, [11, 40], gamma=0.1)),
        # torch counts the milestones after a warm-up from its end, we from the start of training.
        (
            "step(milestones=[20, 40], warmup=5, start=0.5)",
            lambda o: after_warmup(o, 5, 0.5, MultiStepLR(o, [15, 35], gamma=0.1)),
        ),
        ("polynomial", lambda o: PolynomialLR(o, TOTAL, power=1.0)),
        (
            "polynomial(power=2, warmup=8, start=0.1)",
            lambda o: after_warmup(o, 8, 0.1, PolynomialLR(o, TOTAL - 8, power=2)),
        ),
        ("constant(warmup=12, start=0.25)", lambda o: LinearLR(o, 0.25, 1.0, 12)),
    ],
)
@pytest.mark.filterwarnings("ignore:The epoch parameter in `scheduler.step")
def test_rates_equal_those_of_torchs_schedulers_at_every_step(text: str, scheduler: Any) -> None:
    schedule = LearningRateSchedule.parse(text)
    ours = [RATE * schedule.factor(step, TOTAL) for step in range(TOTAL)]
    assert ours == pytest.approx(rates_of(scheduler), rel=1e-9, abs=1e-12)
    assert len(set(ours)) > 1


def test_rates_follow_samples_linearly_when_asked() -> None:
    schedule = LearningRateSchedule.parse("constant(scale_from=32)")
    assert [schedule.scale(samples) for samples in (1, 32, 256)] == [1 / 32, 1.0, 8.0]
    assert LearningRateSchedule.parse("constant").scale(256) == 1.0


@pytest.mark.parametrize(
    "text",
    ["constant", "cosine(final=0.01, warmup=100)", "step(every=300, factor=0.5)", "polynomial(power=2, warmup=50)",
     "step(milestones=[10, 20.5], start=0.5, scale_from=32)"],
)  # fmt: skip
def test_the_text_of_a_schedule_reads_back_as_the_same(text: str) -> None:
    assert str(LearningRateSchedule.parse(text)) == text
    assert LearningRateSchedule.parse(str(LearningRateSchedule.parse(text))) == LearningRateSchedule.parse(text)


def test_a_stretched_schedule_has_the_same_rates_at_the_same_samples() -> None:
    schedule = LearningRateSchedule.parse("step(milestones=[10, 20], warmup=5)")
    finer = schedule.stretched(4)
    for step in range(TOTAL):
        assert finer.factor(4 * step, 4 * TOTAL) == pytest.approx(schedule.factor(step, TOTAL))


def test_the_rate_stays_at_its_end_beyond_the_budget() -> None:
    assert LearningRateSchedule.parse("cosine(final=0.1)").factor(70, TOTAL) == pytest.approx(0.1)
    assert LearningRateSchedule.parse("polynomial").factor(70, TOTAL) == 0.0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cosin(warmup=1)", 'unknown schedule "cosin": did you mean "cosine"'),
        ("cosine(warm=1)", 'schedule cosine has no parameter "warm": did you mean "warmup"'),
        ("cosine(every=1)", 'schedule cosine has no parameter "every"'),
        ("cosine(1)", "must be a name with parameters"),
        ("cosine(warmup=", "must be a name with parameters"),
        ("", "must be a name with parameters"),
        ("cosine(warmup=x)", "warmup must be a number or a list of numbers"),
        ("cosine(warmup=-1)", "warmup must be at least 0, not -1"),
        ("cosine(warmup='a')", "warmup must be at least 0, not 'a'"),
        ("cosine(final=2)", "final must be from 0 to 1, not 2"),
        ("step", "needs every=N or milestones"),
        ("step(every=3, milestones=[4])", "and not both"),
        ("step(every=0)", "every or milestones must be above 0"),
        ("step(milestones=['a'])", "every or milestones must be above 0"),
        ("polynomial(power=0)", "power must be above 0, not 0"),
        ("constant(scale_from=1.5)", "scale_from must be a whole number"),
    ],
)
def test_a_schedule_that_cannot_be_is_one_clear_error(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        LearningRateSchedule.parse(text)
    assert "\n" not in str(error.value)
