import pytest

from presilicon.base import ConfigError, to_toml
from presilicon.designs import Design, design_names, diff_designs, load_design


@pytest.mark.parametrize("name", design_names())
def test_presets_load_under_their_own_name_and_round_trip(name: str, tmp_path) -> None:
    design = load_design(name)
    assert design.name == name
    path = tmp_path / "copy.toml"
    path.write_text(to_toml(design.to_plain()))
    assert load_design(path) == design


def test_the_presets_of_the_demo_are_there() -> None:
    assert {"fp32-systolic", "bf16-systolic", "fp8-systolic"} <= set(design_names())


def test_a_design_is_a_value() -> None:
    assert load_design("bf16-systolic") == load_design("bf16-systolic")
    assert hash(load_design("bf16-systolic")) == hash(load_design("bf16-systolic"))
    assert isinstance(load_design("bf16-systolic"), Design)


def test_settings_reach_every_level() -> None:
    design = load_design(
        "fp32-systolic",
        ["machine.rows=64", "machine.dataflow.forward=output-stationary", "numerics.weight=e5m2", "name=mine"],
    )
    assert design.machine.rows == 64
    assert design.machine.dataflow.forward == "output-stationary"
    assert str(design.numerics.weight) == "e5m2"
    assert design.name == "mine"
    refined = load_design("fp8-systolic", ["numerics.error.rounding=stochastic"])
    assert str(refined.numerics.error) == "e5m2 (stochastic)"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["machine.rowz=2"], ["$.machine.rowz", 'did you mean "rows"']),
        (["machine.rows=-2"], ["$.machine.rows", "given -2", ">= 1"]),
        (["machine.rows=2.5"], ["$.machine.rows", "given 2.5"]),
        (["machine.clock_ghz=0"], ["$.machine.clock_ghz", "given 0"]),
        (["machine.kind=sistolic"], ["$.machine.kind", 'did you mean "systolic"']),
        (["machine.technology=horowitz"], ["unknown technology", "horowitz-45nm"]),
        (["machine.dataflow.forward=os"], ["$.machine.dataflow.forward", "output-stationary"]),
        (["numerics.weight=bfloat17"], ["$.numerics.weight", "bfloat17", "bfloat16"]),
        (["numerics.weight=3"], ["$.numerics.weight", "spelling of a number format"]),
        (["numerics.weight.rounding=sideways"], ["$.numerics.weight", "sideways", "stochastic"]),
        (["name="], ["name must not be empty"]),
        (["numeric.weight=e5m2"], ['did you mean "numerics"']),
    ],
)
def test_wrong_settings_are_explained(settings: list[str], words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        load_design("fp32-systolic", settings)
    for word in words:
        assert word in str(caught.value)


def test_unknown_presets_and_files() -> None:
    with pytest.raises(ConfigError, match='did you mean "bf16-systolic"'):
        load_design("bf16-systolik")
    with pytest.raises(ConfigError, match="no such file"):
        load_design("./nowhere.toml")


def test_diff_lists_changed_fields_only() -> None:
    left, right = load_design("fp32-systolic"), load_design("fp32-systolic", ["machine.rows=64"])
    assert diff_designs(left, right) == [("machine.rows", 128, 64)]
    assert diff_designs(left, left) == []
