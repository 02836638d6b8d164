"""Another's times in the place of ours."""

import gzip
import json
from pathlib import Path

import msgspec
import pytest

from presilicon.base import ConfigError
from presilicon.designs import load_design
from presilicon.records import ForeignTime, ForeignTimes, Gemm, StepFacts
from presilicon.simulation import match_times, put_times, read_times, simulate
from presilicon.workloads import capture_workload, load_workload

DATA = Path(__file__).parents[3] / "data"
DESIGN = load_design("bf16-systolic")


def put(graph, path, clock_ghz=None, design=DESIGN):
    cost = simulate(graph, design)
    return cost, *put_times(cost, match_times(graph, cost, read_times(path, clock_ghz)))


def test_ops_that_the_file_names_get_its_figures_and_the_others_keep_ours(linear_step, tmp_path) -> None:
    path = tmp_path / "times.csv"
    path.write_text("op,time_s,energy_j\nfc.forward,1e-3,2e-3\nfc.update,5e-4,\n")
    ours, theirs, coverage = put(linear_step(), path)
    before, after = ({op.name: op for op in cost.ops} for cost in (ours, theirs))
    assert (after["fc.forward"].time_s, after["fc.forward"].energy_j) == (1e-3, 2e-3)
    assert after["fc.forward"].bound == after["fc.update"].bound == "given"
    kept = ("loss", "fc.weight_grad", "fc.input_grad", "update.round_weights")
    for name in kept:
        assert msgspec.structs.replace(after[name], start_s=0) == msgspec.structs.replace(before[name], start_s=0)
    # Where the file gives no energy, ours stays, with the leakage of the new time.
    leakage_w = ours.energy_by_component_j["leakage"] / ours.time_s
    more_s = 5e-4 - before["fc.update"].time_s
    assert after["fc.update"].energy_j == pytest.approx(before["fc.update"].energy_j + leakage_w * more_s)
    assert theirs.time_s == pytest.approx(1.5e-3 + sum(before[name].time_s for name in kept))
    assert theirs.energy_j == pytest.approx(sum(op.energy_j for op in theirs.ops))
    assert theirs.energy_by_component_j["given"] == 2e-3
    for op, following in zip(theirs.ops, theirs.ops[1:], strict=False):
        assert following.start_s == pytest.approx(op.end_s)
    assert (coverage.ops_given, coverage.ops, coverage.energies_given) == (2, 6, 1)
    assert coverage.time_share == pytest.approx(1.5e-3 / theirs.time_s)


def test_cycles_need_a_clock(linear_step, tmp_path) -> None:
    path = tmp_path / "times.csv"
    path.write_text("op,cycles\nfc.forward,2000\n")
    _, theirs, _ = put(linear_step(), path, clock_ghz=2.0)
    assert (theirs.ops[0].cycles, theirs.ops[0].time_s) == (2000, pytest.approx(1e-6))
    with pytest.raises(ConfigError, match=r"times\.csv line 2: it counts cycles; .*--clock-ghz"):
        read_times(path)


def test_a_whole_step_is_divided_as_our_times_are(linear_step, tmp_path) -> None:
    (tmp_path / "step.json").write_text('{"step": {"time_s": 0.25, "energy_j": 3}}')
    (tmp_path / "step.csv").write_text("op,time_s,energy_j\nstep,0.25,3\n")
    for name in ("step.json", "step.csv"):
        ours, theirs, coverage = put(linear_step(), tmp_path / name)
        assert (theirs.time_s, theirs.energy_j) == (pytest.approx(0.25), pytest.approx(3))
        assert [op.time_s / 0.25 for op in theirs.ops] == pytest.approx([op.time_s / ours.time_s for op in ours.ops])
        assert coverage.time_share == pytest.approx(1)
        assert theirs.energy_by_component_j["given"] == pytest.approx(3)


def test_our_own_output_can_stand_in(linear_step, tmp_path) -> None:
    other = simulate(linear_step(), load_design("fp32-systolic"))
    path = tmp_path / "other.json"
    step = {"design": "fp32-systolic", "ops": other.ops[:5]}
    for document in ({"schema": 2, "designs": [step], "remarks": []}, {"schema": 1} | step):
        path.write_bytes(msgspec.json.encode(document))
        _, theirs, _ = put(linear_step(), path)
        assert [op.time_s for op in theirs.ops[:5]] == [op.time_s for op in other.ops[:5]]


@pytest.mark.parametrize(
    ("designs", "words"),
    [
        (
            [{"design": "a", "ops": []}, {"design": "b", "ops": []}],
            r"times of 2 designs \(a, b\): give the step of one",
        ),
        ([], r"\$\.designs: expected the step of one design"),
        ({"design": "a"}, r"\$\.designs: expected the step of one design"),
        ([{"design": "a", "gemm": {}, "time_s": 1.0}], 'expected {"ops"'),
    ],
)
def test_our_own_output_must_be_the_step_of_one_design(designs, words, linear_step, tmp_path) -> None:
    path = tmp_path / "ours.json"
    path.write_bytes(msgspec.json.encode({"schema": 2, "designs": designs}))
    with pytest.raises(ConfigError, match=words):
        put(linear_step(), path)


def test_the_report_of_the_real_scale_sim_gives_what_our_convention_does() -> None:
    # Made by SCALE-Sim 3.0.0 of the products of this step, in order, weight-stationary on 16 x 16.
    graph = capture_workload(load_workload("digits-mlp"), 32)
    settings = ["machine.rows=16", "machine.cols=16", "machine.dataflow.weight_grad=weight-stationary"]
    design = load_design("bf16-systolic", settings)
    _, theirs, coverage = put(graph, DATA / "digits-mlp-COMPUTE_REPORT.csv", design.machine.clock_ghz, design)
    ours = simulate(graph, design, convention="scale-sim")
    products = [(op.cycles, op.compute_s) for op in ours.ops if op.unit == "array"]
    assert [(op.cycles, pytest.approx(op.compute_s)) for op in theirs.ops if op.unit == "array"] == products
    assert (coverage.kind, coverage.ops_given) == ("scale-sim", 8)


def test_scale_sim_layers_may_be_the_forward_pass_alone(linear_step, tmp_path) -> None:
    path = tmp_path / "COMPUTE_REPORT.csv"
    header = "LayerID, Total Cycles, Stall Cycles, Overall Util %, Mapping Efficiency %, Compute Util %,\n"
    path.write_text(header + "0, 100, 0, 1, 1, 1,\n")
    _, theirs, coverage = put(linear_step(), path, 1.0)
    assert (theirs.ops[0].cycles, coverage.ops_given) == (100, 1)
    path.write_text(header + "0, 100, 0, 1, 1, 1,\n" * 2)
    with pytest.raises(ConfigError, match="2 layers, but the step has 3 matrix products, 1 of them forward"):
        put(linear_step(), path, 1.0)


def test_an_op_of_several_products_counts_its_layer_as_often(linear_step, tmp_path) -> None:
    graph = linear_step()
    several = msgspec.structs.replace(graph.ops[0], gemm=Gemm(4, 6, 3, count=5))
    graph = msgspec.structs.replace(graph, ops=(several, *graph.ops[1:]))
    path = tmp_path / "COMPUTE_REPORT.csv"
    path.write_text("LayerID, Total Cycles,\n0, 100,\n")
    _, theirs, _ = put(graph, path, 1.0)
    assert (theirs.ops[0].cycles, theirs.ops[0].time_s) == (500, pytest.approx(5e-7))


STATISTICS = """Buffer and Arithmetic Levels
    Cycles               : 7
Summary Stats
-------------
GFLOPs (@1GHz): 31.92
Utilization: 100.00%
Cycles: {cycles}
Energy: {energy} uJ
EDP(J*cycle): 6.66e-05
Area: 0.00 mm^2
"""


def test_timeloop_names_the_op_by_its_file_or_its_directory(linear_step, tmp_path) -> None:
    (tmp_path / "fc.forward.stats.txt").write_text(STATISTICS.format(cycles=1000, energy=2.5))
    (tmp_path / "fc.input_grad").mkdir()
    (tmp_path / "fc.input_grad" / "timeloop-mapper.stats.txt").write_text(STATISTICS.format(cycles=500, energy=1.5))
    _, one, coverage = put(linear_step(), tmp_path / "fc.forward.stats.txt", 1.0)
    assert (one.ops[0].time_s, one.ops[0].energy_j) == (pytest.approx(1e-6), pytest.approx(2.5e-6))
    assert (coverage.kind, coverage.ops_given) == ("timeloop", 1)
    _, both, coverage = put(linear_step(), tmp_path, 1.0)
    assert both.ops[3].time_s == pytest.approx(5e-7)
    assert coverage.energies_given == 2


@pytest.fixture(scope="module")
def profile(tmp_path_factory):
    """A real profile of two steps of digits-cnn, and the graph of one."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    workload = load_workload("digits-cnn")
    model, (inputs, targets) = workload.model(), workload.data().train
    optimizer = workload.optimizer(model.parameters())
    with profile(activities=[ProfilerActivity.CPU]) as taken:
        for _ in range(2):
            optimizer.zero_grad()
            workload.loss(model(inputs[:64]), targets[:64]).backward()
            optimizer.step()
    path = tmp_path_factory.mktemp("profile") / "trace.json"
    taken.export_chrome_trace(str(path))
    assert torch.is_grad_enabled()
    return path, taken, capture_workload(workload, 64)


def test_a_profile_of_torch_loses_no_time(profile) -> None:
    path, taken, graph = profile
    _, theirs, coverage = put(graph, path)
    given_s = sum(op.time_s for op in theirs.ops if op.bound == "given")
    whole_s = (
        sum(row.self_cpu_time_total for row in taken.key_averages() if not row.key.startswith("Optimizer.")) * 1e-6 / 2
    )
    assert given_s + coverage.unmatched_s == pytest.approx(whole_s, rel=0.02)
    assert coverage.time_share > 0.9
    convolutions = [e for e in taken.events() if e.name == "aten::convolution"]
    first = next(op for op in theirs.ops if op.name == "conv1.forward.convolution")
    # Each step runs conv1 first: call by call.
    assert first.time_s == pytest.approx(
        (convolutions[0].cpu_time_total + convolutions[2].cpu_time_total) * 1e-6 / 2, rel=0.02
    )


def test_averages_of_the_profiler_as_csv(profile, tmp_path) -> None:
    _, taken, graph = profile
    lines = ["key,count,self_cpu_time_total"]
    lines += [f"{row.key},{row.count},{row.self_cpu_time_total:.3f}" for row in taken.key_averages()]
    path = tmp_path / "averages.csv"
    path.write_text("\n".join(lines) + "\n")
    _, theirs, coverage = put(graph, path)
    times = {row.key: row.self_cpu_time_total for row in taken.key_averages()}
    addmm_s = sum(op.time_s for op in theirs.ops if op.name.endswith("forward.addmm"))
    assert addmm_s == pytest.approx(times["aten::addmm"] * 1e-6 / 2, rel=1e-3)
    assert "aten.linear" in coverage.unmatched
    (tmp_path / "printed.csv").write_text("Name,Self CUDA,# of Calls\naten::addmm,1.5ms,2\nProfilerStep*,0us,3\n")
    times = read_times(tmp_path / "printed.csv")
    assert (times.steps, times.entries[0].time_s) == (3, 1.5e-3)


def test_kernels_count_for_the_operator_that_launched_them(linear_step, tmp_path) -> None:
    def span(cat, name, ts, dur, number=0):
        return {
            "ph": "X",
            "cat": cat,
            "name": name,
            "ts": ts,
            "dur": dur,
            "pid": 1,
            "tid": 1,
            "args": {"External id": number},
        }

    events = [
        span("cpu_op", "aten::linear", 0, 50, 1),
        span("cpu_op", "aten::mm", 10, 30, 2),
        span("kernel", "gemm_tiles", 60, 7, 2),
        span("kernel", "split_k_sum", 67, 3, 2),
        span("cpu_op", "aten::mm", 100, 30, 3),
        span("kernel", "gemm_tiles", 140, 20, 3),
        span("cpu_op", "aten::mm", 200, 30, 4),
        span("kernel", "gemm_tiles", 240, 40, 4),
        span("kernel", "nobody's", 300, 5, 99),
        {"ph": "M", "name": "process_name"},
    ]
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"traceEvents": events}).encode()))
    _, theirs, coverage = put(linear_step(), path)
    products = [op.time_s for op in theirs.ops if op.unit == "array"]
    assert products == pytest.approx([10e-6, 20e-6, 40e-6])
    assert (coverage.unmatched, coverage.unmatched_s) == (("nobody's",), pytest.approx(5e-6))


def test_skipped_ops_are_left_out(linear_step, tmp_path) -> None:
    graph = linear_step()
    path = tmp_path / "times.csv"
    path.write_text("op,time_s\nfc.forward,1\nfc.update,1\n")
    cost = simulate(graph, DESIGN)
    matched = match_times(graph, cost, read_times(path))
    skipped, coverage = put_times(simulate(graph, DESIGN, StepFacts(update_skipped=True)), matched)
    assert skipped.time_s == pytest.approx(1, rel=1e-3)
    assert coverage.ops_given == 1


SPAN = '{"traceEvents": [{"ph": "X", "cat": "cpu_op", "ts": 0, "dur": 1, %s}]}'


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("t.csv", "", ["t.csv", "empty"]),
        ("t.csv", "op,time_s\n", ["no rows"]),
        ("t.csv", "op,tme_s\nfc.forward,1\n", ["line 1", "tme_s", 'did you mean "time_s"']),
        ("t.csv", "time_s\n1\n", ["line 1", '"op" is missing']),
        ("t.csv", "op,time_s\nfc.forward,1\nloss\n", ["line 3", "1 values for 2 columns"]),
        ("t.csv", "op,time_s\nfc.forward,-1\n", ["line 2", "time_s", "-1", "at least 0"]),
        ("t.csv", "op,time_s\nfc.forward,nan\n", ["line 2", "nan", "finite"]),
        ("t.csv", "op,time_s\nfc.forward,inf\n", ["line 2", "inf", "finite"]),
        ("t.csv", "op,time_s\nfc.forward,soon\n", ["line 2", "soon", "expected a number"]),
        ("t.csv", "op,time_s,energy_j\nfc.forward,1,-2\n", ["line 2", "energy_j"]),
        ("t.csv", "op,time_s\nfc.forward,\n", ["line 2", "neither time_s nor cycles"]),
        ("t.csv", "op,time_s\nfc.forwrd,1\n", ["line 2", "fc.forwrd", 'did you mean "fc.forward"']),
        ("t.csv", "op,time_s\nfc.forward,1\nfc.forward,2\n", ["line 3", "given before"]),
        ("t.csv", "op,time_s\nstep,1\nfc.forward,2\n", ["line 2", "alone"]),
        ("t.csv", "LayerID, Cycles,\n0, 1,\n", ["line 1", "Total Cycles"]),
        ("t.csv", "LayerID, Total Cycles,\n0, many,\n", ["line 2", "many"]),
        ("t.csv", "Name,Self CPU,Calls\naten::mm,often,1\n", ["line 2", "often", "microseconds"]),
        ("t.json", "{", ["line 1", "not valid JSON"]),
        ("t.json", "{}", ['"ops"']),
        ("t.json", '{"ops": [{"op": "fc.forward", "time_s": true}]}', ["$.ops[0]", "time_s"]),
        ("t.json", '{"ops": [{"time_s": 1}]}', ["$.ops[0]", "name"]),
        ("t.json", '{"traceEvents": []}', ["without operators"]),
        ("t.json", '{"traceEvents": 3}', ["list"]),
        ("t.json", '{"traceEvents": [{"ph": "X", "cat": "cpu_op", "ts": 0, "dur": -1}]}', ["[0].dur", "-1"]),
        ("t.json", '{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "a", "ts": 0}]}', ["[0].dur", "None"]),
        ("t.csv", "op,time_s,time_s\nfc.forward,1,2\n", ["line 1", '"time_s" comes twice']),
        ("t.csv", "op,,time_s\nfc.forward,,1\n", ["line 1", "column 2 has no name"]),
        ("t.csv", "op,time_s\nfc.forward,1,2\n", ["line 2", "3 values for 2 columns"]),
        ("t.csv", "op,time_s\n" + "x" * 140_000 + ",1\n", ["line 2", "not valid CSV", "131072"]),
        ("t.csv", "op,time_s\nfc.forward,1e308\nloss,1e308\nfc.update,1e308\n", ["more than a float can hold"]),
        ("t.csv", "op,time_s,energy_j\nfc.forward,1,1e308\nloss,1,1e308\n", ["more than a float can hold"]),
        ("t.csv", "op,time_s\nstep,1e308\n", ["more than a float can hold"]),
        ("t.csv", "key,count,self_cpu_time_total\naten::mm,0,1\n", ["line 2", "count", "'0'", "at least 1"]),
        ("t.csv", "key,count,self_cpu_time_total\nProfilerStep*,-3,1\n", ["line 2", "count", "'-3'"]),
        ("t.csv", "key,count,self_cpu_time_total\naten::mm,\u00b2,1\n", ["line 2", "count", "at least 1"]),
        ("t.json", '{"ops": [{"op": "fc.forward", "time_s": 1%s}]}' % ("0" * 400), ["$.ops[0]", "can hold"]),
        ("t.json", '{"ops": [{"op": "fc.forward", "time_s": 1%s}]}' % ("0" * 5000), ["thousands of digits"]),
        ("t.json", '{"ops": [{"op": "fc.forward", "time_ms": 1}]}', ["$.ops[0]", "time_ms", 'mean "time_s"']),
        ("t.json", '{"step": {"time_ms": 1}}', ["$.step", "time_ms", 'mean "time_s"']),
        ("t.json", '{"step": {"time_s": 1}, "ops": []}', ["alone"]),
        ("t.json", '{"opps": []}', ["opps", 'mean "ops"']),
        ("t.json", SPAN % '"pid": {}', ["[0].pid", "an object"]),
        ("t.json", SPAN % '"name": []', ["[0].name", "a list"]),
        ("t.json", SPAN % '"args": []', ["[0].args", "a list"]),
        ("t.json", SPAN % '"args": {"External id": []}', ["[0].args.External id", "a list"]),
        ("t.json", SPAN % f'"ts": 1{"0" * 400}', ["[0].ts", "expected a number"]),
        ("t.stats.txt", "Summary Stats\nEnergy: 1 uJ\n", ["Cycles"]),
        ("t.stats.txt", "Summary Stats\nCycles: 1\nEnergy: 1 pJ\n", ["line 3", "uJ"]),
    ],
)  # fmt: skip
def test_broken_files_are_one_message_that_says_where(linear_step, tmp_path, name, text, words) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(ConfigError) as raised:
        put(linear_step(), path, 1.0)
    for word in words:
        assert word in str(raised.value)
    assert name.partition(".")[0] in str(raised.value)
    assert "\n" not in str(raised.value)


def test_files_that_are_none(tmp_path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        read_times(tmp_path / "none.csv")
    (tmp_path / "binary.csv").write_bytes(bytes(range(128, 256)))
    with pytest.raises(ConfigError, match="not a text file"):
        read_times(tmp_path / "binary.csv")
    (tmp_path / "packed.csv").write_bytes(b"\x1f\x8b\x08\0" + bytes(range(256)))
    with pytest.raises(ConfigError, match="not a text file"):
        read_times(tmp_path / "packed.csv")
    (tmp_path / "packed.csv").write_bytes(gzip.compress(b"op,time_s\nloss,1\n")[:10] + b"garbage" * 9)
    with pytest.raises(ConfigError, match="not a text file"):
        read_times(tmp_path / "packed.csv")
    (tmp_path / "marked.csv").write_bytes(b"\xef\xbb\xbfop,time_s\nloss,1\n")
    assert read_times(tmp_path / "marked.csv").entries[0].names == ("loss",)
    with pytest.raises(ConfigError, match="no Timeloop statistics"):
        read_times(tmp_path)
    with pytest.raises(ConfigError, match="clock"):
        read_times(tmp_path, clock_ghz=-1)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("h200", ["machine.launch=eager"]),
        ("dgx-1", []),
        ("gaudi-hls-1", []),
        ("caterpillar-large", ["machine.schedule=pipelined"]),
        ("bf16-systolic", ["machine.prefetch=true"]),
    ],
)
class TestEveryMachine:
    """Machines whose ops overlap, wait for the host, or end with an all-reduce."""

    @pytest.fixture
    def step(self, name, settings):
        design, graph = load_design(name, settings), capture_workload(load_workload("digits-mlp"), 32)
        return design, graph, simulate(graph, design)

    @pytest.mark.parametrize("figures", ["1e-9,", "0.25,", "0.25,3", "0,0"])
    def test_a_step_takes_what_was_given(self, step, tmp_path, figures) -> None:
        design, graph, _ = step
        path = tmp_path / "step.csv"
        path.write_text(f"op,time_s,energy_j\nstep,{figures}\n")
        ours, theirs, coverage = put(graph, path, design=design)
        time_s, energy_j = figures.split(",")
        assert theirs.time_s == float(time_s)
        assert theirs.energy_j == pytest.approx(float(energy_j)) if energy_j else theirs.energy_j > 0
        assert coverage.time_share == 1
        assert min(op.energy_j for op in theirs.ops) >= 0
        assert min(theirs.energy_by_component_j.values()) >= 0
        stretch = float(time_s) / ours.time_s
        for old, new in zip(ours.ops, theirs.ops, strict=True):
            assert new.time_s == pytest.approx(old.time_s * stretch)
            assert new.start_s == pytest.approx(old.start_s * stretch)

    def test_our_own_figures_change_nothing(self, step, tmp_path) -> None:
        design, graph, _ = step
        for number, fields in enumerate([("name", "time_s", "energy_j"), ("name", "time_s")]):
            path = tmp_path / f"{number}.json"
            ops = [{field: getattr(op, field) for field in fields} for op in step[2].ops]
            path.write_text(json.dumps({"ops": ops}))
            ours, theirs, coverage = put(graph, path, design=design)
            assert theirs.time_s == pytest.approx(ours.time_s)
            assert theirs.energy_j == pytest.approx(ours.energy_j)
            assert [op.energy_j for op in theirs.ops] == pytest.approx([op.energy_j for op in ours.ops])
            assert [op.start_s for op in theirs.ops] == pytest.approx([op.start_s for op in ours.ops])
            assert coverage.time_share <= 1 + 1e-9

    @pytest.mark.parametrize("factor", [0.0, 0.01, 10.0])
    def test_shorter_ops_never_give_energy_back(self, step, tmp_path, factor) -> None:
        design, graph, cost = step
        path = tmp_path / "ops.json"
        some = cost.ops[::2]
        path.write_text(json.dumps({"ops": [{"op": op.name, "time_s": op.time_s * factor} for op in some]}))
        ours, theirs, coverage = put(graph, path, design=design)
        assert theirs.time_s >= 0
        if ours.host_s:  # the chip waits for its host as before
            assert theirs.time_s == pytest.approx(ours.host_s)
        else:
            assert (theirs.time_s >= ours.time_s) == (factor > 1)
        assert (theirs.energy_j >= ours.energy_j) == (factor > 1)
        assert min(op.energy_j for op in theirs.ops) >= 0
        assert min(theirs.energy_by_component_j.values()) >= 0
        ours_rest_j, rest_j = (each.energy_j - sum(op.energy_j for op in each.ops) for each in (ours, theirs))
        if not ours.host_s:
            assert rest_j == pytest.approx(ours_rest_j, abs=1e-9 * ours.energy_j)
        assert 0 <= coverage.time_share <= 1


def test_the_leakage_of_a_pipeline_is_that_of_its_new_time(tmp_path) -> None:
    design = load_design("caterpillar-large")
    graph = capture_workload(load_workload("digits-mlp"), 32)
    cost = simulate(graph, design)
    path = tmp_path / "ops.csv"
    path.write_text(f"op,time_s\n{cost.ops[0].name},{cost.time_s}\n")
    ours, theirs, _ = put(graph, path, design=design)
    power_w = ours.energy_by_component_j["leakage"] / ours.time_s
    assert ours.time_s < theirs.time_s < 2 * ours.time_s
    assert theirs.energy_by_component_j["leakage"] == pytest.approx(power_w * theirs.time_s)


def test_a_step_in_cycles_has_those_cycles(linear_step, tmp_path) -> None:
    path = tmp_path / "step.csv"
    path.write_text("op,cycles\nstep,12345\n")
    _, theirs, _ = put(linear_step(), path, clock_ghz=1.0)
    assert (theirs.cycles, theirs.time_s) == (12345, pytest.approx(12345e-9))
    assert sum(op.cycles for op in theirs.ops) == pytest.approx(12345, abs=len(theirs.ops))


@pytest.mark.parametrize("name", ["h200", "bf16-systolic", "caterpillar-small"])
def test_times_a_little_longer_than_ours_change_utilization_as_little(name) -> None:
    graph, design = capture_workload(load_workload("digits-mlp"), 32), load_design(name)
    ours = simulate(graph, design)
    for factor in (1.0, 1.01, 2.0):
        entries = tuple(ForeignTime(names=(op.name,), time_s=factor * op.time_s) for op in ours.ops)
        times = ForeignTimes(source="by hand", kind="presilicon", matching="op", entries=entries)
        theirs, coverage = put_times(ours, match_times(graph, ours, times))
        assert theirs.utilization == pytest.approx(ours.utilization / factor)
        assert coverage.ops_given == len(ours.ops)
        assert (theirs == ours) == (factor == 1.0)


@pytest.mark.parametrize("slower", [0.1, 1.0, 2.0, 10.0, 1000.0])
@pytest.mark.parametrize("launch", ["eager", "graph", "compile"])
def test_replaced_times_on_a_card_are_priced_with_its_host(slower, launch) -> None:
    graph = capture_workload(load_workload("digits-mlp"), 32)
    cost = simulate(graph, load_design("h200", [f"machine.launch={launch}"]))
    entries = tuple(ForeignTime(names=(op.name,), time_s=slower * op.time_s, place="test") for op in cost.ops)
    times = ForeignTimes(source="test", kind="presilicon", matching="op", entries=entries)
    theirs, _ = put_times(cost, match_times(graph, cost, times))
    device_s = slower * sum(op.time_s for op in cost.ops)
    assert theirs.time_s == pytest.approx(max(device_s, cost.host_s))
    assert launch == "graph" or cost.host_s > 0
    assert max(op.end_s for op in theirs.ops) <= theirs.time_s * (1 + 1e-9)
