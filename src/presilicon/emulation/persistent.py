"""Rounding of tensors that persist from step to step: master weights and the state of optimizers."""

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

from presilicon.designs import RoleFormat
from presilicon.emulation.layer_plan import FLOAT32
from presilicon.emulation.transforms import is_distributed
from presilicon.formats import Format, Key, quantize_all_
from presilicon.records import Role


def without_sharing(tensor: Tensor, role: Role) -> Tensor:
    """A weight in memory of its own, where FSDP may free and refill the memory of weights.

    The CPU's kernels read tensors through NumPy, after which torch refuses to resize the memory.
    """
    if role == "weight" and tensor.device.type == "cpu" and is_distributed():
        return tensor.detach().clone()
    return tensor


def fitting(fmt: Format, tensor: Tensor) -> Format:
    """The format for a tensor that no product reduces: blocks along the format's axis, or the last axis.

    A bias, for example, has fewer axes than the weights whose format it shares.
    """
    axis = getattr(fmt, "axis", -1) if fmt.is_oriented else -1
    return fmt if -tensor.dim() <= axis < tensor.dim() else fmt.along(-1)


def stream_of(parameters: Iterable[Tensor]) -> str:
    """A prefix of random streams that tells models and optimizers apart by the values of their parameters."""
    total = blake2b(digest_size=6)
    for parameter in parameters:
        if is_lazy(parameter):
            continue
        local = getattr(parameter.data, "_local_tensor", parameter.data).detach()
        numbers = b"" if local.is_meta else local.reshape(-1)[:64].double().cpu().numpy().tobytes()
        total.update(f"{tuple(local.shape)} ".encode() + numbers)
    return f"{total.hexdigest()}/"


def _shard_of(tensor: Any) -> str:
    """The position of this process's part of a distributed tensor (FSDP2), whose parts draw different numbers."""
    mesh = getattr(tensor, "device_mesh", None)
    if mesh is None:
        return ""
    positions = [
        str(position)
        for position, placement in zip(mesh.get_coordinate() or (), tensor.placements, strict=False)
        if placement.is_shard()
    ]
    return f"/shard {'.'.join(positions)}" if positions else ""


def round_in_place(
    tensors: Sequence[tuple[Tensor, str]], role_format: RoleFormat, role: Role, seed: int, step: int
) -> None:
    """Round named tensors that persist from step to step: master weights, optimizer state."""
    if role_format.format == FLOAT32:
        return
    # FSDP2's parameters are distributed tensors, of which each process rounds its own part.
    parts: list[Tensor] = [getattr(tensor.data, "_local_tensor", tensor.data) for tensor, _ in tensors]
    groups: dict[int, tuple[Format, list[int]]] = {}
    for index, part in enumerate(parts):
        fmt = fitting(role_format.format, part)
        groups.setdefault(id(fmt), (fmt, []))[1].append(index)  # by identity, because formats take long to hash
    with torch.no_grad():
        for fmt, members in groups.values():
            copies = [without_sharing(parts[index], "weight") for index in members]
            keys = None
            if role_format.is_stochastic:
                named = [tensors[index] for index in members]
                keys = [Key(seed, step, f"{name}/{role}{_shard_of(tensor)}") for tensor, name in named]
            quantize_all_(copies, fmt, rounding=role_format.rounding_mode, keys=keys)
            for index, rounded in zip(members, copies, strict=True):
                if rounded is not parts[index]:
                    parts[index].copy_(rounded)
