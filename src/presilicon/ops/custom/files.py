"""Operators in a user's Python file: `my_ops.py:approximate_tanh`."""

import linecache
import sys
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from re import sub
from types import ModuleType

from presilicon.base import ConfigError, did_you_mean, read_file
from presilicon.ops.custom.operator import Operator


def load_operator(reference: str) -> Operator:
    """The operator that a reference names: a Python file, a colon, and a name in it.

    The file is run once, as a module of its own; a text that has changed is run again.

    Raises:
        ConfigError: there is no such file or name, the file cannot be run, or what it names is no operator.
    """
    file, colon, name = reference.rpartition(":")
    if not colon or not file.endswith(".py") or not name.isidentifier():
        raise ConfigError(
            f'an operator must be a Python file and a name in it, as my_ops.py:approximate_tanh, not "{reference}"'
        )
    path = Path(file)
    try:
        text = read_file(path, again=True)
    except ConfigError as error:
        raise ConfigError(f"operator file {error}") from None
    operators = _run(path.resolve(), text)
    if name not in operators:
        raise ConfigError(f'{file} has no operator "{name}": {did_you_mean(name, operators)}')
    return operators[name]


@lru_cache(maxsize=64)
def _run(path: Path, text: bytes) -> dict[str, Operator]:
    """The operators that a file defines."""
    name = f"{sub(r'[^A-Za-z0-9_]', '_', path.stem)}_{sha256(text).hexdigest()[:8]}"
    module = ModuleType(name)
    module.__file__ = str(path)
    # Compile exactly this text and look its lines up: Python's caches can be a second behind the file.
    lines = text.decode("utf-8", "replace").splitlines(keepends=True)
    linecache.cache[str(path)] = (len(text), None, lines, str(path))
    sys.modules[name] = module
    try:
        exec(compile(text, str(path), "exec"), vars(module))
    except ConfigError:
        del sys.modules[name]
        raise
    except Exception as error:
        del sys.modules[name]
        raise ConfigError(f"operator file {path.name}: {type(error).__name__}: {error}") from error
    return {key: value for key, value in vars(module).items() if isinstance(value, Operator)}
