"""Content says what a value does: equal for the same computation, different for any other."""

import functools
import random
import socket
import threading
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from presilicon.base import content_of, is_installed
from presilicon.base.content import _Walk


def digest(value: Any) -> str:
    content = content_of(value)
    assert content.unknown == ()
    return content.digest


def run(text: str, name: str = "f", **space: Any) -> Any:
    """What a text defines, as a function of a module of its own."""
    module = ModuleType("users_module")
    vars(module).update(space)
    exec(compile(text, "users_module.py", "exec"), vars(module))
    return vars(module)[name]


SAME = [
    ("def f(x):\n    return x + 1\n", "# a comment\n\ndef f(x):\n    # another\n\n    return (x +\n            1)\n"),
    ("def f(x):\n    return x + 1\n", 'def f(x):\n    """Now with a docstring."""\n    return x + 1\n'),
    ("def f(x):\n  return g(x)\ndef g(x):\n  return -x\n", "def g(x):\n  return -x\ndef f(x):\n  return g(x)\n"),
    ("def f(x):\n    return x\n", "UNUSED = 3\ndef f(x):\n    return x\n"),
    ("class f:\n  def m(self):\n    return 1\n", 'class f:\n  """Doc."""\n  def m(self):\n    "Doc."\n    return 1\n'),
]  # fmt: skip


@pytest.mark.parametrize(("one", "other"), SAME)
def test_layout_and_what_is_not_used_do_not_count(one: str, other: str) -> None:
    assert digest(run(one)) == digest(run(other))


BASE = """
import math
SCALE = 2
TABLE = {"a": [1, 2]}
def helper(x, power=2):
    return x ** power
class Base:
    def twice(self):
        return 2
class Layer(Base):
    width = 3
    def forward(self, x):
        return helper(x) * SCALE
def make(k):
    def inner(x):
        return x * k
    return inner
def f(x, rate=0.1, *, shift=1):
    layer = Layer()
    for value in TABLE["a"]:
        if value > 1:
            x = x + value
    return [make(3)(layer.forward(x)) + math.sqrt(rate) for _ in range(2)], shift
"""
CHANGES = [
    ("SCALE = 2", "SCALE = 3"), ("[1, 2]", "[1, 4]"), ("power=2", "power=3"), ("x ** power", "x * power"),
    ("return 2\n", "return 5\n"), ("width = 3", "width = 4"), ("x * k", "x + k"), ("make(3)", "make(4)"),
    ("rate=0.1", "rate=0.2"), ("shift=1", "shift=2"), ("value > 1", "value >= 1"), ("range(2)", "range(3)"),
    ("math.sqrt", "math.exp"), ("x + value", "value + x"), ("class Layer(Base)", "class Layer"),
    ("2\nTABLE", "2.0\nTABLE"), ("helper(x) * SCALE", "SCALE * helper(x)"),
]  # fmt: skip


@pytest.mark.parametrize(("before", "after"), CHANGES)
def test_any_change_of_what_is_computed_counts(before: str, after: str) -> None:
    assert before in BASE
    assert digest(run(BASE)) != digest(run(BASE.replace(before, after, 1)))


def test_a_global_counts_as_it_is_now() -> None:
    function = run(BASE)
    before = digest(function)
    function.__globals__["SCALE"] = 7
    assert digest(function) != before
    function.__globals__["SCALE"] = 2
    assert digest(function) == before


def test_a_module_that_is_reached_by_names_made_at_run_time_counts_as_a_whole() -> None:
    helpers = ModuleType("users_helpers")
    exec("def net():\n    return 1\n", vars(helpers))
    direct = run("def f(name):\n    return helpers.other(name)\n", helpers=helpers)
    dynamic = run("def f(name):\n    return getattr(helpers, name)()\n", helpers=helpers)
    before = digest(direct), digest(dynamic)
    exec("def net():\n    return 2\n", vars(helpers))
    assert digest(direct) == before[0]
    assert digest(dynamic) != before[1]


def test_imports_inside_functions_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.syspath_prepend(str(tmp_path))
    function = run("def f():\n    from inner_helper import net\n    return net()\n")
    digests = []
    for value in (1, 2):
        (tmp_path / "inner_helper.py").write_text(f"def net():\n    return {value}  # version {value * 1000}\n" * value)
        sys.modules.pop("inner_helper", None)
        digests.append(digest(function))
    sys.modules.pop("inner_helper", None)
    assert digests[0] != digests[1]


def test_arguments_and_closures_count_and_the_order_of_keys_does_not() -> None:
    def f(options: Any, **more: Any) -> Any:
        return options, more

    one = partial(f, {"width": 3, "depth": 2}, a=1, b=2)
    assert digest(one) == digest(partial(f, {"depth": 2, "width": 3}, b=2, a=1))
    assert digest(one) != digest(partial(f, {"width": 4, "depth": 2}, a=1, b=2))
    assert digest(one) != digest(partial(f, {"width": 3, "depth": 2}, a=2, b=1))
    makers = [lambda x, k=k: x * k for k in (1, 2, 1)]
    assert digest(makers[0]) == digest(makers[2]) != digest(makers[1])


def test_files_count_by_their_contents_and_not_by_their_place(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "data.csv").write_text("1,2\n")
    first, second = (tmp_path / folder / "data.csv" for folder in ("a", "b"))
    assert digest(partial(open, first)) == digest(partial(open, second))
    assert digest(partial(open, first.parent)) == digest(partial(open, second.parent))
    named = digest(partial(open, str(second)))
    second.write_text("1,3\n")
    assert digest(partial(open, first)) != digest(partial(open, second))
    assert digest(partial(open, first.parent)) != digest(partial(open, second.parent))
    assert digest(partial(open, str(second))) != named


@given(st.integers(0, 1000), st.sampled_from(["value", "dtype", "shape", "order"]))
def test_arrays_and_tensors_count_by_type_shape_and_bytes(seed: int, change: str) -> None:
    values = np.random.default_rng(seed).standard_normal((3, 4)).astype(np.float32)
    other: Any = values.copy()
    if change == "value":
        other[seed % 3, seed % 4] += 1
    elif change == "dtype":
        other = other.view(np.int32)
    elif change == "shape":
        other = other.reshape(4, 3)
    if change == "order":
        other = np.asfortranarray(other)
        assert digest(values) == digest(other)
        assert digest(torch.from_numpy(values)) == digest(torch.from_numpy(other))
    else:
        assert digest(values) != digest(other)
        assert digest(torch.from_numpy(values)) != digest(torch.from_numpy(other))


def test_models_count_by_weights_structure_and_order() -> None:
    def net(*layers: tuple[str, nn.Module]) -> nn.Module:
        module = nn.Sequential()
        for name, layer in layers:
            module.add_module(name, layer)
        return module

    torch.manual_seed(0)
    a, b = nn.Linear(3, 3), nn.Linear(3, 3)
    assert digest(net(("a", a), ("b", b))) == digest(net(("a", a), ("b", b)))
    assert digest(net(("a", a), ("b", b))) != digest(net(("b", b), ("a", a)))
    assert digest(nn.Dropout(0.1)) != digest(nn.Dropout(0.2))
    before = digest(a)
    with torch.no_grad():
        a.weight[0, 0] += 1
    assert digest(a) != before


class Counted:
    """An object with a value that is computed once."""

    def __init__(self, size: int) -> None:
        self.size = size

    @functools.cached_property
    def doubled(self) -> int:
        return 2 * self.size


def test_what_an_object_has_computed_so_far_does_not_count() -> None:
    used, fresh = Counted(3), Counted(3)
    assert used.doubled == 6
    assert digest(used) == digest(fresh) != digest(Counted(4))


def test_what_cannot_be_compared_is_named() -> None:
    with socket.socket() as connection:
        content = content_of(lambda: connection.recv(1), "data")
        assert content.unknown == ("data: connection (socket)",)
    lock = threading.Lock()
    assert content_of({"lock": lock, "size": 3}, "model").unknown == ("model['lock'] (lock)",)
    endless = (number for number in range(3))
    assert content_of(partial(sum, endless), "loss").unknown == ("loss: argument 0 (generator)",)


def test_values_that_contain_themselves_have_a_content() -> None:
    loop: list[Any] = [1]
    loop.append(loop)
    other: list[Any] = [2]
    other.append(other)
    assert digest(loop) != digest(other)
    mutual = run("def f(n):\n    return n and g(n - 1)\ndef g(n):\n    return n and f(n - 1)\n")
    assert digest(mutual) != digest(run("def f(n):\n    return n and g(n - 1)\ndef g(n):\n    return n and f(n - 2)\n"))


def test_installed_code_counts_by_name_and_version(monkeypatch: pytest.MonkeyPatch) -> None:
    assert content_of(nn.Linear).modules == frozenset()
    assert content_of(run(BASE)).modules == {"users_module"}
    before = digest(nn.Linear)
    monkeypatch.setattr(torch, "__version__", "0.0")
    assert digest(nn.Linear) != before
    assert digest(random.random) != digest(random.gauss)


class Touchy:
    """An object that does not like to be asked."""

    def __getattr__(self, name: str) -> None:
        raise RuntimeError(name)


def test_objects_are_not_asked_for_what_they_may_not_have() -> None:
    assert digest(Touchy()) == digest(Touchy())
    cached = functools.lru_cache(lambda x: x + 1)
    assert digest(cached) == digest(functools.lru_cache(lambda x: x + 1)) != digest(functools.lru_cache(lambda x: x))


@dataclass
class Options:
    """A dataclass of the user's."""

    width: int = 3
    names: tuple[str, ...] = field(default_factory=tuple, metadata={"help": "names"})


def test_dataclasses_have_a_content() -> None:
    assert digest(Options(3)) == digest(Options(3)) != digest(Options(4))
    assert digest(lambda: Options()) == digest(lambda: Options())


def test_modules_that_lead_to_one_another_are_walked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "def a(x): return getattr({other}, x)\ndef b(x): return a(x), getattr({other}, x)\nclass C:\n  m = b\n"
    count = 40
    modules = [ModuleType(f"users_part{number}") for number in range(count)]
    for number, module in enumerate(modules):
        vars(module).update({f"m{other}": modules[other] for other in range(count)})
        for part in range(3):
            exec(text.format(other=f"m{(number + part + 1) % count}").replace("a(", f"a{part}("), vars(module))
    visits = 0
    digest_of = _Walk.digest

    def counted(self: _Walk, value: Any, where: str) -> str:
        nonlocal visits
        visits += 1
        return digest_of(self, value, where)

    monkeypatch.setattr(_Walk, "digest", counted)
    assert content_of(modules[0].b).unknown == ()
    assert visits < 500 * count


def test_packages_in_a_folder_of_their_own_are_installed_if_it_says_so(tmp_path: Path, monkeypatch: Any) -> None:
    for name in ("listed", "loose"):
        (tmp_path / f"users_{name}").mkdir()
        (tmp_path / f"users_{name}" / "__init__.py").write_text("def f(): return 1\n")
    (tmp_path / "listed-1.0.dist-info").mkdir()
    (tmp_path / "listed-1.0.dist-info" / "RECORD").write_text("users_listed/__init__.py,sha256=x,18\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert is_installed("users_listed.part")
    assert not is_installed("users_loose")
