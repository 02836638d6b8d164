"""A card's sensors, read from a library that stands in for NVIDIA's."""

import ctypes
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from presilicon.base import MissingToolError
from presilicon.scheduling.runtime.nvml import Nvml


class Library:
    """Two cards; the driver numbers them in another order than torch does."""

    def __init__(self) -> None:
        self._uuids, self._watts = [b"GPU-aaaa", b"GPU-bbbb"], [100, 300]

    def nvmlInit_v2(self) -> int:  # noqa: N802
        return 0

    def nvmlDeviceGetHandleByUUID(self, uuid: bytes, handle: Any) -> int:  # noqa: N802
        if uuid not in self._uuids:
            return 6  # not found
        handle._obj.value = 1 + self._uuids.index(uuid)
        return 0

    def nvmlDeviceGetPowerUsage(self, handle: Any, value: Any) -> int:  # noqa: N802
        value._obj.value = 1000 * self._watts[handle.value - 1]
        return 0


@pytest.fixture
def uuids(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """UUIDs of the cards that torch sees, in its order."""
    visible = ["bbbb", "aaaa"]
    monkeypatch.setattr(ctypes, "CDLL", lambda name: Library())
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: SimpleNamespace(uuid=visible[index]))
    return visible


def test_a_card_is_the_one_that_torch_means(uuids: list[str]) -> None:
    assert [Nvml(index).watts() for index in range(2)] == [300, 100]


def test_a_card_that_the_driver_does_not_know_is_said(uuids: list[str]) -> None:
    uuids[0] = "cccc"
    with pytest.raises(MissingToolError, match="nvmlDeviceGetHandleByUUID answered 6"):
        Nvml(0)
