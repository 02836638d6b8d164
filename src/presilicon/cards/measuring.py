"""Seconds and joules of the suite's layers on a bench."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from statistics import median
from typing import Any, Literal

import torch
from msgspec import Struct
from torch import Tensor, nn

from presilicon.base import ConfigError
from presilicon.cards.benches import Bench, Precision
from presilicon.cards.layers import Layer

_GROUP = 16
"""Layers after which the device is asked whether it still is as fast as it was."""
_PAUSES_S = (2.0, 10.0, 30.0)
"""Pauses before layers are measured again."""

LayerPhase = Literal["forward", "input_grad", "weight_grad", "backward", "update"]
"""`backward`: both gradients at once, for layers that are no products."""


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
    bench: Bench, layers: Sequence[Layer], chosen: Iterable[int], precisions: Sequence[Precision], *,
    window_s: float = 0.0, stop_after_s: float = 900.0, progress: Callable[[int, str], None] = lambda done, text: None,
    notice: Callable[[str], None] = lambda text: None, keep: Callable[[list[LayerTime]], None] = lambda times: None,
) -> list[LayerTime]:  # fmt: skip
    """Time of every phase of some layers in every precision; with a window, their power in its two halves.

    Between groups of layers, the bench is asked whether it still is as fast as it was: where other programs or heat
    slowed it down, the group is measured again. `notice` is told that, and what is left out: layers that the device
    cannot run, and those for which there is no time. `keep` is handed all times after each group.

    Raises:
        ConfigError: the device stays slower than it was.
    """
    chosen = list(chosen)
    for precision in precisions:
        if large := sum(not bench.admits(layers[index], precision) for index in chosen):
            notice(f"left out: {large} layers in {precision} that would take too long")
    times: list[LayerTime] = []
    begin, probes = time.perf_counter(), [bench.probe()]
    for first in range(0, len(chosen), _GROUP):
        for pause_s in _PAUSES_S:
            rows: list[LayerTime] = []
            for done, index in enumerate(chosen[first : first + _GROUP], start=first):
                if time.perf_counter() - begin > stop_after_s:
                    notice(f"stopped after {stop_after_s:g} s and {done} layers: the others are left out")
                    return times + rows
                progress(done, layers[index].name)
                for precision in precisions:
                    if bench.admits(layers[index], precision):
                        rows += _times(bench, layers[index], index, precision, window_s, notice)
            probe_s, reasons = bench.probe(), bench.slowed_by()
            if probe_s <= bench.tolerance * median(probes) and not reasons:
                probes.append(probe_s)
                break
            slower = f"a product takes {probe_s / median(probes):.2f} times as long as before"
            slower += f" ({', '.join(reasons)})" if reasons else ""
            notice(f"layers {first + 1} to {done + 1} are measured again: {slower}")
            time.sleep(pause_s)
        else:
            raise ConfigError(f"{slower}: measure when nothing else runs on the device and it is cool")
        times += rows
        keep(times)
    return times


def _times(
    bench: Bench, layer: Layer, index: int, precision: Precision, window_s: float, notice: Callable[[str], None]
) -> Iterator[LayerTime]:
    """Every phase of a layer, as far as the device can run it."""
    if window_s and precision == "tf32" and not layer.flops:
        return  # as in fp32
    try:
        for phase, run in _phases(layer, precision, bench):
            yield LayerTime(layer=index, precision=precision, phase=phase, **bench.timed(run, window_s))
    except (RuntimeError, NotImplementedError) as error:
        notice(f"left out: {layer.name} {layer.arguments} in {precision}: {str(error).splitlines()[0]}")
        bench.recover()


def _phases(layer: Layer, precision: Precision, bench: Bench) -> Iterable[tuple[LayerPhase, Callable[[], Any]]]:
    """The function to run for each phase of a layer."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    module = layer.build().to(bench.device).train()
    inputs = [_filled(shape, layer, dtype, bench.device) for shape in layer.shapes]
    with bench.recording():
        module = module.to(dtype)
        if layer.updates:
            if precision != "tf32":
                yield "update", _update(module, layer)
            return
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


def _filled(shape: tuple[int, ...], layer: Layer, dtype: torch.dtype, device: str) -> Tensor:
    if layer.takes_indices:
        return torch.randint(0, layer.arguments["num_embeddings"], shape, device=device)
    x = torch.rand(shape, device=device).add_(0.1) if layer.wants_positive else torch.randn(shape, device=device)
    x = x.to(dtype)
    if layer.channels_last:
        x = x.contiguous(memory_format=torch.channels_last if x.dim() == 4 else torch.channels_last_3d)
    return x.requires_grad_()


def _update(module: nn.Module, layer: Layer) -> Callable[[], Any]:
    for parameter in module.parameters():
        parameter.grad = torch.randn_like(parameter)
    optimizer = layer.optimizer(module.parameters())
    return optimizer.step
