from pathlib import Path

import pytest
import torch
from msgspec.structs import replace

from presilicon.base import ConfigError
from presilicon.designs import Numerics, Override, RoleFormat, load_design, load_recipe, recipe_names
from presilicon.formats import parse, quantize
from presilicon.records import Op, StepGraph, TensorRef
from presilicon.simulation import simulate


@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_loads_and_says_where_it_comes_from(name: str) -> None:
    recipe = load_recipe(name)
    assert recipe.description
    assert recipe.source
    assert load_design("fp32-systolic", numerics=name).numerics == recipe.numerics


def test_a_design_file_may_name_a_recipe(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    text = 'name = "mine"\nnumerics = "bf16"\n[machine]\nkind = "systolic"\nrows = 8\ncols = 8\nclock_ghz = 1\n'
    path.write_text(text)
    assert load_design(path).numerics == load_recipe("bf16").numerics
    assert str(load_design(path, ["numerics.error=e5m2"]).numerics.error.format) == "e5m2"
    path.write_text(text.replace("bf16", "bf61"))
    with pytest.raises(ConfigError, match=r"mine.toml, line 2, \$.numerics: unknown numerics .bf61"):
        load_design(path)


def test_tensorfloat_takes_32_bits_in_memory_and_no_copy_of_the_weights(bare_table) -> None:
    weight = TensorRef(0, (8, 8), "weight")
    read = Op(
        index=0,
        name="read",
        kind="elementwise",
        operator="aten.abs",
        phase="forward",
        layer="",
        inputs=(weight,),
        outputs=(TensorRef(1, (8, 8), "activation"),),
        flops=64,
    )
    master = TensorRef(0, (8, 8), "master")
    update = replace(read, index=1, name="update", phase="update", inputs=(master,), outputs=(master,))
    graph = StepGraph(name="tiny", batch_size=1, ops=(read, update), parameters=(weight,))
    settings = [f"machine.technology={bare_table}"]  # no leakage: the narrower array would leak less
    costs = {
        name: simulate(graph, load_design("fp32-systolic", settings, numerics=name))
        for name in ("fp32", "tf32", "bf16")
    }
    assert costs["tf32"] == costs["fp32"]
    assert len(costs["bf16"].ops) == 3


def test_a_format_must_fit_in_the_bits_it_is_stored_in() -> None:
    with pytest.raises(ConfigError, match="stored_bits: given 8, but tf32 needs 19"):
        load_design("fp32-systolic", ["numerics.weight.format=tf32", "numerics.weight.stored_bits=8"])


def test_hybrid_fp8_saturates_forward_and_overflows_backward() -> None:
    numerics = load_recipe("fp8-hybrid").numerics
    values = torch.tensor([1.0, -449.0, 500.0, 1e9, -torch.inf, torch.nan])
    saturated = values.clamp(-448.0, 448.0).to(torch.float8_e4m3fn).float()  # as torchao casts
    for role in (numerics.weight, numerics.activation):
        assert torch.equal(quantize(values, role.format).nan_to_num(9.0), saturated.nan_to_num(9.0))
    assert quantize(values, numerics.error.format).isinf().sum() == 2


def test_a_role_takes_the_spelling_of_a_format() -> None:
    for value in ("e4m3fn", parse("e4m3fn"), RoleFormat(parse("e4m3fn"))):
        assert Numerics(weight=value).weight == RoleFormat(parse("e4m3fn"))
        assert Override(layers="a", error=value).error == RoleFormat(parse("e4m3fn"))
    with pytest.raises(ConfigError, match="e4m3fm"):
        Numerics(weight="e4m3fm")
    with pytest.raises(ConfigError, match="weight: must be a RoleFormat, a Format or its spelling"):
        Numerics(weight=8)
