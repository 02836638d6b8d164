import json
import subprocess
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from types import SimpleNamespace

import pytest

from presilicon.base import MissingToolError
from presilicon.designs import design_names
from presilicon.formats import NAMED_FORMATS
from presilicon.scheduling import BoardInfo


def test_help_lists_every_command(invoke) -> None:
    found = invoke("--help")
    assert found.code == 0
    for name in ("evaluate", "simulate", "design", "runs", "list", "doctor"):
        assert f"\n  {name} " in found.out


def test_no_arguments_print_help_and_count_as_bad_usage(invoke) -> None:
    found = invoke()
    assert found.code == 2
    assert "Usage" in found.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["evalute"], ['unknown command "evalute"', 'did you mean "evaluate"']),
        (["evaluate", "fp32-systolic"], ["--workload"]),
        (["evaluate", "--workload", "digits-cnn"], ["DESIGN"]),
        (["evaluate", "fp33-systolic", "--workload", "digits-cnn"], ['did you mean "fp32-systolic"']),
        (["evaluate", "fp32-systolic", "--workload", "digits-cn"], ['did you mean "digits-cnn"']),
        (["evaluate", "fp32-systolic", "--workload", "digits-cnn", "--seeds", "0"], ["seeds", "0"]),
        (["evaluate", "fp32-systolic", "--workload", "digits-cnn", "--target", "97"], ["target", "at most 1"]),
        (["evaluate", "fp32-systolic", "--workload", "digits-cnn", "--device", "tpu"], ["tpu", "cpu"]),
        (["evaluate", "fp32-systolic", "--workload", "digits-cnn", "--set", "machine.rowz=1"], ['"rows"']),
        (["simulate", "fp32-systolic", "--workload", "digits-cnn", "--batch", "0"], ["batch", "0"]),
        (["simulate", "no.toml", "--workload", "digits-cnn"], ["no.toml", "no such file"]),
        (["design", "validate", "no.toml"], ["no such file"]),
        (["runs", "show", "none"], ["no runs in runs"]),
        (["runs", "export", "--format", "pdf"], ["pdf", "csv"]),
        (["--nonsense"], ["--nonsense"]),
    ],
)
def test_bad_usage_is_one_clear_message_and_exit_2(invoke, arguments: list[str], words: list[str]) -> None:
    found = invoke(*arguments)
    assert found.code == 2
    assert "Traceback" not in found.err
    assert len(found.err.strip().splitlines()) == 1
    for word in words:
        assert word in found.err
    assert found.out == ""


PRESET = Path(__file__).parents[3] / "src/presilicon/designs/presets/bf16-systolic.toml"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: t.replace("rows = 128", "rowz = 128"), ["line 6", "$.machine.rowz", 'did you mean "rows"']),
        (lambda t: t.replace("rows = 128", "rows = -128"), ["line 6", "$.machine.rows", "-128"]),
        (lambda t: t.replace("rows = 128", 'rows = "many"'), ["$.machine.rows", "many", "int"]),
        (lambda t: t.replace("bfloat16", "bfloat61"), ["$.numerics.weight", "bfloat61", "bfloat16"]),
        (lambda t: t[: len(t) // 2], ["mine.toml"]),
        (lambda t: "", ["empty"]),
        (lambda t: t.replace("[machine]", "[machne]"), ['did you mean "machine"']),
        (lambda t: "name = 1\n" + t.split("\n", 1)[1], ["$.name", "given 1"]),
    ],
)
@pytest.mark.parametrize("command", [["design", "validate"], ["evaluate", "--workload", "digits-cnn"]])
def test_bad_design_files(invoke, tmp_path, change, words: list[str], command: list[str]) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(change(PRESET.read_text()))
    found = invoke(command[0], *command[1:], "mine.toml") if command[0] == "design" else invoke(*command, "mine.toml")
    assert found.code == 2
    assert len(found.err.strip().splitlines()) == 1
    for word in words:
        assert word in found.err
    assert not (tmp_path / "runs").exists()


def test_a_binary_design_file(invoke, tmp_path) -> None:
    (tmp_path / "mine.toml").write_bytes(bytes(range(256)))
    found = invoke("design", "validate", "mine.toml")
    assert found.code == 2
    assert "not a text file" in found.err


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("a = " + "[" * 5000, "not valid TOML"),
        ("a = " + "9" * 5000, "not valid TOML"),
        (PRESET.read_text().replace('kind = "systolic"', 'kind = ["systolic"]'), "$.machine.kind"),
        (PRESET.read_text().replace('name = "bf16-systolic"', 'name = "a\\u001b[31m"'), "printable"),
        (PRESET.read_text().replace("clock_ghz = 0.5", "clock_ghz = 1e-320"), "$.machine.clock_ghz"),
    ],
    ids=["deep", "long", "list", "escape", "tiny"],
)
def test_hostile_design_files(invoke, tmp_path, text: str, word: str) -> None:
    (tmp_path / "mine.toml").write_text(text)
    found = invoke("design", "validate", "mine.toml")
    assert found.code == 2
    assert word in found.err


def test_hostile_names(invoke) -> None:
    assert invoke("design", "validate", "x" * 5000).code == 2
    assert invoke("design", "validate", "x" * 300).code == 2
    assert invoke("design", "validate", "").code == 2


def test_damaged_runs_do_not_hide_the_others(invoke, tmp_path) -> None:
    arguments = [
        "evaluate",
        "fp32-systolic",
        "--workload",
        "digits-mlp",
        "--seeds",
        "1",
        "--max-steps",
        "30",
        "--target",
        "0.1",
    ]
    assert invoke(*arguments).code == 0
    (run,) = (tmp_path / "runs").iterdir()
    record = json.loads((run / "run.json").read_text())
    for number, config in enumerate([{"designs": 5}, {"designs": ["a"]}, {"workload": 3}]):
        odd = tmp_path / "runs" / f"odd-{number}"
        odd.mkdir()
        (odd / "run.json").write_text(json.dumps(record | {"config": config}))
        (odd / "events.jsonl").write_text(
            '{"event": "seed_finished"}\n{"event": "result", "comparison": {"designs": [{"seeds": 7}]}}\n'
        )
    (tmp_path / "runs" / "odd-0" / "events.jsonl").unlink()
    (tmp_path / "runs" / "odd-0" / "events.jsonl").mkdir()
    assert len(invoke("runs", "list").out.splitlines()) == 5
    for number in range(3):
        assert invoke("runs", "show", f"odd-{number}").code in (0, 2)
        assert invoke("runs", "export", f"odd-{number}").code == 0
    assert "only the beginning" in invoke("runs", "rm", "odd").err or invoke("runs", "rm", "odd").code == 2
    assert invoke("runs", "rm", "odd-1").code == 0


def test_doctor_survives_a_module_without_metadata(invoke, tmp_path, monkeypatch) -> None:
    (tmp_path / "triton.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "triton", raising=False)
    monkeypatch.setattr("importlib.metadata.version", lambda name: (_ for _ in ()).throw(PackageNotFoundError(name)))
    assert "unknown version" in invoke("doctor").out


def test_a_reader_that_leaves_early_is_no_failure(tmp_path) -> None:
    command = f"{sys.executable} -m presilicon design show bf16-systolic | true; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "0"
    assert done.stderr == ""


def test_list(invoke) -> None:
    assert [row["name"] for row in invoke("list", "designs", "--json").document["designs"]] == design_names()
    names = [row["name"] for row in invoke("list", "formats", "--json").document["formats"]]
    assert set(names) == set(NAMED_FORMATS)
    assert "digits-cnn" in invoke("list", "workloads").out
    assert "bfloat16" in invoke("list", "formats").out


def test_design_show_is_a_valid_design_file(invoke, tmp_path) -> None:
    shown = invoke("design", "show", "fp8-systolic", "--set", "machine.rows=64").out
    (tmp_path / "mine.toml").write_text(shown)
    assert invoke("design", "validate", "mine.toml").code == 0
    changes = invoke("design", "diff", "fp8-systolic", "mine.toml", "--json").document["differences"]
    assert changes == [{"path": "machine.rows", "left": 128, "right": 64}]
    assert invoke("design", "diff", "fp8-systolic", "fp8-systolic").out == "no difference\n"
    assert "machine.rows  128 -> 64" in invoke("design", "diff", "fp8-systolic", "mine.toml").out
    assert invoke("design", "show", "fp8-systolic", "--json").document["design"]["machine"]["rows"] == 128


def test_a_shown_design_can_be_added_to(invoke, tmp_path) -> None:
    """As the documentation's example does, twice."""
    text = (Path(__file__).parents[3] / "docs" / "emulation.md").read_text()
    example = next(part for part in text.split("```toml")[1:] if "[[numerics.overrides]]" in part).partition("```")[0]
    shown = invoke("design", "show", "fp8-systolic").out
    assert "[]" not in shown
    (tmp_path / "mine.toml").write_text(shown + example)
    assert invoke("design", "validate", "mine.toml").code == 0
    again = invoke("design", "show", "mine.toml").out
    assert again.count("[[numerics.overrides]]") == 2
    (tmp_path / "more.toml").write_text(f'{again}\n[[numerics.overrides]]\nlayers = "last"\nweight = "float32"\n')
    assert invoke("design", "validate", "more.toml").code == 0
    assert invoke("design", "show", "more.toml").out.count("[[numerics.overrides]]") == 3


def test_simulate(invoke) -> None:
    arguments = ["simulate", "bf16-systolic", "--workload", "digits-mlp"]
    document = invoke(*arguments, "--json").design
    assert document["time_s"] == pytest.approx(sum(op["time_s"] for op in document["ops"]))
    larger = invoke(*arguments, "--batch", "256", "--json").design
    assert larger["batch_size"] == 256
    assert larger["time_s"] > document["time_s"]
    slower = invoke(*arguments, "--set", "machine.rows=8", "--json").design
    assert slower["cycles"] != document["cycles"]
    text = invoke(*arguments, "--ops", "3")
    assert "... and" in text.out
    assert "utilization" in text.out


def test_quantize(invoke) -> None:
    document = invoke("quantize", "e5m2", "1.1", "-70000", "nan", "0x1.8p1", "--json").document
    assert [row["value"] for row in document["values"]] == [1.0, "-inf", "nan", 3.0]
    assert document["values"][0]["fields"] == [
        {"name": "sign", "bits": "0"},
        {"name": "exponent", "bits": "01111"},
        {"name": "mantissa", "bits": "00"},
    ]
    assert invoke("quantize", "e5m2", "1.1", "--rounding", "up", "--json").document["values"][0]["value"] == 1.25
    text = invoke("quantize", "bfp(mantissa=4, group=4)", "0.1", "0.2", "3", "-4").out
    assert "scale" in text
    draws = {
        invoke("quantize", "e5m2", "1.1", "--rounding", "stochastic", "--seed", str(seed), "--json").document["values"][
            0
        ]["value"]
        for seed in range(30)
    }
    assert draws == {1.0, 1.25}
    for arguments, word in [
        (["e5m2", "one"], "not a number"),
        (["e5m9m", "1"], "e5m9m"),
        (["e5m2", "1", "--rounding", "sideways"], "sideways"),
        (["float(exponent=0, mantissa=3)", "1"], "exponent"),
    ]:
        found = invoke("quantize", *arguments)
        assert found.code == 2
        assert word in found.err


def test_doctor_says_which_opencl_devices_work(invoke, monkeypatch) -> None:
    pytest.importorskip("pyopencl")
    boards = [BoardInfo(f"opencl:0.{index}", f"board {index}", "a platform", "1", 2, 2000, 1 << 30) for index in (0, 1)]

    def open_board(name):
        if name == "opencl:0.0":
            raise MissingToolError("opencl:0.0: cannot compile")
        return SimpleNamespace(close=lambda: None)

    monkeypatch.setattr("presilicon.scheduling.list_boards", lambda: boards)
    monkeypatch.setattr("presilicon.scheduling.open_device", open_board)
    devices = invoke("doctor", "--json").document["devices"]
    assert devices[-2:] == ["opencl:0.0: cannot compile", "opencl:0.1: board 1, 2 compute units"]


def test_doctor(invoke) -> None:
    parts = {part["name"]: part for part in invoke("doctor", "--json").document["parts"]}
    assert parts["torch"]["version"]
    assert "pip install" in parts["triton"]["how"]
    assert "torch" in invoke("doctor").out


def test_runs_of_an_empty_directory(invoke) -> None:
    assert invoke("runs", "list").out == "no runs in runs\n"
    assert invoke("runs", "list", "--json").document == {"schema": 2, "runs": []}


def test_evaluate_records_reports_and_repeats(invoke, tmp_path) -> None:
    arguments = [
        "evaluate",
        "fp8-systolic",
        "--workload",
        "digits-mlp",
        "--seeds",
        "2",
        "--max-steps",
        "60",
        "--jobs",
        "1",
    ]
    first = invoke(*arguments, "--target", "0.5", "--json")
    assert first.code == 0
    assert first.out == invoke(*arguments, "--target", "0.5", "--json").out
    (design,) = first.document["designs"]
    assert design["reached"] == "2/2"
    assert design["time_to_accuracy_s"]["median"] == pytest.approx(
        design["steps_to_accuracy"]["median"] * design["time_per_step_s"]
    )
    assert {seed["seed"] for seed in design["seeds"]} == {0, 1}
    other = invoke(*arguments, "--target", "0.5", "--seed", "7", "--json").document["designs"][0]
    assert {seed["seed"] for seed in other["seeds"]} == {7, 8}

    report = Path(first.err.strip().splitlines()[-1].removeprefix("report: "))
    assert (tmp_path / report).read_text().startswith("<!DOCTYPE html>")

    runs = invoke("runs", "list", "--json").document["runs"]
    assert [run["status"] for run in runs] == ["finished"] * 3
    assert len({run["name"] for run in runs}) == 3
    assert invoke("runs", "list").out.count("digits-mlp  fp8-systolic") == 3
    assert "fp8-systolic" in invoke("runs", "show").out
    assert invoke("runs", "show", runs[0]["name"], "--json").document["result"]["designs"][0]["reached"] == "2/2"
    rows = invoke("runs", "export", "latest").out.splitlines()
    assert rows[0].startswith("design,seed,step")
    assert len(rows) > 4
    assert invoke("runs", "export", "--format", "json").document["run"]["kind"] == "evaluate"
    assert invoke("runs", "export", "--format", "png", "--to", "a/figure.png").code == 0
    assert (tmp_path / "a/figure.png").read_bytes().startswith(b"\x89PNG")
    assert invoke("runs", "rm", runs[0]["name"], runs[1]["name"]).code == 0
    assert len(invoke("runs", "list", "--json").document["runs"]) == 1


def test_a_target_that_is_never_held_is_null(invoke) -> None:
    arguments = ["--workload", "digits-mlp", "--seeds", "1", "--max-steps", "30", "--target", "1.0"]
    found = invoke("evaluate", "fp8-systolic", *arguments, "--json", "--out", "elsewhere")
    (design,) = found.document["designs"]
    assert design["time_to_accuracy_s"] == {"median": None, "low": None, "high": None}
    assert design["reached"] == "0/1"
    assert Path("elsewhere").is_dir()
    assert not Path("runs").exists()
    assert "never" in invoke("runs", "show", "--out", "elsewhere").out


def test_the_table_goes_to_stdout_and_progress_to_stderr(invoke) -> None:
    arguments = ["--workload", "digits-mlp", "--seeds", "1", "--max-steps", "30", "--target", "0.1", "--jobs", "1"]
    found = invoke("evaluate", "fp32-systolic", "bf16-systolic", *arguments)
    assert "TIME TO ACCURACY" in found.out
    assert "report: " in found.out
    assert "[2/2] bf16-systolic seed 0" in found.err
    assert json.loads(next(Path("runs").iterdir()).joinpath("run.json").read_text())["status"] == "finished"
