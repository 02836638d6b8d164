"""`presilicon schedule`: its JSON, its files, every flag, and what it refuses."""

import json
from pathlib import Path

import pytest

from presilicon.cli import schedule_outputs
from presilicon.scheduling.runtime.opencl.tuning import SIZES
from presilicon.study import execution as execution_module

GRAPHS = Path(__file__).parents[3] / "benchmarks" / "graphs"
STEP = str(GRAPHS / "step-39-M.json")
IDEAL = ["schedule", "v100-3xs10-ideal", "--graph", STEP]
REAL = ["schedule", "v100-3xs10", "--graph", STEP]
FIELDS = {
    "throughput_samples_per_s",
    "average_power_w",
    "peak_power_w",
    "energy_per_step_j",
    "makespan_s",
}


def test_energy_of_a_graph(invoke) -> None:
    found = invoke(*IDEAL, "--solver", "greedy", "--json").document
    assert found.keys() >= FIELDS
    assert found["baseline"].keys() >= FIELDS
    assert "violations" not in found
    assert found["energy_per_step_j"] == pytest.approx(8.598, abs=5e-4)
    assert found["energy_bound_j"] <= found["energy_per_step_j"]
    assert found["gap"] == pytest.approx(found["energy_per_step_j"] / found["energy_bound_j"] - 1)
    assert [each["id"] for each in found["placement"]] == list(range(39))
    assert {each["device"] for each in found["placement"]} == {"gpu", "fpga"}
    assert found["makespan_s"] == pytest.approx(max(each["end_s"] for each in found["placement"]))
    assert found["average_power_w"] == pytest.approx(found["energy_per_step_j"] / found["makespan_s"])
    assert min(each["slack_s"] for each in found["placement"]) == 0
    assert found["critical_path_s"] <= found["makespan_s"] + 1e-12


def test_throughput_under_a_cap(invoke) -> None:
    arguments = [*REAL, "--objective", "throughput", "--power-cap", "230", "--time-limit", "1"]
    found = invoke(*arguments, "--solver", "anytime", "--json").document
    assert found["violations"] == 0
    assert found["peak_power_w"] <= 230
    assert found["baseline"]["violations"] > 0
    assert found["makespan_bound_s"] <= found["makespan_s"]
    assert found["energy_bound_j"] <= found["energy_per_step_j"]
    reactive = found["baselines"]["gpu-alone-reactive"]
    assert len(reactive["power_per_iteration_w"]) == 10
    often = invoke(*arguments, "--solver", "heft", "--sample", "1e-5", "--lag", "0.001", "--json").document
    assert often["baseline"]["violations"] > 50 * found["baseline"]["violations"]
    assert often["baselines"]["gpu-alone-reactive"]["makespan_s"] != reactive["makespan_s"]


def test_a_saving_under_a_cap_is_against_a_baseline_that_keeps_it(invoke) -> None:
    arguments = [*REAL, "--objective", "throughput", "--power-cap", "230", "--solver", "heft"]
    found = invoke(*arguments, "--json").document
    assert found["baseline"]["peak_power_w"] > 230
    name = found["compared_with"]
    assert name == found["payback"]["compared_with"] == "gpu-alone-clocked"
    base = found["baselines"][name]
    assert base["peak_power_w"] <= 230
    assert found["energy_change"] == pytest.approx(found["energy_per_step_j"] / base["energy_per_step_j"] - 1)
    assert found["throughput_change"] == pytest.approx(base["makespan_s"] / found["makespan_s"] - 1)
    saved_w = (base["energy_per_step_j"] - found["energy_per_step_j"]) / found["makespan_s"]
    assert found["payback"]["saved_w"] == pytest.approx(saved_w)
    told = invoke(*arguments).out
    assert "samples per second against gpu-alone-clocked" in told
    assert "gpu-only does not keep the cap of 230 W" in told


def test_without_a_baseline_that_keeps_the_cap_no_saving_is_stated(invoke) -> None:
    arguments = [*IDEAL, "--objective", "throughput", "--power-cap", "230", "--solver", "anytime", "--time-limit", "1"]
    found = invoke(*arguments, "--json").document
    assert found["peak_power_w"] <= 230
    keys = ("compared_with", "energy_change", "throughput_change", "payback")
    assert [found[key] for key in keys] == [None] * 4
    told = invoke(*arguments).out
    assert "no baseline keeps the cap: no saving to state" in told
    assert "%" not in told.splitlines()[1]
    assert "warning: no baseline keeps the cap of 230 W" in told


def test_beside_a_saving_stands_how_plausible_the_baseline_is(invoke) -> None:
    arguments = ["schedule", "v100-3xs10", "--workload", "alexnet", "--batch", "256", "--solver", "heft"]
    found = invoke(*arguments, "--json").document["baseline_plausibility"]
    assert found["time_ratio"] == pytest.approx(found["baseline_s"] / found["design_s"])
    assert not found["is_plausible"]
    told = invoke(*arguments).out
    ratio = f"against gpu-only, which takes {found['time_ratio']:.3g} times as long as the design v100 (implausible)"
    assert ratio in told.splitlines()[1]
    assert "warning: implausible baseline" in told
    close = invoke(*arguments, "--set", "devices.gpu.machine=v100", "--json").document
    assert close["baseline_plausibility"] is None
    assert not any("plausible" in note or "not checked" in note for note in close["notes"])
    unknown = invoke(*arguments, "--set", "devices.gpu.like=v1000")
    assert unknown.code == 2
    assert "v100" in unknown.err
    unchecked = invoke(*REAL, "--solver", "heft", "--json").document
    assert any("not checked" in note for note in unchecked["notes"])


def test_a_captured_workload(invoke) -> None:
    arguments = ["schedule", "v100-3xs10", "--workload", "alexnet", "--batch", "8", "--solver", "greedy"]
    found = invoke(*arguments, "--sensitivity", "--json").document
    assert (found["workload"], found["batch_size"]) == ("alexnet", 8)
    assert {each["source"] for each in found["placement"]} == {"interpolated", "model"}
    assert [row["sizes"] for row in found["sensitivity"]] == ["work", "tensor", "im2col"]
    assert all(row["compared_with"] == "gpu-only" and row["baseline_plausibility"] for row in found["sensitivity"])
    sized = invoke(*arguments, "--sizes", "im2col", "--json").document
    assert sized["baseline"]["makespan_s"] != found["baseline"]["makespan_s"]
    assert "table" in {each["source"] for each in sized["placement"]}


def test_free_transfers_and_settings_change_what_is_possible(invoke) -> None:
    moved = {
        name: sum(each["device"] == "fpga" for each in invoke(*arguments, "--json").document["placement"])
        for name, arguments in {
            "slow": [*REAL, "--solver", "greedy"],
            "free": [*REAL, "--solver", "greedy", "--no-transfers"],
            "fast": [*REAL, "--solver", "greedy", "--set", "devices.gpu.bytes_per_s=1e15",
                     "--set", "devices.fpga.bytes_per_s=1e15"],
        }.items()
    }  # fmt: skip
    assert moved["slow"] < min(moved["free"], moved["fast"])


def test_flags_of_the_greedy_rules(invoke) -> None:
    energies = {
        flag: invoke(*IDEAL, "--solver", "greedy", "--json", *flag).document["energy_per_step_j"]
        for flag in ((), ("--literal",), ("--candidates", "and"), ("--relief", "1.178"))
    }
    assert len(set(energies.values())) == 4
    assert min(energies, key=energies.__getitem__) == ("--relief", "1.178")
    assert max(energies, key=energies.__getitem__) == ("--literal",)


def test_a_limit_of_ones_own_and_a_seed(invoke) -> None:
    arguments = [*REAL, "--solver", "anytime", "--time-limit", "0.5", "--json"]
    tight = invoke(*arguments).document
    loose = invoke(*arguments, "--max-time", "0.06", "--seed", "3").document
    assert loose["makespan_limit_s"] == 0.06
    assert loose["energy_per_step_j"] < tight["energy_per_step_j"]


def test_files(invoke, tmp_path) -> None:
    found = invoke(*REAL, "--solver", "greedy", "--power-cap", "400", "--out", "made", "--usd-per-kwh", "0.3")
    assert found.code == 0
    page = (tmp_path / "made" / "schedule.html").read_text()
    assert "cap 400 W" in page
    assert "http" not in page.replace("http-equiv", "")
    assert page.count("<rect") > 39
    trace = json.loads((tmp_path / "made" / "trace.json").read_text())
    spans = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    assert len({event["args"]["op"] for event in spans}) == 39
    document = json.loads((tmp_path / "made" / "schedule.json").read_text())
    assert document["payback"]["usd_per_kwh"] == 0.3
    lines = (tmp_path / "made" / "power.csv").read_text().splitlines()
    assert lines[0] == "time_s,average_w,peak_w"
    assert "against gpu-only" in found.out


@pytest.mark.parametrize("out", ["taken/made", "n" * 300])
def test_a_folder_that_cannot_be_written_is_refused_before_the_search(invoke, monkeypatch, tmp_path, out) -> None:
    monkeypatch.setattr(schedule_outputs, "carry_out_schedule", lambda *_, **__: pytest.fail("it searched"))
    (tmp_path / "taken").write_text("a file")
    found = invoke(*REAL, "--out", out)
    assert found.code == 2
    assert f"cannot write into {out[:20]}" in found.err
    assert found.out == ""


def test_ids_of_the_file_are_kept(invoke, tmp_path) -> None:
    ops = [
        {"id": 30, "kind": "Mul", "size": "S", "bytes_out": 0, "deps": [10]},
        {"id": 10, "kind": "Conv2D", "size": "S", "bytes_out": 0, "deps": []},
    ]
    Path("graph.json").write_text(json.dumps({"ops": ops}))
    found = invoke("schedule", "v100-3xs10", "--graph", "graph.json", "--solver", "heft", "--json").document
    assert [each["id"] for each in found["placement"]] == [10, 30]


def test_two_parts_may_be_meant(invoke) -> None:
    ops = [{"id": place, "kind": "Mul", "size": "S", "bytes_out": 0, "deps": []} for place in (0, 1)]
    Path("graph.json").write_text(json.dumps({"ops": ops}))
    arguments = ["schedule", "v100-3xs10", "--graph", "graph.json", "--solver", "heft", "--json"]
    assert invoke(*arguments).code == 2
    assert invoke(*arguments, "--allow-parts").code == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["schedule"], ["give a system"]),
        (["schedule", "v100-3xs1", "--graph", STEP], ["v100-3xs10"]),
        (["schedule", "v100-3xs10"], ["--workload", "--graph"]),
        ([*REAL, "--workload", "alexnet"], ["either"]),
        ([*REAL, "--batch", "3"], ["--batch is for --workload"]),
        ([*REAL, "--time-limit", "0"], ["--time-limit must be", "not 0"]),
        ([*REAL, "--power-cap", "-1"], ["--power-cap must be", "not -1"]),
        ([*REAL, "--usd-per-kwh", "nan"], ["--usd-per-kwh must be a price of at least 0, not nan"]),
        ([*REAL, "--usd-per-kwh", "inf"], ["--usd-per-kwh must be a price of at least 0, not inf"]),
        ([*REAL, "--usd-per-kwh", "-1"], ["--usd-per-kwh must be a price of at least 0, not -1"]),
        ([*REAL, "--sample", "0"], ["sampling period must be above 0 s"]),
        ([*REAL, "--lag", "-1"], ["lag must be above 0 s, not -1 s"]),
        ([*REAL, "--power-cap", "60", "--objective", "throughput"], ["60 W", "80 W", "idle"]),
        ([*REAL, "--max-time", "1", "--objective", "throughput"], ["--max-time"]),
        ([*REAL, "--sensitivity"], ["--sensitivity is for --workload"]),
        ([*REAL, "--sizes", "tensor"], ["--sizes is for --workload"]),
        ([*REAL, "--literal"], ["--literal is for --solver greedy"]),
        ([*REAL, "--candidates", "paper", "--solver", "heft"], ["--candidates is for --solver greedy"]),
        ([*REAL, "--relief", "0"], ["relief must be a factor above 0"]),
        ([*REAL, "--set", "devices.gpu.clocks=[2.0]"], ["clocks"]),
        (
            [*REAL, "--literal", "--solver", "greedy", "--objective", "throughput", "--power-cap", "200"],
            ["deadlock", "(Conv2D M) needs 311 W on gpu"],
        ),
        (["schedule", "v100-3xs10", "--workload", "resnet5"], ["resnet50"]),
        (["schedule", "v100-3xs10", "--workload", "alexnet", "--allow-parts"], ["--allow-parts is for --graph"]),
        (["schedule", "v100-3xs10", "--graph", "nothing.json"], ["nothing.json", "no such file"]),
    ],
)
def test_refusals(invoke, arguments: list[str], words: list[str]) -> None:
    found = invoke(*arguments)
    assert found.code in (1, 2)
    assert all(word in found.err for word in words), found.err
    assert found.out == ""


def test_systems_are_listed(invoke) -> None:
    names = [row["name"] for row in invoke("list", "systems", "--json").document["systems"]]
    assert {"v100-3xs10", "v100-3xs10-ideal", "2xv100-6xs10", "v100-s10"} <= set(names)


def test_help_says_what_the_command_does(invoke) -> None:
    found = invoke("schedule", "--help")
    assert found.code == 0
    assert "presilicon schedule [OPTIONS] SYSTEM" in found.out


def test_kernels_are_ranked(invoke) -> None:
    one = ["schedule", "kernels", "--op", "MatMul", "--shape", "2048x1024x1024"]
    found = invoke(*one, "--config", "2,1,128,64", "--fmax-mhz", "210", "--json").document
    assert round(found["latency_indicator"], 2) == 81.81
    assert (found["estimate"]["compute_cycles"], found["fits"]) == (2**31 // 128, True)
    wide = invoke(*one, "--config", "2,1,128,64", "--fmax-mhz", "210", "--set", "dsps=100")
    assert "it does not fit: it needs 128 DSP blocks, and the board has 100" in wide.out
    ranked = invoke(*one, "--top", "3", "--json").document
    assert ranked["space"] == 20_480
    assert [each["rank"] for each in ranked["best"]] == [1, 2, 3]
    assert ranked["best"][0]["time_s"] < 0.01
    assert ranked["preferred_by_indicator"]["contradicts"]
    assert ranked["preferred_by_indicator"]["time_s"] > 4
    assert "the indicator prefers 1,1,256,1" in invoke(*one).out
    assert "synthetic" in ranked["fmax"]
    Path("clocks.json").write_text("[[2, 1, 64, 210.0], [4, 2, 64, 241.0]]")
    table = invoke(*one, "--fmax-table", "clocks.json", "--json").document
    assert table["best"][0]["fmax_mhz"] == 241.0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--op", "Matmull"], ["MatMul"]),
        (["--shape", "2x3"], ["MxKxN"]),
        (["--set", "dspss=3"], ["dspss", "dsps"]),
        (["--rank", "3", "--set", "dsps=3"], ["--set is not for --rank"]),
        (["--shape", "axb"], ["--shape"]),
        (["--config", "1,2,3,4"], ["--fmax-mhz"]),
        (["--config", "1,2", "--fmax-mhz", "1"], ["four numbers"]),
        (["--fmax-table", "nothing.json"], ["nothing.json"]),
        (["--out", "tuned.json"], ["--out is not for this search, which builds no kernels"]),
        (["--config", "2,1,128,64", "--fmax-mhz", "210", "--top", "3"], ["--top is not for --config"]),
        (["--tune", "2", "--shape", "4x4x4"], ["--shape is not for --tune"]),
        (["--rank", "3", "--op", "Conv2D"], ["--op is not for --rank"]),
        (["--rank", "3", "--tune", "2"], ["--tune is not for --rank"]),
    ],
)
def test_kernels_refuse(invoke, arguments: list[str], words: list[str]) -> None:
    found = invoke("schedule", "kernels", *arguments)
    assert found.code == 2
    assert all(word in found.err for word in words), found.err


def test_kernels_are_tuned_and_ranked_on_a_device(invoke, monkeypatch, tmp_path, opencl) -> None:
    monkeypatch.setenv("PRESILICON_CACHE", str(tmp_path))
    tried = []

    def ask(self, request, timeout_s):
        tried.append(request["config"])
        slow = request["config"]["simd"] * len(tried)
        return {"refused": "it hangs"} if slow % 5 == 4 else {"times_s": [slow * 1e-6]}

    monkeypatch.setattr("presilicon.scheduling.runtime.opencl.tuning.Worker.ask", ask)
    told = invoke("schedule", "kernels", "--tune", "9", "--op", "MatMul", "--json").document
    assert set(told["table"]["kernels"]["MatMul"]) == set(SIZES)
    assert len(told["trials"]) == len(tried)
    assert Path(told["stored"]).is_file()
    printed = invoke("schedule", "kernels", "--rank", "30", "--shape", "8x8x8").out
    assert "Spearman rank correlation of the latency indicator" in printed


def test_a_machine_without_opencl_exits_with_3(invoke, monkeypatch) -> None:
    opencl = pytest.importorskip("pyopencl")
    monkeypatch.setattr(opencl, "get_platforms", list)
    for arguments in (["kernels", "--tune", "1"], ["characterize", "--workload", "digits-mlp", "--device", "opencl"]):
        found = invoke("schedule", *arguments)
        assert found.code == 3
        assert "presilicon[opencl]" in found.err


def test_a_device_must_be_an_opencl_one_to_be_tuned(invoke, opencl) -> None:
    found = invoke("schedule", "kernels", "--rank", "5", "--device", "cpu")
    assert found.code == 2
    assert "--device must be one of opencl:0.0" in found.err


def test_rows_are_measured_and_written(invoke, tmp_path) -> None:
    measured = ["schedule", "characterize", "--workload", "digits-mlp", "--watts", "65", "--repeats", "1"]
    found = invoke(*measured, "--batch", "4", "--name", "here", "--out", "mine.toml", "--json")
    assert {row["device"] for row in found.document["rows"]} == {"here"}
    assert "batch 4" in (tmp_path / "mine.toml").read_text()


EXECUTE = ["schedule", "cpu-2xopencl", "--workload", "digits-mlp", "--batch", "16", "--execute", "--steps", "3"]


def test_a_schedule_is_executed_on_opencl_devices(invoke, tmp_path, monkeypatch, opencl) -> None:
    monkeypatch.setattr(execution_module, "TRIAL_S", 0.0)
    found = invoke(*EXECUTE, "--objective", "throughput", "--solver", "heft", "--out", str(tmp_path), "--json").document
    execution = found["execution"]
    assert execution["devices"] == {"cpu 0": "cpu", "opencl 0": "opencl:0.0/0", "opencl 1": "opencl:0.0/1"}
    assert execution["steps"] == 3
    assert len(execution["losses"]) == 3
    assert execution["largest_loss_difference"] < 1e-5
    assert sum(execution["ops_by_device"].values()) >= 3 * 44 - 12
    assert execution["predicted_makespan_s"] == found["makespan_s"]
    assert any("measured alone" in note for note in found["notes"])
    page = (tmp_path / "execution.html").read_text()
    assert page.count("Gantt chart") == 2
    assert "Predicted" in page
    assert "Executed, step" in page


def test_an_execution_from_the_table_under_a_cap_says_what_it_did(invoke, opencl) -> None:
    arguments = ["--no-measure", "--no-takeover", "--mirror", "--watts", "12", "--power-cap", "70", "--solver", "heft"]
    text = invoke(*EXECUTE, *arguments, "--objective", "throughput").out
    assert "3 steps executed" in text
    assert "power cap 70 W by the user, 12 W" in text
    assert "0 ops started above it" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["schedule", "cpu-2xopencl", "--workload", "digits-mlp", "--mirror"], "--mirror is for --execute"),
        (["schedule", "cpu-2xopencl", "--workload", "digits-mlp", "--steps", "3"], "--steps is for --execute"),
        ([*IDEAL, "--execute"], "--execute needs --workload"),
        (["schedule", "v100-3xs10", "--workload", "digits-mlp", "--execute"], "devices.gpu.runtime must name 1"),
        ([*EXECUTE, "--set", "replicas=2"], "without replicas"),
        ([*EXECUTE, "--set", 'devices.opencl.runtime=["fpga:0", "fpga:1"]'], "fpga:0"),
        ([*EXECUTE, "--set-clocks"], "no CUDA device"),
        ([*EXECUTE, "--sensitivity"], "give either"),
        ([*EXECUTE, "--watts", "5"], "--watts is for --execute with --power-cap"),
        ([*EXECUTE, "--no-transfers"], "add --no-measure"),
        ([*EXECUTE, "--relief", "1.2"], "add --no-measure"),
        (["schedule", "cpu-2xopencl", "--workload", "dcgan", "--batch", "2", "--execute"], "several models"),
    ],
)
def test_an_execution_that_cannot_be_is_refused(invoke, arguments, message) -> None:
    found = invoke(*arguments)
    assert found.code == 2
    assert message in found.err


def test_an_impossible_power_is_refused_before_ops_are_measured(invoke, monkeypatch) -> None:
    monkeypatch.setattr(execution_module, "calibrate", lambda *_: pytest.fail("it measured"))
    found = invoke(*EXECUTE, "--power-cap", "30", "--watts", "-5")
    assert found.code == 2
    assert "watts must be at least 0 and below a million, not -5" in found.err


def test_progress_counts_the_time_of_the_search_at_hand(capsys, monkeypatch) -> None:
    clock_s = iter([0.0, 30.0, 36.0, 60.0, 66.0])
    monkeypatch.setattr("presilicon.cli.schedule_outputs.time.perf_counter", lambda: next(clock_s))
    show = schedule_outputs._progress("energy")
    for share in (0.0, 0.3, 0.0, 0.3):
        show(share, 2.0)
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(", best")[0] for line in lines] == [
        f"searching: {share}% of the time, {seconds} s" for share, seconds in ((0, 0), (30, 6), (0, 0), (30, 6))
    ]


def test_a_move_that_outlasts_the_step_is_no_contradiction_under_a_memory_limit(invoke, tmp_path) -> None:
    size = 110_000_000
    ops = [
        {"id": 0, "kind": "MatMul", "size": "M", "bytes_out": size, "deps": []},
        {"id": 1, "kind": "BiasAddGrad", "size": "S", "bytes_out": 0, "deps": [0]},
        {"id": 3, "kind": "Mul", "size": "S", "bytes_out": size, "deps": []},
    ]
    graph = tmp_path / "graph.json"
    graph.write_text(json.dumps({"ops": ops}))
    arguments = ["--graph", str(graph), "--allow-parts", "--solver", "exact", "--time-limit", "2", "--json"]
    found = invoke("schedule", "v100-3xs10", *arguments, "--set", "devices.gpu.memory_gb=0.2").document
    assert found["gap"] == pytest.approx(0, abs=1e-6)
