"""Values whose classes are in a file of the user, sent to a spawned process."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

from presilicon.workloads.user import load_file

Files = tuple[tuple[Path, str], ...]
"""Arguments of `load_file` for the files that the classes of a data set are defined in."""


class Portable:
    """A value that a spawned process can unpickle although its class is in a file of the user."""

    def __init__(self, value: Any, files: Files) -> None:
        self.value, self._files = value, files

    def __getstate__(self) -> tuple[bytes, Files]:
        return pickle.dumps(self.value), self._files

    def __setstate__(self, state: tuple[bytes, Files]) -> None:
        packed, self._files = state
        for file, shown in self._files:
            load_file(file, shown)
        self.value = pickle.loads(packed)
