"""Splitting of work over as many threads as torch uses.

These are plain threads around kernels that release the interpreter lock. Unlike Numba's parallel loops they keep the
kernels vectorised, can be entered from several threads at once (autograd does that), and survive a fork.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache

from presilicon.base.lazy import torch

SMALLEST_SHARE = 1 << 15
"""Elements below which a second thread costs more than it saves."""


@lru_cache(maxsize=1)
def _pool(process: int, workers: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=workers, thread_name_prefix="presilicon")


def split_over_threads(work: Callable[[int, int], None], count: int, multiple: int = 16, weight: int = 1) -> None:
    """Call `work(start, stop)` over [0, count), in one share per torch thread.

    Shares begin at multiples of `multiple`; `weight` is the number of elements that one item stands for.
    """
    threads = min(torch.get_num_threads(), max(1, count * weight // SMALLEST_SHARE))
    if threads == 1:
        work(0, count)
        return
    share = -(-count // (threads * multiple)) * multiple
    bounds = [(start, min(start + share, count)) for start in range(0, count, share)]
    pool = _pool(os.getpid(), torch.get_num_threads())
    futures = [pool.submit(work, start, stop) for start, stop in bounds[1:]]
    work(*bounds[0])
    for future in futures:
        future.result()
