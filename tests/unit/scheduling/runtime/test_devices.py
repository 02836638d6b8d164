"""One interface for aten ops: torch behind it, tensors and their views, names of devices."""

import pytest
import torch

from presilicon.base import ConfigError, MissingToolError
from presilicon.scheduling import open_device
from presilicon.scheduling.runtime.devices import DeviceTensor, TorchDevice, contiguous_strides

aten = torch.ops.aten


def test_torch_runs_calls_on_wrapped_tensors() -> None:
    device, x = TorchDevice(), torch.arange(6.0).view(2, 3)
    placed = device.put(x)
    turned = device.run(aten.t.default, (placed,), {})
    assert turned.shares_storage(placed) or turned.shape == (3, 2)
    assert torch.equal(device.get(device.run(aten.mm.default, (placed, turned), {})), x @ x.t())


def test_put_copies_and_in_place_writes_the_operand() -> None:
    device, x = TorchDevice(), torch.ones(3)
    placed = device.put(x)
    device.run(aten.add_.Tensor, (placed, device.put(torch.ones(3))), {"alpha": 2})
    assert torch.equal(device.get(placed), torch.full((3,), 3.0))
    assert torch.equal(x, torch.ones(3))


def test_views_share_the_storage() -> None:
    device = TorchDevice()
    placed = device.put(torch.arange(12.0))
    part = placed.view((2, 2), (6, 2), 1)
    assert torch.equal(device.get(part), torch.tensor([[1.0, 3.0], [7.0, 9.0]]))
    device.run(aten.zero_.default, (part,), {})
    assert device.get(placed)[[1, 3, 7, 9]].sum() == 0
    assert not part.contiguous
    assert placed.contiguous
    assert part.nbytes == 16


def test_results_keep_their_structure() -> None:
    device = TorchDevice()
    parts = device.run(aten.split.Tensor, (device.put(torch.arange(5.0)), 2), {})
    assert [part.shape for part in parts] == [(2,), (2,), (1,)]
    assert all(isinstance(part, DeviceTensor) for part in parts)


def test_contiguity_ignores_sides_of_one() -> None:
    assert contiguous_strides((2, 0, 3)) == (3, 3, 1)
    assert DeviceTensor(None, (1, 3), (99, 1), 0, torch.float32).contiguous
    assert not DeviceTensor(None, (2, 3), (1, 2), 0, torch.float32).contiguous


@pytest.mark.parametrize("name", ["tpu", "opencl:0", "opencl:0.0/", "cuda:x", ""])
def test_names_that_cannot_be_read(name: str) -> None:
    with pytest.raises(ConfigError, match=r"opencl:PLATFORM\.DEVICE"):
        open_device(name)


@pytest.mark.skipif(torch.cuda.is_available(), reason="not on this machine: a processor without a GPU")
def test_a_missing_gpu_is_named() -> None:
    with pytest.raises(MissingToolError, match="no CUDA device"):
        open_device("cuda:0")
