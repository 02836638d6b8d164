"""`presilicon evaluate` with `--seeds auto`, several `--target`s and `--stop-hopeless`."""

import pytest

from presilicon.records import SeedsAdded
from presilicon.runs import list_runs

ARGUMENTS = [
    "evaluate",
    "fp32-systolic",
    "fp8-systolic",
    "--workload",
    "digits-mlp",
    "--max-steps",
    "60",
    "--jobs",
    "1",
]


def test_seeds_are_added_and_said_and_an_interruption_changes_nothing(invoke, tmp_path, monkeypatch) -> None:
    auto = [*ARGUMENTS, "--target", "0.5", "--seeds", "auto", "--max-seeds", "6"]
    whole = invoke(*auto, "--json")
    assert whole.code == 0
    assert "not decided yet between fp32-systolic and fp8-systolic: going on to 6 seeds each" in whole.err
    assert "[12/12]" in whole.err
    assert {len(design["seeds"]) for design in whole.document["designs"]} == {6}

    def interrupt(*args, **kwargs):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("presilicon.study.join.evaluation.Study.comparison", interrupt)
        assert invoke(*auto).code == 130
    again = invoke("evaluate", "--resume", "latest", "--jobs", "1", "--json")
    assert again.code == 0, again.err
    assert again.out == whole.out
    assert [len(run.events(SeedsAdded)) for run in list_runs(tmp_path / "runs")] == [1, 1]
    assert len({run.record.config_hash for run in list_runs(tmp_path / "runs")}) == 1


def test_the_hardest_target_ends_training_and_all_are_reported(invoke) -> None:
    targets = ["--target", "0.4", "--target", "0.6", "--target", "0.5", "--seeds", "2"]
    for design in invoke(*ARGUMENTS, *targets, "--json").document["designs"]:
        assert design["target"] == 0.6
        assert [milestone["target"] for milestone in design["milestones"]] == [0.5, 0.4]
        steps = [milestone["steps"]["median"] for milestone in reversed(design["milestones"])]
        assert steps == sorted(steps)
        assert steps[-1] <= design["steps_to_accuracy"]["median"]
        assert design["samples_to_accuracy"]["median"] == pytest.approx(32 * design["steps_to_accuracy"]["median"])
    table = invoke(*ARGUMENTS, *targets).out
    rows = [line.split() for line in table.splitlines() if line.startswith("  fp8-systolic")]
    assert [row[1] for row in rows[-3:]] == ["40%", "50%", "60%"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--seeds", "some"], ["'some' must be a whole number of at least 1, or auto"]),
        (["--seeds", "0"], ["'0' must be a whole number of at least 1, or auto"]),
        (["--max-seeds", "9"], ["--max-seeds limits --seeds auto"]),
        (["--seeds", "auto", "--max-seeds", "2"], ["max_seeds must be at least 5"]),
        (["--target", "0.5", "--target", "-1"], ["milestones", "above 0 and at most 1, not -1"]),
        (["--target", "0.5", "--target", "7"], ["target must be above 0 and at most 1, not 7"]),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(invoke, options: list[str], words: list[str]) -> None:
    outcome = invoke(*ARGUMENTS, *options)
    assert outcome.code == 2
    assert len(outcome.err.strip().splitlines()) == 1
    for word in words:
        assert word in outcome.err
