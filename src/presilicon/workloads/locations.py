"""Where in the user's own source an error came from."""

from __future__ import annotations

import linecache
import traceback
from pathlib import Path
from types import TracebackType

import torch

_TORCH = str(Path(torch.__file__).parent)
_MACHINERY = frozenset(
    str(Path(__file__).with_name(f"{module}.py"))
    for module in ("capture", "flows", "layers", "operators", "products", "recorder", "replica", "storages")
)


def locate(trace: TracebackType | None) -> str:
    """File, line and text of the innermost frame that is neither torch's nor capture's; empty when there is none."""
    found = ""
    for frame, line in traceback.walk_tb(trace):
        file = frame.f_code.co_filename
        if file.startswith((_TORCH, "<frozen")) or file in _MACHINERY:
            continue
        text = linecache.getline(file, line).strip()
        found = f"{file}:{line}" + (f" (`{text}`)" if text else "")
    return found
