"""Devices that something slows down while layers are measured on them."""

import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest

from presilicon.base import ConfigError
from presilicon.cards import measuring
from presilicon.cards.layers import Layer
from presilicon.cards.measuring import LayerTime, measure

LAYERS = [Layer(name="function", arguments={"name": "relu"}, shapes=((4, 4),))] * 40


class Bench:
    """Times that count upwards, and probes that take as long as they are given."""

    device, required, tolerance = "cpu", ("fp32",), 1.25

    def __init__(self, *probes_s: float, heated: tuple[int, ...] = ()) -> None:
        self._probes, self._heated, self._probed, self._timed = iter(probes_s), heated, 0, 0

    def admits(self, layer: Layer, precision: str) -> bool:
        return True

    def recording(self) -> Any:
        return nullcontext()

    def timed(self, run: Callable[[], Any], window_s: float) -> dict[str, Any]:
        self._timed += 1
        return {"time_us": float(self._timed)}

    def recover(self) -> None:
        raise AssertionError

    def probe(self) -> float:
        self._probed += 1
        return next(self._probes, 1.0)

    def slowed_by(self) -> list[str]:
        return ["heat"] if self._probed in self._heated else []


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    return slept


def run(bench: Bench, **options: Any) -> tuple[list[LayerTime], list[str]]:
    notices: list[str] = []
    times = measure(bench, LAYERS, range(len(LAYERS)), ["fp32"], notice=notices.append, **options)
    return times, notices


def test_layers_of_a_quiet_device_are_measured_once(pauses: list[float]) -> None:
    times, notices = run(Bench(1.0, 1.2, 1.0, 1.2))
    assert [row.time_us for row in times] == list(range(1, 81))  # forward and backward
    assert not notices
    assert not pauses


def test_a_group_that_was_disturbed_is_measured_again(pauses: list[float]) -> None:
    times, notices = run(Bench(1.0, 1.0, 2.0, 1.0))
    assert [row.layer for row in times] == [index for index in range(40) for _ in range(2)]
    assert [row.time_us for row in times] == [*range(1, 33), *range(65, 97), *range(97, 113)]
    assert notices == ["layers 17 to 32 are measured again: a product takes 2.00 times as long as before"]
    assert pauses == [2.0]


def test_heat_counts_even_where_the_product_is_fast() -> None:
    _, notices = run(Bench(heated=(2,)))
    assert notices == ["layers 1 to 16 are measured again: a product takes 1.00 times as long as before (heat)"]


def test_a_device_that_stays_slow_is_refused_and_its_times_are_kept() -> None:
    kept: list[int] = []
    with pytest.raises(ConfigError, match=r"takes 3\.00 times as long as before: measure when nothing else runs"):
        run(Bench(1.0, 1.0, *[3.0] * 9), keep=lambda times: kept.append(len(times)))
    assert kept == [2 * measuring._GROUP]


def test_what_is_measured_before_the_end_of_the_time_stays() -> None:
    times, notices = run(Bench(), stop_after_s=-1.0)
    assert times == []
    assert notices == ["stopped after -1 s and 0 layers: the others are left out"]
