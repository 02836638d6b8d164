"""Compiler from firmware to an image. Its errors name the chain and the instruction."""

from collections.abc import Mapping, Sequence
from typing import Any

from presilicon.base import ConfigError, did_you_mean, located
from presilicon.designs import ALU_FUNCTIONS, REDUCE_FUNCTIONS, Hardware
from presilicon.instrument.firmware.bubbles import with_bubbles
from presilicon.instrument.firmware.image import Chain, Image, StoredRow
from presilicon.instrument.firmware.instructions import ALU, OPERATIONS, Instruction, condition_mask, location
from presilicon.instrument.firmware.language import Chains, Firmware, TapProgram
from presilicon.instrument.firmware.ranges import RangeRow
from presilicon.instrument.model.words import word_limits

MAX_IN_IMAGE = 255
"""Chains and rows of ranges are counted in one byte."""


def compile_firmware(
    firmware: Firmware,
    hardware: Hardware,
    *,
    rows: Mapping[int, RangeRow] | Sequence[RangeRow] = (),
    sampling: Sequence[int] | None = None,
    controls: Mapping[int, int] | None = None,
) -> Image:
    """The image of a firmware for a hardware.

    `rows` are range rows besides the firmware's own, by their numbers or from 0 on. `sampling` has a number k for each
    tap: every k-th outer frame is looked at, 0 for none. `controls` are registers and their values. The image of a
    firmware without chains leaves the chip's program as it is.

    Raises:
        ConfigError: with the chain and the instruction, counted from 1 (and the taps, if programs differ).
    """
    hardware.check()
    extra = dict(rows) if isinstance(rows, Mapping) else dict(enumerate(rows))
    programs = firmware.programs
    unsorted = [_stored(number, row, hardware) for number, row in (firmware.rows | extra).items()]
    stored = tuple(sorted(unsorted, key=lambda row: row.row))
    if len(stored) > MAX_IN_IMAGE:
        raise ConfigError(f"{len(stored)} range rows, but one image carries {MAX_IN_IMAGE}; send the rest in another")
    image = Image(
        hardware, rows=stored, sampling=_sampling(sampling, hardware), controls=_controls(controls or {}, hardware)
    )
    if not programs:
        if not (stored or image.sampling or image.controls):
            raise ConfigError("the firmware has no chains; write one with `with fw.chain():`, in a file as [[...]]")
        return image
    chains, taps = _join_programs(programs, hardware)
    return Image(hardware, chains, taps, stored, image.sampling, image.controls, _warnings(chains, stored, hardware))


def _join_programs(
    programs: Sequence[TapProgram], hardware: Hardware
) -> tuple[tuple[Chain, ...], tuple[tuple[int, int], ...]]:
    """The chains of all programs, and the first chain and number of chains of each tap."""
    chains: list[Chain] = []
    taps: dict[int, tuple[int, int]] = {}
    named = [tap for program in programs for tap in program.taps or ()]
    for tap in named:
        if isinstance(tap, bool) or not isinstance(tap, int) or not 0 <= tap < hardware.taps:
            raise ConfigError(f"a program is for tap {tap!r}, but there are taps 0 to {hardware.taps - 1}")
        if named.count(tap) > 1:
            raise ConfigError(f"tap {tap} has two programs; give it one")
    for program in programs:
        rest = tuple(tap for tap in range(hardware.taps) if tap not in named)
        program_taps = rest if program.taps is None else program.taps
        try:
            compiled = compile_chains(program.chains, hardware)
        except ConfigError as error:
            if len(programs) == 1:
                raise
            raise ConfigError(f"taps {', '.join(map(str, program_taps))}: {error}") from None
        taps |= dict.fromkeys(program_taps, (len(chains), len(compiled)))
        chains += compiled
    room = min(hardware.chains, MAX_IN_IMAGE)
    if len(chains) > room:
        raise ConfigError(f"{len(chains)} chains, but this hardware has room for {room}: try fewer, or raise chains")
    return tuple(chains), tuple(taps.get(tap, (0, 0)) for tap in range(hardware.taps))


def compile_chains(chains: Chains, hardware: Hardware) -> tuple[Chain, ...]:
    """The compiled chains of one program, with their bubbles."""
    compiled = []
    for number, chain in enumerate(chains):
        fields: dict[str, Any] = {}
        for index, instruction in enumerate(chain):
            with located(location(number, index, instruction.op)):
                _check_block(instruction, hardware)
                fields |= _encode(instruction, hardware)
        _check_order(chain, number, hardware)
        compiled.append(Chain(**fields))
    return with_bubbles(tuple(compiled), hardware)


def _check_block(instruction: Instruction, hardware: Hardware) -> None:
    """Check that the hardware has an instruction's block."""
    if instruction.op not in OPERATIONS:
        raise ConfigError(f"unknown instruction: {did_you_mean(instruction.op, OPERATIONS)}")
    block = OPERATIONS[instruction.op].block
    if block not in (*hardware.blocks, "packer"):
        raise ConfigError(f"needs the block {block}, which this hardware does not have")


def _check_order(chain: tuple[Instruction, ...], number: int, hardware: Hardware) -> None:
    """Check that blocks come in their built order, each instruction once, filter and reduce together."""
    order = [*hardware.blocks, "packer"]
    last: tuple[int, int] = (-1, -1)
    for index, instruction in enumerate(chain):
        where = location(number, index, instruction.op)
        operation = OPERATIONS[instruction.op]
        if any(other.op == instruction.op for other in chain[:index]):
            raise ConfigError(f"{where}: appears twice in one chain; put the second into another chain")
        position = (order.index(operation.block), operation.stage)
        before = chain[index - 1].op if index else ""
        if position < last:
            flow = " > ".join(order)
            within = "within its block, load, ALU, cache and filter, reduce come in this order"
            reason = f"data goes {flow}" if position[0] < last[0] else within
            raise ConfigError(f"{where}: cannot follow {before}: {reason}; begin another chain")
        if position == last and {instruction.op, before} != {"v_cache", "v_mc_save"}:
            raise ConfigError(f"{where}: the vector unit does one thing in a chain, and {before} is that already")
        last = position
    names = [instruction.op for instruction in chain]
    for op, other in (("vv_filter", "m_reduce"), ("m_reduce", "vv_filter")):
        if op in names and other not in names:
            where = location(number, names.index(op), op)
            raise ConfigError(f"{where}: needs {other} in the same chain: the filter's bits go through the reduction")


def _encode(instruction: Instruction, hardware: Hardware) -> dict[str, Any]:
    """Fields of a compiled chain that an instruction sets."""
    op, row = instruction.op, instruction.addr
    mask = condition_mask(instruction.conditions)
    if mask and "conditions" not in OPERATIONS[op].takes:
        raise ConfigError(f"takes no conditions, but has {', '.join(instruction.conditions)}")
    if "addr" in OPERATIONS[op].takes:
        memory, rows = ("range", hardware.range_rows) if op == "vv_filter" else ("scratchpad", hardware.scratchpad_rows)
        if not isinstance(row, int) or isinstance(row, bool) or not 0 <= row < rows:
            raise ConfigError(f"row {row!r}, but the {memory} rows are 0 to {rows - 1}")
    match op:
        case "vv_filter":
            return {"filter": True, "range_row": row}
        case "m_reduce":
            if instruction.axis not in ("M", "N"):
                hint = f"; v_reduce ({instruction.axis}) is another" if instruction.axis in REDUCE_FUNCTIONS else ""
                raise ConfigError(
                    f'axis is {instruction.axis!r}. Allowed: "M" (counts of ranges), "N" (of lanes){hint}'
                )
            return {"axis": "MN".index(instruction.axis)}
        case "v_mc_load":
            return {"load": True}
        case "v_mc_save":
            return {"save": True}
        case "v_cache":
            return {"cache": True, "cache_row": row, "cache_conditions": mask}
        case "v_reduce":
            return {"reduce": _function(instruction.function, REDUCE_FUNCTIONS, hardware.reduce)}
        case "v_commit":
            return {"commit": _size(instruction.size, hardware), "commit_conditions": mask}
        case _:
            return {
                "alu": _function(ALU[op], ALU_FUNCTIONS, hardware.alu),
                "alu_row": 0 if op == "v_abs" else row,
                "alu_conditions": mask,
            }


def _function(name: str, all_names: Sequence[str], built: Sequence[str]) -> int:
    if name not in all_names:
        raise ConfigError(f'unknown function "{name}": {did_you_mean(str(name), all_names)}')
    if name not in built:
        raise ConfigError(f'"{name}" was not built into this hardware, which has {", ".join(built) or "none"}')
    return all_names.index(name) + 1


def frame_words(firmware: Firmware, hardware: Hardware) -> int | None:
    """Words that a firmware of one tap commits in every outer frame, however long; None if that depends on the frame.

    >>> fw = Firmware()
    >>> with fw.chain():
    ...     fw.total()
    ...     fw.commit(1, "last@1")
    >>> frame_words(fw, Hardware())
    1
    """
    chains = firmware.programs[0].chains if firmware.programs else ()
    commits = [item for chain in chains for item in chain if item.op == "v_commit"]
    if any(item.conditions != ("last@1",) for item in commits):
        return None
    return sum(_size(item.size, hardware) for item in commits)


def _size(size: int | str, hardware: Hardware) -> int:
    number = {"M": hardware.ranges, "N": hardware.lanes}.get(size) if isinstance(size, str) else size
    if isinstance(size, bool) or number not in (1, hardware.ranges, hardware.lanes):
        raise ConfigError(f"size is {size!r}, expected 1, {hardware.ranges} (M) or {hardware.lanes} (N)")
    return 3 if number == hardware.lanes else 2 if number == hardware.ranges else 1


def _stored(number: int, row: RangeRow, hardware: Hardware) -> StoredRow:
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < hardware.range_rows:
        raise ConfigError(f"range row {number!r}, but the range rows are 0 to {hardware.range_rows - 1}")
    with located(f"range row {number}"):
        row.check(hardware)
    return StoredRow(number, row.classes is not None, row.keys(hardware))


def _sampling(sampling: Sequence[int] | None, hardware: Hardware) -> tuple[int, ...] | None:
    if sampling is None:
        return None
    if len(sampling) != hardware.taps:
        raise ConfigError(f"sampling has {len(sampling)} numbers, expected one for each of the {hardware.taps} taps")
    for tap, every in enumerate(sampling):
        if not 0 <= every < 1 << 16:
            raise ConfigError(f"sampling of tap {tap} is {every}, expected 0 (never) to 65535")
    return tuple(sampling)


def _controls(controls: Mapping[int, int], hardware: Hardware) -> tuple[tuple[int, int], ...]:
    for register, value in controls.items():
        if not 0 <= register < hardware.controls:
            raise ConfigError(f"control register {register}, but there are {hardware.controls}, from 0")
        if not 0 <= value < 1 << 32:
            raise ConfigError(f"control register {register} is {value}, expected 32 bits without sign")
    return tuple(sorted(controls.items()))


def _warnings(chains: Sequence[Chain], rows: Sequence[StoredRow], hardware: Hardware) -> tuple[str, ...]:
    """Warnings of counts that a word cannot hold exactly."""
    if hardware.is_float:
        exact = 1 << hardware.word_mantissa + 1
        effect = f"counts above {exact} are rounded"
    else:
        exact = word_limits(hardware)[1] >> hardware.fraction_bits
        effect = f"counts above {exact} saturate"
    warnings = []
    contiguous = {row.row for row in rows if not row.is_classes}  # an element is in one of their ranges at most
    for number, chain in enumerate(chains):
        in_ranges = 1 if chain.range_row in contiguous else hardware.ranges
        largest = in_ranges if chain.axis else hardware.lanes
        if chain.filter and largest > exact:
            warnings.append(f"{location(number)}: {effect} in {hardware.word_bits}-bit words; try accumulator_bits")
    return tuple(warnings)
