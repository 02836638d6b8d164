"""What a trial of a model must leave as it was: buffers, modes and random states."""

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn


class Snapshot:
    """Buffers and training modes of a model, and the random states of torch, NumPy and Python."""

    def __init__(self, model: nn.Module) -> None:
        self._modes = [(module, module.training) for module in model.modules()]
        self._buffers: list[tuple[nn.Module, str, Tensor | None, Tensor | None]] = [
            (module, name, buffer, None if buffer is None else buffer.detach().clone())
            for module in model.modules()
            for name, buffer in module._buffers.items()
        ]
        tensors = (*model.parameters(), *model.buffers())
        devices = {tensor.device for tensor in tensors if tensor.device.type == "cuda"}
        self._torch = torch.get_rng_state()
        self._cuda = {device: torch.cuda.get_rng_state(device) for device in devices}
        self._python, self._numpy = random.getstate(), np.random.get_state()

    def restore(self) -> None:
        """Put everything back."""
        torch.set_rng_state(self._torch)
        for device, state in self._cuda.items():
            torch.cuda.set_rng_state(state, device)
        random.setstate(self._python)
        np.random.set_state(self._numpy)
        for module, mode in self._modes:
            module.training = mode
        with torch.no_grad():
            for module, name, buffer, values in self._buffers:
                module._buffers[name] = buffer
                if buffer is not None and values is not None:
                    buffer.copy_(values)


@contextmanager
def preserved(model: nn.Module) -> Iterator[Snapshot]:
    """A context after which buffers, training modes and random states are what they were before."""
    snapshot = Snapshot(model)
    try:
        yield snapshot
    finally:
        snapshot.restore()
