"""Import is free: neither the package nor its help loads torch, numpy or anything heavy."""

import pytest

HEAVY = "{'torch', 'numpy', 'numba', 'sklearn', 'matplotlib', 'rich'}"


@pytest.mark.parametrize(
    "action",
    [
        "import presilicon",
        "import presilicon.formats, presilicon.records, presilicon.designs, presilicon.workloads, presilicon.runs",
        "import presilicon.report",
        "from presilicon.instrument import Firmware, compile_firmware, disassemble, read_image",
        "import presilicon.cli.main as m; assert m._run(['instrument', '--help']) == 0",
        "import presilicon.cli.main as m; assert m._run(['instrument', 'list']) == 0",
        "import presilicon.cli.main as m; assert m._run(['--help']) == 0",
        "import presilicon.cli.main as m; assert m._run(['evaluate', '--help']) == 0",
        "import presilicon.cli.main as m; assert m._run(['list', 'designs']) == 0",
        "import presilicon.cli.main as m; assert m._run(['list', 'formats']) == 0",
        "import presilicon.cli.main as m; assert m._run(['design', 'validate', 'fp8-systolic']) == 0",
        "import presilicon.cli.main as m; assert m._run(['evaluate', 'nothing', '--workload', 'digits-cnn']) == 2",
    ],
)
def test_nothing_heavy_is_loaded(python, action: str) -> None:
    out = python(f"{action}\nimport sys\nprint('loaded:', sorted(set(sys.modules) & {HEAVY}))")
    assert out.splitlines()[-1] == "loaded: []"


def test_the_top_level_resolves_every_name_it_lists(python) -> None:
    out = python("import presilicon as ps\nfor name in ps.__all__: getattr(ps, name)\nprint(len(ps.__all__))")
    assert int(out) > 15


def test_an_unknown_name_is_an_attribute_error() -> None:
    import presilicon

    with pytest.raises(AttributeError, match="nonsense"):
        _ = presilicon.nonsense


def test_formats_work_without_numba(python) -> None:
    code = """
import sys
sys.modules["numba"] = None
import presilicon as ps, torch
from importlib.util import find_spec
x = torch.linspace(-3, 3, 1001)
print(torch.equal(ps.quantize(x, ps.parse("e5m2")), x.to(torch.float8_e5m2).float()))
"""
    assert python(code).strip() == "True"
