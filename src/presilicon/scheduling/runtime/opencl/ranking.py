"""The latency indicator against measured times: does it rank the kernels of a real device?"""

from collections.abc import Callable, Sequence
from itertools import product
from math import prod
from random import Random

from msgspec import Struct

from presilicon.base import ConfigError
from presilicon.scheduling.fpga_kernels import latency_indicator
from presilicon.scheduling.runtime.opencl.boards import BoardInfo
from presilicon.scheduling.runtime.opencl.tuning import Config, Trial, Worker, attempt


class Ranking(Struct, frozen=True, kw_only=True):
    """Measured times of configurations beside their indicators."""

    device: str
    shape: tuple[int, ...]
    fmax_mhz: float
    trials: tuple[Trial, ...]
    spearman: float
    """Rank correlation of indicator and time over the accepted configurations; 1 means the same order."""
    p_value: float
    by_parameter: dict[str, float]
    """Rank correlation of each build parameter with the time."""
    best: Config
    chosen: Config
    """The configuration that the indicator would choose: the fastest among those with the smallest one."""
    loss: float
    """Time of the chosen configuration (the median of those with the smallest indicator) over the best time."""


def rank(
    info: BoardInfo, shape: Sequence[int], count: int, *, fmax_mhz: float | None = None, seed: int = 0,
    timeout_s: float = 10.0, worker: Worker | None = None, report: Callable[[Trial], None] = lambda trial: None,
) -> Ranking:  # fmt: skip
    """Time a number of MatMul configurations that differ in the four published parameters only.

    A processor has one clock whatever the kernel, so Fmax is the device's clock (or `fmax_mhz`) for all of them.
    """
    from scipy.stats import spearmanr

    if len(shape) != 3 or count < 3:
        raise ConfigError(f"a ranking needs a shape MxKxN and at least 3 configurations, not {list(shape)} and {count}")
    clock = float(fmax_mhz or info.clock_mhz or 1000)
    grid = [
        Config(units=units, simd=simd, group=group, unroll=unroll, rows=4, columns=2)
        for units, simd, group, unroll in product(
            (1, 2, 4, 8, 16), (1, 2, 4, 8, 16), (1, 2, 4, 8, 16, 32, 64), (1, 2, 4, 8, 16)
        )
    ]
    configs = Random(seed).sample(grid, min(count, len(grid)))
    worker = Worker(info.name) if worker is None else worker
    trials = []
    for trial in attempt(worker, "MatMul", configs, [shape], timeout_s):
        trials.append(trial)
        report(trial)
    worker.close()
    times = {trial.config: next(iter(trial.times_s.values())) for trial in trials if not trial.refused}
    if len(times) < 3:
        raise ConfigError(f"{info.name}: only {len(times)} of {len(configs)} configurations work; nothing to rank")
    indicators = {config: latency_indicator(prod(shape), config.group, clock) for config in times}
    result = spearmanr([indicators[config] for config in times], list(times.values()))
    parameters = {
        name: float(spearmanr([getattr(config, name) for config in times], list(times.values())).statistic)
        for name in ("units", "simd", "group", "unroll")
        if len({getattr(config, name) for config in times}) > 1
    }
    smallest = min(indicators.values())
    favourites = sorted((config for config in times if indicators[config] == smallest), key=times.__getitem__)
    best = min(times, key=times.__getitem__)
    return Ranking(
        device=info.device,
        shape=tuple(shape),
        fmax_mhz=clock,
        trials=tuple(trials),
        spearman=float(result.statistic),
        p_value=float(result.pvalue),
        by_parameter=parameters,
        best=best,
        chosen=favourites[0],
        loss=times[favourites[len(favourites) // 2]] / times[best],
    )
