"""One design for each value of a variation."""

import pytest

from presilicon.base import ConfigError
from presilicon.designs import load_design, vary_designs
from presilicon.designs.variation import split_values


def test_several_variations_make_every_combination() -> None:
    designs = vary_designs("bf16-systolic", ["machine.sram_kib=512"], ["machine.rows=32,64", "machine.cols = 8, 16"])
    assert [(design.machine.rows, design.machine.cols) for design in designs] == [(32, 8), (32, 16), (64, 8), (64, 16)]
    assert {design.machine.sram_kib for design in designs} == {512}
    assert designs[1].name == "bf16-systolic[machine.rows=32, machine.cols=16]"


def test_formats_with_commas_are_values() -> None:
    first, second = vary_designs("bf16-systolic", vary=["numerics.weight=e4m3,bfp(mantissa=4, group=4)"])
    assert str(first.numerics.weight) == "e4m3"
    assert second.name == "bf16-systolic[numerics.weight=bfp(mantissa=4, group=4)]"


def test_numerics_apply_to_every_design() -> None:
    designs = vary_designs("bf16-systolic", vary=["machine.rows=32,64"], numerics="fp32")
    assert {str(design.numerics.weight) for design in designs} == {"float32"}


def test_methods_vary_beside_a_design_without_any() -> None:
    vary = ["methods=none,batch-growth,batch-growth+measure-zeros", "machine.rows=32,64"]
    designs = vary_designs("bf16-systolic", ["machine.sram_kib=512"], vary)
    names = [[method.member_name for method in design.methods] for design in designs]
    assert names == [[], [], ["batch-growth"], ["batch-growth"], *[["batch-growth", "measure-zeros"]] * 2]
    assert designs[2].name == "bf16-systolic[methods=batch-growth, machine.rows=32]"
    [plain, grown] = vary_designs("bf16-systolic", vary=["methods=none,batch-growth", "method.batch-growth.factor=4"])
    assert (plain.methods, [method.factor for method in grown.methods]) == ((), [4])
    with pytest.raises(ConfigError, match="--method measure-zeros is for every design already"):
        vary_designs("bf16-systolic", vary=["methods=none,batch-growth"], methods=["measure-zeros"])


def test_without_a_variation_it_is_the_design_itself() -> None:
    assert vary_designs("bf16-systolic", ["machine.rows=8"]) == [load_design("bf16-systolic", ["machine.rows=8"])]


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("1,2", ["1", "2"]),
        ("[1, 2], {a = 1, b = 2}", ["[1, 2]", "{a = 1, b = 2}"]),
        ("'a, b',\"c, (d\"", ["'a, b'", '"c, (d"']),
        ("f(g(1, 2), 3),4", ["f(g(1, 2), 3)", "4"]),
        ("1,", ["1", ""]),
    ],
)
def test_values_are_split_at_commas_outside_brackets_and_quotes(text, values) -> None:
    assert split_values(text) == values


@pytest.mark.parametrize(
    ("settings", "vary", "sentence"),
    [
        ([], ["machine.rows"], "write a path and its values"),
        ([], ["=1,2"], "write a path and its values"),
        ([], ["machine.rows=1,,2"], "write a path and its values"),
        ([], ["machine.rows=32,32"], "are the same design"),
        ([], ["machine.rows=32,0x20"], "are the same design"),
        ([], ["name=a,b"], "designs are named after what varies"),
        (["numerics.weight.format=bfloat16"], ["numerics.weight=float32,e5m2"], "is set or varied already"),
        ([], ["nonsense.path=1,2"], '--vary "nonsense.path=1"'),
        ([], ["machine.rows=1,2", "machine.rows=3,4"], "machine.rows is set or varied already"),
        (["machine.rows=8"], ["machine.rows=1,2"], "machine.rows is set or varied already"),
        ([], ["machine.rowz=1,2"], 'did you mean "rows"'),
        ([], ["machine.rows=1,many"], "expected int"),
        ([], ["machine.rows=8,16", "numerics=bf16,int8"], "with machine.rows=8 numerics=bf16.*expected table"),
        (["machine.rows=32,64"], [], "expected int; for .* --vary machine.rows=32,64"),
        ([], ["description=" + "x" * 99 + ",b"], "100 characters"),
    ],
)
def test_what_cannot_be_varied_is_explained(settings, vary, sentence) -> None:
    with pytest.raises(ConfigError, match=sentence):
        vary_designs("bf16-systolic", settings, vary)
