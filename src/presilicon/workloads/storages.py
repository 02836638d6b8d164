"""Numbers for tensor storages, so that a tensor can be recognised without being held."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from presilicon.base.errors import ConfigError


class Storages:
    """Gives each storage a small number: views share it, in-place results keep it.

    Holding the tensors themselves would change what is being watched: autograd copies a gradient that somebody else
    refers to. A weak reference to the storage does not count there, and keeps its address from being used again.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[int, StorageWeakRef]] = {}

    def number(self, tensor: Tensor) -> int:
        """The number of the tensor's storage, a new one when it was never seen.

        Raises:
            ConfigError: when the tensor is sparse and has no storage of its own.
        """
        if tensor.layout is not torch.strided:
            raise ConfigError("sparse tensors cannot be captured: make the gradients dense (`sparse=False`)")
        storage = tensor.untyped_storage()
        address = storage._cdata
        known = self._known.get(address)
        if known is None:
            known = (len(self._known), StorageWeakRef(storage))  # type: ignore[no-untyped-call]
            self._known[address] = known
        return known[0]
