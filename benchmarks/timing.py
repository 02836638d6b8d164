"""Times taken in turns, so that all rows meet the same load."""

import time
from collections.abc import Callable
from statistics import median


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


def median_ratios(works: dict[str, Callable[[], object]], base: str, repeats: int) -> dict[str, float]:
    """The median, over the turns, of each work's CPU time over that of `base` right before it."""
    for work in works.values():
        work()
    ratios: dict[str, list[float]] = {name: [] for name in works if name != base}
    for _ in range(repeats):
        for name, samples in ratios.items():
            times = [_time(works[base]), _time(works[name])]
            samples.append(times[1] / times[0])
    return {name: median(samples) for name, samples in ratios.items()}


def _time(work: Callable[[], object]) -> float:
    """CPU time, which does not count the turns of other processes."""
    begin = time.process_time()
    work()
    return time.process_time() - begin
