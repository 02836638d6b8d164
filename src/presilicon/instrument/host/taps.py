"""Wires from a design's taps to the layers of a model, samples of tensors, and the firmware of all taps as one."""

import math
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from presilicon.base import ConfigError, did_you_mean, np
from presilicon.designs import Hardware, Instrument, TapRole
from presilicon.instrument.firmware.instructions import Instruction
from presilicon.instrument.firmware.language import Chains, Firmware


class Wire(Struct, frozen=True, kw_only=True):
    """One tap of the chip: a role of one layer."""

    tap: int
    name: str
    group: str
    """Name of its tap in the design; the same as its own name if that tap has one layer."""
    layer: str
    role: TapRole
    aggregation: str
    options: dict[str, Any]
    every: int
    vectors: int | Literal["all"]


def wire_taps(instrument: Instrument, layers: Sequence[str]) -> tuple[Wire, ...]:
    """The wires of a model with these layers, in the order of the design's taps and of the layers.

    Raises:
        ConfigError: the design has no taps, a pattern matches no layer, two wires would have the same name, or the
            hardware has fewer taps than wires.
    """
    if not instrument.taps:
        raise ConfigError("instrument: there are no taps; write at least one [[instrument.taps]]")
    wires: list[Wire] = []
    for tap in instrument.taps:
        matched = [layer for layer in layers if tap.matches(layer)]
        if not matched:
            listing = did_you_mean(tap.layers, layers) if layers else "the model has no layers that multiply by weights"
            raise ConfigError(
                f'instrument: the pattern "{tap.layers}" of tap "{tap.name}" matches no layer that multiplies by '
                f"weights: {listing}"
            )
        for layer in matched:
            name = tap.name if len(matched) == 1 else f"{tap.name}.{layer}"
            wires.append(
                Wire(
                    tap=len(wires),
                    name=name,
                    group=tap.name,
                    layer=layer,
                    role=tap.role,
                    aggregation=tap.aggregation,
                    options=tap.options,
                    every=tap.every,
                    vectors=tap.vectors,
                )
            )
    _check_names(wires)
    if len(wires) > instrument.hardware.taps:
        raise ConfigError(
            f"instrument: the taps are wired to {len(wires)} tensors, but the hardware has {instrument.hardware.taps} "
            f"taps: set taps = {len(wires)} in [instrument.hardware], or name fewer layers"
        )
    return tuple(wires)


def _check_names(wires: Sequence[Wire]) -> None:
    groups: dict[str, str] = {}
    for wire in wires:
        for name in {wire.name, wire.group}:
            other = groups.setdefault(name, wire.group)
            if other != wire.group:
                raise ConfigError(
                    f'instrument: "{name}" would be a name of tap "{other}" and of tap "{wire.group}"; rename one '
                    "of them"
                )


class TapSample(NamedTuple):
    """Part of a tensor that a tap offers: rows of samples, columns of nodes."""

    values: Any
    share: float
    """Share of the tensor's elements."""


def sample(tensor: Any, role: TapRole, lanes: int, vectors: int | Literal["all"]) -> TapSample:
    """A numpy tensor as [samples, nodes], with at most so many vectors of `lanes` nodes, spread evenly.

    The nodes of activations and errors are features or channels (axis 1 of an image); those of weights and gradients
    are the inputs of one output.
    """
    if tensor.ndim < 2:
        rows = tensor.reshape(1, -1)
    elif role in ("weight", "gradient"):
        rows = tensor.reshape(len(tensor), -1)
    else:
        rows = np.moveaxis(tensor, 1, -1) if tensor.ndim > 3 else tensor
    shape, nodes = rows.shape[:-1], rows.shape[-1]
    groups = -(-nodes // lanes)
    if vectors == "all":
        return TapSample(rows.reshape(-1, nodes), 1.0)
    samples = math.prod(shape)
    count = max(1, vectors // groups)
    # Only the chosen samples are copied.
    chosen = rows[np.unravel_index(spread(count, samples), shape)] if samples > count else rows.reshape(-1, nodes)
    if groups > vectors:
        columns = (np.array(spread(vectors, groups))[:, None] * lanes + np.arange(lanes)).ravel()
        chosen = chosen[:, columns[columns < nodes]]
    return TapSample(chosen, chosen.size / max(tensor.size, 1))


@lru_cache(maxsize=256)
def spread(count: int, total: int) -> tuple[int, ...]:
    """`count` of `total` indices in rising order, spread about evenly without a fixed stride.

    A stride would meet the same pixels of every image.

    >>> spread(4, 16)
    (0, 1, 6, 11)
    """
    step = round(total * 0.618)
    while math.gcd(step, total) != 1:
        step += 1
    return tuple(sorted(index * step % total for index in range(count)))


class TapFirmware(NamedTuple):
    """The firmware of all taps as one, and the rows of each tap in it."""

    firmware: Firmware
    range_rows: tuple[dict[int, int], ...]
    """The chip's row of ranges for each row of a tap's own firmware, by tap."""


def compose(firmwares: Mapping[int, Firmware], hardware: Hardware, *, own_ranges: Collection[int] = ()) -> TapFirmware:
    """Combine the firmware of several taps, each written for a single tap, into one.

    Taps with the same firmware share its chains. Rows of ranges are allocated anew, equal ones once, except those of
    taps in `own_ranges`, whose ranges change during training. Scratchpad rows are shared, since frames of different
    taps do not overlap, except rows that keep something from one frame to the next.

    Raises:
        ConfigError: the memories are too small for all of them, or a firmware names taps itself.
    """
    chains_of = {tap: _chains(firmware, tap) for tap, firmware in firmwares.items()}
    carrying = [tap for tap, chains in chains_of.items() if _carries(chains)]
    if len(carrying) > 1:
        listed = ", ".join(map(str, carrying))
        raise ConfigError(f"the firmware of taps {listed} carries a vector from frame to frame; only one tap can")
    keeping = {tap: _keeping(chains) for tap, chains in chains_of.items()}
    passing = {tap: _rows(chains) - keeping[tap] for tap, chains in chains_of.items()}
    shared = 1 + max((row for rows in passing.values() for row in rows), default=-1)
    ranges: dict[Any, int] = {}
    own_rows: dict[tuple[int, int], int] = {}
    taps_of_chains: dict[Chains, list[int]] = {}
    maps: list[dict[int, int]] = [{} for _ in range(hardware.taps)]
    composed = Firmware()
    for tap, firmware in firmwares.items():
        for row in sorted(_filtered(chains_of[tap]) | set(firmware.rows)):
            content = firmware.rows.get(row)
            key = (tap, row) if content is None or tap in own_ranges else content
            maps[tap][row] = ranges.setdefault(key, len(ranges))
            if content is not None:
                composed.rows[maps[tap][row]] = content
        moves = {row: row for row in passing[tap]}
        moves |= {row: own_rows.setdefault((tap, row), shared + len(own_rows)) for row in sorted(keeping[tap])}
        moved = tuple(tuple(_move(item, maps[tap], moves) for item in chain) for chain in chains_of[tap])
        taps_of_chains.setdefault(moved, []).append(tap)
    _check_room("rows of ranges", "range_rows", len(ranges), hardware.range_rows)
    _check_room("scratchpad rows", "scratchpad_rows", shared + len(own_rows), hardware.scratchpad_rows)
    _check_room("chains", "chains", sum(map(len, taps_of_chains)), hardware.chains)
    for chains, taps in taps_of_chains.items():
        composed._programs.append((tuple(taps), [list(chain) for chain in chains]))
    return TapFirmware(composed, tuple(maps))


def _check_room(noun: str, field: str, needed: int, built: int) -> None:
    if needed > built:
        raise ConfigError(
            f"the aggregations of all taps together need {needed} {noun}, but the hardware has {built}: "
            f"set {field} = {needed} in [instrument.hardware], or watch less at a time"
        )


def _chains(firmware: Firmware, tap: int) -> Chains:
    programs = firmware.programs
    if any(program.taps is not None for program in programs):
        raise ConfigError(f"the firmware of tap {tap} names taps itself; write it for one tap, without `program`")
    return programs[0].chains if programs else ()


def _filtered(chains: Chains) -> set[int]:
    return {item.addr for chain in chains for item in chain if item.op == "vv_filter"}


def _rows(chains: Chains) -> set[int]:
    return {item.addr for chain in chains for item in chain if _uses_scratchpad(item)}


def _uses_scratchpad(item: Instruction) -> bool:
    return item.op == "v_cache" or (item.op.startswith("vv_") and item.op != "vv_filter")


def _keeping(chains: Chains) -> set[int]:
    """Scratchpad rows that are read before the frame itself has written them."""
    keeping: set[int] = set()
    written: set[int] = set()
    for chain in chains:
        for item in chain:
            if item.op == "v_cache" and set(item.conditions) <= {"first", "first@1"}:
                written.add(item.addr)
            elif _uses_scratchpad(item) and item.op != "v_cache":
                fresh = {"notfirst", "notfirst@1"} & set(item.conditions)
                if not fresh and item.addr not in written:
                    keeping.add(item.addr)
    return keeping


def _carries(chains: Chains) -> bool:
    """Whether the carried vector is read before the program has written it."""
    for chain in chains:
        names = [item.op for item in chain]
        if "v_mc_load" in names:
            return True
        if "v_mc_save" in names:
            return False
    return False


def _move(item: Instruction, ranges: Mapping[int, int], rows: Mapping[int, int]) -> Instruction:
    if item.op == "vv_filter":
        return replace(item, addr=ranges[item.addr])
    return replace(item, addr=rows[item.addr]) if _uses_scratchpad(item) else item
