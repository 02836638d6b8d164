"""Provenance of a result: configuration hash, versions and commit."""

import json
import os
import platform
import subprocess
import sys
from functools import cache
from hashlib import sha256
from importlib import metadata
from pathlib import Path
from typing import Any

import msgspec

from presilicon.base import meaning

_PACKAGES = ("torch", "numba", "numpy")
_ROOT = Path(__file__).parents[1]
_GIT_TIMEOUT_S = 10


def config_hash(plain: Any) -> str:
    """The SHA-256 of a configuration as canonical JSON: equal contents give equal hashes, whatever the order of keys.

    Takes plain values (dicts, lists, numbers, texts) and msgspec structs.

    >>> config_hash({"seeds": 5, "design": "a"}) == config_hash({"design": "a", "seeds": 5})
    True
    >>> config_hash({"seeds": 5})[:12]
    '8606190fef0a'
    """
    builtins = msgspec.to_builtins(plain, str_keys=True)
    text = json.dumps(builtins, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return sha256(text.encode()).hexdigest()


def identity_hash(plain: Any) -> str:
    """The hash of a configuration and of the numbers of meaning, which say what it stands for."""
    return config_hash({"config": plain, "meaning": meaning()})


def versions() -> dict[str, str | None]:
    """The versions of Presilicon, Python and what computes numbers; None for what is not installed. Imports nothing."""
    own = getattr(sys.modules["presilicon"], "__version__", None)  # imports nothing: the parent package is always there
    installed: dict[str, str | None] = {"presilicon": own, "python": platform.python_version()}
    return installed | {package: _version(package) for package in _PACKAGES}


@cache
def _version(package: str) -> str | None:
    """The version of an installed package, which takes a millisecond to find."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


@cache
def commit(directory: Path | None = None) -> str | None:
    """The commit of the checkout that the package runs from, with `-dirty` when tracked files differ from it.

    None when the package is installed rather than checked out (also inside somebody else's checkout), or without git.
    `directory` names another directory than the package's own.
    """
    root = directory or _ROOT
    if directory is None and _git(root, "ls-files", "--error-unmatch", "__init__.py") is None:
        return None
    return _git(root, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")


def _git(directory: Path, *arguments: str) -> str | None:
    """Output of git, or None if it fails or is absent. Variables of a surrounding git hook are not inherited."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    command = ["git", "-C", str(directory), *arguments]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, env=environment, timeout=_GIT_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None
