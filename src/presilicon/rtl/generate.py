"""Writes an instrument as a directory of SystemVerilog: sources, a sized top level, a testbench, file lists."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from presilicon.base import ConfigError
from presilicon.designs import Hardware
from presilicon.rtl.file_lists import file_lists
from presilicon.rtl.sources import core_parameters, header_files, instrument_parameters, module_files
from presilicon.rtl.testbench import write_testbench

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
    files: dict[str, str] = {TOP + ".sv": top_text(hardware, other_clock, output_blocks)}
    if hardware.flushes:
        files[UART_TOP + ".sv"] = uart_top_text(hardware, other_clock)
    modules = _modules(hardware, other_clock)
    names = [path.name for path in modules]
    listed = [f"rtl/{name}" for name in names] + [f"rtl/{name}" for name in files]
    try:
        rtl = directory / "rtl"
        rtl.mkdir(parents=True, exist_ok=True)
        written = [Path(shutil.copy(path, rtl)) for path in (*modules, *header_files(modules))]
        for name, text in files.items():
            written.append(_write(rtl / name, text))
        written += write_testbench(hardware, directory / "tb", listed, other_clock)
        for name, text in _lists(listed, hardware, other_clock).items():
            written.append(_write(directory / name, text))
    except OSError as error:
        raise ConfigError(f"cannot write {error.filename or directory}: {error.strerror or error}") from None
    return written


def _write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


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
    port_text, link_text = "\n".join(ports), "\n".join(links)
    return f"""// The debug instrument: {_sentence(hardware)}
// Written by `presilicon rtl instrument`; the sizes below are those that firmware is compiled for.
module {TOP} (
    input logic clock,
    input logic reset,

{port_text}

    input  logic       config_valid,  // images from the host
    output logic       config_ready,
    input  logic [7:0] config_data,

    output logic       stream_valid,  // packets to the host
    input  logic       stream_ready,
    output logic [7:0] stream_data,

    output logic [{32 * hardware.controls + 31}:0] controls  // 32 bits for each register, and 32 bits of 0
);
  logic [{hardware.taps - 1}:0] valid, lost;
  logic [{2 * hardware.taps - 1}:0] last;
  logic [{hardware.taps * vector - 1}:0] data;
{link_text}

  presilicon_instrument #(
{_settings(parameters)}
  ) instrument (
      .clock(clock),
      .reset(reset),
      .tap_valid(valid),
      .tap_lost(lost),
      .tap_last(last),
      .tap_data(data),
      .config_valid(config_valid),
      .config_ready(config_ready),
      .config_data(config_data),
      .stream_valid(stream_valid),
      .stream_ready(stream_ready),
      .stream_data(stream_data),
      .controls(controls)
  );
endmodule
"""


def _direct_text(tap: int, vector: int) -> str:
    return f"""  assign valid[{tap}] = tap{tap}_valid;
  assign lost[{tap}] = 1'b0;
  assign last[{2 * tap}+:2] = tap{tap}_last;
  assign data[{tap * vector}+:{vector}] = tap{tap}_data;"""


def _crossing_text(tap: int, vector: int) -> str:
    return f"""  presilicon_tap_crossing #(
      .BITS({vector})
  ) crossing_{tap} (
      .tap_clock(tap{tap}_clock),
      .tap_reset(tap{tap}_reset),
      .tap_valid(tap{tap}_valid),
      .tap_last(tap{tap}_last),
      .tap_data(tap{tap}_data),
      .clock(clock),
      .reset(reset),
      .out_valid(valid[{tap}]),
      .out_lost(lost[{tap}]),
      .out_last(last[{2 * tap}+:2]),
      .out_data(data[{tap * vector}+:{vector}])
  );"""


def _bare_text(hardware: Hardware) -> str:
    count = hardware.lanes.bit_length()
    return f"""// The bare core of the debug instrument: {_sentence(hardware)}
// Written by `presilicon rtl instrument`; the sizes below are those that firmware is compiled for.
module {TOP} (
    input logic clock,
    input logic reset,

    input  logic in_valid,
    output logic in_ready,
    input  logic [1:0] in_last,  // end of a frame of level 0, of level 1
    input  logic [{hardware.lanes * hardware.element_bits - 1}:0] in_data,  // lane 0 in the lowest bits

    output logic out_valid,
    input  logic out_ready,
    output logic [{hardware.lanes * hardware.word_bits - 1}:0] out_data,  // {hardware.lanes} words

    input  logic       config_valid,  // images from the host
    output logic       config_ready,
    input  logic [7:0] config_data,
    output logic [31:0] image,  // CRC-32 of the image whose program is in force
    output logic [15:0] taken,  // images
    output logic [15:0] refused,
    output logic [7:0] refusal,  // code of the last one

    output logic [{32 * hardware.controls + 31}:0] controls  // 32 bits for each register, and 32 bits of 0
);
  logic [{count - 1}:0] out_count;
  logic out_end, out_abort, idle;
  presilicon_bare #(
{_settings(core_parameters(hardware))}
  ) core (
      .clock(clock),
      .reset(reset),
      .in_valid(in_valid),
      .in_ready(in_ready),
      .in_break(1'b0),
      .in_tap(1'b0),
      .in_last(in_last),
      .in_data(in_data),
      .out_valid(out_valid),
      .out_ready(out_ready),
      .out_end(out_end),
      .out_abort(out_abort),
      .out_count(out_count),
      .out_data(out_data),
      .config_valid(config_valid),
      .config_ready(config_ready),
      .config_data(config_data),
      .image(image),
      .taken(taken),
      .refused(refused),
      .refusal(refusal),
      .controls(controls),
      .idle(idle)
  );
  wire unused = &{{1'b0, out_count, out_end, out_abort, idle}};
endmodule
"""


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
    port_text, link_text = "\n".join(ports), "\n".join(links)
    return f"""// An example: the instrument behind a serial line, 8 data bits, no parity, one stop bit.
module {UART_TOP} #(
    parameter int CLOCKS_PER_BIT = 868  // 100 MHz at 115,200 baud
) (
    input logic clock,
    input logic reset,

{port_text}

    input  logic receive,   // from the host
    output logic transmit,  // to the host
    output logic [{32 * hardware.controls + 31}:0] controls
);
  logic config_valid, config_ready, stream_valid, stream_ready;
  logic [7:0] config_data, stream_data;
  presilicon_uart_receiver #(
      .CLOCKS_PER_BIT(CLOCKS_PER_BIT)
  ) receiver (
      .clock(clock),
      .reset(reset),
      .line(receive),
      .valid(config_valid),
      .ready(config_ready),
      .data(config_data)
  );
  presilicon_uart_transmitter #(
      .CLOCKS_PER_BIT(CLOCKS_PER_BIT)
  ) transmitter (
      .clock(clock),
      .reset(reset),
      .valid(stream_valid),
      .ready(stream_ready),
      .data(stream_data),
      .line(transmit)
  );
  {TOP} instrument (
      .clock(clock),
      .reset(reset),
{link_text}
      .config_valid(config_valid),
      .config_ready(config_ready),
      .config_data(config_data),
      .stream_valid(stream_valid),
      .stream_ready(stream_ready),
      .stream_data(stream_data),
      .controls(controls)
  );
endmodule
"""


def _sentence(hardware: Hardware) -> str:
    taps = "" if hardware.taps == 1 else f", {hardware.taps} taps"
    return (
        f"{hardware.lanes} lanes, {hardware.ranges} ranges, {hardware.element}, {hardware.word_bits}-bit words{taps}."
    )


def _lists(files: Sequence[str], hardware: Hardware, other_clock: Sequence[int]) -> dict[str, str]:
    """File lists of the tools, and what to tell them about clocks."""
    return {**file_lists("instrument", files), "constraints.md": _constraints(hardware, other_clock)}


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
