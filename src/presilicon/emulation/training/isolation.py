"""Isolation of a training: torch's settings and the random generators are its own, and one thread trains at a time."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from presilicon.workloads import Generators

_process = threading.RLock()
"""Settings and generators belong to the process, so a second training in another thread waits."""
_taking_turns = threading.local()
"""Set in threads that take turns in one isolated training: `isolated` is around all of them."""


@contextmanager
def isolated(device: str) -> Iterator[None]:
    """A context for training, in which nothing that the caller has set in this process changes bits.

    Settings and generators are restored at its end. Another thread that wants to train waits.
    """
    if getattr(_taking_turns, "is_set", False):
        yield
        return
    with _process, ExitStack() as stack:
        generators = Generators(device)
        stack.callback(generators.load_state_dict, generators.state_dict())
        for read, write, value in _settings():
            before = read()
            if before != value:
                write(value)
                stack.callback(write, before)
        for kind in ("cpu", "cuda"):
            if torch.is_autocast_enabled(kind):
                stack.enter_context(torch.autocast(kind, enabled=False))
        if torch.get_default_device() != torch.device("cpu"):
            stack.enter_context(torch.device("cpu"))
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        yield


@contextmanager
def turn() -> Iterator[None]:
    """A context for a thread that takes turns with others, around all of which is `isolated`."""
    _taking_turns.is_set = True
    try:
        yield
    finally:
        _taking_turns.is_set = False


def _settings() -> list[tuple[Callable[[], Any], Callable[[Any], object], Any]]:
    """How each setting is read and written, and its value in a training."""
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    return [
        (torch.get_num_threads, torch.set_num_threads, 1),  # more would add in another order
        (torch.get_default_dtype, torch.set_default_dtype, torch.float32),
        (_flushes_denormals, torch.set_flush_denormal, False),
        (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, "highest"),
        (torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms, False),
        (lambda: torch.backends.mkldnn.enabled, torch.backends.mkldnn.set_flags, True),
        # By default torch chooses convolutions of a GPU by trial, and lets those of float32 round to TF32.
        _attribute(cudnn, "deterministic", True),
        _attribute(cudnn, "benchmark", False),
        _attribute(cudnn, "allow_tf32", False),
        _attribute(matmul, "allow_fp16_reduced_precision_reduction", True),
        _attribute(matmul, "allow_bf16_reduced_precision_reduction", True),
    ]


def _attribute(owner: Any, name: str, value: Any) -> tuple[Callable[[], Any], Callable[[Any], object], Any]:
    return lambda: getattr(owner, name), lambda chosen: setattr(owner, name, chosen), value


def _flushes_denormals() -> bool:
    """Whether this thread computes with zeros in place of the smallest numbers; torch does not tell."""
    return bool(torch.tensor(1e-310, dtype=torch.float64).mul(1.0) == 0)
