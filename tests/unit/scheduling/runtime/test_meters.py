"""Power meters: which one a device has, and what is said when there is none."""

import ctypes

import pytest

from presilicon.base import ConfigError, MissingToolError
from presilicon.scheduling.runtime import meters
from presilicon.scheduling.runtime.meters import find_meter


def test_a_meter_that_is_not_there_and_a_power_that_cannot_be_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meters, "_readable", lambda path: False)
    with pytest.raises(MissingToolError, match="--watts"):
        find_meter("cpu", None)
    with pytest.raises(ConfigError, match="watts must be at least 0 and below a million, not -3"):
        find_meter("cpu", -3.0)


def test_a_driver_that_is_not_there_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> None:
        raise OSError(name)

    monkeypatch.setattr(meters.torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(ctypes, "CDLL", fail)
    with pytest.raises(MissingToolError, match="comes with NVIDIA's driver"):
        find_meter("cuda", None)
