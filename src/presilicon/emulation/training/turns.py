"""Training runs that take turns in one process, so that the GPU works on one while Python prepares another.

Each run has a thread and a CUDA stream of its own, but only one thread runs at a time: it passes its turn on where it
would wait for the GPU. The state of torch's random generators goes with the run, so that all bits are those of a run by
itself.
"""

import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Generic, TypeVar

import torch

from presilicon.emulation.training.isolation import isolated, turn
from presilicon.workloads import Generators

T = TypeVar("T")
PassOn = Callable[[], None]


def take_turns(runs: Sequence[Callable[[PassOn], T]], device: str, at_once: int) -> list[T]:
    """The result of each run, of which `at_once` take turns; each is called with the function that passes its turn on.

    The first error ends all runs and is raised.
    """
    results: list[T] = []
    for first in range(0, len(runs), at_once):
        with isolated(device):
            results += _Turns(runs[first : first + at_once], device).results()
    return results


class _StoppedError(Exception):
    """Another run has failed."""


class _Turns(Generic[T]):
    def __init__(self, runs: Sequence[Callable[[PassOn], T]], device: str) -> None:
        self._runs, self._device = runs, device
        self._generators = Generators(device)
        self._turns = [threading.Semaphore(0) for _ in runs]
        self._waiting = set(range(len(runs)))
        self._values: dict[int, T] = {}
        self._error: BaseException | None = None
        self._is_stopped = False

    def results(self) -> list[T]:
        """Run all of them to their end."""
        threads = [threading.Thread(target=self._run, args=(number,), daemon=True) for number in range(len(self._runs))]
        generators = self._generators.state_dict()
        for thread in threads:
            thread.start()
        self._turns[0].release()
        try:
            for thread in threads:
                while thread.is_alive():
                    thread.join(0.2)  # a wait without an end would not notice Ctrl-C
        except BaseException:
            self._is_stopped = True
            for thread in threads:
                thread.join()
            raise
        finally:
            self._generators.load_state_dict(generators)
        if self._error is not None:
            raise self._error
        return [self._values[number] for number in range(len(self._runs))]

    def _run(self, number: int) -> None:
        self._turns[number].acquire()
        on_gpu = self._device.startswith("cuda")
        with turn(), torch.cuda.stream(torch.cuda.Stream(self._device)) if on_gpu else nullcontext():
            try:
                if not self._is_stopped:
                    self._values[number] = self._runs[number](lambda: self._pass_on(number))
            except _StoppedError:
                pass
            except BaseException as error:
                self._error, self._is_stopped = self._error or error, True
        self._waiting.discard(number)
        self._give_to_next(number)

    def _pass_on(self, number: int) -> None:
        generators = self._generators.state_dict()
        if self._give_to_next(number):
            self._turns[number].acquire()
            self._generators.load_state_dict(generators)
        if self._is_stopped:
            raise _StoppedError

    def _give_to_next(self, number: int) -> bool:
        """Give the turn to the next run that has not ended; False if there is none but this one."""
        others = [(other - number - 1) % len(self._runs) for other in self._waiting if other != number]
        if others:
            self._turns[(min(others) + number + 1) % len(self._runs)].release()
        return bool(others)
