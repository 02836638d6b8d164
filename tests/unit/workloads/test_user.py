"""A workload in a file of its own."""

import pickle
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from presilicon import ConfigError, load_workload
from presilicon.base import RunFailedError
from presilicon.workloads import capture_workload
from presilicon.workloads.user import files_of

EXAMPLE = Path(__file__).parents[3] / "examples" / "my_workload.py"


def _write(tmp_path: Path, text: str) -> str:
    file = tmp_path / "mine.py"
    file.write_text(text)
    return str(file)


def test_the_example_is_a_workload() -> None:
    workload = load_workload(str(EXAMPLE))
    assert workload.name == "spirals"
    workload.require_picklable()
    assert pickle.loads(pickle.dumps(workload)).describe() == workload.describe()
    assert len(capture_workload(workload).ops) > 5
    # The file's content is part of the description, its place is not.
    described = workload.describe()["model"]
    assert described.startswith("my_workload.model #")
    assert load_workload(EXAMPLE) is workload


def test_only_the_files_of_a_workload_travel_with_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        load_workload(_write(tmp_path, "x = 1\n"))
    workload = load_workload(str(EXAMPLE))
    assert files_of(workload) == ((EXAMPLE.resolve(), str(EXAMPLE)),)
    assert files_of(replace(workload, optimizer=partial(map, workload.model))) == files_of(workload)
    assert files_of(load_workload("digits-mlp")) == ()


def test_a_function_may_make_the_workload(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("NAME = 'from beside'\n")
    file = _write(
        tmp_path,
        "import presilicon as ps\nfrom beside import NAME\n"
        "def workload():\n    return ps.Workload(name=NAME, model=dict, example=dict)\n",
    )
    assert load_workload(file).name == "from beside"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1\n", "mine.py must have a `workload`: .* it has nothing of that name"),
        ("workload = 3\n", "it has a int"),
        ("import presilicon as ps\n\n1 / 0\n", "mine.py, line 3: ZeroDivisionError: division by zero"),
        ("x = (\n", "mine.py, line 1: SyntaxError: '\\(' was never closed"),
        (
            "import presilicon as ps\nworkload = ps.Workload(name='', model=dict)\n",
            "mine.py, line 2: a workload's name",
        ),
        ("def workload():\n    raise OSError('disk')\n", "mine.py, line 2, in workload: OSError: disk"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_workload(_write(tmp_path, text))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"workload file nowhere\.py: there is no such file"):
        load_workload("nowhere.py")


def test_a_missing_data_set_is_said_with_file_and_line(tmp_path: Path) -> None:
    file = _write(
        tmp_path,
        "import presilicon as ps\n"
        "def data():\n"
        "    return open('no-such-data.npz')\n"
        "workload = ps.Workload(name='mine', model=dict, data=data, target=0.5)\n",
    )
    with pytest.raises(RunFailedError, match=r"mine\.py, line 3, in data: FileNotFoundError: .*no-such-data\.npz"):
        capture_workload(load_workload(file))


BROKEN = """
class Broken(nn.Linear):
    def forward(self, x):
        return x.no_such_method()


workload ="""


def test_an_error_in_the_model_is_said_with_file_and_line(tmp_path: Path) -> None:
    broken = EXAMPLE.read_text().replace("model=model", "model=partial(Broken, 2, 2)").replace("\nworkload =", BROKEN)
    with pytest.raises((RunFailedError, ConfigError), match=r"mine\.py, line \d+, in forward: .*no_such_method"):
        capture_workload(load_workload(_write(tmp_path, broken)))
