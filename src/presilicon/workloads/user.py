"""Workloads in Python files of the user."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from functools import partial
from hashlib import sha256
from importlib import invalidate_caches
from importlib.util import cache_from_source, module_from_spec, spec_from_file_location
from pathlib import Path
from re import sub
from traceback import extract_tb
from types import ModuleType

from presilicon.base import EMPTY, ConfigError, PresiliconError, RunFailedError, is_installed, read_file
from presilicon.workloads.settings.metric import Metric
from presilicon.workloads.workload import Workload

_files: dict[Path, str] = {}
"""Absolute paths of the files that were loaded, and the path to show for each in messages."""

_modules: dict[str, Path] = {}
"""Path of each loaded module's file."""

_folders: list[str] = []
"""Folders of loaded files, the latest first: where they find modules."""

_helpers: dict[str, dict[str, tuple[Path, tuple[int, int]]]] = {}
"""Modules of the user's that each loaded file may have imported: their files as they were then."""


def load_file(file: str | Path, shown: str | None = None) -> Workload:
    """The workload in a Python file: its variable `workload`, or the result of its function `workload`.

    The file is run once, as a module whose name ends in a digest of its text and place. It may import modules from its
    folder; it is run again when it or one of them has changed. Messages call it `shown`.

    Raises:
        ConfigError: there is no such file, it cannot be run, or it has no workload; with the line if it is known.
    """
    path = Path(file)
    try:
        text = read_file(path, again=True)
    except ConfigError as error:
        raise ConfigError(f"workload file {error}") from None
    resolved = path.resolve()
    _files[resolved] = shown or str(file)
    digest = sha256(text + str(resolved.parent).encode()).hexdigest()
    name = f"{sub(r'[^A-Za-z0-9_]', '_', path.stem)}_{digest[:8]}"
    _forget_changed(name)
    is_loaded, before = name in sys.modules, set(sys.modules)
    with workload_errors(as_config=True):
        workload = getattr(sys.modules.get(name) or _run(resolved, name), "workload", None)
        workload = workload() if callable(workload) else workload
    if not isinstance(workload, Workload):
        what = "nothing of that name" if workload is None else f"a {type(workload).__name__}"
        raise ConfigError(
            f"{file} must have a `workload`: a presilicon.Workload(...) or a function that returns one; it has {what}"
        )
    if not is_loaded:
        workload.content()  # imports what its functions import
        _note_helpers(name, before)
    return workload


def files_of(workload: Workload) -> tuple[tuple[Path, str], ...]:
    """Arguments of `load_file` for the functions of a workload; another process must load them before unpickling."""
    names = {name for field in fields(workload) for name in _modules_of(getattr(workload, field.name))}
    return tuple((_modules[name], _files[_modules[name]]) for name in sorted(names & _modules.keys()))


def _modules_of(value: object) -> Iterator[str]:
    if isinstance(value, partial):
        for part in (value.func, *value.args, *value.keywords.values()):
            yield from _modules_of(part)
    elif isinstance(value, Metric):
        yield from _modules_of(value.compute)
    elif callable(value):
        yield str(getattr(value, "__module__", type(value).__module__))


@contextmanager
def workload_errors(*, as_config: bool = False) -> Iterator[None]:
    """Add the line of the user's file to errors that passed through one; other errors are not changed."""
    try:
        yield
    except Exception as error:
        location = _locate(error)
        if location is None:
            raise
        text = str(error) if isinstance(error, PresiliconError) else f"{type(error).__name__}: {error}".rstrip(": ")
        kind = ConfigError if as_config or isinstance(error, ConfigError) else RunFailedError
        raise kind(f"{location}: {text}") from error


def _forget_changed(name: str) -> None:
    """Let Python import a file's modules again, and run the file again, if one of them has changed since."""
    helpers = _helpers.get(name, {})
    if all(_stamp(file) == stamp for file, stamp in helpers.values()):
        return
    for module, (file, _) in helpers.items():
        sys.modules.pop(module, None)
        # Python tells versions of a file apart by size and second, which an edit can leave the same.
        Path(cache_from_source(str(file))).unlink(missing_ok=True)
    sys.modules.pop(name, None)
    invalidate_caches()


def _stamp(file: Path) -> tuple[int, int]:
    """Time and size of a file, by which versions differ."""
    try:
        status = file.stat()
    except OSError:
        return 0, 0
    return status.st_mtime_ns, status.st_size


def _run(path: Path, name: str) -> ModuleType:
    folder = str(path.parent)
    # At the end, because a file in that folder must not hide a module of the same name; the latest folder is the first.
    others = [place for place in _folders if place != folder]
    sys.path[:] = [*(place for place in sys.path if place not in _folders), folder, *others]
    _folders[:] = [folder, *others]
    for helper in {helper for helpers in _helpers.values() for helper in helpers}:
        place = path.parent / helper.replace(".", "/")
        own = [str(file) for file in (Path(f"{place}.py"), place / "__init__.py") if file.exists()]
        if own and getattr(sys.modules.get(helper), "__file__", own[0]) not in own:
            del sys.modules[helper]  # of another folder
    spec = spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    vars(module)["__stem__"] = path.stem
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    _modules[name] = path
    return module


def _note_helpers(name: str, before: set[str]) -> None:
    """Note the modules of the user's that a file has imported, as they are now, before their functions run."""
    _note_empty(sys.modules[name])
    known = {helper for helpers in _helpers.values() for helper in helpers}
    for imported in (sys.modules.keys() - before - {name}) | known:
        file = getattr(sys.modules.get(imported), "__file__", None)
        if file is not None and not is_installed(imported):
            _helpers.setdefault(name, {})[imported] = Path(file), _stamp(Path(file))
            _note_empty(sys.modules[imported])


def _note_empty(module: ModuleType) -> None:
    """Note the names to which a module's functions may add, such as a table of what they have loaded."""
    space = vars(module)
    names = (name for name, value in space.items() if value is None or (type(value) in (list, dict, set) and not value))
    space.setdefault(EMPTY, frozenset(names))


def _locate(error: BaseException | None) -> str | None:
    """The innermost line of a user's file that an error, or its cause, passed through."""
    if error is None:
        return None
    if isinstance(error, SyntaxError) and error.filename is not None and Path(error.filename) in _files:
        return f"{_files[Path(error.filename)]}, line {error.lineno}"
    for frame in reversed(extract_tb(error.__traceback__)):
        if Path(frame.filename) in _files:
            inside = "" if frame.name.startswith("<") else f", in {frame.name}"
            return f"{_files[Path(frame.filename)]}, line {frame.lineno}{inside}"
    return _locate(error.__cause__)
