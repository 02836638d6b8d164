"""Methods in design files and on the command line."""

import pytest

from presilicon.base import ConfigError
from presilicon.designs import METHODS, load_design, vary_designs
from presilicon.methods.batch_growth import BatchGrowth
from presilicon.methods.magnitude_pruning import MagnitudePruning

FILE = """
name = "mine"
base = "bf16-systolic"

[[methods]]
name = "magnitude-pruning"
sparsity = 0.5

[[methods]]
name = "batch-growth"
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(FILE)
    return path


def test_a_file_has_methods_in_order(file):
    assert load_design(file).methods == (MagnitudePruning(sparsity=0.5), BatchGrowth())


def test_options_add_methods_and_change_parameters(file):
    methods = load_design(file, methods=["batch-growth.factor=4", "batch-growth.limit=16"]).methods
    assert methods == (MagnitudePruning(sparsity=0.5), BatchGrowth(factor=4, limit=16))
    assert load_design("bf16-systolic", methods=["batch-growth"]).methods == (BatchGrowth(),)


def test_parameters_can_be_varied():
    names = ["bf16-systolic[method.batch-growth.factor=2]", "bf16-systolic[method.batch-growth.factor=4]"]
    designs = vary_designs("bf16-systolic", vary=["method.batch-growth.factor=2,4"])
    assert [design.name for design in designs] == names
    assert [design.methods[0].factor for design in designs] == [2, 4]


def test_a_design_without_methods_is_recorded_as_before(file):
    assert "methods" not in load_design("bf16-systolic").to_plain()
    assert [method["name"] for method in load_design(file).to_plain()["methods"]] == [
        "magnitude-pruning",
        "batch-growth",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("batch-grwth", 'unknown method "batch-grwth": did you mean "batch-growth"'),
        ("batch-growth.factr=2", 'unknown key "factr": did you mean "factor"'),
        ("batch-growth.factor", "write a name, or a name with a parameter"),
        ("batch-growth=2", "write a name, or a name with a parameter"),
        ("batch-growth.factor=1", r"\$\.methods\[0\]\.factor: given 1, expected"),
        ("magnitude-pruning.sparsity=1.0", r"\$\.methods\[0\]\.sparsity: given 1.0"),
        ("magnitude-pruning.end=50", "end must be above begin = 50, not 50"),
    ],
)
def test_a_mistake_is_one_clear_error(text, message):
    with pytest.raises(ConfigError, match=message):
        load_design("bf16-systolic", methods=[text])


def test_a_method_cannot_be_there_twice(tmp_path):
    path = tmp_path / "twice.toml"
    path.write_text(FILE + '\n[[methods]]\nname = "batch-growth"\n')
    with pytest.raises(ConfigError, match='"batch-growth" is there twice'):
        load_design(path)


def test_every_method_describes_itself():
    for method in METHODS.members().values():
        assert method.summary().endswith(".")
        assert "not described" not in (method.in_training, method.in_hardware)
