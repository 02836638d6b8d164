"""A CUDA device is the one of its number, the first without one, and none beyond those that are there."""

import pytest
import torch

from presilicon.base import MissingToolError
from presilicon.scheduling import TorchDevice


@pytest.mark.parametrize("count", [0, 1, 2, 4])
@pytest.mark.parametrize("number", [None, 0, 1, 2, 3])
def test_a_device_is_the_one_that_is_named(count: int, number: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    name = "cuda" if number is None else f"cuda:{number}"
    if (number or 0) < count:
        device = TorchDevice(name)
        assert device.device == torch.device("cuda", number or 0)
        assert device.name == f"cuda:{number or 0}"
    else:
        with pytest.raises(MissingToolError, match=f"there is no CUDA device '{name}'"):
            TorchDevice(name)
