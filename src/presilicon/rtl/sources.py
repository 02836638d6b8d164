"""Files of the SystemVerilog sources, and their parameters for a `Hardware`."""

import re
from collections.abc import Iterable
from pathlib import Path

from presilicon.base import ConfigError, unknown
from presilicon.designs import ALU_FUNCTIONS, BLOCKS, REDUCE_FUNCTIONS, Hardware, Instrument
from presilicon.instrument import PACKET_OVERHEAD

SOURCES = Path(__file__).parent / "sv"
SIMULATION = Path(__file__).parent / "sim"
TEMPLATES = Path(__file__).parent / "templates"


def fill(template: str, **values: object) -> str:
    """The text of a template with every `@{name}` replaced; a list is put in line by line."""

    def value(match: re.Match[str]) -> str:
        content = values[match[1]]
        return "\n".join(content) if isinstance(content, list) else str(content)

    return re.sub(r"@\{(\w+)\}", value, (TEMPLATES / template).read_text(encoding="utf-8"))


def modules_in(directory: Path) -> list[Path]:
    """Files of the instrument's modules in a directory, one module each, without headers."""
    return sorted(directory.glob("presilicon_*.sv"))


def module_files(*tops: str) -> list[Path]:
    """The package's files with these modules and all that they instantiate; `measured` has modules for comparison only.

    Raises:
        ConfigError: there is no such module.
    """
    texts = {path: _without_comments(path.read_text(encoding="utf-8")) for path in sorted(SOURCES.rglob("*.sv"))}
    homes = {name: path for path, text in texts.items() for name in re.findall(r"^module (\w+)", text, re.MULTILINE)}
    for top in tops:
        if top not in homes:
            raise unknown("module", top, homes)
    needed: set[Path] = set()
    waiting = [homes[top] for top in tops]
    while waiting:
        path = waiting.pop()
        if path not in needed:
            needed.add(path)
            waiting += [homes[name] for name in re.findall(r"\b\w+\b", texts[path]) if name in homes]
    return sorted(needed)


def _without_comments(text: str) -> str:
    return re.sub(r"//.*", "", text)


def header_files(modules: Iterable[Path]) -> list[Path]:
    """Header files that modules include."""
    texts = [path.read_text(encoding="utf-8") for path in modules]
    names = {name for text in texts for name in re.findall(r'`include "(\w+\.svh)"', text)}
    return sorted(SOURCES / name for name in names)


def core_parameters(hardware: Hardware) -> dict[str, int]:
    """The parameters of `presilicon_bare`, by name.

    >>> core_parameters(Hardware(lanes=8, ranges=4))["WORD"]
    32
    """
    hardware.check()
    order = [BLOCKS.index(name) + 1 for name in hardware.blocks] + [0, 0, 0]
    return {
        "LANES": hardware.lanes,
        "RANGES": hardware.ranges,
        "ELEMENT": hardware.element_bits,
        "WORD": hardware.word_bits,
        "FLOAT": int(hardware.is_float),
        "EXPONENT": hardware.exponent_bits,
        "FRACTION": hardware.word_mantissa if hardware.is_float else hardware.fraction_bits,
        "BIAS": hardware.element.exponent_bias,
        "RANGE_ROWS": hardware.range_rows,
        "SCRATCHPAD_ROWS": hardware.scratchpad_rows,
        "CHAINS": hardware.chains,
        "TAPS": hardware.taps,
        "CONTROLS": hardware.controls,
        "ALU": sum(1 << ALU_FUNCTIONS.index(name) for name in hardware.alu),
        "REDUCE": sum(1 << REDUCE_FUNCTIONS.index(name) for name in hardware.reduce),
        "BLOCK_0": order[0],
        "BLOCK_1": order[1],
        "BLOCK_2": order[2],
        "FLUSH": int(hardware.flushes),
    }


def instrument_parameters(hardware: Hardware) -> dict[str, int]:
    """The parameters of `presilicon_instrument`, by name.

    Raises:
        ConfigError: the hardware is the bare core.
    """
    if not hardware.flushes:
        raise ConfigError('the instrument with taps and a stream needs flush = "frame", not the bare core')
    parameters = core_parameters(hardware)
    del parameters["FLUSH"]
    return {**parameters, "BUFFER": hardware.buffer}


def output_blocks(instrument: Instrument) -> int:
    """Blocks that the output buffer of a design's instrument holds, a power of two.

    >>> output_blocks(Instrument(output_bytes=16384))
    64
    """
    hardware = instrument.built
    block = PACKET_OVERHEAD + hardware.lanes * ((hardware.word_bits + 7) // 8)
    return 1 << max(16, instrument.output_bytes // block).bit_length() - 1
