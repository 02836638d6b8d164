"""Seconds and joules of the suite's layers on the card at hand."""

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import torch
from msgspec import Struct
from torch import Tensor, nn

from presilicon.base import ConfigError, MissingToolError
from presilicon.study.cards.nvml import Nvml
from presilicon.study.cards.suite import Layer

Precision = Literal["fp32", "tf32", "bf16"]
PRECISIONS: tuple[Precision, ...] = ("fp32", "tf32", "bf16")
"""`bf16` has everything in bfloat16, weights too."""
LayerPhase = Literal["forward", "input_grad", "weight_grad", "backward", "update"]
"""`backward`: both gradients at once, for layers that are no products."""
_FP32_FLOPS = 6e11
"""Largest product in float32, which takes some milliseconds at most."""


class LayerTime(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A measured phase of a layer."""

    layer: int
    """Its place in the suite."""
    precision: Precision
    phase: LayerPhase
    time_us: float
    power_w: float | None = None
    spread_w: float | None = None
    """Difference between the powers of two windows."""
    clock_mhz: int | None = None


def measure(
    layers: Sequence[Layer], chosen: Iterable[int], *, window_s: float = 0.0, stop_after_s: float = 900.0,
    progress: Callable[[int, str], None] = lambda done, text: None, notice: Callable[[str], None] = lambda text: None,
) -> list[LayerTime]:  # fmt: skip
    """Time of every phase of some layers in every precision; with a window, their power in its two halves.

    Each phase is a CUDA graph of some repetitions. `notice` is told what is left out: layers that the card cannot run,
    and those for which there is no time.

    Raises:
        MissingToolError: there is no CUDA device.
        ConfigError: other programs use the card.
    """
    if not torch.cuda.is_available():
        raise MissingToolError("no CUDA device is seen: a card is characterized where it is")
    nvml = Nvml(torch.cuda.current_device())
    if nvml.busy_percent() > 20:
        raise ConfigError(f"the card is busy ({nvml.busy_percent()}%): characterize it when nobody else uses it")
    begin, times = time.perf_counter(), []
    for done, index in enumerate(chosen):
        if time.perf_counter() - begin > stop_after_s:
            notice(f"stopped after {stop_after_s:g} s and {done} layers: the others are left out")
            break
        layer = layers[index]
        progress(done, layer.name)
        for precision in PRECISIONS:
            if precision == "fp32" and layer.flops > _FP32_FLOPS:
                continue
            if window_s and precision == "tf32" and not layer.flops:
                continue  # as in fp32
            try:
                for phase, run in _phases(layer, precision):
                    row = _timed(run, nvml, window_s)
                    times.append(LayerTime(layer=index, precision=precision, phase=phase, **row))
            except (RuntimeError, NotImplementedError) as error:
                notice(f"left out: {layer.name} {layer.arguments} in {precision}: {str(error).splitlines()[0]}")
                _renew_random_numbers()
        if done % 16 == 15:
            torch.cuda.empty_cache()
    return times


def measure_waiting(nvml: Nvml, seconds: float = 2.0) -> float:
    """Watts of a card that waits at the clock of a busy one: a tiny kernel keeps the clock up."""
    x, meter, begin = torch.zeros(1, device="cuda"), EnergyMeter(nvml), time.perf_counter()
    while time.perf_counter() - begin < seconds:
        x.add_(1)
        torch.cuda.synchronize()
        time.sleep(0.001)
        meter.look()
    return meter.watts()


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


def _phases(layer: Layer, precision: Precision) -> Iterable[tuple[LayerPhase, Callable[[], Any]]]:
    """What to run for each phase of a layer."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    module = layer.build().cuda().train()
    inputs = [_filled(shape, layer, dtype) for shape in layer.shapes]
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        if layer.updates:
            if precision == "fp32":
                yield "update", _update(module, layer)
            return
        module = module.to(dtype)
        yield "forward", lambda: module(*inputs)
        output = module(*inputs)
        error = torch.randn_like(output)
        weights: list[Tensor] = list(module.parameters())

        def gradients(wanted: list[Tensor]) -> Callable[[], Any]:
            return lambda: torch.autograd.grad(output, wanted, error, retain_graph=True, allow_unused=True)

        trainable = [tensor for tensor in inputs if tensor.requires_grad]
        if layer.is_product:
            yield "input_grad", gradients(trainable)
            yield "weight_grad", gradients(weights)
        elif output.requires_grad:
            yield "backward", gradients(trainable + weights)


def _filled(shape: tuple[int, ...], layer: Layer, dtype: torch.dtype) -> Tensor:
    if layer.takes_indices:
        return torch.randint(0, layer.arguments["num_embeddings"], shape, device="cuda")
    x = torch.rand(shape, device="cuda").add_(0.1) if layer.wants_positive else torch.randn(shape, device="cuda")
    x = x.to(dtype)
    if layer.channels_last:
        x = x.contiguous(memory_format=torch.channels_last if x.dim() == 4 else torch.channels_last_3d)
    return x.requires_grad_()


def _update(module: nn.Module, layer: Layer) -> Callable[[], Any]:
    for parameter in module.parameters():
        parameter.grad = torch.randn_like(parameter)
    optimizer = layer.optimizer(module.parameters())
    return optimizer.step


def _renew_random_numbers() -> None:
    """A recording that failed leaves the card's generator in the middle of it."""
    generator = torch.cuda.default_generators[torch.cuda.current_device()]
    generator.graphsafe_set_state(torch.Generator("cuda").graphsafe_get_state())


def _timed(run: Callable[[], Any], nvml: Nvml, window_s: float) -> dict[str, Any]:
    """Microseconds, and with a window the watts."""
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
    _for_seconds(graph, 0.15, replay_s, EnergyMeter(nvml))
    time_us, powers, clock = 0.0, [], 0
    for _ in range(2):
        meter = EnergyMeter(nvml)
        passed_s = _for_seconds(graph, window_s / 2, replay_s, meter)
        powers.append(meter.watts())
        time_us, clock = passed_s / repeats * 1e6, nvml.clock_mhz()
    return {
        "time_us": round(time_us, 3),
        "power_w": round(sum(powers) / 2, 1),
        "spread_w": round(abs(powers[0] - powers[1]), 1),
        "clock_mhz": clock,
    }


def _replays(graph: torch.cuda.CUDAGraph, count: int) -> float:
    """Seconds of one of some replays."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    start.record()
    for _ in range(count):
        graph.replay()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / 1e3 / count


def _for_seconds(graph: torch.cuda.CUDAGraph, seconds: float, replay_s: float, meter: EnergyMeter) -> float:
    """Replay for some time, up to four times as long until the meter is ready; seconds of one replay."""
    group, passes = max(1, int(0.01 / replay_s)), 0
    begin = now = time.perf_counter()
    while now - begin < seconds or (not meter.is_ready and now - begin < 4 * seconds):
        for _ in range(group):
            graph.replay()
        torch.cuda.synchronize()
        now, passes = time.perf_counter(), passes + group
        meter.look()
    return (now - begin) / passes
