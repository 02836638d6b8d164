"""Times taken in turns, so that all rows meet the same load."""

import time
from collections.abc import Callable


def take_turns(works: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """The best time of each work in seconds."""
    for work in works.values():
        work()
    best = dict.fromkeys(works, float("inf"))
    for _ in range(repeats):
        for name, work in works.items():
            begin = time.perf_counter()
            work()
            best[name] = min(best[name], time.perf_counter() - begin)
    return best
