"""Generated code as files in the user's cache: Numba keeps machine code beside them, and Triton reads their source."""

import importlib.util
import sys
from hashlib import sha256
from types import ModuleType

from presilicon.base import cache_directory, write_atomically


def module_of(text: str, kind: str) -> ModuleType:
    """A module with that text.

    Raises:
        OSError, RunFailedError: the cache cannot be written.
    """
    name = f"{kind}_{sha256(text.encode()).hexdigest()[:24]}"
    path = cache_directory("programs") / f"{name}.py"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, text.encode())
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where Numba looks for the module of cached code
    spec.loader.exec_module(module)
    return module
