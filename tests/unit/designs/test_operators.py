"""Operators in a design file."""

import pytest

from presilicon.base import ConfigError
from presilicon.designs import Operators, OperatorSpec, load_design

FILE = """from presilicon.ops import operator

@operator("tanh")
def approximate_tanh(x):
    return max(-1.0, min(x, 1.0))

@operator("exp")
def fast_exp(x):
    return 1 + x
"""


def write(tmp_path, operators: str):
    (tmp_path / "my_ops.py").write_text(FILE)
    path = tmp_path / "design.toml"
    path.write_text(f'base = "bf16-systolic"\nname = "mine"\n[numerics.operators]\n{operators}\n')
    return path


def test_sources_lie_beside_the_design(tmp_path, monkeypatch) -> None:
    path = write(
        tmp_path, 'tanh = "my_ops.py:approximate_tanh"\nsoftmax_exp = { source = "my_ops.py:fast_exp", cycles = 3 }'
    )
    monkeypatch.chdir(tmp_path.parent)
    design = load_design(path)
    tanh, exp = design.numerics.make_operators()
    assert (tanh(0.5), tanh(3.0), tanh.replaces) == (0.5, 1.0, "tanh")
    assert (exp(0.5), exp.replaces, exp.cost.cycles) == (1.5, "softmax.exp", 3)
    assert hash(design) == hash(load_design(path))


def test_another_text_is_another_design(tmp_path) -> None:
    path = write(tmp_path, 'tanh = "my_ops.py:approximate_tanh"')
    before = load_design(path)
    (tmp_path / "my_ops.py").write_text(FILE.replace("1.0", "2.0"))
    with pytest.raises(ConfigError, match="has changed since the design was read"):
        before.numerics.make_operators()
    after = load_design(path)
    assert before != after
    assert after.numerics.make_operators()[0](3.0) == 2.0


def test_kinds(tmp_path) -> None:
    kinds = 'tanh = { kind = "piecewise-linear", low = -4, high = 4, pieces = 16, format = "float16" }\n'
    kinds += 'sigmoid = { kind = "table", low = -8, high = 8, entries = 64, interpolation = "linear" }'
    tanh, sigmoid = load_design(write(tmp_path, kinds)).numerics.make_operators()
    assert (tanh.cost.entries, tanh.cost.bits, sigmoid.cost.entries) == (32, 16, 127)


@pytest.mark.parametrize(
    ("operators", "message"),
    [
        ('tanhh = "my_ops.py:approximate_tanh"', 'unknown function to replace "tanhh": did you mean "tanh"'),
        ('tan = "my_ops.py:approximate_tanh"', "replaces tanh, not tan"),
        ('tanh = "my_ops.py:approximate"', 'has no operator "approximate"'),
        ('tanh = "nothing.py:approximate"', "nothing.py: there is no such file"),
        ('sigmoid = "my_ops.py:approximate_tanh"', "sigmoid: .*replaces tanh, not sigmoid"),
        ('tanh = { kind = "table", low = -4, high = 4 }', "tanh: a table needs entries"),
        ('tanh = { kind = "table", low = -4, high = 4, pieces = 4 }', "pieces: a table has no such figure"),
        ('tanh = { kind = "tables", low = -4, high = 4 }', "tables"),
        ('tanh = { source = "my_ops.py:approximate_tanh", low = 1 }', "only a kind takes that"),
        ("tanh = { low = 1 }", "name either a source"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, operators: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        load_design(write(tmp_path, operators))
    assert "design.toml" in str(caught.value)


def test_one_setting_of_the_command_line() -> None:
    setting = "numerics.operators.tanh={ kind = 'table', low = -4, high = 4, entries = 8 }"
    assert load_design("bf16-systolic", [setting]).numerics.make_operators()[0].cost.entries == 8


def test_fields_are_the_functions_that_can_be_replaced() -> None:
    from presilicon.ops import exact_functions

    fields = {name.replace("softmax_", "softmax.") for name in Operators.__struct_fields__}
    assert fields == {*exact_functions(), "functions"}
    assert OperatorSpec(kind="table", low=0, high=1, entries=2).make("exp").replaces == "exp"
