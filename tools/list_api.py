"""The page of the public API, from the package itself.

python tools/list_api.py docs/api.md           # write it
python tools/list_api.py docs/api.md --check   # exit with 1 if it is not up to date
"""

import argparse
import inspect
import sys
from importlib import import_module
from pathlib import Path

import presilicon
from presilicon.base import extension_points

PROVISIONAL = (
    "base",
    "formats",
    "programs",
    "records",
    "ops",
    "designs",
    "workloads",
    "runs",
    "emulation",
    "instrument",
)
"""Rooms whose exports a package of the user's may import."""
HEAD = """# The public API

<!-- written by `python tools/list_api.py docs/api.md`; a test compares it with the package -->

**Stable**: `import presilicon as ps`. These names, their arguments and what they mean change with a deprecation first;
a change of a number that they return is listed in [CHANGELOG](../CHANGELOG.md) and raises a number of meaning
([decision 0035](decisions/0035-number-what-texts-mean.md)).

| name | |
|---|---|
"""
MIDDLE = """
**Provisional**: what a package that extends Presilicon imports from rooms. These names may change from one version to
the next; the changelog says so. Everything else is internal: modules inside rooms, and names with an underscore.

| room | names |
|---|---|
"""
TAIL = """
**Extension points**: entry-point groups under which a package registers members
([CONTRIBUTING](../CONTRIBUTING.md) has an example of each).

| group | a member is a |
|---|---|
"""


def page() -> str:
    """The whole page."""
    stable = [f"| `{name}` | {_first_line(getattr(presilicon, name))} |" for name in presilicon.__all__]
    rooms = []
    for room in PROVISIONAL:
        names = [name for name in import_module(f"presilicon.{room}").__all__ if not name.startswith("_")]
        rooms.append(f"| `presilicon.{room}` | {' '.join(f'`{name}`' for name in sorted(names))} |")
    points = [f"| `{point.group}` | {point.noun} |" for point in extension_points()]
    return HEAD + "\n".join(stable) + "\n" + MIDDLE + "\n".join(rooms) + "\n" + TAIL + "\n".join(points) + "\n"


def _first_line(value: object) -> str:
    if isinstance(value, str):
        return "the version of the package"
    return (inspect.getdoc(value) or "").splitlines()[0].replace("|", "\\|")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("path", type=Path)
    options.add_argument("--check", action="store_true")
    given = options.parse_args()
    if not given.check:
        given.path.write_text(page())
    elif given.path.read_text() != page():
        sys.exit(f"{given.path} is not up to date: run `python tools/list_api.py {given.path}`")


if __name__ == "__main__":
    main()
