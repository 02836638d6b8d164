"""Which modules belong to installed packages, whose versions say what they compute."""

import os
import re
import sys
import sysconfig
from functools import cache
from importlib.util import find_spec
from pathlib import Path


@cache
def _libraries() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    return tuple({paths[name] + os.sep for name in ("stdlib", "platstdlib", "purelib", "platlib")})


def is_installed(module: str | None) -> bool:
    """Whether a module belongs to Python, to an installed package, or to this one: a version says what it computes."""
    top = (module or "builtins").partition(".")[0]
    if top == "__main__":
        return False
    loaded = sys.modules.get(top)
    file = getattr(loaded, "__file__", None)
    if top == __package__.partition(".")[0] or top in sys.builtin_module_names:
        return True
    if top in sys.stdlib_module_names and (file is None or str(file).startswith(_libraries())):
        return True  # a script's folder may have a module of that name
    if loaded is None:
        try:
            spec = find_spec(top)
        except (ImportError, ValueError):
            spec = None
        file = None if spec is None else spec.origin
    if file is None:
        folders = list(getattr(loaded, "__path__", ()))  # a package without __init__.py
        file = folders[0] if folders else None
    if file is None:
        return False
    if str(file).startswith(_libraries()) or re.search(r"[/\\](site|dist)-packages[/\\]", str(file)) is not None:
        return True
    place = Path(file)
    return top in _listed_in(str(place.parent.parent if place.stem == "__init__" else place.parent))


@cache
def _listed_in(folder: str) -> frozenset[str]:
    """The packages that were installed into a folder of their own, as with `pip install --target`."""
    records = [path for path in Path(folder).glob("*.dist-info/RECORD") if path.is_file()]
    lines = (line for path in records for line in path.read_text(encoding="utf-8", errors="replace").splitlines())
    return frozenset(line.partition(",")[0].partition("/")[0].removesuffix(".py") for line in lines)


def package_of(module: str) -> str:
    """An installed package and its version; this package's own meaning has numbers of its own."""
    top = module.partition(".")[0]
    if top == __package__.partition(".")[0] or top in sys.stdlib_module_names:
        return top
    return f"{top} {getattr(sys.modules.get(top), '__version__', '')}"
