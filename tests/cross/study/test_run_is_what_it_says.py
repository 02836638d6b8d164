"""A run is what it says: nothing outside of its record changes its bits, and nothing in it changes unnoticed."""

import json
import random
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import presilicon as ps
from oracles.worker_tasks import EVENTS, die_once, emit_many
from presilicon.base import ConfigError
from presilicon.emulation import Checkpoint, SavedRun, TrainingRecord, isolated, train
from presilicon.emulation.training.batches import WrittenInputWarning
from presilicon.records import EvaluationEvent, Trace
from presilicon.runs import EVENTS_FILE, EventLog, create_run, read_events
from presilicon.study.instrumented import stream_file
from presilicon.study.pool import LocalPool, TaskBatch
from presilicon.workloads import Splits, Workload, load_workload, sgd, splits_digest

NUMERICS = ps.load_design("bf16-systolic").numerics


def data(shift: float = 0.0) -> Splits:
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(192, 8, generator=generator) + shift
    targets = (inputs[:, :4].sum(1) > inputs[:, 4:].sum(1)).long()
    parts = [(inputs[start : start + 64], targets[start : start + 64]) for start in (0, 64, 128)]
    return Splits(*parts)


def model(width: int = 16) -> nn.Module:
    return nn.Sequential(nn.Linear(8, width), nn.ReLU(), nn.Linear(width, 2))


QUICK = Workload(
    name="quick", model=model, data=data, target=0.999, optimizer=partial(sgd, learning_rate=0.1), batch_size=16,
    max_steps=20, evaluate_every=5, sustain=1,
)  # fmt: skip


def bits(trace: Trace) -> tuple[Any, ...]:
    return trace.losses, trace.evaluations, trace.test_value


# One: what is trained is identified by what it does.

CHANGES: dict[str, Callable[[], dict[str, Any]]] = {
    "a lambda": lambda: {"model": lambda: model(24)},
    "a dict in a partial": lambda: {"model": partial(lambda options: model(**options), {"width": 24})},
    "data": lambda: {"data": lambda: data(0.5)},
    "rate": lambda: {"optimizer": lambda parameters: sgd(parameters, learning_rate=0.01)},
    "a default argument": lambda: {"loss": _loss(2.0)},
}


def _loss(factor: float) -> Callable[..., torch.Tensor]:
    def loss(output: torch.Tensor, target: torch.Tensor, by: float = factor) -> torch.Tensor:
        return by * nn.functional.cross_entropy(output, target)

    return loss


PLAIN: dict[str, Any] = {
    "model": lambda: model(16),
    "data": lambda: data(0.0),
    "optimizer": lambda parameters: sgd(parameters, learning_rate=0.1),
    "loss": _loss(1.0),
}


@pytest.mark.parametrize("changed", CHANGES)
def test_a_checkpoint_of_other_functions_is_refused(tmp_path: Path, changed: str) -> None:
    base = replace(QUICK, **PLAIN)
    other = replace(base, **CHANGES[changed]())
    checkpoint = Checkpoint(tmp_path / "run.safetensors")
    first = train(base, NUMERICS, checkpoint=checkpoint)
    assert bits(first) != bits(train(other, NUMERICS))
    with pytest.raises(ConfigError, match="belongs to a run with a different"):
        train(other, NUMERICS, checkpoint=checkpoint)
    assert bits(train(replace(QUICK, **PLAIN), NUMERICS, checkpoint=checkpoint)) == bits(first)


def test_a_file_that_changed_is_another_run(tmp_path: Path) -> None:
    file = tmp_path / "width.txt"
    file.write_text("16")
    workload = replace(QUICK, model=partial(_model_of, file))
    checkpoint = Checkpoint(tmp_path / "run.safetensors")
    train(workload, NUMERICS, checkpoint=checkpoint)
    file.write_text("24")
    with pytest.raises(ConfigError, match=r"different workload\.model"):
        train(workload, NUMERICS, checkpoint=checkpoint)


def _model_of(file: Path) -> nn.Module:
    return model(int(file.read_text()))


def test_data_count_by_their_bytes_wherever_they_come_from(tmp_path: Path) -> None:
    source = [data(0.0)]
    workload = replace(QUICK, data=partial(_first, _Box(source)))
    assert splits_digest(data(0.0)).digest == splits_digest(data(0.0)).digest != splits_digest(data(0.1)).digest
    checkpoint = Checkpoint(tmp_path / "run.safetensors")
    train(workload, NUMERICS, checkpoint=checkpoint)
    source[0] = data(0.5)
    with pytest.raises(ConfigError, match="different data"):
        train(workload, NUMERICS, checkpoint=checkpoint)


class _Box:
    """A source whose content nothing shows, as that of a database."""

    def __init__(self, source: list[Any]) -> None:
        self._source = source

    def __reduce_ex__(self, protocol: Any) -> Any:
        return str, ()

    def first(self) -> Any:
        return self._source[0]


def _first(box: _Box) -> Any:
    return box.first()


def test_what_cannot_be_compared_is_never_reused(tmp_path: Path) -> None:
    lock = threading.Lock()

    def locked() -> nn.Module:
        with lock:
            return model()

    checkpoint = Checkpoint(tmp_path / "run.safetensors")
    train(replace(QUICK, model=locked), NUMERICS, checkpoint=checkpoint)
    with pytest.raises(ConfigError, match=r"depends on model: lock \(lock\)"):
        train(replace(QUICK, model=locked), NUMERICS, checkpoint=checkpoint)


FILE = """
import presilicon as ps
import tiny_helper
from torch import nn
import torch

def model():
    return tiny_helper.net()

def data():
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(96, 4, generator=generator)
    parts = [(inputs[i:i + 32], (inputs[i:i + 32, 0] > 0).long()) for i in (0, 32, 64)]
    return ps.Splits(*parts)

workload = ps.Workload(name="tiny", model=model, data=data, target=0.99, batch_size=8, max_steps=12, evaluate_every=4,
                       sustain=1)
"""
HELPER = "from torch import nn\ndef net():\n    return nn.Linear(4, 2{})\n"


def _write(folder: Path, helper: str, text: str = FILE) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "tiny_helper.py").write_text(helper)
    (folder / "tiny.py").write_text(text)
    return folder / "tiny.py"


@pytest.fixture
def clean_helper() -> Iterator[None]:
    path = list(sys.path)
    yield
    sys.modules.pop("tiny_helper", None)
    sys.path[:] = path


def _identity(file: Path) -> dict[str, Any]:
    workload = load_workload(file)
    return TrainingRecord(workload, NUMERICS).identity(splits_digest(workload.require_data()[0]()))


def test_each_input_of_a_file_makes_another_identity_and_its_looks_do_not(tmp_path: Path, clean_helper: None) -> None:
    helper = HELPER.format("")
    first = _identity(_write(tmp_path / "a", helper))
    same = {
        "comments": (helper + "# a remark\n", FILE.replace("def model", "# the network\ndef model")),
        "layout": (helper.replace("(4, 2", "(4,\n     2"), FILE.replace("ps.Workload(", "ps.Workload(\n")),
        "order": (helper, FILE.replace("batch_size=8, max_steps=12", "max_steps=12, batch_size=8")),
        "unused": (helper + "SPARE = 3\n", FILE + "\nSPARE = 4\n"),
    }  # fmt: skip
    other = {
        "imported helper": (HELPER.format(", bias=False"), FILE),
        "function body": (helper, FILE.replace("tiny_helper.net()", "nn.Sequential(tiny_helper.net())")),
        "data": (helper, FILE.replace("manual_seed(0)", "manual_seed(1)")),
        "field": (helper, FILE.replace("batch_size=8", "batch_size=4")),
    }
    for parts in same.values():
        assert _identity(_write(tmp_path / "a", *parts)) == first
    for name, parts in other.items():
        assert _identity(_write(tmp_path / "a", *parts)) != first, name
    assert _identity(_write(tmp_path / "a", helper)) == first


def test_a_place_makes_no_other_identity(tmp_path: Path, clean_helper: None) -> None:
    first = _identity(_write(tmp_path / "a", HELPER.format("")))
    assert _identity(_write(tmp_path / "b", HELPER.format(""))) == first
    # Another folder has helpers of its own, though their names and the file's text are the same.
    assert _identity(_write(tmp_path / "c", HELPER.format(", bias=False"))) != first
    assert _identity(tmp_path / "a" / "tiny.py") == first


def test_an_edited_helper_is_trained_and_not_the_old_one(tmp_path: Path, clean_helper: None) -> None:
    for bias, count in (("", 2), (", bias=False", 1), ("", 2)):
        workload = load_workload(_write(tmp_path, HELPER.format(bias)))
        assert len(list(workload.model().parameters())) == count
        result = ps.evaluate("bf16-systolic", workload, seeds=1)
        assert result.provenance["workload"]["model"] == workload.describe()["model"]


def test_an_edited_format_is_another_training() -> None:
    from presilicon.designs import Numerics, RoleFormat
    from presilicon.formats import UserFormat

    def numerics(step: float) -> Numerics:
        def as_float(code: int) -> float:
            return (code - 128) * step

        fmt = UserFormat("users_steps", fields=(("c", 8),), as_float=as_float)
        return Numerics(weight=RoleFormat(format=fmt))

    content = splits_digest(data())
    first, second, third = (TrainingRecord(QUICK, numerics(step)).identity(content) for step in (0.01, 0.02, 0.01))
    assert first == third != second


# Two: what prices depend on.


def test_times_clocks_and_tables_are_part_of_a_configuration(tmp_path: Path) -> None:
    from presilicon.study.join.plan import EvaluationPlan

    design = ps.load_design("bf16-systolic")
    file = tmp_path / "times.csv"
    file.write_text("op,time_s\n")
    configs = [
        EvaluationPlan(designs=(design,), workload=QUICK, times=file).config(),
        EvaluationPlan(designs=(design,), workload=QUICK, times=file, clock_ghz=2.0).config(),
    ]
    file.write_text("op,time_s\na,1\n")
    configs.append(EvaluationPlan(designs=(design,), workload=QUICK, times=file).config())
    assert len({json.dumps(config, sort_keys=True) for config in configs}) == 3

    from importlib.resources import files

    table = json.loads((files("presilicon.simulation.roofline") / "cards" / "h200.json").read_text())
    own = tmp_path / "card.json"
    digests, times = [], []
    for fixed_us in (1.0, 50.0):
        for group in table["groups"].values():
            group["fixed_us"] = fixed_us
        own.write_text(json.dumps(table))
        card = ps.load_design("h200", settings=[f"machine.measured={own}"])
        digests.append(EvaluationPlan(designs=(card,), workload=QUICK).config()["tables"])
        times.append(ps.simulate(ps.capture(model(), torch.zeros(4, 8)), card).time_s)
    assert digests[0] != digests[1]
    assert times[0] < times[1]  # the file was read again


# Four: the caller's settings.


def _set_everything() -> None:
    torch.set_float32_matmul_precision("medium")
    torch.set_flush_denormal(True)
    torch.set_num_threads(2)
    torch.manual_seed(99)
    random.seed(99)
    np.random.seed(99)


@pytest.fixture
def restored() -> Iterator[None]:
    before = torch.get_float32_matmul_precision(), torch.get_num_threads()
    yield
    torch.set_float32_matmul_precision(before[0])
    torch.set_flush_denormal(False)
    torch.set_default_dtype(torch.float32)
    torch.set_num_threads(before[1])


def test_settings_of_the_caller_change_nothing_and_stay(restored: None) -> None:
    plain = bits(train(QUICK, NUMERICS))
    _set_everything()
    states = random.getstate(), torch.get_rng_state()
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        assert bits(train(QUICK, NUMERICS)) == plain
        assert torch.is_autocast_enabled("cpu")
    assert torch.get_float32_matmul_precision() == "medium"
    assert torch.get_num_threads() == 2
    assert float(torch.tensor(1e-310, dtype=torch.float64) * 1) == 0
    assert random.getstate() == states[0]
    assert torch.equal(torch.get_rng_state(), states[1])
    torch.set_default_dtype(torch.float64)
    assert bits(train(QUICK, NUMERICS)) == plain
    with torch.inference_mode():
        assert bits(train(QUICK, NUMERICS)) == plain


def test_two_threads_train_one_after_the_other() -> None:
    expected = [bits(train(QUICK, NUMERICS, seed=seed)) for seed in range(2)]
    found: dict[int, Any] = {}
    threads = [
        threading.Thread(target=lambda seed=seed: found.update({seed: bits(train(QUICK, NUMERICS, seed=seed))}))
        for seed in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[seed] for seed in range(2)] == expected


def test_isolation_is_for_one_thread_at_a_time() -> None:
    inside: list[int] = []

    def enter(number: int) -> None:
        with isolated("cpu"):
            inside.append(number)
            assert len(inside) == 1
            threading.Event().wait(0.01)
            inside.remove(number)

    threads = [threading.Thread(target=enter, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert inside == []


# Five: randomness.


class Drawn(nn.Module):
    """Draws from all generators: at first, and in every pass."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = model()
        with torch.no_grad():
            self.inner[0].weight += random.random() + float(np.random.rand())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) * (random.random() + np.random.rand() + float(torch.rand(())))


def permuted() -> Splits:
    whole = data()
    order = torch.randperm(64)
    return Splits((whole.train[0][order], whole.train[1][order]), whole.validation, whole.test)


def test_all_generators_are_the_runs_own(tmp_path: Path) -> None:
    workload = replace(QUICK, model=Drawn, data=permuted)
    traces = []
    for state in (1, 2):
        random.seed(state)
        np.random.seed(state)
        torch.manual_seed(state)
        traces.append(bits(train(workload, NUMERICS)))
    assert traces[0] == traces[1] != bits(train(workload, NUMERICS, seed=1))
    # An interrupted run goes on with the same numbers.
    checkpoint = Checkpoint(tmp_path / "run.safetensors", every=1)

    def stop(point: Any) -> None:
        if point.step == 10:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(workload, NUMERICS, checkpoint=checkpoint, on_evaluation=stop)
    assert bits(train(workload, NUMERICS, checkpoint=checkpoint)) == traces[0]


def test_a_model_that_draws_in_evaluation_trains_the_same_however_often_it_is_evaluated() -> None:
    often, seldom = (train(replace(QUICK, model=Drawn, evaluate_every=every), NUMERICS) for every in (1, 10))
    assert often.losses == seldom.losses


# Six: memory.


class Writing(nn.Module):
    """Changes its input in place."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = model()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x.mul_(0.5))


def test_a_model_that_writes_into_its_input_spoils_no_data_and_is_named() -> None:
    splits = data()
    before = [part.clone() for split in (splits.train, splits.validation, splits.test) for part in split]
    workload = replace(QUICK, model=Writing, data=lambda: splits, evaluate_every=1)
    with pytest.warns(WrittenInputWarning, match="writes into its input in place"):
        trace = train(workload, NUMERICS)
    after = [part for split in (splits.train, splits.validation, splits.test) for part in split]
    assert all(map(torch.equal, before, after))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", WrittenInputWarning)
        assert bits(train(workload, NUMERICS)) == bits(trace)


class Buffered:
    """A stream that fills the same tensors again."""

    def __init__(self, size: int, is_copied: bool) -> None:
        self._size, self._is_copied = size, is_copied

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        inputs, targets = data().train
        buffer = torch.empty(self._size, 8), torch.empty(self._size, dtype=torch.long)
        for start in range(0, 64 - self._size + 1, self._size):
            for part, source in zip(buffer, (inputs, targets), strict=True):
                part.copy_(source[start : start + self._size])
            yield tuple(part.clone() for part in buffer) if self._is_copied else buffer


def test_a_stream_may_reuse_its_buffer() -> None:
    def trained(is_copied: bool) -> Any:
        splits = Splits(Buffered(12, is_copied), data().validation, data().test)
        return bits(train(replace(QUICK, data=lambda: splits), NUMERICS))

    assert trained(False) == trained(True)


# Seven: inference mode.


class Reused(nn.Module):
    """Changes a hidden tensor in place between two layers that read it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.first(x)
        before = self.second(hidden)
        return before + self.second(hidden.mul_(3.0))


@pytest.mark.parametrize("recipe", ["bf16", "fp8-hybrid", "mxfp8"])
def test_inference_mode_computes_as_no_grad_does(recipe: str) -> None:
    torch.manual_seed(0)
    net, x = Reused(), torch.randn(4, 8)
    ps.emulate_(net, ps.load_numerics(recipe), seed=0)
    net.eval()
    with torch.no_grad():
        expected = net(x)
    with torch.inference_mode():
        assert torch.equal(net(x), expected)


# Eight: what is recorded.


@pytest.mark.parametrize("diverged", range(3))
def test_the_median_of_a_loss_does_not_depend_on_which_seed_diverged(diverged: int, tmp_path: Path) -> None:
    from presilicon.records import metric_median

    values: list[float | None] = [0.1, 0.2]
    values.insert(diverged, float("nan"))
    assert metric_median(values, "lower") == 0.2
    assert metric_median(values, "higher") == 0.1


def test_a_result_with_a_diverged_seed_is_read_back(tmp_path: Path) -> None:
    from presilicon.report import print_table, to_json
    from presilicon.workloads import load_metric

    wild = replace(
        QUICK, metric=load_metric("RMSE"), loss=_squared, target=1e-6, model=Endless, data=_numbers,
    )  # fmt: skip
    comparison = ps.compare(["fp32-systolic"], wild, seeds=2, out=tmp_path)
    assert comparison.designs[0].value is None
    (run,) = tmp_path.iterdir()
    shown = subprocess.run(
        [sys.executable, "-m", "presilicon", "runs", "show", run.name, "--out", str(tmp_path)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert shown.returncode == 0, shown.stderr
    assert json.loads(to_json(comparison))
    print_table(comparison)


class Endless(nn.Module):
    """Has no finite outputs once it is not trained."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(8, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) if self.training else self.inner(x) * float("nan")


def _squared(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return nn.functional.mse_loss(output[:, 0], target.float())


def _numbers() -> Splits:
    whole = data()
    return Splits(*((inputs, targets.float()) for inputs, targets in (whole.train, whole.validation, whole.test)))


def test_every_event_arrives_however_slowly_it_is_passed_on() -> None:
    seen: list[Any] = []

    def slow(event: Any) -> None:
        threading.Event().wait(0.002)
        seen.append(event)

    outcomes = LocalPool(2).run(TaskBatch(emit_many, range(2), on_event=slow))
    assert sorted(outcome.result for outcome in outcomes) == [0, 1]
    assert len(seen) == 2 * EVENTS


def test_a_worker_that_dies_is_replaced(tmp_path: Path) -> None:
    tasks = [(number, tmp_path) for number in range(4)]
    outcomes = list(LocalPool(2).run(TaskBatch(die_once, tasks)))
    assert sorted(outcome.result for outcome in outcomes) == [0, 1, 2, 3]


def test_streams_of_long_names_have_files_of_their_own() -> None:
    names = [f"{'x' * 120}{ending}-seed{seed}" for ending in "ab" for seed in range(3)]
    assert len({stream_file(name) for name in names}) == 6
    assert all(len(stream_file(name)) < 120 for name in names)


def test_a_torn_line_swallows_no_event(tmp_path: Path) -> None:
    log = EventLog(tmp_path / EVENTS_FILE)
    log.append(EvaluationEvent(design="a", seed=0, step=1, value=0.5))
    with log.path.open("ab") as file:
        file.write(b'{"event":"evaluation","design":"a","see')
    log.append(EvaluationEvent(design="a", seed=0, step=2, value=0.6))
    assert [event.step for event in read_events(log.path) if isinstance(event, EvaluationEvent)] == [1, 2]


# Checkpoints.


class LongEnoughError(Exception):
    pass


def test_the_cost_of_a_checkpoint_does_not_grow_with_the_steps(tmp_path: Path) -> None:
    """The checkpoint has the same size however long the run, and the history grows by what is new."""
    sizes = {}
    for steps in (100, 400):
        folder = tmp_path / str(steps)
        checkpoint = Checkpoint(folder / "run.safetensors", every=1)
        last = steps - 5

        def stop(point: Any, last: int = last) -> None:
            if point.step > last:
                raise LongEnoughError

        with pytest.raises(LongEnoughError):
            train(replace(QUICK, max_steps=steps), NUMERICS, checkpoint=checkpoint, on_evaluation=stop)
        sizes[steps] = [next(folder.glob(name)).stat().st_size for name in ("*.safetensors", "*.history")]
    assert abs(sizes[400][0] - sizes[100][0]) < 64
    assert sizes[400][1] < 4.2 * sizes[100][1]


def test_a_plain_design_is_not_resumed_on_another_kind_of_processor(tmp_path: Path, monkeypatch: Any) -> None:
    checkpoint = Checkpoint(tmp_path / "run.safetensors", every=1)

    def stop(point: Any) -> None:
        if point.step == 10:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(QUICK, NUMERICS, checkpoint=checkpoint, on_evaluation=stop)
    monkeypatch.setattr(
        "presilicon.emulation.training.record.processor", lambda device: {"vectors": "AVX1", "libraries": "Other"}
    )
    with pytest.raises(ConfigError, match=r"AVX1 \(Other\) now.*--any-processor continues all the same"):
        train(QUICK, NUMERICS, checkpoint=checkpoint)
    marked = train(QUICK, NUMERICS, checkpoint=checkpoint._replace(any_processor=True))
    assert len(marked.processors) == 2
    assert marked.processors[1] == "AVX1 (Other)"


def test_a_run_says_on_which_processor_it_was_trained(tmp_path: Path) -> None:
    result = ps.evaluate("bf16-systolic", QUICK, seeds=1, out=tmp_path)
    (run,) = tmp_path.iterdir()
    kind = json.loads((run / "run.json").read_text())["config"]["processor"]
    assert kind["vectors"] == torch.backends.cpu.get_cpu_capability()
    assert result.provenance["processors"] == [f"{kind['vectors']} ({kind['libraries']})"]


def test_jobs_make_no_difference(tmp_path: Path, clean_helper: None) -> None:
    workload = load_workload(_write(tmp_path, HELPER.format("")))
    results = [ps.compare(["bf16-systolic", "fp8-systolic"], workload, seeds=2, jobs=jobs) for jobs in (1, 2, 4)]
    assert results[0] == results[1] == results[2]


def test_saved_runs_of_other_processes_keep_their_directory(tmp_path: Path) -> None:
    run = create_run(tmp_path, "evaluate", {}, seed=0)
    with run:
        record = TrainingRecord(QUICK, NUMERICS)
        saved = SavedRun(Checkpoint(run.path / "a.safetensors"), record.identity(splits_digest(data())))
        assert saved.read_trace() is None
