"""The energy counter of a card, which moves in steps, and the memory of a processor."""

import ctypes
import subprocess
import sys
import time

import pytest

from presilicon.base import MissingToolError
from presilicon.cards.benches import EnergyMeter


class Counter:
    """Reads the given joules, one after the other."""

    def __init__(self, *joules: float) -> None:
        self._joules = list(joules)

    def joules(self) -> float:
        return self._joules.pop(0) if len(self._joules) > 1 else self._joules[0]


def test_power_is_taken_between_changes_of_the_counter(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([1.0, 1.5, 3.0])
    monkeypatch.setattr(time, "perf_counter", lambda: next(clock))
    meter = EnergyMeter(Counter(10, 10, 60, 60, 160, 460))  # type: ignore[arg-type]
    for _ in range(5):
        meter.look()
    assert meter.watts() == (460 - 60) / (3.0 - 1.0)


def test_a_counter_that_stands_still_is_said() -> None:
    meter = EnergyMeter(Counter(10, 20))  # type: ignore[arg-type]
    for _ in range(3):
        meter.look()
    assert not meter.is_ready
    with pytest.raises(MissingToolError, match="energy counter does not move"):
        meter.watts()


_FAULTS = """
import resource
import torch
from presilicon.cards.benches import keep_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.empty(1 << 25).fill_(1)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

print(min(faults() for _ in range(6)) > 1000)
keep_memory()
print(min(faults() for _ in range(6)) > 1000)  # a small block can split the first freed one: the heap grows once more
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="not on this machine: mallopt")
def test_freed_memory_is_not_cleared_again_while_layers_are_measured() -> None:
    printed = subprocess.run([sys.executable, "-c", _FAULTS], capture_output=True, text=True, check=True).stdout
    assert printed.split() == ["True", "False"]
