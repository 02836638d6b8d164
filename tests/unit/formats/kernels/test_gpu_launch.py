"""Launches are found again by what they were compiled for."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from presilicon.formats.kernels import gpu_launch
from presilicon.formats.kernels.gpu_launch import start


class Compiled:
    """Stands in for a compiled kernel."""

    def __init__(self, calls: list[Any]) -> None:
        self.calls = calls

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        return lambda *arguments: self.calls.append((grid, arguments))


class Kernel:
    """Stands in for a Triton kernel: counts compilations, records launches of what it compiled."""

    arg_names = ("source", "target", "count", "first", "SECOND", "FIRST")

    def __init__(self) -> None:
        self.compilations = 0
        self.calls: list[Any] = []

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., Compiled]:
        def launch(*arguments: Any, **constants: Any) -> Compiled:
            self.compilations += 1
            return Compiled(self.calls)

        return launch


@pytest.fixture(autouse=True)
def _no_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_launch, "launches", {})


def test_a_second_launch_runs_what_the_first_compiled_with_constants_in_the_kernels_order() -> None:
    kernel, x = Kernel(), torch.zeros(64)
    for number in (7, 8):
        start(kernel, 4, (x, x), (64,), {"FIRST": 1, "SECOND": 2}, (number,))
    assert kernel.compilations == 1
    assert kernel.calls == [((4, 1, 1), (x, x, 64, 8, 2, 1))]


def test_other_sizes_constants_and_types_are_other_launches() -> None:
    kernel, x = Kernel(), torch.zeros(64)
    constants = {"FIRST": 1, "SECOND": 2}
    start(kernel, 4, (x, x), (64,), constants, (7,))
    start(kernel, 4, (x, x), (63,), constants, (7,))
    start(kernel, 4, (x, x), (64,), constants | {"FIRST": 3}, (7,))
    start(kernel, 4, (x, x.half()), (64,), constants, (7,))
    assert (kernel.compilations, kernel.calls) == (4, [])


def test_tensors_that_are_not_aligned_neither_use_nor_leave_a_launch() -> None:
    kernel, x = Kernel(), torch.zeros(64)
    for tensor in (x[1:], x, x[1:]):
        start(kernel, 4, (tensor, tensor), (64,), {"FIRST": 1, "SECOND": 2}, (7,))
    assert (kernel.compilations, kernel.calls) == (3, [])
