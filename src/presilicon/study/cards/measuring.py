"""Seconds and joules of the suite's layers on a bench."""

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import torch
from msgspec import Struct
from torch import Tensor, nn

from presilicon.study.cards.benches import Bench, Precision
from presilicon.study.cards.layers import Layer

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
    notice: Callable[[str], None] = lambda text: None,
) -> list[LayerTime]:  # fmt: skip
    """Time of every phase of some layers in every precision; with a window, their power in its two halves.

    `notice` is told what is left out: layers that the device cannot run, and those for which there is no time.
    """
    begin, times = time.perf_counter(), []
    large: dict[Precision, int] = {}
    for done, index in enumerate(chosen):
        if time.perf_counter() - begin > stop_after_s:
            notice(f"stopped after {stop_after_s:g} s and {done} layers: the others are left out")
            break
        layer = layers[index]
        progress(done, layer.name)
        for precision in precisions:
            if not bench.admits(layer, precision):
                large[precision] = large.get(precision, 0) + 1
                continue
            if window_s and precision == "tf32" and not layer.flops:
                continue  # as in fp32
            try:
                for phase, run in _phases(layer, precision, bench):
                    row = bench.timed(run, window_s)
                    times.append(LayerTime(layer=index, precision=precision, phase=phase, **row))
            except (RuntimeError, NotImplementedError) as error:
                notice(f"left out: {layer.name} {layer.arguments} in {precision}: {str(error).splitlines()[0]}")
                bench.recover()
        if done % 16 == 15:
            torch.cuda.empty_cache()
    for precision, count in large.items():
        notice(f"left out: {count} layers in {precision} that would take too long")
    return times


def _phases(layer: Layer, precision: Precision, bench: Bench) -> Iterable[tuple[LayerPhase, Callable[[], Any]]]:
    """What to run for each phase of a layer."""
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
