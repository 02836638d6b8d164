"""Lifetimes of the data of a training step, from its writing to its last read."""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from presilicon.designs import StepFormats
from presilicon.records import Cost, Lifetime, MemoryPart, Op, Role

Key = tuple[int, bool]
"""A storage, and whether it is the rounded copy of a weight."""


class _Data(Struct):
    """Data being tracked; a read moves the end of its lifetime."""

    role: Role
    size_bytes: float
    write_s: float
    writer: str
    read_s: float | None = None
    reader: str = ""


def find_lifetimes(
    executed: Sequence[Op], cost: Cost, parts: Mapping[Key, MemoryPart], formats: StepFormats
) -> tuple[Lifetime, ...]:
    """The lifetimes of all data of the step, in order of writing.

    A write to a whole storage ends the lifetime of the data there; a write to a part of it does not, because the rest
    is still needed. Weights and state are written near the end of a step and read in the next one.
    """
    elements: dict[Key, int] = {}
    for op in executed:
        for tensor in op.inputs + op.outputs:
            key = _key(tensor.id, tensor.role, parts)
            elements[key] = max(elements.get(key, 0), tensor.elements)
    current: dict[Key, _Data] = {}
    initial: dict[Key, _Data] = {}
    tracked: list[tuple[Key, _Data]] = []
    for op, price in zip(executed, cost.ops, strict=True):
        for tensor in op.inputs:
            key = _key(tensor.id, tensor.role, parts)
            if key not in current:
                size_bytes = formats.bytes_of(tensor, op.layer, op.product_phase)
                current[key] = initial[key] = _Data(tensor.role, size_bytes, 0.0, "")
            data = current[key]
            data.read_s, data.reader = price.end_s, op.name
            data.size_bytes = max(data.size_bytes, formats.bytes_of(tensor, op.layer, op.product_phase))
        for tensor in op.outputs:
            key = _key(tensor.id, tensor.role, parts)
            if key in current and tensor.elements < elements[key]:
                continue
            current[key] = _Data(tensor.role, formats.bytes_of(tensor, op.layer), price.start_s, op.name)
            tracked.append((key, current[key]))
    for key, before in initial.items():
        if parts[key] in ("weights", "rounded_weights", "state"):
            after = current[key]
            if after is not before and before.read_s is not None:
                after.read_s, after.reader = cost.time_s + before.read_s, before.reader
        else:
            tracked.append((key, before))
    return tuple(
        Lifetime(
            tensor=key[0],
            role=data.role,
            part=parts[key],
            size_bytes=data.size_bytes,
            write_s=data.write_s,
            last_read_s=data.read_s,
            writer=data.writer,
            last_reader=data.reader,
        )
        for key, data in sorted(tracked, key=lambda pair: (pair[1].write_s, pair[0]))
        if data.read_s is not None
    )


def _key(storage: int, role: Role, parts: Mapping[Key, MemoryPart]) -> Key:
    return (storage, True) if role == "weight" and (storage, True) in parts else (storage, False)
