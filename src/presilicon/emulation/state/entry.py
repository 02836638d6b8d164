"""The state of emulation as one entry of a module's `state_dict`.

It is written and read by hooks of the module, so that a checkpoint of any training loop contains it.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from presilicon.base import ConfigError
from presilicon.emulation.training.checkpoint import pack, unpack
from presilicon.records import Stateful

ENTRY = "presilicon_state"
_UNIT = 1024
"""Entries are padded to multiples of this many bytes, so that numbers with more digits do not change their shape."""


def save_with(module: nn.Module, owner: Stateful) -> None:
    """Make the state of `owner` an entry of the module's `state_dict`, unless it is empty."""
    module.register_state_dict_post_hook(_Save(owner))
    module.register_load_state_dict_pre_hook(_Load(owner))
    # torch.distributed.checkpoint looks up each entry as an attribute.
    setattr(module, ENTRY, owner)


def no_longer_save_with(module: nn.Module, owner: Stateful | None) -> None:
    """Undo `save_with`."""
    tables: tuple[dict[int, Any], ...] = (module._state_dict_hooks, module._load_state_dict_pre_hooks)
    for hooks in tables:
        for key, hook in list(hooks.items()):
            own = getattr(hook, "hook", hook)
            if isinstance(own, _Save | _Load) and own.owner is owner:
                del hooks[key]
                vars(module).pop(ENTRY, None)


class _Save:
    """A state-dict hook; a class rather than a closure, so that the module can be saved and copied."""

    def __init__(self, owner: Stateful) -> None:
        self.owner = owner

    def __call__(self, module: nn.Module, state_dict: dict[str, Any], prefix: str, metadata: Any) -> None:
        state = self.owner.state_dict()
        if state:
            state_dict[prefix + ENTRY] = _to_tensor(state)


class _Load:
    def __init__(self, owner: Stateful) -> None:
        self.owner = owner

    def __call__(self, module: nn.Module, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        entry = state_dict.pop(prefix + ENTRY, None)
        if entry is not None:
            self.owner.load_state_dict(_from_tensor(entry, prefix + ENTRY))


def _to_tensor(state: Mapping[str, Any]) -> Tensor:
    data = pack(state)
    padding = -(len(data) + 8) % _UNIT
    framed = len(data).to_bytes(8, "little") + data + bytes(padding)
    return torch.frombuffer(bytearray(framed), dtype=torch.uint8)


def _from_tensor(entry: Any, name: str) -> dict[str, Any]:
    try:
        framed = entry.cpu().numpy().tobytes()
        size = int.from_bytes(framed[:8], "little")
        return unpack(framed[8 : 8 + size])
    except (AttributeError, ValueError, TypeError, KeyError) as error:
        raise ConfigError(f"{name}: this entry of the state is damaged ({error}); delete it to load the rest") from None
