"""Workloads on the command line: what each of them can be used for."""

import pytest

from presilicon.workloads import workload_names


def test_the_list_says_which_can_be_evaluated(invoke) -> None:
    rows = {row["name"]: row for row in invoke("list", "workloads", "--json").document["workloads"]}
    assert tuple(rows) == workload_names()
    assert rows["digits-cnn"]["commands"] == ["evaluate", "simulate"]
    assert (rows["resnet50"]["commands"], rows["resnet50"]["target"]) == (["simulate"], None)
    lines = invoke("list", "workloads").out.splitlines()
    assert next(line.split() for line in lines if line.startswith("vgg16"))[:3] == ["vgg16", "-", "simulate"]


@pytest.mark.parametrize("options", [[], ["--target", "0.5"], ["--max-steps", "10"]])
def test_evaluate_refuses_a_workload_without_data(invoke, tmp_path, options: list[str]) -> None:
    outcome = invoke("evaluate", "fp32-systolic", "--workload", "resnet50", *options)
    assert outcome.code == 2
    assert 'workload "resnet50" can be simulated, not trained: it comes without data' in outcome.err
    assert outcome.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_network_is_simulated_at_a_batch_size(invoke) -> None:
    arguments = ["simulate", "bf16-systolic", "--workload", "resnet18", "--json"]
    small, large = (invoke(*arguments, "--batch", size).document for size in ("8", "16"))
    assert small["batch_size"] == 8
    assert 1.7 < large["time_s"] / small["time_s"] < 2
    assert len(small["ops"]) == len(large["ops"]) > 400
