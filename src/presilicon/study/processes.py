"""Worker processes: how they start, and that they end with the process that started them."""

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Any


def process_context(preload: Sequence[str]) -> Any:
    """How workers start: never forked from this process, which may have run parallel Numba.

    On Linux they are forked from a server that has imported what they need and run nothing: the imports take seconds.
    """
    if sys.platform != "linux":
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(preload))
    return context


def prepare_worker(environment: Mapping[str, str]) -> None:
    """Take the environment of the parent, leave Ctrl-C to it, and end with it."""
    os.environ.clear()  # that of the server may be older
    os.environ.update(environment)
    # Ctrl-C reaches the whole process group; the parent alone decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_die_with_parent, daemon=True).start()


def _die_with_parent() -> None:
    """End this worker when its parent was killed, instead of working on for nobody."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
