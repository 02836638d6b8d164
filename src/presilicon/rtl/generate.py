"""Writes an instrument as a directory of SystemVerilog: sources, a sized top level, a testbench, file lists."""

from collections.abc import Sequence
from pathlib import Path

from presilicon.base import ConfigError
from presilicon.designs import Hardware
from presilicon.rtl.project import write_project
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


def _settings(parameters: dict[str, int]) -> str:
    return ",\n".join(f"      .{name}({value})" for name, value in parameters.items())


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
        settings=_settings(parameters),
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
        settings=_settings(core_parameters(hardware)),
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
    lines = [
        "# What to tell the tools",
        "",
        "- One clock, `clock`; everything is registered at its rising edge. `reset` is synchronous and active high:",
        "  hold it for a few cycles. No multicycle and no false paths inside one clock.",
        "- Memories (`memory`, `chains`, `keys`, `scratchpad`, delay lines) are inferred and need no initial content.",
    ]
    if hardware.flushes:
        lines.append(
            "- Taps are registered once before anything looks at them: the tapped circuit sees one flip-flop per bit."
        )
    if other_clock:
        names = ", ".join(f"`tap{tap}_clock`" for tap in other_clock)
        lines += [
            f"- {names}: asynchronous to `clock`. Only Gray-coded pointers cross, each through two registers",
            "  (`write_gray` to `write_seen_1`, `read_gray` to `read_seen_1` in `presilicon_async_fifo`), and the",
            "  queue's memory, which is read only where it is stable. Constrain these paths to one period of the",
            "  faster clock:",
            "",
            "```",
            *_crossing_constraints(other_clock),
            "```",
        ]
    return "\n".join(lines) + "\n"


def _crossing_constraints(other_clock: Sequence[int]) -> list[str]:
    lines = ["# Vivado (.xdc); PERIOD is that of the faster clock in ns"]
    for tap in other_clock:
        cells = f"*crossing_{tap}/queue"
        lines += [
            f"set_max_delay -datapath_only -from [get_cells {cells}/write_gray_reg*] "
            f"-to [get_cells {cells}/write_seen_1_reg*] PERIOD",
            f"set_max_delay -datapath_only -from [get_cells {cells}/read_gray_reg*] "
            f"-to [get_cells {cells}/read_seen_1_reg*] PERIOD",
            f"set_property ASYNC_REG TRUE [get_cells {{{cells}/*_seen_1_reg* {cells}/*_seen_reg*}}]",
        ]
    lines.append("# Quartus (.sdc)")
    for tap in other_clock:
        cells = f"*crossing_{tap}|queue"
        lines += [
            f"set_max_delay -from [get_registers {cells}|write_gray*] -to [get_registers {cells}|write_seen_1*] PERIOD",
            f"set_max_delay -from [get_registers {cells}|read_gray*] -to [get_registers {cells}|read_seen_1*] PERIOD",
        ]
    return lines
