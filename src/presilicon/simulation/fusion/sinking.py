"""Ops that run in the group that reads them, not in the one that computes their inputs, where that moves fewer bytes.

An op first joins the group of its inputs, although its readers may be in a later one: RMS normalization needs whole
rows, which the tiles of the product before it do not have. If the inputs are in DRAM anyway, the op had better run
there.
"""

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from presilicon.simulation.fusion.groups import Group
from presilicon.simulation.fusion.parts import Style
from presilicon.simulation.fusion.values import BEFORE, StepValues


def sink(
    groups: Sequence[Group], values: StepValues, styles: Sequence[Style], aligned: Sequence[tuple[bool, ...]]
) -> tuple[Group, ...]:
    """The groups, with ops moved to later ones as long as that saves transfers."""
    members = [list(group.members) for group in groups]
    home = {position: slot for slot, own in enumerate(members) for position in own}
    overwritten = {value: position for position, replaced in enumerate(values.replaced) for value in replaced}
    for slot in reversed(range(len(groups))):
        for target in sorted(set(_readers(members[slot], values, home)) - {slot}, reverse=True):
            moved = set[int]()
            if target > slot:
                late = {*groups[slot].late, *groups[target].late}
                moved = _movable(members[slot], late, target, values, styles, aligned, home, overwritten)
            if moved and _saved_bytes(moved, slot, target, values, home) > 0:
                members[slot] = [position for position in members[slot] if position not in moved]
                members[target] = sorted([*members[target], *moved])
                home |= dict.fromkeys(moved, target)
    return tuple(
        replace(group, members=tuple(own), late=tuple(position for position in group.late if position in own))
        for group, own in zip(groups, members, strict=True)
        if own
    )


def _readers(positions: Sequence[int], values: StepValues, home: dict[int, int]) -> Iterator[int]:
    for position in positions:
        for value in values.writes[position]:
            yield from (home[reader] for reader in values.readers[value])


def _movable(
    members: Sequence[int],
    late: set[int],
    target: int,
    values: StepValues,
    styles: Sequence[Style],
    aligned: Sequence[tuple[bool, ...]],
    home: dict[int, int],
    overwritten: dict[int, int],
) -> set[int]:
    """The ops of a group that only ops of the target read, one after another, and that can run there."""
    moved: set[int] = set()

    def is_taken(position: int, value: int) -> bool:
        """Whether all that read a value could take it piece by piece in the target."""
        readers = values.readers[value]
        return bool(readers) and all(
            (reader in moved or (home[reader] == target and styles[reader] in ("map", "rows", "sum")))
            and reader not in late
            and all(is_cut for read, is_cut in zip(values.reads[reader], aligned[reader], strict=True) if read == value)
            for reader in readers
        )

    for position in sorted(members, reverse=True):
        if styles[position] != "map" or position in late or values.replaced[position]:
            continue
        if any(values.outlives[value] or values.pinned[value] for value in values.writes[position]):
            continue
        if any(
            values.pinned[value] or home.get(overwritten.get(value, BEFORE), target + 1) <= target
            for value in values.reads[position]
        ):
            continue
        if all(is_taken(position, value) for value in values.writes[position]):
            moved.add(position)
    return moved


def _saved_bytes(moved: set[int], slot: int, target: int, values: StepValues, home: dict[int, int]) -> float:
    """Bytes of DRAM traffic that moving the ops saves; a group loads each value once."""

    def read_in(value: int, where: int) -> bool:
        return any(home[reader] == where and reader not in moved for reader in values.readers[value])

    written = {value for position in moved for value in values.writes[position]}
    read = {value for position in moved for value in values.reads[position]} - written
    saved = sum(2 * values.size_bytes[value] for value in written if read_in(value, target))
    for value in read:
        size, writer = values.size_bytes[value], values.writer[value]
        saved -= 0.0 if read_in(value, target) else size
        if writer != BEFORE and home[writer] == slot:
            elsewhere = any(home[reader] != slot for reader in values.readers[value])
            saved -= 0.0 if elsewhere or values.outlives[value] else size
        elif not read_in(value, slot):
            saved += size
    return saved
