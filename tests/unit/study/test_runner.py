"""One runner for evaluations and studies: the same bits on any pool, and a log that has everything once."""

from collections import Counter
from dataclasses import replace

import pytest

import presilicon as ps
from oracles.worker_tasks import refuse
from presilicon.base import ConfigError, RunFailedError
from presilicon.emulation import TrainingRecord
from presilicon.records import DecisionEvent, EvaluationEvent, SeedFinished, SeedRestored, SeedsAdded
from presilicon.runs import create_run, list_runs, resume_run
from presilicon.study.join.seeds import SeedTask, train_seed
from presilicon.study.options import TrainOptions
from presilicon.study.pool import LocalPool, TaskBatch, TaskOutcome
from presilicon.study.runner import Runner

WORKLOAD = replace(ps.load_workload("digits-mlp"), target=1.0, max_steps=30)
END = {"design": "a", "seed": 0, "steps": 30, "ending": "budget", "test_value": 0.5}
EVENTS = [
    EvaluationEvent(design="a", seed=0, step=10, value=0.5),
    SeedFinished(**END),
    SeedsAdded(seeds=10, undecided=(("a", "b"),)),
    DecisionEvent(point="p", number=1, decision="tried", reason="rank 1"),
]


def tasks(folder=None, **rest):
    numerics = ps.load_design("bf16-systolic").numerics
    for seed in range(2):
        checkpoint = None if folder is None else TrainOptions().checkpoint(folder, "a", seed)
        yield SeedTask("a", TrainingRecord(WORKLOAD, numerics, seed), checkpoint, **rest)


def test_traces_do_not_depend_on_the_pool_and_events_come_in_order():
    traces, logs = [], []
    for jobs in (1, 2):
        seen = []
        traces.append(Runner(LocalPool(jobs), on_event=seen.append).train(list(tasks())))
        logs.append({seed: [event for event in seen if event.seed == seed] for seed in (0, 1)})
    assert traces[0] == traces[1]
    assert [trace.seed for trace in traces[0]] == [0, 1]
    assert logs[0] == logs[1]
    assert {type(log[-1]) for log in logs[0].values()} == {SeedFinished}


def test_trainings_that_take_turns_have_the_traces_and_events_of_others():
    seen = []
    batch = TaskBatch(train_seed, list(tasks()), on_event=seen.append, ends_early=True)
    outcomes = list(LocalPool(2)._take_turns(batch))
    assert [outcome.number for outcome in outcomes] == [0, 1]
    assert [outcome.result for outcome in outcomes] == Runner(LocalPool(1)).train(list(tasks()))
    assert Counter(event.seed for event in seen if isinstance(event, SeedFinished)) == {0: 1, 1: 1}
    broken = TaskBatch(train_seed, [task._replace(record=refuse) for task in tasks()])
    assert [outcome.error for outcome in LocalPool(2)._take_turns(broken)] == ["it cannot be loaded"] * 2
    with pytest.raises(ConfigError, match="cannot be loaded"):
        list(LocalPool(2)._take_turns(broken._replace(ends_early=True)))


@pytest.mark.parametrize("jobs", [1, 2])
def test_trainings_of_a_study_leave_their_traces_in_their_checkpoints(tmp_path, jobs):
    apart = list(tasks(tmp_path, is_followed=False))
    seen = []
    runner = Runner(LocalPool(jobs), on_event=seen.append)
    ends = {outcome.number: outcome.result for outcome in runner.train_apart(apart, "train")}
    assert {type(event) for event in seen} == {SeedFinished}
    followed = runner.train(list(tasks(tmp_path)))
    assert [ends[number].test_value for number in (0, 1)] == [trace.test_value for trace in followed]
    assert [type(event) for event in seen[2:]] == [SeedRestored, SeedRestored]


def test_a_log_has_everything_once_however_often_a_run_continues(tmp_path):
    told = []
    with create_run(tmp_path, "evaluate", {}, seed=0) as run:
        for event in EVENTS:
            Runner(LocalPool(1), run, on_event=told.append).record(event)
    assert told == EVENTS[:3]  # a decision is for the log alone
    (stored,) = list_runs(tmp_path)
    for _ in range(2):
        told = []
        with resume_run(stored.path, stored.record, {}) as run:
            runner = Runner(LocalPool(1), run, on_event=told.append)
            for event in [EVENTS[0], SeedRestored(**END), *EVENTS[2:]]:
                runner.record(event)
        assert [type(event) for event in told] == [SeedRestored, SeedsAdded]
    assert Counter(type(event) for event in stored.events()) == Counter(type(event) for event in EVENTS)


def test_the_end_of_a_training_that_a_kill_kept_from_the_log_is_written_when_it_is_restored(tmp_path):
    with create_run(tmp_path, "evaluate", {}, seed=0) as run:
        Runner(LocalPool(1), run).record(SeedRestored(**END))
    assert [type(event) for event in list_runs(tmp_path)[0].events()] == [SeedRestored]


class DyingPool:
    """A pool that loses every second task."""

    workers = 2

    def run(self, work):
        for number, task in enumerate(work.tasks):
            died = RunFailedError("its workers died") if number % 2 else None
            yield TaskOutcome(number, task, work.function(task), died, is_lost=number % 2 == 1)

    def close(self):
        pass


def test_lost_tasks_end_the_work_after_the_others_and_are_counted_as_failed():
    progress, finished = [], []
    outcomes = Runner(DyingPool(), on_progress=progress.append).outcomes("try", TaskBatch(abs, [-1, -2, -3]))
    with pytest.raises(RunFailedError, match="1 trainings failed because their workers died; the same command tries"):
        finished.extend(outcome.result for outcome in outcomes)
    assert finished == [1, 3]
    assert [(one.done, one.failed) for one in progress] == [(0, 0), (1, 0), (2, 1), (3, 1)]


@pytest.mark.parametrize("jobs", [1, 2])
def test_the_first_failure_of_an_evaluation_is_raised(jobs):
    broken = [task._replace(record=refuse) for task in tasks()]
    with pytest.raises(ConfigError, match="cannot be loaded"):
        Runner(LocalPool(jobs)).train(broken)
    failures = [outcome.error for outcome in Runner(LocalPool(jobs)).train_apart(broken, "train")]
    assert failures == ["it cannot be loaded"] * 2
