"""The directory in which the package keeps what it can make again."""

import os
from pathlib import Path


def cache_directory(part: str) -> Path:
    """A directory in PRESILICON_CACHE or the user's cache; it may not exist."""
    chosen = os.environ.get("PRESILICON_CACHE")
    if chosen:
        return Path(chosen) / part
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(home) / "presilicon" / part
