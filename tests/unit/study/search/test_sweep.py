"""Studies: simulated, continued after an interruption, trained, and with one design chosen."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections import Counter
from dataclasses import replace
from importlib.resources import files

import pytest

import presilicon as ps
from presilicon.base import ConfigError
from presilicon.records import DecisionEvent
from presilicon.report import render_sweep
from presilicon.runs import list_runs
from presilicon.simulation import area
from presilicon.study import StepGraphs
from presilicon.study.search.points import Point
from presilicon.study.search.table import POINTS_FILE, PointTable, read_points

SMALL = {
    "designs": "edge-bf16",
    "workloads": "digits-mlp",
    "vary": {"machine": {"rows": [8, 16, 32], "cols": [8, 16]}, "numerics": ["bf16", "fp32"]},
}
TRAINED = {
    "designs": "edge-bf16",
    "workloads": "digits-mlp",
    "vary": {"machine": {"rows": [16, 32]}, "numerics": ["bf16", "fp32"]},
    "train": {"seeds": 1, "max_steps": 60, "target": 0.7},
}


def test_an_axis_without_effect_is_named(tmp_path):
    axes = {"machine.cores.parallel": ["data", "tile"], "machine.rows": [8, 16]}
    result = ps.sweep({"designs": "edge-bf16", "workloads": "digits-mlp", "vary": axes}, out=tmp_path, jobs=1)
    remark, areas = result.remarks
    assert areas == "areas: from technology horowitz-45nm"
    assert remark.startswith("machine.cores.parallel has no effect here")
    assert remark in render_sweep(result)


@pytest.mark.parametrize("training", [{}, {"train": TRAINED["train"]}])
def test_taps_that_match_no_layer_are_refused_before_training(tmp_path, monkeypatch, training):
    monkeypatch.setattr("presilicon.study.join.seeds.run_seed", None)
    tap = '{name = "into", layers = "nothing*", role = "activation", aggregation = "summary"}'
    design = tmp_path / "tapped.toml"
    design.write_text(f'name = "tapped"\nbase = "edge-bf16"\n[instrument]\ntaps = [{tap}]\n')
    with pytest.raises(ConfigError, match=r'"nothing\*" of tap "into" matches no layer'):
        ps.sweep({"designs": str(design), "workloads": "digits-mlp", **training}, out=tmp_path / "runs", jobs=1)


def test_a_point_costs_what_simulate_says(tmp_path):
    result = ps.sweep(SMALL, out=tmp_path, jobs=1)
    assert len(result.records) == 12
    graph = StepGraphs(ps.load_workload("digits-mlp"))()
    for record in (result.records[0], result.records[7]):
        rows, cols, numerics = record.values.values()
        settings = [f"machine.rows={rows}", f"machine.cols={cols}"]
        design = ps.load_design("edge-bf16", settings, numerics=numerics)
        cost = ps.simulate(graph, design)
        assert record.metrics["time_per_step_s"] == cost.time_s
        assert record.metrics["energy_per_sample_j"] == cost.energy_j / 32
        assert record.metrics["power_w"] == cost.energy_j / cost.time_s
        assert record.metrics["area_mm2"] == area(design).mm2


def test_points_that_differ_in_the_learning_rate_only_share_a_price(tmp_path, monkeypatch):
    from presilicon.study.join import prices

    priced = []
    monkeypatch.setattr(prices, "simulate", lambda *a, **k: priced.append(1) or ps.simulate(*a, **k))
    study = {**SMALL, "vary": {"learning_rate": [0.1, 0.2, 0.3], "machine": {"rows": [8, 16]}}}
    result = ps.sweep(study, out=tmp_path, jobs=1)
    assert len(result.records) == 6
    assert len(priced) == 2


class StopError(Exception):
    pass


def test_an_interrupted_study_continues_and_simulates_no_point_twice(tmp_path):
    def stop_half_way(progress):
        if progress.done >= 6:
            raise StopError

    with pytest.raises(StopError):
        ps.sweep(SMALL, out=tmp_path, jobs=1, on_progress=stop_half_way)
    (run,) = list_runs(tmp_path)
    half = read_points(run.path)
    assert 6 <= len(half) < 12
    with (run.path / POINTS_FILE).open("ab") as file:
        file.write(b'{"key":"torn')  # as a kill in the middle of a write leaves it
    seen = []
    result = ps.sweep(SMALL, out=tmp_path, jobs=1, on_progress=seen.append)
    assert seen[0].total == 12 - len(half)
    assert result.path == run.path
    assert read_points(run.path)[: len(half)] == half
    assert Counter(record.key for record in read_points(run.path)) == Counter(r.key for r in result.records)
    assert (run.path / POINTS_FILE).read_bytes().count(b"\n") == 12 + 1  # the torn line stays, and swallows none
    whole = ps.sweep(SMALL, out=tmp_path / "other", jobs=1)
    assert result.rows() == whole.rows()


def test_a_finished_study_is_read_and_another_one_is_not_mistaken_for_it(tmp_path):
    first = ps.sweep(SMALL, out=tmp_path, jobs=1)
    seen = []
    assert ps.sweep(SMALL, out=tmp_path, on_progress=seen.append).rows() == first.rows()
    assert seen == []
    other = ps.sweep({**SMALL, "vary": {"machine": {"rows": [8]}}}, out=tmp_path, jobs=1)
    assert other.path != first.path
    assert ps.sweep(SMALL, out=tmp_path, jobs=1, new=True).path not in (first.path, other.path)


def test_the_frame_has_a_row_per_point_and_marks_the_front(tmp_path):
    pandas = pytest.importorskip("pandas")
    frame = ps.sweep({**SMALL, "subject_to": "area_mm2 <= 12"}, out=tmp_path, jobs=1).frame()
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame["point"]) == list(range(1, 13))
    assert (frame["feasible"] == (frame["area_mm2"] <= 12)).all()
    assert 0 < frame["front"].sum() < len(frame)
    assert not (frame["front"] & ~frame["feasible"]).any()


def test_points_that_train_alike_share_a_training_and_each_has_a_run(tmp_path):
    result = ps.sweep(TRAINED, out=tmp_path, jobs=1)
    trained = list((result.path / "trainings").glob("*.safetensors"))
    assert len(trained) == 2  # two numerics, one seed
    runs = list_runs(result.path / "points")
    assert [run.name for run in runs] == ["00001", "00002", "00003", "00004"]
    record = result.records[3]
    assert (record.stage, record.run) == ("trained", "points/00004")
    design = ps.load_design("edge-bf16", ["machine.rows=32"], numerics="fp32")
    alone = ps.evaluate(design, replace(ps.load_workload("digits-mlp"), max_steps=60, target=0.7), seeds=1)
    assert record.metrics["time_s"] == alone.time_to_accuracy_s.median
    assert record.metrics["energy_j"] == alone.energy_to_accuracy_j.median
    assert record.metrics["accuracy"] == alone.value
    assert result.objectives == ("time_s", "energy_j", "area_mm2")


def test_a_study_killed_while_it_records_points_writes_each_once(tmp_path):
    def stop(progress):
        if progress.stage == "record" and progress.done == 2:
            raise StopError

    with pytest.raises(StopError):
        ps.sweep(TRAINED, out=tmp_path, jobs=1, on_progress=stop)
    (run,) = list_runs(tmp_path)
    (run.path / "points" / "00003").mkdir()  # as a kill in the middle of recording leaves it
    result = ps.sweep(TRAINED, out=tmp_path, jobs=1)
    assert sorted(path.name for path in (run.path / "points").iterdir()) == ["00001", "00002", "00003", "00004"]
    assert all(stored.status == "finished" for stored in list_runs(run.path / "points"))
    stages = Counter((record.key, record.stage) for record in read_points(run.path))
    assert set(stages.values()) == {1}
    assert len(result.records) == 4


def test_a_choice_meets_its_limits_names_its_evidence_and_can_be_evaluated(tmp_path):
    study = {
        **TRAINED,
        "vary": {"machine": {"rows": [16, 32]}, "numerics": ["bf16", "fp8-hybrid", "fp32"]},
        "subject_to": ["area_mm2 <= 16", "accuracy >= 0.5"],
        "choose": {"best": 1, "few_steps": 30},
    }
    first = ps.sweep(study, out=tmp_path, jobs=1)
    assert first.recommendation.breaches is None
    study["choose"]["sensitivity"] = True  # the same study with an addition, which needs no training
    trained = []
    result = ps.sweep(study, out=tmp_path, jobs=1, on_event=trained.append)
    assert result.path == first.path
    assert {type(event).__name__ for event in trained} == {"SeedRestored"}
    choice = result.recommendation
    assert (choice.design, choice.metrics) == (first.recommendation.design, first.recommendation.metrics)
    assert choice.metrics["area_mm2"] <= 16
    assert choice.reference == "edge-bf16 (reference)"
    assert {design.name for design in choice.comparison.designs} >= {choice.reference, choice.design}
    assert choice.comparison.sensitivity is not None
    design = ps.load_design(str(result.path / "recommended.toml"))
    assert area(design).mm2 == choice.metrics["area_mm2"]
    (run,) = list_runs(tmp_path)
    decisions = {event.number: event for event in run.events(DecisionEvent) if event.decision != "tried"}
    assert decisions[6].decision == "refused"  # fp32 on 32 rows is too large
    assert "area_mm2" in decisions[6].reason
    assert decisions[1].decision == "outdone"  # bf16 on 16 rows trains as it does on 32, but slower
    assert [event.number for event in run.events(DecisionEvent) if event.decision == "recommended"] == [choice.number]
    again = ps.sweep(study, out=tmp_path, jobs=1)
    assert again.recommendation == choice


def test_finalists_whose_labels_are_alike_keep_their_own_prices(tmp_path):
    recipes = {"wide": "bfloat16", "narrow": "e4m3"}
    for folder, name in recipes.items():
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "own.toml").write_text(f'weight = "{name}"\nactivation = "{name}"\nerror = "{name}"\n')
    paths = [str(tmp_path / folder / "own.toml") for folder in recipes]
    study = {**TRAINED, "vary": {"numerics": paths}, "choose": {"best": 2}}
    result = ps.sweep(study, out=tmp_path / "runs", jobs=1)
    by_name = {design.name: design for design in result.recommendation.comparison.designs}
    assert len(by_name) == 3
    for number, path in enumerate(paths, start=1):
        alone = ps.simulate(StepGraphs(ps.load_workload("digits-mlp"))(), ps.load_design("edge-bf16", numerics=path))
        assert by_name[f"edge-bf16[numerics=own.toml] (point {number})"].energy_per_step_j == alone.energy_j


def test_a_choice_that_changes_the_workload_says_so_and_compares_in_samples(tmp_path):
    study = {
        **TRAINED,
        "vary": {"batch": [32, 64], "machine": {"rows": 16}},
        "subject_to": ["area_mm2 <= 14", "accuracy >= 0.904"],
        "train": {"seeds": 1, "max_steps": 60, "evaluate_every": 10, "target": 0.7},
        "choose": {},
    }
    result = ps.sweep(study, out=tmp_path, jobs=1)
    choice = result.recommendation
    assert choice.options == "--batch 32"
    assert "# trained with --batch 32\n" in (result.path / "recommended.toml").read_text()
    assert not any("batch size" in words or "samples" in words for words in choice.comparison.fairness.held_equal)
    assert any(words.startswith("batch_size: ") for words in choice.comparison.fairness.differing)
    (relaxation,) = choice.relaxations  # larger batches are faster, and less accurate than the limit
    assert (relaxation.number, relaxation.trains_alike) == (2, False)
    assert relaxation.gain > 1
    assert relaxation.value < 0.904


def test_points_without_a_method_ignore_its_parameters(tmp_path):
    vary = {"methods": ["none", "magnitude-pruning"], "method": {"magnitude-pruning": {"columns": [8, 16]}}}
    result = ps.sweep({**SMALL, "vary": vary}, out=tmp_path, jobs=1)
    points = [Point(number=0, workload="", design=r.design, values=r.values) for r in result.records]
    assert [len(point.load_design().methods) for point in points] == [0, 0, 1, 1]


def test_files_are_found_beside_the_study_and_their_contents_count(tmp_path, monkeypatch):
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "mine.toml").write_text('weight = "bfloat16"\n')
    table = (files("presilicon.designs") / "technologies" / "horowitz-45nm.toml").read_text()
    (folder / "table.toml").write_text(table)
    (folder / "study.toml").write_text(
        'designs = "edge-bf16"\nworkloads = "digits-mlp"\n'
        '[vary]\nnumerics = "mine.toml"\nmachine.technology = ["table.toml"]\n'
    )
    monkeypatch.chdir(tmp_path)
    first = ps.sweep("elsewhere/study.toml", out="runs", jobs=1)
    assert first.records[0].values == {
        "numerics": str(folder / "mine.toml"),
        "machine.technology": str(folder / "table.toml"),
    }
    assert ps.sweep(folder / "study.toml", out="runs", jobs=1).path == first.path
    (folder / "table.toml").write_text(table + "\n# changed\n")
    assert ps.sweep("elsewhere/study.toml", out="runs", jobs=1).path != first.path


def test_equal_choices_have_equal_keys_and_the_table_takes_each_once(tmp_path):
    result = ps.sweep(SMALL, out=tmp_path, jobs=1)
    table = PointTable(result.path)
    table.append(result.records)
    assert len(read_points(result.path)) == len(result.records)


BAD = [
    ({"desings": "edge-bf16"}, 'unknown key "desings": did you mean "designs"'),
    ({"designs": "edge-bf61"}, 'did you mean "edge-bf16"'),
    ({"workloads": "digits-mpl"}, 'did you mean "digits-mlp"'),
    ({"vary": {"machine": {"rowz": [1]}}}, 'unknown key "rowz": did you mean "rows"'),
    ({"vary": {"machine": {"rows": [8, -1]}}}, "vary.machine.rows"),
    ({"vary": {"numerics": ["bf61"]}}, "vary.numerics"),
    ({"vary": {"methods": ["tensordsh"]}}, "tensordash"),
    ({"vary": {"batch": [0]}}, "vary.batch"),
    ({"subject_to": "aera_mm2 <= 5"}, 'did you mean "area_mm2"'),
    ({"subject_to": "area_mm2 <= 1"}, 'no point can meet "area_mm2 <= 1"'),
    ({"subject_to": "power_w <= 0.001"}, 'no point can meet "power_w <= 0.001": the nearest'),
    ({"subject_to": ["area_mm2 <= 5", "area_mm2 >= 6"]}, "no point can meet both"),
    ({"subject_to": "power_w <= 0"}, "never below 0"),
    ({"train": {}, "subject_to": "accuracy >= 1.5"}, "accuracy is at most 1"),
    ({"train": {"seeds": 0}}, "seeds"),
    ({"workloads": "resnet50", "train": {}}, "no data"),
    ({"search": {"sampler": "random"}}, "say how many points"),
    ({"search": {"sampler": "grd"}}, 'did you mean "grid"'),
    ({"vary": {"machine": {"rows": {"from": 8, "to": 64}}}}, "a grid needs a list of values"),
    ({"choose": {}, "workloads": ["digits-mlp", "digits-cnn"]}, "one workload"),
    ({"objectives": "tiem_s"}, "unknown objective"),
    ({"designs": ["edge-bf16", "h200"]}, "no point of design h200 is possible"),
    ({"vary": {"machine": {"rows": {"from": 8, "to": 64, "stp": 8}}}}, "stp"),
    ({"vary": {"learning_rate": ["x"]}}, "vary.learning_rate: must be a number, not 'x'"),
    ({"vary": {"accumulate": ["x"]}}, "vary.accumulate"),
    ({"vary": {"optimizer": [5]}}, "vary.optimizer"),
    ({"vary": {"schedule": [5]}}, "vary.schedule"),
    ({"vary": {"numerics": [5]}}, "vary.numerics"),
    ({"vary": {"methods": [5]}}, "vary.methods"),
    ({"vary": {"workload": ["digits-cnn"]}}, "workloads = [...]"),
    ({"subject_to": ["accuracy >= 0.5"]}, "accuracy is known after training only; add [train]"),
    ({"objectives": ["area_mm2", "area_mm2"]}, "objectives: area_mm2 is there twice"),
    ({"train": {"max_steps": 5}}, "max_steps is 5"),
    ({"choose": {"few_steps": 1}}, "choose.few_steps must be at least"),
]


@pytest.mark.parametrize(("change", "message"), BAD)
def test_bad_studies_are_refused_before_the_first_run(tmp_path, change, message):
    with pytest.raises(ConfigError) as caught:
        ps.sweep({**SMALL, **change}, out=tmp_path / "runs", jobs=1)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    if "power_w <= 0.001" not in message:  # known only after simulation
        assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_a_thousand_points_survive_kill_9_and_none_is_doubled(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent("""
            import presilicon as ps

            if __name__ == "__main__":
                machine = {"rows": list(range(4, 44)), "cols": list(range(4, 29))}
                study = {"designs": "edge-bf16", "workloads": "digits-mlp", "vary": {"machine": machine}}
                print(len(ps.sweep(study, out="runs", jobs=2).records))
        """)
    )
    killed = 0
    for wanted in (100, 500):
        process = subprocess.Popen([sys.executable, str(script)], cwd=tmp_path, start_new_session=True)
        while process.poll() is None and sum(map(_lines, tmp_path.glob("runs/*/points.jsonl"))) < wanted:
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGKILL)
        killed += process.wait() == -signal.SIGKILL
    assert killed == 2
    done = subprocess.run([sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "1000"
    (run,) = list_runs(tmp_path / "runs")
    assert len(run.record.resumed) == 2
    records = read_points(run.path)
    assert len({record.key for record in records}) == len(records) == 1000
    assert sorted(record.number for record in records) == list(range(1, 1001))


def _lines(path):
    return path.read_bytes().count(b"\n")


def test_designs_that_cannot_be_trained_are_refused_and_the_others_compared(tmp_path, monkeypatch):
    from presilicon.study.search import training

    load = training.load_record

    def fail_on_fp32(point, *rest):
        if point.values.get("numerics") == "fp32":
            raise ConfigError("this one cannot be trained")
        return load(point, *rest)

    monkeypatch.setattr(training, "load_record", fail_on_fp32)
    swept = ps.sweep(TRAINED, out=tmp_path, jobs=1)
    assert [bool(record.error) for record in swept.records] == [False, True, False, True]
    chosen = ps.sweep({**TRAINED, "choose": {"best": 1, "few_steps": 30}}, out=tmp_path, jobs=1)
    assert chosen.recommendation.metrics["area_mm2"] < 16
    refused = [event for event in list_runs(tmp_path)[-1].events(DecisionEvent) if event.decision == "refused"]
    assert [event.reason for event in refused] == ["this one cannot be trained"]
