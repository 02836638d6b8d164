"""Isolation of a training: torch's settings and the random generators are its own, and one thread trains at a time."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any, NamedTuple

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
    takes_turns = getattr(_taking_turns, "is_set", False)
    with nullcontext() if takes_turns else _process, ExitStack() as stack:
        generators = Generators(device)
        stack.callback(generators.load_state_dict, generators.state_dict())
        if takes_turns:  # settings are those of all turns
            yield
            return
        settings = _settings()
        stack.callback(_set, settings, [_value(setting.read) for setting in settings])
        _set(settings, [setting.value for setting in settings])
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
    before = getattr(_taking_turns, "is_set", False)
    _taking_turns.is_set = True
    try:
        yield
    finally:
        _taking_turns.is_set = before


class _Setting(NamedTuple):
    """A setting of the process, and its value in a training."""

    read: Callable[[], Any]
    write: Callable[[Any], object]
    value: Any


def _settings() -> list[_Setting]:
    backends, cudnn, cuda = torch.backends, torch.backends.cudnn, torch.backends.cuda
    return [
        _Setting(torch.get_num_threads, torch.set_num_threads, 1),  # more would add in another order
        _Setting(torch.get_default_dtype, torch.set_default_dtype, torch.float32),
        _Setting(_flushes_denormals, torch.set_flush_denormal, False),
        _Setting(torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, "highest"),
        _Setting(_determinism, _set_determinism, (False, False)),
        _Setting(lambda: backends.mkldnn.enabled, backends.mkldnn.set_flags, True),
        # Attention in pieces adds in another order, on the CPU too.
        _Setting(cuda.flash_sdp_enabled, cuda.enable_flash_sdp, True),
        _Setting(cuda.mem_efficient_sdp_enabled, cuda.enable_mem_efficient_sdp, True),
        _Setting(cuda.math_sdp_enabled, cuda.enable_math_sdp, True),
        # By default torch chooses convolutions of a GPU by trial, and lets those of float32 round to TF32.
        _attribute(cudnn, "deterministic", True),
        _attribute(cudnn, "benchmark", False),
        _attribute(cudnn, "allow_tf32", False),
        # Newer versions have a precision per kind of op, and what is set above changes several of them at once.
        *(
            _attribute(owner, "fp32_precision", "ieee")
            for library, kinds in (
                (cuda, ["matmul"]),
                (cudnn, ["conv", "rnn"]),
                (backends.mkldnn, ["matmul", "conv", "rnn"]),
            )
            for owner in (getattr(library, kind, None) for kind in kinds)
            if hasattr(backends, "fp32_precision")
        ),
        _attribute(cuda.matmul, "allow_fp16_reduced_precision_reduction", True),
        _attribute(cuda.matmul, "allow_bf16_reduced_precision_reduction", True),
    ]


def _value(read: Callable[[], Any]) -> Any:
    """The value of a setting; None if torch cannot tell, because its parts were set one by one."""
    try:
        return read()
    except RuntimeError:
        return None


def _set(settings: list[_Setting], values: list[Any]) -> None:
    """Set the settings whose values are known, in their order: one may change those after it."""
    for setting, value in zip(settings, values, strict=True):
        if value is not None and _value(setting.read) != value:
            setting.write(value)


def _determinism() -> tuple[bool, bool]:
    return torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()


def _set_determinism(value: tuple[bool, bool]) -> None:
    torch.use_deterministic_algorithms(value[0], warn_only=value[1])


def _attribute(owner: Any, name: str, value: Any) -> _Setting:
    return _Setting(lambda: getattr(owner, name), lambda chosen: setattr(owner, name, chosen), value)


def _flushes_denormals() -> bool:
    """Whether this thread computes with zeros in place of the smallest numbers; torch does not tell."""
    return bool(torch.tensor(1e-310, dtype=torch.float64).mul(1.0) == 0)
