"""Where built models and synthesis results are kept: PRESILICON_CACHE, or the user's cache directory."""

import os
from pathlib import Path


def cache_directory() -> Path:
    """The folder of everything that can be made again; it may not exist yet."""
    chosen = os.environ.get("PRESILICON_CACHE")
    if chosen:
        return Path(chosen) / "rtl"
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(home) / "presilicon" / "rtl"
