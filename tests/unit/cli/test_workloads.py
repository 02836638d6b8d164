"""Workloads on the command line: what each of them can be used for."""

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from presilicon.workloads import workload_names


def test_the_list_says_which_can_be_evaluated(invoke) -> None:
    rows = {row["name"]: row for row in invoke("list", "workloads", "--json").document["workloads"]}
    assert tuple(rows) == workload_names()
    assert rows["digits-cnn"]["commands"] == ["evaluate", "simulate"]
    assert (rows["python-gpt"]["metric"], rows["resnet50"]["metric"]) == ("perplexity", None)
    assert (rows["resnet50"]["commands"], rows["resnet50"]["target"]) == (["simulate"], None)
    lines = invoke("list", "workloads").out.splitlines()
    assert next(line.split() for line in lines if line.startswith("vgg16"))[:4] == ["vgg16", "-", "-", "simulate"]


@pytest.mark.parametrize("options", [[], ["--target", "0.5"], ["--max-steps", "10"]])
def test_evaluate_refuses_a_workload_without_data(invoke, tmp_path, options: list[str]) -> None:
    outcome = invoke("evaluate", "fp32-systolic", "--workload", "resnet50", *options)
    assert outcome.code == 2
    assert 'workload "resnet50" has no data, so it can be simulated but not trained' in outcome.err
    assert outcome.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def _time_s(document: dict[str, Any], phase: str) -> float:
    return sum(op["time_s"] for op in document["ops"] if op["phase"] == phase)


def test_a_network_is_simulated_at_a_batch_size(invoke) -> None:
    arguments = ["simulate", "bf16-systolic", "--workload", "resnet18", "--set", "machine.fusion=none", "--json"]
    small, large = (invoke(*arguments, "--batch", size).design for size in ("8", "16"))
    assert small["batch_size"] == 8
    # Twice the images: the update takes as long as before, and the rest no more than twice as long.
    times = {phase: [_time_s(each, phase) for each in (small, large)] for phase in ("forward", "update")}
    assert times["update"][0] == times["update"][1]
    assert 1.5 < times["forward"][1] / times["forward"][0] <= 2
    assert len(small["ops"]) == len(large["ops"]) > 400


def test_a_step_is_written_as_a_chakra_trace(invoke, tmp_path) -> None:
    pytest.importorskip("chakra.schema.protobuf.et_def_pb2", reason="pip install 'presilicon[chakra]'")
    arguments = ["simulate", "bf16-systolic", "--workload", "digits-mlp", "--chakra", "step.et"]
    assert invoke(*arguments).code == 0
    assert b"hidden1.forward" in (tmp_path / "step.et").read_bytes()


def test_a_chakra_trace_needs_its_library_and_a_whole_step(invoke, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "chakra.schema.protobuf", None)
    missing = invoke("simulate", "bf16-systolic", "--workload", "digits-mlp", "--chakra", "step.et")
    assert (missing.code, missing.out) == (3, "")
    assert "pip install 'presilicon[chakra]'" in missing.err
    product = invoke("simulate", "bf16-systolic", "--gemm", "8x8x8", "--chakra", "step.et")
    assert product.code == 2
    assert "--chakra is for --workload" in product.err


def test_the_memory_of_a_step_is_drawn(invoke, tmp_path) -> None:
    pytest.importorskip("matplotlib")
    arguments = ["simulate", "bf16-systolic", "--workload", "digits-mlp", "--memory-plot", "memory.svg"]
    outcome = invoke(*arguments)
    assert outcome.code == 0
    assert "peak memory" in outcome.out
    assert "digits-mlp, batch 32, on bf16-systolic" in (tmp_path / "memory.svg").read_text()
    # With --json, talk goes to stderr.
    both = invoke(*arguments, "--json")
    assert both.design["memory_bytes"] > 0
    assert "memory plot: memory.svg" in both.err
    assert (
        "--memory-plot is for --workload" in invoke("simulate", "bf16-systolic", "--gemm", "8x8x8", *arguments[4:]).err
    )


EXAMPLE = str(Path(__file__).parents[3] / "examples" / "my_workload.py")


def test_a_workload_of_ones_own_is_evaluated_in_processes_and_simulated(invoke) -> None:
    arguments = ["evaluate", "fp32-systolic", "--workload", EXAMPLE, "--seeds", "2", "--max-steps", "60", "--json"]
    results = [invoke(*arguments, "--jobs", jobs).document["designs"][0] for jobs in ("2", "1")]
    assert results[0] == results[1]
    assert results[0]["workload"] == "spirals"
    assert invoke("simulate", "fp32-systolic", "--workload", EXAMPLE, "--json").design["batch_size"] == 50


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_an_error_in_training_names_the_line_of_the_file(invoke, tmp_path, jobs: str) -> None:
    wrong = Path(EXAMPLE).read_text().replace("workload = ", "def wrong(output, target):\n    1 / 0\n\n\nworkload = ")
    (tmp_path / "mine.py").write_text(wrong.replace("model=model,", "model=model, accuracy=wrong,"))
    outcome = invoke("evaluate", "fp32-systolic", "--workload", "mine.py", "--seeds", "2", "--jobs", jobs)
    assert outcome.code == 1
    assert re.search(r"mine\.py, line \d+, in wrong: ZeroDivisionError: division by zero", outcome.err)
    assert "Traceback" not in outcome.err
    assert str(tmp_path) not in outcome.err.replace(f"{tmp_path}/runs", "")


def test_evaluate_without_the_data_exits_with_3_and_the_command(invoke, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("PRESILICON_FASHION_MNIST", "subset")
    outcome = invoke("evaluate", "fp32-systolic", "--workload", "fashion-vit")
    assert outcome.code == 3
    assert "apt-get install dataset-fashion-mnist" in outcome.err
    assert len(outcome.err.strip().splitlines()) == 1
    assert not list(tmp_path.glob("runs/*"))
