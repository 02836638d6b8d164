"""Writes an instrument as a directory of SystemVerilog: sources, a sized top level, a testbench, file lists."""

from collections.abc import Sequence
from pathlib import Path

from presilicon.base import ConfigError
from presilicon.designs import Hardware
from presilicon.rtl.project import settings_text, write_project
from presilicon.rtl.sources import core_parameters, fill, instrument_parameters, module_files
from presilicon.rtl.testbench import testbench_texts

TOP = "instrument_top"
UART_TOP = "instrument_uart_top"
UART_MODULES = ("presilicon_uart_receiver", "presilicon_uart_transmitter")
SMALLEST_OUTPUT = 16
"""Default size of the output buffer in blocks."""
CROSSING = "presilicon_tap_crossing"


def write_instrument(
    hardware: Hardware, directory: Path, *, other_clock: Sequence[int] = (), output_blocks: int | None = None
) -> list[Path]:
    """Write everything that a project needs; returns the written files.

    With `flush = "never"` it is the bare core. `other_clock` are taps in clocks of their own, which get an
    asynchronous queue each. `output_blocks` is what the output buffer holds, a power of two.

    Raises:
        ConfigError: a tap that does not exist, or a directory that cannot be written.
    """
    hardware.check()
    for tap in other_clock:
        if not 0 <= tap < hardware.taps:
            raise ConfigError(f"--other-clock {tap}: there are taps 0 to {hardware.taps - 1}")
    if other_clock and not hardware.flushes:
        raise ConfigError('--other-clock: the bare core (flush = "never") has no taps; set flush = "frame"')
    tops = {f"rtl/{TOP}.sv": top_text(hardware, other_clock, output_blocks)}
    if hardware.flushes:
        tops[f"rtl/{UART_TOP}.sv"] = uart_top_text(hardware, other_clock)
    modules = _modules(hardware, other_clock)
    bench = testbench_texts(hardware, other_clock, sources=len(modules) + len(tops))
    texts = {**tops, **bench, "constraints.md": _constraints(hardware, other_clock)}
    return write_project(directory, "instrument", modules, texts)


def _modules(hardware: Hardware, other_clock: Sequence[int]) -> list[Path]:
    """The source files that a hardware needs."""
    if not hardware.flushes:
        return module_files("presilicon_bare")
    return module_files("presilicon_instrument", *UART_MODULES, *([CROSSING] if other_clock else []))


def top_text(hardware: Hardware, other_clock: Sequence[int] = (), output_blocks: int | None = None) -> str:
    """The top level of a hardware: its sizes, and a port for everything of each tap."""
    if not hardware.flushes:
        return _bare_text(hardware)
    vector = hardware.lanes * hardware.element_bits
    parameters = {**instrument_parameters(hardware), "OUTPUT": output_blocks or max(hardware.buffer, SMALLEST_OUTPUT)}
    ports, links = [], []
    for tap in range(hardware.taps):
        if tap in other_clock:
            ports += [f"    input logic tap{tap}_clock,", f"    input logic tap{tap}_reset,"]
        ports += [
            f"    input logic tap{tap}_valid,",
            f"    input logic [1:0] tap{tap}_last,  // end of a frame of level 0, of level 1",
            f"    input logic [{vector - 1}:0] tap{tap}_data,  // lane 0 in the lowest bits",
        ]
        links.append(_crossing_text(tap, vector) if tap in other_clock else _direct_text(tap, vector))
    return fill(
        "instrument_top.sv.in",
        sentence=_sentence(hardware),
        ports=ports,
        control_bit=32 * hardware.controls + 31,
        tap_bit=hardware.taps - 1,
        last_bit=2 * hardware.taps - 1,
        data_bit=hardware.taps * vector - 1,
        links=links,
        settings=settings_text(parameters),
    )


def _direct_text(tap: int, vector: int) -> str:
    return f"""  assign valid[{tap}] = tap{tap}_valid;
  assign lost[{tap}] = 1'b0;
  assign last[{2 * tap}+:2] = tap{tap}_last;
  assign data[{tap * vector}+:{vector}] = tap{tap}_data;"""


def _crossing_text(tap: int, vector: int) -> str:
    return fill("tap_crossing.sv.in", vector=vector, tap=tap, last=2 * tap, data=tap * vector)


def _bare_text(hardware: Hardware) -> str:
    count = hardware.lanes.bit_length()
    return fill(
        "bare_top.sv.in",
        sentence=_sentence(hardware),
        in_bit=hardware.lanes * hardware.element_bits - 1,
        out_bit=hardware.lanes * hardware.word_bits - 1,
        lanes=hardware.lanes,
        control_bit=32 * hardware.controls + 31,
        count_bit=count - 1,
        settings=settings_text(core_parameters(hardware)),
    )


def uart_top_text(hardware: Hardware, other_clock: Sequence[int] = ()) -> str:
    """An example: the instrument behind a serial line."""
    vector = hardware.lanes * hardware.element_bits
    ports, links = [], []
    for tap in range(hardware.taps):
        names = [(f"tap{tap}_valid", ""), (f"tap{tap}_last", "[1:0] "), (f"tap{tap}_data", f"[{vector - 1}:0] ")]
        if tap in other_clock:
            names = [(f"tap{tap}_clock", ""), (f"tap{tap}_reset", ""), *names]
        ports += [f"    input logic {width}{name}," for name, width in names]
        links += [f"      .{name}({name})," for name, _ in names]
    return fill("instrument_uart_top.sv.in", ports=ports, control_bit=32 * hardware.controls + 31, links=links)


def _sentence(hardware: Hardware) -> str:
    taps = "" if hardware.taps == 1 else f", {hardware.taps} taps"
    return (
        f"{hardware.lanes} lanes, {hardware.ranges} ranges, {hardware.element}, {hardware.word_bits}-bit words{taps}."
    )


def _constraints(hardware: Hardware, other_clock: Sequence[int]) -> str:
    taps = "- Taps are registered once before anything looks at them: the tapped circuit sees one flip-flop per bit.\n"
    crossings = ""
    if other_clock:
        vivado, quartus = (
            "".join(fill(f"crossing.{ending}.in", tap=tap) for tap in other_clock) for ending in ("xdc", "sdc")
        )
        names = ", ".join(f"`tap{tap}_clock`" for tap in other_clock)
        crossings = fill("crossings.md.in", names=names, vivado=vivado, quartus=quartus)
    return fill("constraints.md.in", taps=taps if hardware.flushes else "", crossings=crossings)
