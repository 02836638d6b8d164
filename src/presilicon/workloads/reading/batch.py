"""A batch that was read, and the slot of examples that it was read from."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy
import torch
from torch import Tensor

from presilicon.base import ConfigError, PresiliconError


class Slot(NamedTuple):
    """Examples of one batch: the epoch, the position in it after them, and their indices."""

    epoch: int
    end: int
    indices: Tensor


class Batch(NamedTuple):
    """A batch that was read, with its place in the data."""

    epoch: int
    end: int
    inputs: Tensor
    targets: Tensor


def as_pair(value: Any, name: str, count: int | None = None) -> tuple[Tensor, Tensor]:
    """A batch as two tensors of the same length.

    Raises:
        ConfigError: it is something else.
    """
    if not isinstance(value, tuple | list) or len(value) != 2:
        shape = f"{type(value).__name__} of {len(value)}" if isinstance(value, tuple | list) else type(value).__name__
        raise ConfigError(f"a batch of the {name} split must be a pair (inputs, targets), not a {shape}")
    inputs, targets = (torch.from_numpy(part) if isinstance(part, numpy.ndarray) else part for part in value)
    for part in (inputs, targets):
        if not isinstance(part, Tensor) or part.dim() == 0:
            raise ConfigError(f"inputs and targets of the {name} split must be tensors, not {type(part).__name__}")
    if len(inputs) != len(targets) or (count is not None and len(inputs) != count):
        wanted = f": {count} of each are needed" if count is not None else ": as many of each are needed"
        raise ConfigError(f"a batch of the {name} split has {len(inputs)} inputs and {len(targets)} targets{wanted}")
    return inputs, targets


def one_line(error: Exception) -> str:
    """One line; a worker's error contains the traceback, with the error itself at the end."""
    line = (str(error).strip().splitlines() or [""])[-1]
    is_named = isinstance(error, PresiliconError) or line.startswith(type(error).__name__)
    return line if is_named else f"{type(error).__name__}: {line}"
