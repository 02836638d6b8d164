"""A board equals torch for each covered call, whatever the operands' types, layouts, values and sizes are.

Calls with one operand changed at a time: another dtype, NaN and infinities, an empty one, an index out of range. The
device either leaves such a call to torch, or gives torch's value and dtype, or an error where torch has one. A NaN or
an infinity is never hidden; products and normalizations may spread it further than torch does, and convolutions do not
multiply it by the zeros of padding.
"""

import random
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from tests.cross.scheduling.test_opencl_ops import elementwise_calls, layer_calls, product_calls
from torch.utils import _pytree as pytree

from oracles.aten_devices import differences
from presilicon.scheduling.runtime.opencl.device import OpenCLDevice

pytestmark = pytest.mark.usefixtures("opencl")
aten = torch.ops.aten
CALLS = {"elementwise": elementwise_calls, "layers": layer_calls, "products": product_calls}


@pytest.fixture(scope="module")
def device(opencl: None) -> Iterator[OpenCLDevice]:
    opened = OpenCLDevice()
    yield opened
    opened.close()


def changed(tensor: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    """An operand in other forms."""
    for dtype in (torch.float32, torch.int64, torch.bool, torch.float64, torch.int32):
        if dtype != tensor.dtype:
            yield str(dtype), tensor.nan_to_num(0, 0, 0).to(dtype)
    if tensor.is_floating_point() and tensor.numel():
        special = tensor.clone()
        special.view(-1)[:: max(1, special.numel() // 5)] = torch.tensor(float("nan"))
        yield "NaN", special
        endless = tensor.clone()
        endless.view(-1)[0] = float("inf")
        yield "infinity", endless
    elif tensor.dtype == torch.int64 and tensor.numel():
        for value in (10**6, -1, -2):
            beyond = tensor.clone()
            beyond.view(-1)[-1] = value
            yield f"index {value}", beyond
    if tensor.dim():
        yield "empty", tensor[:0]


def variants(args: tuple[Any, ...]) -> Iterator[tuple[str, tuple[Any, ...]]]:
    for place, value in enumerate(args):
        if isinstance(value, torch.Tensor):
            for name, other in changed(value.contiguous()):
                yield f"operand {place}: {name}", (*args[:place], other, *args[place + 1 :])


def own_copies(args: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(value.clone() if isinstance(value, torch.Tensor) else value for value in args)


def hidden(device: OpenCLDevice, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """What a device makes of operands that are not finite; empty if it hides nothing and is right elsewhere."""
    placed = [device.put(value) if isinstance(value, torch.Tensor) else value for value in own_copies(args)]
    found = device.run(func, tuple(placed), kwargs)
    expected = func(*own_copies(args), **kwargs)
    for one, other in zip(pytree.tree_leaves(expected), pytree.tree_leaves(found), strict=True):
        if not isinstance(one, torch.Tensor) or not one.is_floating_point():
            continue
        result = device.get(other)
        lost = ~one.isfinite() & result.isfinite()
        if bool(lost.any()) and "convolution" not in str(func):
            return "a value that is not finite is hidden"
        both = one.isfinite() & result.isfinite()
        scale = float(one[both].abs().max()) if bool(both.any()) else 1.0
        if not torch.allclose(one[both], result[both], rtol=2e-4, atol=2e-4 * max(scale, 1e-3)):
            return "finite values differ"
    return ""


def outcome(device: OpenCLDevice, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """What a device does otherwise than torch; empty if nothing."""
    try:
        func(*own_copies(args), **kwargs)
        fails = False
    except (RuntimeError, IndexError):
        fails = True
    try:
        told = differences(device, func, own_copies(args), kwargs, 2e-4) if not fails else None
        if fails:
            placed = [device.put(value) if isinstance(value, torch.Tensor) else value for value in args]
            device.run(func, tuple(placed), kwargs)
            device.synchronize()
    except (RuntimeError, IndexError) as error:
        return "" if fails else f"{type(error).__name__}: {error}"
    return "torch raises" if fails else "; ".join(told or [])


EXTRA = [
    (aten.clamp.default, (torch.linspace(-3, 3, 9), 1.0, -1.0), {}),
    (aten.masked_fill.Tensor, (torch.ones(6), torch.arange(6) > 2, torch.tensor(7)), {}),
    (aten.masked_fill.Tensor, (torch.ones(6), torch.arange(6) > 2, torch.tensor(7.5)), {}),
    (aten.mse_loss.default, (torch.linspace(0, 1, 6), torch.arange(6)), {}),
    (aten.add_.Tensor, (torch.arange(6), torch.ones(6)), {}),
    (aten.mul_.Tensor, (torch.arange(6), 0.5), {}),
    (aten.add_.Tensor, (torch.arange(6), torch.arange(6)), {}),
]


def check(device: OpenCLDevice, kind: str, seed: int, share: float) -> None:
    source, wrong, seen = random.Random(seed), [], 0
    for func, args, kwargs in CALLS[kind](seed):
        for name, other in variants(args):
            if "index" in name and "backward" in str(func):
                continue  # torch does not look, and reads anything
            if source.random() > share or not device.covers(func, other, kwargs):
                continue
            seen += 1
            judge = hidden if name.endswith(("NaN", "infinity")) else outcome
            told = judge(device, func, other, kwargs)
            if told:
                wrong.append((str(func), name, [getattr(value, "dtype", value) for value in other], told))
    assert seen > 20 * share
    assert wrong == []


@pytest.mark.parametrize("kind", CALLS)
def test_a_covered_call_is_torch_s(device: OpenCLDevice, kind: str) -> None:
    check(device, kind, 1, 0.3)


@pytest.mark.slow
@pytest.mark.parametrize("kind", CALLS)
@pytest.mark.parametrize("seed", range(2, 8))
def test_every_covered_call_is_torch_s(device: OpenCLDevice, kind: str, seed: int) -> None:
    check(device, kind, seed, 1.0)


@pytest.mark.parametrize("call", EXTRA, ids=lambda call: f"{call[0]} {[getattr(a, 'dtype', a) for a in call[1]]}")
def test_ends_and_mixed_types(device: OpenCLDevice, call: Any) -> None:
    func, args, kwargs = call
    if device.covers(func, args, kwargs):
        assert outcome(device, func, args, kwargs) == ""
