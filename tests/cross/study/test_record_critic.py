"""Identities that miss nothing and do not change by themselves, and checkpoints and settings that hold: what broke."""

import copy
import functools
import json
import logging
import os
import subprocess
import sys
import types
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numba
import pytest
import torch
from torch import nn
from torch.nn import functional

import presilicon as ps
from presilicon.base import ConfigError, content_of
from presilicon.emulation import Checkpoint, isolated, take_turns, train
from presilicon.emulation.training import checkpoint as checkpoints
from presilicon.emulation.training.checkpoint import SHARE, Pace
from presilicon.records import Trace
from presilicon.study.join.evaluation import carry_out
from presilicon.study.join.plan import EvaluationPlan
from presilicon.study.join.seeds import forget_data, load_splits
from presilicon.workloads import Splits, Workload, load_workload, sgd

NUMERICS = ps.load_design("bf16-systolic").numerics
SOURCE = Path(ps.__file__).parents[1]


def data() -> Splits:
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(192, 8, generator=generator)
    targets = (inputs[:, :4].sum(1) > inputs[:, 4:].sum(1)).long()
    return Splits(*[(inputs[start : start + 64], targets[start : start + 64]) for start in (0, 64, 128)])


def model() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 2))


SLOW = Workload(
    name="slow", model=model, data=data, target=0.999, optimizer=partial(sgd, learning_rate=0.001), batch_size=16,
    max_steps=60, evaluate_every=5, sustain=1,
)  # fmt: skip


def bits(trace: Trace) -> tuple[Any, ...]:
    return trace.losses, trace.evaluations, trace.test_value


def same(first: Any, second: Any) -> bool:
    return content_of(first).digest == content_of(second).digest


@pytest.fixture
def module() -> Iterator[Callable[..., Any]]:
    """Makes modules of a user's from their source."""
    before = dict(sys.modules)

    def make(source: str, name: str = "users_own", file: str = "/nowhere/users_own.py") -> Any:
        made = types.ModuleType(name)
        made.__file__ = file
        sys.modules[name] = made
        exec(compile(source, file, "exec"), vars(made))
        return made

    yield make
    for name in set(sys.modules) - set(before):
        del sys.modules[name]
    sys.modules.update(before)


# Identities that missed something.


def test_what_a_handler_protects_counts(module: Any) -> None:
    inside = "def f(x):\n try:\n  a = g(x)\n  b = h(x)\n except ValueError:\n  return 0\n return b"
    before = "def f(x):\n a = g(x)\n try:\n  b = h(x)\n except ValueError:\n  return 0\n return b"
    assert not same(module(inside).f, module(before).f)


def test_a_decorator_that_takes_the_name_of_an_installed_function_hides_nothing() -> None:
    def scaled(factor: float) -> Any:
        @functools.wraps(functional.cross_entropy)
        def loss(output: Any, target: Any) -> Any:
            return factor * functional.cross_entropy(output, target)

        return loss

    assert not same(scaled(1.0), scaled(2.0))


class Scaled:
    def __init__(self, function: Any, factor: float) -> None:
        functools.update_wrapper(self, function)
        self.factor = factor


def test_an_object_that_wraps_a_function_is_more_than_that_function() -> None:
    assert not same(Scaled(model, 1.0), Scaled(model, 2.0))


def test_what_a_library_made_of_arguments_counts_with_them() -> None:
    from torch.optim.swa_utils import get_ema_avg_fn

    assert not same(get_ema_avg_fn(0.9), get_ema_avg_fn(0.5))
    assert same(get_ema_avg_fn(0.9), get_ema_avg_fn(0.9))


def _double(x: float) -> float:
    return x * 2.0


def test_options_of_compiled_functions_count() -> None:
    assert not same(numba.njit(_double), numba.njit(fastmath=True)(_double))


@pytest.mark.parametrize(
    "use",
    [
        "def m(): return globals()['a']()",
        "import sys\ndef m(): return getattr(sys.modules[__name__], 'a')()",
    ],
)
def test_names_that_are_looked_up_in_the_own_module_count(module: Any, use: str) -> None:
    one, two = (module(f"def a(): return {number}\n{use}").m for number in (1, 2))
    assert not same(one, two)


@pytest.mark.parametrize(
    "use",
    [
        "import settings\ndef rate(c): return c.RATE\ndef m(): return rate(settings)",
        "def rate(c): return c.RATE\ndef m():\n import settings\n return rate(settings)",
        "import settings\nget = lambda: settings\ndef m(): return get().RATE",
        "import settings\ndef m(): return settings.__dict__['RATE']",
        "from operator import attrgetter\nimport settings\ndef m(): return attrgetter('RATE')(settings)",
    ],
)
def test_a_module_that_is_passed_on_counts_as_a_whole(module: Any, use: str) -> None:
    digests = set()
    for rate in (1, 2):
        module(f"RATE = {rate}", "settings", "/nowhere/settings.py")
        digests.add(content_of(module(use).m).digest)
    assert len(digests) == 2


def test_a_module_called_as_one_of_python_counts(module: Any) -> None:
    digests = set()
    for number in (1, 2):
        module(f"def a(): return {number}", "profile", "/nowhere/profile.py")
        digests.add(content_of(module("import profile\ndef m(): return profile.a()").m).digest)
    assert len(digests) == 2


def test_a_metaclass_counts() -> None:
    class One(type):
        def __call__(cls) -> Any:
            return 1

    class Two(type):
        def __call__(cls) -> Any:
            return 2

    assert not same(One("Made", (), {}), Two("Made", (), {}))


def test_the_order_of_an_ordered_dict_counts() -> None:
    layers = [("a", nn.ReLU), ("b", nn.Tanh)]
    assert not same(OrderedDict(layers), OrderedDict(layers[::-1]))


@pytest.mark.parametrize("use", ["def m(): return open({!r})", "FILE = {!r}\ndef m(): return open(FILE)"])
def test_a_file_that_code_names_counts_by_its_contents(module: Any, tmp_path: Path, use: str) -> None:
    file, digests = tmp_path / "weights.bin", set()
    for text in ("1", "2"):
        file.write_text(text)
        digests.add(content_of(module(use.format(str(file))).m).digest)
    assert len(digests) == 2


def test_a_file_beside_the_code_counts(module: Any, tmp_path: Path) -> None:
    use = "from pathlib import Path\nHERE = Path(__file__).parent\ndef m(): return (HERE / 'weights.bin').read_bytes()"
    digests = []
    for text in ("1", "2", "1"):
        (tmp_path / "weights.bin").write_text(text)
        digests.append(content_of(module(use, file=str(tmp_path / "w.py")).m).digest)
    assert digests[0] == digests[2] != digests[1]


class Shrinking:
    """A hook with a parameter that it does not describe."""

    def __init__(self, factor: float) -> None:
        self.factor = factor

    def attach(self, model: nn.Module, optimizer: Any, first: int) -> None:
        self.model = model

    def before_step(self, number: int) -> None:
        for parameter in self.model.parameters():
            parameter.data.mul_(self.factor)

    def after_step(self, number: int, facts: Any) -> Any:
        return facts


def test_parameters_of_hooks_count(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path / "x.safetensors")
    first = bits(train(SLOW, NUMERICS, hooks=[Shrinking(0.9)], checkpoint=checkpoint))
    assert bits(train(SLOW, NUMERICS, hooks=[Shrinking(0.9)], checkpoint=checkpoint)) == first
    with pytest.raises(ConfigError, match=r"different code\.hooks"):
        train(SLOW, NUMERICS, hooks=[Shrinking(0.5)], checkpoint=checkpoint)


# Identities that changed by themselves.


def test_copying_an_object_does_not_change_its_class() -> None:
    class Plain:
        pass

    before = content_of(Plain).digest
    copy.deepcopy(Plain())
    assert content_of(Plain).digest == before


def test_places_and_loggers_do_not_count(module: Any, tmp_path: Path) -> None:
    use = "import logging\nlog = logging.getLogger(__name__)\ndef m():\n log.info(__file__)\n return __name__"
    names = ["workload_11111111", "workload_22222222"]
    one, two = (module(use, name, str(tmp_path / name / "w.py")).m for name in names)
    assert logging.getLogger(names[0]) is not logging.getLogger(names[1])
    assert same(one, two)


def test_a_folder_of_code_does_not_count_by_what_else_is_in_it(tmp_path: Path) -> None:
    (tmp_path / "w.py").write_text("")
    before = content_of(tmp_path).digest
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "events.jsonl").write_text("{}")
    assert content_of(tmp_path).digest == before


def test_a_long_chain_of_functions_is_known(module: Any) -> None:
    chain = "\n".join(f"def f{number}(x): return f{number + 1}(x)" for number in range(400))
    one, two = (content_of(module(f"{chain}\ndef f400(x): return {number}").f0) for number in (1, 2))
    assert one.unknown == two.unknown == ()
    assert one.digest != two.digest


def test_the_order_of_a_set_does_not_count(module: Any) -> None:
    script = (
        "from presilicon.base import content_of\n"
        "def a(n): return b(n - 1)\n"
        "def b(n): return a(n - 2)\n"
        "waste = [object() for _ in range({})]\n"
        "both = set([a, b] if {} else [b, a])\n"
        "print(content_of(both).digest)"
    )
    environment = os.environ | {"PYTHONPATH": str(SOURCE)}
    found = set()
    for number in range(6):
        command = [sys.executable, "-c", script.format(number * 7, number % 2)]
        found.add(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)
    assert len(found) == 1


WORKLOAD = """
import torch
from functools import partial
from torch import nn
from presilicon.workloads import Splits, Workload, sgd
{head}
def data():
    if "splits" not in _kept:
        inputs = torch.randn(192, 8, generator=torch.Generator().manual_seed(1))
        targets = (inputs.sum(1) > 0).long()
        _kept["splits"] = [(inputs[start:start + 64], targets[start:start + 64]) for start in (0, 64, 128)]
    return Splits(*_kept["splits"])
def model():
{body}
{guard}workload = Workload(name="w", model=model, data=data, target=0.9999, batch_size=16, max_steps=20,
{guard}    optimizer=partial(sgd, learning_rate=0.001), evaluate_every=5, sustain=1)
"""
KEEPS = WORKLOAD.format(head="_kept = {}", body="    return nn.Linear(8, 2)", guard="")


@pytest.mark.slow
def test_a_workload_may_keep_what_it_loaded(tmp_path: Path) -> None:
    (tmp_path / "w.py").write_text(KEEPS)
    workload = load_workload(str(tmp_path / "w.py"))
    before = content_of(workload.data).digest
    results = [ps.evaluate("bf16-systolic", workload, seeds=2, jobs=jobs).seeds for jobs in (1, 2)]
    assert results[0] == results[1]
    assert content_of(workload.data).digest == before


@pytest.mark.slow
def test_a_script_may_train_its_own_functions_in_workers(tmp_path: Path) -> None:
    script = WORKLOAD.format(head="", body="    return nn.Linear(8, 2)", guard="    ")
    script = script.replace("def data():\n", "def data():\n    _kept = {}\n")
    script = script.replace("    workload = ", 'if __name__ == "__main__":\n    workload = ', 1)
    script += "    import presilicon as ps\n"
    script += '    seeds = [ps.evaluate("bf16-systolic", workload, seeds=2, jobs=jobs).seeds for jobs in (1, 2)]\n'
    script += "    print(seeds[0] == seeds[1])\n"
    file = tmp_path / "script.py"
    file.write_text(script)
    environment = os.environ | {"PYTHONPATH": str(SOURCE)}
    done = subprocess.run([sys.executable, file], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout == "True\n", done.stderr


# Files that were loaded too early.


def test_a_helper_that_a_function_imports_is_loaded_again(tmp_path: Path) -> None:
    body = "    from late_helper_of_tests import WIDTH\n    return nn.Linear(8, WIDTH)"
    (tmp_path / "w.py").write_text(WORKLOAD.format(head="_kept = {}", body=body, guard=""))
    for width in (16, 24):
        (tmp_path / "late_helper_of_tests.py").write_text(f"WIDTH = {width}\n")
        made: Any = load_workload(str(tmp_path / "w.py")).model()
        assert made.out_features == width


def test_packages_of_two_folders_are_two(tmp_path: Path) -> None:
    head, body = "_kept = {}\nfrom package_of_tests.core import WIDTH", "    return nn.Linear(8, WIDTH)"
    for width in (16, 24):
        package = tmp_path / str(width) / "package_of_tests"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("")
        (package / "core.py").write_text(f"WIDTH = {width}\n")
        file = tmp_path / str(width) / "w.py"
        file.write_text(WORKLOAD.format(head=head, body=body, guard=""))
        made: Any = load_workload(str(file)).model()
        assert made.out_features == width


def test_data_are_loaded_again_for_each_study(tmp_path: Path) -> None:
    file, stem = tmp_path / "data.pt", str(tmp_path / "data")

    class Source:
        """A source whose content nothing shows."""

        def __reduce_ex__(self, protocol: Any) -> Any:
            return str, ()

        def load(self) -> Splits:
            parts = torch.load(f"{stem}.pt")
            return Splits(parts, parts, parts)

    source, found = Source(), []
    workload = replace(SLOW, data=lambda: source.load())
    for shift in (0.0, 1.0):
        torch.save((torch.zeros(64, 8) + shift, torch.zeros(64, dtype=torch.long)), file)
        forget_data()
        found.append(load_splits(workload)[1].digest)
    assert found[0] != found[1]


def test_other_data_are_another_run(tmp_path: Path) -> None:
    parts = [data(), replace_inputs(data())]

    class Source:
        """A source whose content nothing shows."""

        def __reduce_ex__(self, protocol: Any) -> Any:
            return str, ()

    sources = [Source(), Source()]
    by_source = dict(zip(map(id, sources), parts, strict=True))
    workloads = [replace(SLOW, data=partial(lambda table, source: table()[id(source)], _Hidden(by_source), source))
                 for source in sources]  # fmt: skip
    hashes = []
    for workload in workloads:
        plan = EvaluationPlan(
            designs=(ps.load_design("bf16-systolic"),), workload=replace(workload, max_steps=5), seeds=1
        )
        run = carry_out(plan, out=tmp_path).run
        assert run is not None
        hashes.append(json.loads((run.path / "run.json").read_text())["config_hash"])
    assert hashes[0] != hashes[1]


class _Hidden:
    def __init__(self, value: Any) -> None:
        self._value = value

    def __call__(self) -> Any:
        return self._value

    def __reduce_ex__(self, protocol: Any) -> Any:
        return str, ()


def replace_inputs(splits: Splits) -> Splits:
    return Splits(*[(part[0] + 0.5, part[1]) for part in (splits.train, splits.validation, splits.test)])


# Isolation.


@contextmanager
def restored(setting: Callable[[Any], Any], before: Any) -> Iterator[None]:
    try:
        yield
    finally:
        setting(before)


def test_deterministic_algorithms_that_only_warn_stay_so() -> None:
    with restored(torch.use_deterministic_algorithms, False):
        torch.use_deterministic_algorithms(True, warn_only=True)
        with isolated("cpu"):
            assert not torch.are_deterministic_algorithms_enabled()
        assert torch.is_deterministic_algorithms_warn_only_enabled()


def test_the_way_of_attention_is_the_runs_own() -> None:
    query = torch.randn(2, 4, 64, 16)
    attention = functional.scaled_dot_product_attention
    with restored(torch.backends.cuda.enable_flash_sdp, True):
        with isolated("cpu"):
            expected = attention(query, query, query)
        torch.backends.cuda.enable_flash_sdp(False)
        assert not torch.equal(attention(query, query, query), expected)
        with isolated("cpu"):
            assert torch.equal(attention(query, query, query), expected)
        assert not torch.backends.cuda.flash_sdp_enabled()


@pytest.mark.skipif(not hasattr(torch.backends, "fp32_precision"), reason="torch has one precision for all ops")
@pytest.mark.parametrize("kind", ["matmul", "conv"])
def test_precisions_of_single_ops_are_the_runs_own(kind: str) -> None:
    owner = getattr(torch.backends.mkldnn, kind)
    before = owner.fp32_precision
    with restored(lambda value: setattr(owner, "fp32_precision", value), before):
        owner.fp32_precision = "bf16"
        with isolated("cpu"):
            assert owner.fp32_precision == "ieee"
            assert torch.get_float32_matmul_precision() == "highest"
        assert owner.fp32_precision == "bf16"


def test_a_training_inside_a_turn_changes_nothing_of_the_one_around_it() -> None:
    expected = bits(train(SLOW, NUMERICS))

    def nested(point: Any) -> None:
        train(replace(SLOW, max_steps=5), NUMERICS, seed=7)

    runs = [lambda wait: train(SLOW, NUMERICS, on_wait=wait, on_evaluation=nested)]
    assert [bits(trace) for trace in take_turns(runs, "cpu", 2)] == [expected]


# Checkpoints.


class KilledError(Exception):
    """Stands for a kill."""


def test_two_writers_of_one_checkpoint_do_not_damage_it(tmp_path: Path) -> None:
    expected = bits(train(SLOW, NUMERICS))
    first, second = tmp_path / "x.safetensors", tmp_path / "y.safetensors"

    def kill(step: int) -> Callable[[Any], None]:
        def at(point: Any) -> None:
            if point.step >= step:
                raise KilledError

        return at

    def other_process(point: Any) -> None:
        """Between two writes of this process, another one writes the same files, and is killed."""
        if point.step == 20:
            with suppress(KilledError):
                train(SLOW, NUMERICS, checkpoint=Checkpoint(second, 2), on_evaluation=kill(40))
            for file in tmp_path.glob("y*"):
                os.replace(file, tmp_path / f"x{file.name[1:]}")
        kill(35)(point)

    with suppress(KilledError):
        train(SLOW, NUMERICS, checkpoint=Checkpoint(first, 1), on_evaluation=other_process)
    assert bits(train(SLOW, NUMERICS, checkpoint=Checkpoint(first, 1))) == expected


def test_a_kill_between_history_and_state_loses_only_steps(tmp_path: Path, monkeypatch: Any) -> None:
    expected, checkpoint = bits(train(SLOW, NUMERICS)), Checkpoint(tmp_path / "x.safetensors", 1)
    write, count = checkpoints._write, [0]

    def killed(path: Path, state: dict[str, Any]) -> None:
        count[0] += 1
        if count[0] == 3:
            raise KilledError
        write(path, state)

    monkeypatch.setattr(checkpoints, "_write", killed)
    for _ in range(2):
        count[0] = 0
        with suppress(KilledError):
            train(SLOW, NUMERICS, checkpoint=checkpoint)
    monkeypatch.undo()
    assert bits(train(SLOW, NUMERICS, checkpoint=checkpoint)) == expected


def test_the_first_checkpoint_of_a_large_model_waits(monkeypatch: Any) -> None:
    now = [0.0]
    monkeypatch.setattr(checkpoints.time, "perf_counter", lambda: now[0])
    size, speed = 1_000_000_000, 100_000_000
    pace = Pace(None, size)
    spent = 0.0
    for number in range(2000):
        now[0] += 1.0
        if pace.is_due(number):
            with pace.writing():
                now[0] += size / speed
            spent += size / speed
        assert spent <= SHARE * now[0]
    assert spent


# What cannot be compared.


def test_a_result_says_what_of_it_cannot_be_compared(tmp_path: Path) -> None:
    file = (tmp_path / "open").open("w")

    def watched() -> nn.Module:
        file.flush()
        return model()

    result = ps.evaluate("bf16-systolic", replace(SLOW, model=watched, max_steps=5), seeds=1)
    assert any("which cannot be compared" in remark for remark in result.remarks)
    assert result.provenance["unknown"] == ["model: file (TextIOWrapper)"]
    file.close()


def test_a_study_is_refused_that_could_not_read_its_own_trainings(tmp_path: Path) -> None:
    body = "    LOCK.locked()\n    return nn.Linear(8, 2)"
    (tmp_path / "w.py").write_text(
        WORKLOAD.format(head="import threading\nLOCK = threading.Lock()\n_kept = {}", body=body, guard="")
    )
    study = {"designs": "edge-bf16", "workloads": str(tmp_path / "w.py"), "train": {"seeds": 1}}
    with pytest.raises(ConfigError, match=r"LOCK \(lock\), which cannot be compared"):
        ps.sweep(study, out=tmp_path / "runs", jobs=1)
