"""Devices on which layers are timed: a CUDA card with its energy counter, or the processor."""

import ctypes
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Protocol

import torch

from presilicon.base import ConfigError, MissingToolError
from presilicon.cards.layers import Layer
from presilicon.scheduling import Nvml

Precision = Literal["fp32", "tf32", "bf16"]
"""`bf16` has everything in bfloat16, weights too."""
UNITS: dict[Precision, str] = {"fp32": "float32", "tf32": "tf32", "bf16": "bfloat16"}
"""The matrix unit that products of each precision run on."""


class Bench(Protocol):
    """A device on which layers are timed."""

    device: str
    """As torch names it."""
    required: Sequence[Precision]
    """Precisions that its design must have a unit of."""
    tolerance: float
    """How much longer its `probe` may take than it usually does."""

    def admits(self, layer: Layer, precision: Precision) -> bool:
        """Whether a layer takes milliseconds, not seconds."""
        ...

    def recording(self) -> Any:
        """A context in which layers are built and run."""
        ...

    def timed(self, run: Callable[[], Any], window_s: float) -> dict[str, Any]:
        """Fields of a `LayerTime`: microseconds, and with a window the watts."""
        ...

    def recover(self) -> None:
        """Called after a layer that failed."""
        ...

    def probe(self) -> float:
        """Seconds of a product that is always the same: longer than before where something slows the device down."""
        ...

    def slowed_by(self) -> list[str]:
        """Reasons for which it is slowed down now, as far as they are known."""
        ...


class EnergyMeter:
    """Average power from the first to the last change of NVML's energy counter.

    The counter moves some ten times a second: between two of its changes, energy and time are known well.
    """

    def __init__(self, nvml: Nvml) -> None:
        self._nvml, self._last = nvml, nvml.joules()
        self._changes: list[tuple[float, float]] = []

    def look(self) -> None:
        """Note the counter if it has moved."""
        joules = self._nvml.joules()
        if joules != self._last:
            self._last = joules
            self._changes.append((time.perf_counter(), joules))

    @property
    def is_ready(self) -> bool:
        """Whether the counter has moved twice."""
        return len(self._changes) > 1

    def watts(self) -> float:
        """Average power.

        Raises:
            MissingToolError: the counter has not moved twice.
        """
        if not self.is_ready:
            raise MissingToolError("the GPU's energy counter does not move: NVML cannot measure the power of this card")
        (begin, first), (end, last) = self._changes[0], self._changes[-1]
        return (last - first) / (end - begin)


class CudaBench:
    """The current CUDA card, on which layers are replayed as graphs.

    Raises:
        MissingToolError: there is no CUDA device, or its power cannot be read.
        ConfigError: other programs use the card.
    """

    device = "cuda"
    required: Sequence[Precision] = ("fp32", "tf32", "bf16")
    tolerance = 1.25
    _FP32_FLOPS = 6e11  # takes some milliseconds at most

    def __init__(self) -> None:
        if not torch.cuda.is_available():
            raise MissingToolError("no CUDA device is seen: a card is characterized where it is")
        self.nvml = Nvml(torch.cuda.current_device())
        busy = self.nvml.busy_percent()
        if busy > 20:
            raise ConfigError(f"the card is busy ({busy}%): characterize it when nobody else uses it")

    def admits(self, layer: Layer, precision: Precision) -> bool:
        """All but large products in float32."""
        return precision != "fp32" or layer.flops <= self._FP32_FLOPS

    @contextmanager
    def recording(self) -> Iterator[None]:
        """A stream of its own, as graphs need."""
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            yield

    def timed(self, run: Callable[[], Any], window_s: float) -> dict[str, Any]:
        """A CUDA graph of some repetitions; power is that of the working card, in two halves of the window.

        A look at the counter takes some milliseconds after every ten. The card waits in the meantime, which is
        subtracted; so it stays below its power cap, at its highest clock.
        """
        for _ in range(2):
            run()
        torch.cuda.synchronize()
        start = time.perf_counter()
        run()
        torch.cuda.synchronize()
        eager_s = time.perf_counter() - start
        repeats = max(1, min(20, int(5e-4 / eager_s)))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=torch.cuda.current_stream(), capture_error_mode="thread_local"):
            for _ in range(repeats):
                run()
        replay_s = min(_replays(graph, 1) for _ in range(2))
        count = max(1, min(40, int(2e-3 / replay_s)))
        time_us = min(_replays(graph, count) for _ in range(3)) / repeats * 1e6
        if not window_s:
            return {"time_us": round(time_us, 3)}
        _for_seconds(graph, 0.15, replay_s, EnergyMeter(self.nvml))
        time_us, powers, clock = 0.0, [], 0
        for _ in range(2):
            meter = EnergyMeter(self.nvml)
            passed_s, busy = _for_seconds(graph, window_s / 2, replay_s, meter)
            powers.append(self.waiting_w + (meter.watts() - self.waiting_w) / busy)
            time_us, clock = passed_s / repeats * 1e6, self.nvml.clock_mhz()
        return {
            "time_us": round(time_us, 3),
            "power_w": round(sum(powers) / 2, 1),
            "spread_w": round(abs(powers[0] - powers[1]), 1),
            "clock_mhz": clock,
        }

    def recover(self) -> None:
        """A recording that failed leaves the card's generator in the middle of it."""
        generator = torch.cuda.default_generators[torch.cuda.current_device()]
        generator.graphsafe_set_state(torch.Generator("cuda").graphsafe_get_state())

    def probe(self) -> float:
        """A product that takes a fraction of a millisecond, in bfloat16."""
        torch.cuda.empty_cache()
        x = torch.ones(4096, 4096, device="cuda", dtype=torch.bfloat16)

        def run() -> None:
            for _ in range(10):
                x @ x
            torch.cuda.synchronize()

        return min(_seconds(run, 1) for _ in range(6))

    def slowed_by(self) -> list[str]:
        """Reasons that NVML gives; the power cap is none, since layers are measured below it."""
        return [reason for reason in self.nvml.slowed_by() if reason != "the power cap"]

    @cached_property
    def waiting_w(self) -> float:
        """Watts of a card that waits at the clock of a busy one: a tiny kernel keeps the clock up."""
        x, meter, begin = torch.zeros(1, device="cuda"), EnergyMeter(self.nvml), time.perf_counter()
        while time.perf_counter() - begin < 2:
            x.add_(1)
            torch.cuda.synchronize()
            time.sleep(0.001)
            meter.look()
        return meter.watts()


def keep_memory() -> None:
    """Let the C library keep freed memory, as a card's allocator does, where it can be told to.

    By default it returns large blocks to the operating system, and their pages are cleared again in every step: how
    much that costs depends on all that was allocated before.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_MAX, 0)
        mallopt(_TRIM_THRESHOLD, -1)


_TRIM_THRESHOLD, _MMAP_MAX = -1, -4
"""Numbers of options in malloc.h: blocks at the end of the heap that are returned, and blocks outside of the heap."""


class CpuBench:
    """The processor, with torch's threads and memory that is kept.

    Raises:
        ConfigError: other programs use the processor.
    """

    device = "cpu"
    required: Sequence[Precision] = ("fp32",)
    tolerance = 1.5  # clocks of processors change by a third
    _FLOPS, _ELEMENTS = 2e9, 1 << 22

    def __init__(self) -> None:
        load = os.getloadavg()[0]
        if load > 0.5:
            raise ConfigError(
                f"the processor is busy (a load of {load:.1f} in the last minute): try again when nothing else runs"
            )
        keep_memory()

    def admits(self, layer: Layer, precision: Precision) -> bool:
        """Layers of some megabytes and gigaflops."""
        return layer.flops <= self._FLOPS and layer.elements <= self._ELEMENTS

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Nothing special."""
        yield

    def timed(self, run: Callable[[], Any], window_s: float) -> dict[str, Any]:
        """The least of five groups of runs."""
        if window_s:
            raise MissingToolError("the power of layers is measured on CUDA cards only")
        once = min(_seconds(run, 1) for _ in range(2))
        count = max(1, min(500, int(4e-3 / once)))
        return {"time_us": round(min(_seconds(run, count) for _ in range(5)) * 1e6, 3)}

    def recover(self) -> None:
        """Nothing is left behind."""

    def probe(self) -> float:
        """A product that takes some milliseconds."""
        x = torch.ones(768, 768)
        return min(_seconds(lambda: x @ x, 2) for _ in range(12))

    def slowed_by(self) -> list[str]:
        """Not known."""
        return []


def processor_name() -> str:
    """The name of this machine's processor, with the threads that torch uses."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    name = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "processor")
    return f"{name}, {torch.get_num_threads()} threads"


def _seconds(run: Callable[[], Any], count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        run()
    return (time.perf_counter() - start) / count


def _replays(graph: torch.cuda.CUDAGraph, count: int) -> float:
    """Seconds of one of some replays."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    start.record()
    for _ in range(count):
        graph.replay()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / 1e3 / count


def _for_seconds(
    graph: torch.cuda.CUDAGraph, seconds: float, replay_s: float, meter: EnergyMeter
) -> tuple[float, float]:
    """Replay for some time, up to four times as long until the meter is ready.

    Seconds of one replay, and the share of the time in which the card worked.
    """
    group, passes, worked_s = max(1, int(0.01 / replay_s)), 0, 0.0
    begin = now = time.perf_counter()
    while now - begin < seconds or (not meter.is_ready and now - begin < 4 * seconds):
        start = time.perf_counter()
        for _ in range(group):
            graph.replay()
        torch.cuda.synchronize()
        worked_s, passes = worked_s + time.perf_counter() - start, passes + group
        meter.look()
        now = time.perf_counter()
    return worked_s / passes, worked_s / (now - begin)
