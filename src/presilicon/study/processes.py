"""Worker processes: how they start, and that they end with the process that started them."""

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from multiprocessing import forkserver, resource_tracker
from typing import Any


def process_context(preload: Sequence[str]) -> Any:
    """How workers start: never forked from this process, which may have run parallel Numba.

    On Linux they are forked from a server that has imported what they need and run nothing: the imports take seconds.
    """
    if sys.platform != "linux":
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(preload))
    with starting_workers():
        forkserver.ensure_running()
    first = context.Process(target=_do_nothing)  # starts when the server has imported everything
    first.start()
    first.join()
    return context


def _do_nothing() -> None:
    """The task of a process that only shows that processes can start."""


@contextmanager
def starting_workers() -> Iterator[None]:
    """A context in which processes start that Ctrl-C never reaches, not even while they import what they need.

    Ctrl-C goes to the whole process group, and the parent alone decides what it means. In the parent it counts when
    the context ends, when all workers are known and can be told to stop.
    """
    if sys.platform == "win32" or threading.current_thread() is not threading.main_thread():
        yield
        return
    resource_tracker.ensure_running()  # it would let the signal through when it starts
    arrived: list[int] = []
    handler = signal.signal(signal.SIGINT, lambda number, frame: arrived.append(number))
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # inherited by processes, as the handler is not
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        signal.signal(signal.SIGINT, handler)
        if arrived:
            signal.raise_signal(signal.SIGINT)


def prepare_worker(environment: Mapping[str, str]) -> None:
    """Take the environment of the parent, leave Ctrl-C to it, and end with it."""
    os.environ.clear()  # that of the server may be older
    os.environ.update(environment)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # see `starting_workers`
    threading.Thread(target=_die_with_parent, daemon=True).start()


def _die_with_parent() -> None:
    """End this worker when its parent was killed, instead of working on for nobody."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
