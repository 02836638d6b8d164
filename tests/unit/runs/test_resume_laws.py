"""What is written of a run is what happened: its last result, every resume, its labels."""

import random
from itertools import pairwise

import pytest

from presilicon.records import DesignEvent, EvaluationEvent, ResultEvent
from presilicon.runs import create_run, export_run, label_run, load_run, resume_run
from presilicon.runs.events import EventLog, read_result


@pytest.mark.parametrize("results", [0, 1, 2, 5])
def test_the_result_of_a_run_is_its_last_whatever_was_written_between(results: int, tmp_path) -> None:
    draw = random.Random(results)
    run = create_run(tmp_path, "evaluate", {}, seed=0)
    for number in range(results):
        for _ in range(draw.randint(0, 3)):
            run.record(EvaluationEvent(design='"result"', seed=0, step=1, value=0.5))
        run.record(ResultEvent(comparison={"schema": 2, "number": number}))
    run.record(DesignEvent(design='{"event": "result"}', config={}))
    run.end("finished")
    with (run.path / "events.jsonl").open("ab") as log:
        log.write(b'{"event": "result", "comparison": {"number": 99')  # torn off by a crash
    stored = load_run(tmp_path, "latest")
    assert stored.comparison() == ({"schema": 2, "number": results - 1} if results else None)
    assert len(stored.events(ResultEvent)) == results


def test_events_of_one_call_stay_in_their_order_and_the_last_result_counts(tmp_path) -> None:
    log = EventLog(tmp_path / "events.jsonl")
    log.extend([ResultEvent(comparison={"schema": 2, "number": number}) for number in range(4)])
    assert read_result(log.path).comparison == {"schema": 2, "number": 3}
    assert [event.comparison["number"] for event in log.read()] == list(range(4))


def test_every_resume_is_recorded_whoever_looked_at_the_run_before(tmp_path) -> None:
    create_run(tmp_path, "evaluate", {"a": 1}, seed=0).end("interrupted")
    seen = [load_run(tmp_path, "latest")]
    for count in range(1, 4):
        looked = seen[count // 2]  # sometimes from before another process resumed it
        with resume_run(looked.path, looked.record, {"a": 1}) as run:
            assert len(run.state.resumed) == count
        label_run(tmp_path, "latest", add=[f"tag-{count}"])
        seen.append(load_run(tmp_path, "latest"))
    times = seen[-1].record.resumed
    assert list(times) == sorted(set(times))
    for earlier, later in pairwise(run.record.resumed for run in seen):
        assert later[: len(earlier)] == earlier
    assert seen[-1].record.created == seen[0].record.created
    assert times[0] > seen[0].record.created
    assert seen[-1].labels.tags == ("tag-1", "tag-2", "tag-3")
    assert (seen[-1].status, seen[-1].record.error) == ("finished", None)


def test_a_table_of_evaluations_does_not_depend_on_the_order_in_which_they_came(tmp_path) -> None:
    """Each training's rows follow its steps, and trainings keep the order in which they began."""
    draw, tables = random.Random(0), set()
    trainings = [("b", 0), ("a", 1), ("a", 0)]
    first = [EvaluationEvent(design=design, seed=seed, step=10, value=0.1) for design, seed in trainings]
    later = [
        EvaluationEvent(design=design, seed=seed, step=step, value=step / 100)
        for design, seed in trainings
        for step in (20, 30, 40, 100)
    ]
    for _ in range(4):
        draw.shuffle(later)
        with create_run(tmp_path, "evaluate", {}, seed=0) as run:
            run.log.extend([*first, *later])
        tables.add(export_run(load_run(tmp_path, run.name), "csv"))
    [table] = tables
    rows = [tuple(row.split(",")[:3]) for row in table.splitlines()[1:]]
    assert rows == [(design, str(seed), str(step)) for design, seed in trainings for step in (10, 20, 30, 40, 100)]
