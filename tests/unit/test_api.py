"""The public API is what its page says, and nothing else is exported."""

import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import presilicon

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "api.md").read_text()
ROOMS = sorted(path.parent.name for path in (ROOT / "src" / "presilicon").glob("*/__init__.py"))


def test_the_page_is_written_from_the_package() -> None:
    done = subprocess.run([sys.executable, ROOT / "tools/list_api.py", ROOT / "docs/api.md", "--check"], text=True,
                          capture_output=True)  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


def test_the_package_exports_its_stable_names_alone() -> None:
    stable = re.findall(r"^\| `(\w+)` \|", PAGE.split("**Provisional**")[0], re.MULTILINE)
    assert stable == presilicon.__all__
    assert dir(presilicon) == sorted(presilicon.__all__)
    for name in presilicon.__all__:
        getattr(presilicon, name)


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_exports_what_it_lists(room: str) -> None:
    module = import_module(f"presilicon.{room}")
    listed = getattr(module, "__all__", [])
    assert len(set(listed)) == len(listed)
    for name in listed:
        getattr(module, name)
    public = {  # imports of typing and the machinery of deferred imports are no exports
        name for name, value in vars(module).items() if not name.startswith("_") and not isinstance(value, ModuleType)
    }
    assert public - set(listed) <= {"TYPE_CHECKING", "Any", "annotations", "deferred", "import_module"}
