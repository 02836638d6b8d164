"""Whether the process that owns a run still exists."""

import os
from pathlib import Path


def process_start(pid: int) -> str | None:
    """Start time of a process in the system's ticks; None if it is gone, a zombie, or the system does not tell."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The second field is the program's name in parentheses and may hold anything: count from its end.
    fields = stat.rpartition(")")[2].split()
    return fields[19] if len(fields) > 19 and fields[0] not in "ZX" else None


def is_alive(pid: int, start: str | None) -> bool:
    """Whether the process with that pid lives and started when it should have (pids are used again).

    >>> is_alive(os.getpid(), process_start(os.getpid()))
    True
    """
    if Path("/proc/self/stat").exists():
        current = process_start(pid)
        return current is not None and start in (None, current)
    if os.name != "posix":  # signal 0 is no harmless question on Windows
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
