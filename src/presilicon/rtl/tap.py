"""The instrument beside a user's design: chosen signals become outputs, and a new top level has both.

Yosys flattens the design, so that every signal has its hierarchical name. Nothing else of the design changes:
attributes and black boxes stay, and what Yosys would read otherwise than a simulator is refused.
"""

import json
import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from presilicon.base import LARGEST_DATA, ConfigError, did_you_mean, read_file
from presilicon.designs import Hardware
from presilicon.rtl.clocks import Clocks
from presilicon.rtl.generate import TOP, UART_TOP, write_instrument
from presilicon.rtl.parameters import SETTING, check_names, names_in, setting_text
from presilicon.rtl.project import range_text
from presilicon.rtl.sources import SOURCES, fill, modules_in
from presilicon.rtl.yosys import YosysError, run_yosys

_CLOCKS = ("clock", "clk", "i_clk", "clk_i", "aclk", "sys_clk", "core_clk")
_RESETS = ("reset", "rst", "i_rst", "rst_i", "i_reset", "reset_i")
_LOW_RESETS = ("rst_n", "reset_n", "rstn", "resetn", "aresetn", "nrst", "nreset", "rst_ni", "i_rst_n")
_LEAST_SIMILARITY = 0.5
INSTANCE = "user_design"
_OWN_ATTRIBUTES = (
    *("src", "hdlname", "top", "module_not_derived", "cells_not_processed", "dynports", "wiretype"),
    *("always_comb", "always_ff", "always_latch"),
)
"""Attributes that Yosys adds to those of the design."""
_KEPT = "presilicon_kept"
"""Attribute of what stays until the netlist is written."""
_MOST_NAMED = 5


@dataclass(frozen=True)
class Signal:
    """The signals of one tap.

    >>> Signal.parse("layer1.out:layer1.out_valid:done")
    Signal(vector=('layer1.out',), valid='layer1.out_valid', last=('done', 'done'))
    """

    vector: tuple[str, ...]
    """Hierarchical names; several are concatenated, the first in the lowest lanes."""
    valid: str
    last: tuple[str, str] | None
    """Flags at the ends of frames of both levels; None for frames of a fixed length."""

    @staticmethod
    def parse(text: str) -> "Signal":
        """The signals in `VECTOR[+VECTOR...]:VALID[:LAST0[:LAST1]]`.

        Raises:
            ConfigError: the text is not of this form.
        """
        parts = text.split(":")
        # A colon inside brackets belongs to a range of bits.
        joined: list[str] = []
        for part in parts:
            if joined and joined[-1].count("[") > joined[-1].count("]"):
                joined[-1] += ":" + part
            else:
                joined.append(part)
        if not 2 <= len(joined) <= 4 or not all(joined):
            raise ConfigError(
                f'--signal "{text}": expected VECTOR:VALID, VECTOR:VALID:LAST or VECTOR:VALID:LAST0:LAST1, '
                "as in layer1.out:layer1.out_valid"
            )
        last = (joined[2], joined[-1]) if len(joined) > 2 else None
        return Signal(tuple(joined[0].split("+")), joined[1], last)


Wire = dict[int, Any]
"""Bits of a signal by their declared numbers, the least significant first."""


@dataclass(frozen=True)
class Tapped:
    """The written design."""

    top: str
    """The module with the design and the instrument."""
    clock: str
    reset: str
    reset_is_low: bool
    hardware: Hardware
    files: tuple[Path, ...]


def tap_design(
    sources: Sequence[Path],
    top: str,
    signals: Sequence[Signal],
    hardware: Hardware,
    directory: Path,
    *,
    frame_length: int | None = None,
    clock: str | None = None,
    reset: str | None = None,
    include: Sequence[Path] = (),
    other_clock: Sequence[int] = (),
    parameters: Mapping[str, str] | None = None,
) -> Tapped:
    """Write the design with its signals as outputs, the instrument, and a top level with both.

    `reset` begins with `!` if it is active low; the usual names of active-low resets need no `!`. `frame_length` is the
    number of vectors of a frame of both levels, for signals without end flags. `other_clock` are taps, from 0, whose
    signals belong to another clock than `clock`: they get an asynchronous queue. `parameters` are Verilog values for
    the top's parameters, which are fixed in the written design.

    Raises:
        ConfigError: a file, module, parameter or signal does not exist, a width does not fit, no clock is found, a
            signal belongs to another clock, or a name collides with the instrument's.
        MissingToolError: Yosys is absent.
    """
    if not signals:
        raise ConfigError("no --signal is given: name at least one, as in --signal layer1.out:layer1.out_valid")
    hardware = replace(hardware, taps=len(signals), flush="frame")
    hardware.check()
    for signal in signals:
        if signal.last is None and frame_length is None:
            raise ConfigError(
                f'--signal "{"+".join(signal.vector)}": the ends of its frames are unknown; '
                "add end flags (VECTOR:VALID:LAST) or --frame-length"
            )
    if frame_length is not None and frame_length < 1:
        raise ConfigError(f"--frame-length is {frame_length}, expected at least 1")
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot write {directory}: {error.strerror or error}") from None
    netlist = _flatten(sources, top, include, directory, parameters or {})
    module = netlist["modules"][top]
    wires = _wires(module)
    ports = dict(module["ports"])
    clock = _clock(ports, clock)
    reset, is_low = _reset(ports, reset)
    _check_names(netlist, top, ports, wires)
    clocks = Clocks(module, clock)
    for tap in other_clock:
        if not 0 <= tap < len(signals):
            raise ConfigError(f"--other-clock {tap}: there are signals 0 to {len(signals) - 1}")
    for index, signal in enumerate(signals):
        bits = _bring_up(module, wires, index, signal, hardware)
        tap_clock = _other_clock(clocks, signal, clock, bits, index, index in other_clock)
        if tap_clock is not None:
            _add_output(module, f"presilicon_tap{index}_clock", [tap_clock])
    tapped = directory / "rtl" / f"{top}_tapped.v"
    written = write_instrument(hardware, directory, other_clock=other_clock)
    _write_verilog(netlist, tapped)
    wrapper = directory / "rtl" / f"{top}_instrumented.sv"
    wrapper.write_text(_wrapper(top, ports, signals, hardware, clock, reset, is_low, frame_length, other_clock))
    listing = directory / "instrument.f"
    lines = [line for line in listing.read_text().splitlines() if "uart" not in line]
    listing.write_text("\n".join([*lines, f"rtl/{tapped.name}", f"rtl/{wrapper.name}"]) + "\n")
    for name in ("vivado.tcl", "quartus.qip"):
        _extend_list(directory / name, [tapped.name, wrapper.name])
    files = tuple(dict.fromkeys([*written, tapped, wrapper]))
    return Tapped(f"{top}_instrumented", clock, reset, is_low, hardware, files)


def _extend_list(path: Path, names: Sequence[str]) -> None:
    """Add files to a tool's list, in the same form as the top level."""
    lines = path.read_text().splitlines()
    top_line = next(number for number, line in enumerate(lines) if f"rtl/{TOP}.sv" in line)
    more = [lines[top_line].replace(f"{TOP}.sv", name) for name in names]
    if path.name == "vivado.tcl":
        more = [line.replace("read_verilog -sv", "read_verilog") if line.endswith(".v") else line for line in more]
    else:
        more = [line.replace("SYSTEMVERILOG_FILE", "VERILOG_FILE") if '.v"' in line else line for line in more]
    path.write_text("\n".join([*lines[: top_line + 1], *more, *lines[top_line + 1 :]]) + "\n")


def _flatten(
    sources: Sequence[Path], top: str, include: Sequence[Path], directory: Path, parameters: Mapping[str, str]
) -> Any:
    """The design as one module in Yosys' JSON, with every signal by its hierarchical name."""
    for path in sources:
        read_file(path, LARGEST_DATA, again=True)
    folders = " ".join(f"-I{_quoted(path, directory)}" for path in include)
    reads = "\n".join(f"read_verilog -sv -defer {folders} {_quoted(path, directory)}" for path in sources)
    modules = _modules(reads, directory)
    if top not in modules:
        raise ConfigError(f'--top: there is no module "{top}" in the given files: {did_you_mean(top, modules)}')
    with _scratch(directory, "flat.json") as flat, _scratch(directory, "setting.v") as setting:
        elaborated = f"{reads}\nhierarchy -check -top {top}\n"
        if parameters:
            known = _parameters(reads, top, directory)
            if known is not None:
                check_names(parameters, known, top)
            setting.write_text(setting_text(_identifier(top), parameters))
            # Once the module that set them is deleted, the one it instantiates is the top.
            elaborated = (
                f"{reads}\nread_verilog -sv -defer {setting.name}\nhierarchy -check -top {SETTING}\n"
                f"delete {SETTING}\nhierarchy -check -auto-top\n"
            )
        flatten = f"proc\nflatten -noscopeinfo\nmemory_collect\ncheck\nrename -top {top}\nwrite_json {flat.name}\n"
        output = _yosys(elaborated + flatten, directory)
        _check_reading(output)
        netlist = json.loads(flat.read_text())
    _restore(netlist)
    return netlist


def _check_reading(output: str) -> None:
    """Raise if Yosys read something otherwise than a simulator does, by what it says."""
    problems = (
        (
            r"Identifier `\\(\S*[.\[]\S*)' is implicitly declared",
            "Yosys does not follow this reference into an instance or a part of an array, and would leave it without a "
            "driver; use a port, or an array of plain vectors",
        ),
        (
            r"Replacing floating point parameter (\S+) = ",
            "Yosys cannot write this real parameter; instantiate the module one level above and tap the level below "
            "with --top",
        ),
        (
            r"Warning: Wire (\S+?\.\\.+?) is used but has no driver",
            "it has no driver; connect it, or tie it to a constant",
        ),
    )
    for pattern, reason in problems:
        names = list(dict.fromkeys(name.replace(".\\", ".") for name in re.findall(pattern, output)))
        if names:
            more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
            raise ConfigError(f"the design's {', '.join(names[:_MOST_NAMED])}{more}: {reason}")


def _restore(netlist: Any) -> None:
    """Take Yosys' own attributes out, and give black boxes that it specialized their names and parameters back."""
    modules = netlist["modules"]
    boxes = {
        name: module
        for name, module in modules.items()
        if name.startswith("$paramod") and "blackbox" in module["attributes"]
    }
    for module in modules.values():
        for cell in module["cells"].values():
            if (box := boxes.get(cell["type"])) is not None:
                cell["type"] = box["attributes"]["hdlname"]
                cell["parameters"] = box.get("parameter_default_values", {})
    for name in boxes:
        del modules[name]
    for module in modules.values():
        for item in (module, *module["cells"].values(), *module["netnames"].values()):
            attributes = item["attributes"].items()
            item["attributes"] = {name: value for name, value in attributes if name not in _OWN_ATTRIBUTES}


def _parameters(reads: str, top: str, directory: Path) -> list[str] | None:
    """Names of the top's parameters; None if it cannot be elaborated with their defaults."""
    with _scratch(directory, "default.il") as written:
        try:
            run_yosys(f"{reads}\nhierarchy -top {top}\nwrite_rtlil {written.name}\n", directory)
        except YosysError:
            return None
        return names_in(written.read_text(), top)


class _scratch:  # noqa: N801 - it reads as a function
    """A temporary file."""

    def __init__(self, directory: Path, name: str) -> None:
        self.path = directory / f".{name}"

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *_: object) -> None:
        self.path.unlink(missing_ok=True)


def _quoted(path: Path, directory: Path) -> str:
    """A path for Yosys: its sandbox has another /tmp, but relative paths work everywhere."""
    return f'"{os.path.relpath(path.resolve(), directory.resolve())}"'


def _modules(reads: str, directory: Path) -> list[str]:
    output = _yosys(f"{reads}\nls\n", directory)
    names = re.findall(r"^ {2}(\S+)$", output, re.MULTILINE)
    return [name.removeprefix("$abstract\\") for name in names]


def _yosys(script: str, directory: Path) -> str:
    try:
        return run_yosys(script, directory)
    except YosysError as error:
        # Paths are relative to where Yosys runs; the user's are to where the command does.
        said = re.sub(r"(\S+)(?=:\d+: )", lambda path: os.path.relpath((directory / path[1]).resolve()), str(error))
        raise ConfigError(f"Yosys cannot read the design: {said}") from None


def _check_names(netlist: Any, top: str, ports: dict[str, Any], wires: dict[str, Wire]) -> None:
    """Raise if a name of the design collides with one of the instrument or of the wrapper."""
    reserved = {TOP, UART_TOP, *(path.stem for path in modules_in(SOURCES))}
    for name in [top, *netlist["modules"]]:
        if name in reserved:
            raise ConfigError(f'--top {top}: the instrument has a module called "{name}" too; rename yours')
    if f"{top}_instrumented" in netlist["modules"] or f"{top}_instrumented" in reserved:
        raise ConfigError(
            f'--top {top}: the design has a module "{top}_instrumented", the name of the written top; rename it'
        )
    for name in [*ports, *wires]:
        if name.startswith("presilicon_") and "." not in name:
            raise ConfigError(
                f'--top {top}: its signal "{name}" begins with presilicon_, as the instrument\'s own do; rename it'
            )
    if INSTANCE in ports:
        raise ConfigError(f'--top {top}: its port "{INSTANCE}" has the name of the design\'s instance; rename it')


def _other_clock(
    clocks: Clocks, signal: Signal, clock: str, bits: Sequence[Any], index: int, crosses: bool
) -> int | None:
    """The clock of a tap that crosses clock domains; None for one of the instrument's own clock."""
    name = "+".join(signal.vector)
    domains, unknown = clocks.behind(bits)
    if unknown:
        raise ConfigError(
            f'--signal "{name}": it comes through {" and ".join(unknown[:_MOST_NAMED])}, whose clock is unknown; '
            "name a register of the design outside of it"
        )
    names = " and ".join(clocks.name(domain) for domain in domains)
    if len(domains) > 1:
        raise ConfigError(
            f'--signal "{name}": the vector and its flags come from registers of several clocks ({names}); '
            "name signals of one clock"
        )
    is_other = domains != [] and domains[0] != clocks.own
    if is_other and not crosses:
        raise ConfigError(
            f'--signal "{name}": it belongs to the clock {names}, but the instrument runs with {clock}; add '
            f"--other-clock {index} for a queue between them, or choose the instrument's with --clock"
        )
    if crosses and not is_other:
        raise ConfigError(
            f'--other-clock {index}: "{name}" '
            + (
                f"belongs to {clock}, as the instrument does"
                if domains
                else "comes from no register, so it has no clock"
            )
        )
    return domains[0] if crosses else None


def _add_output(module: Any, port: str, bits: Sequence[Any], attributes: Mapping[str, Any] | None = None) -> None:
    """An output that shows these bits, behind a buffer: the register that it shows keeps its name and attributes."""
    used = (bit for net in module["netnames"].values() for bit in net["bits"] if isinstance(bit, int))
    first, width = max(used, default=1) + 1, len(bits)
    shown = list(range(first, first + width))
    module["ports"][port] = {**module["ports"].get(port, {}), "direction": "output", "bits": shown}
    module["netnames"][port] = {"hide_name": 0, "bits": shown, "attributes": dict(attributes or {})}
    module["cells"][f"{port}_buffer"] = {
        "hide_name": 1,
        "type": "$buf",
        "parameters": {"WIDTH": f"{width:032b}"},
        "attributes": {"keep": 1, _KEPT: 1},
        "port_directions": {"A": "input", "Y": "output"},
        "connections": {"A": list(bits), "Y": shown},
    }


def _bring_up(module: Any, wires: dict[str, Wire], index: int, signal: Signal, hardware: Hardware) -> list[Any]:
    """Make a signal's wires outputs of the flattened design; returns all their bits."""
    data = [bit for name in signal.vector for bit in _bits(wires, name, "")]
    expected = hardware.lanes * hardware.element_bits
    name = "+".join(signal.vector)
    if len(data) != expected:
        raise ConfigError(
            f'--signal "{name}": {len(data)} bits wide, but {hardware.lanes} lanes of {hardware.element_bits} bits '
            f"({hardware.element}) are {expected}; change lanes or element in --config"
        )
    scope = signal.vector[0].rpartition(".")[0]
    outputs = {"data": data, "valid": _flag(wires, signal.valid, scope, name)}
    if signal.last is not None:
        outputs["last"] = [bit for flag in signal.last for bit in _flag(wires, flag, scope, name)]
    for part, bits in outputs.items():
        _add_output(module, f"presilicon_tap{index}_{part}", bits)
    return [bit for bits in outputs.values() for bit in bits]


def _flag(wires: dict[str, Wire], name: str, scope: str, vector: str) -> list[Any]:
    if name in ("0", "1"):
        return [name]
    bits = _bits(wires, name, scope)
    if len(bits) != 1:
        raise ConfigError(f'--signal "{vector}": its flag "{name}" is {len(bits)} bits wide, expected 1')
    return bits


def _wires(module: Any) -> dict[str, Wire]:
    """The signals of a flattened design by their hierarchical names."""
    wires = {}
    for name, wire in module["netnames"].items():
        if not wire.get("hide_name"):
            first, width = wire.get("offset", 0), len(wire["bits"])
            numbers = range(first, first + width)
            wires[name] = dict(zip(reversed(numbers) if wire.get("upto") else numbers, wire["bits"], strict=True))
    return wires


def _bits(wires: dict[str, Wire], name: str, scope: str) -> list[Any]:
    """The bits of `path.to.wire`, `path.to.wire[3]` or `path.to.wire[7:4]`, from `scope` or from the top."""
    for candidate in (f"{scope}.{name}", name) if scope else (name,):
        if candidate in wires:
            return list(wires[candidate].values())
        part = re.fullmatch(r"(.+)\[(-?\d+)(?::(-?\d+))?\]", candidate)
        if part and part[1] in wires:
            wire, numbers = wires[part[1]], list(wires[part[1]])
            high, low = int(part[2]), int(part[3] or part[2])
            if high not in wire or low not in wire or numbers.index(high) < numbers.index(low):
                raise ConfigError(f'--signal "{name}": "{part[1]}" has bits {numbers[-1]} to {numbers[0]}')
            return [wire[number] for number in numbers[numbers.index(low) : numbers.index(high) + 1]]
    near = get_close_matches(name, wires, n=3, cutoff=_LEAST_SIMILARITY)
    hint = f"did you mean {' or '.join(near)}?" if near else "`--signals` lists them"
    raise ConfigError(f'--signal: the design has no signal "{name}"; {hint}')


def list_signals(
    sources: Sequence[Path], top: str, include: Sequence[Path] = (), parameters: Mapping[str, str] | None = None
) -> dict[str, int]:
    """Every signal of a design by its hierarchical name, and its width."""
    with tempfile.TemporaryDirectory() as directory:
        module = _flatten(sources, top, include, Path(directory), parameters or {})["modules"][top]
    return {name: len(wire) for name, wire in sorted(_wires(module).items())}


def _clock(ports: dict[str, Any], chosen: str | None) -> str:
    inputs = [name for name, port in ports.items() if port["direction"] == "input" and len(port["bits"]) == 1]
    if chosen is not None:
        if chosen not in inputs:
            raise ConfigError(f'--clock: the top has no input "{chosen}" of one bit: {did_you_mean(chosen, inputs)}')
        return chosen
    for name in inputs:
        if name.lower() in _CLOCKS:
            return name
    raise ConfigError(f"no input looks like a clock; name it with --clock (inputs of one bit: {', '.join(inputs)})")


def _reset(ports: dict[str, Any], chosen: str | None) -> tuple[str, bool]:
    inputs = [name for name, port in ports.items() if port["direction"] == "input" and len(port["bits"]) == 1]
    if chosen is not None:
        name = chosen.removeprefix("!")
        if name not in inputs:
            raise ConfigError(f'--reset: the top has no input "{name}" of one bit: {did_you_mean(name, inputs)}')
        return name, chosen.startswith("!") or name.lower() in _LOW_RESETS
    for name in inputs:
        if name.lower() in _RESETS + _LOW_RESETS:
            return name, name.lower() in _LOW_RESETS
    raise ConfigError(f"no input looks like a reset; name it with --reset (inputs of one bit: {', '.join(inputs)})")


def _write_verilog(netlist: Any, path: Path) -> None:
    with _scratch(path.parent, "tapped.json") as changed:
        for module in netlist["modules"].values():
            _mark_kept(module)
        changed.write_text(json.dumps(netlist))
        unmark = f"setattr -unset keep a:{_KEPT}\nsetattr -unset {_KEPT} a:{_KEPT}\n"
        _yosys(f"read_json {changed.name}\nopt_clean -purge\n{unmark}write_verilog {path.name}\n", path.parent)


def _mark_kept(module: Any) -> None:
    """Mark what has attributes of the design, and instances, to stay as they are while aliases are cleaned up.

    Bits get the name of the first net in the file, ports before all others. An output that shows such a net goes behind
    a buffer, so that the register has the net's name and attributes.
    """
    nets = module["netnames"]
    marked = {name: net for name, net in nets.items() if net["attributes"] and name not in module["ports"]}
    module["netnames"] = marked | nets
    bits = {bit for net in marked.values() for bit in net["bits"] if isinstance(bit, int)}
    for name, port in module["ports"].items():
        if port["direction"] == "output" and not bits.isdisjoint(port["bits"]):
            _add_output(module, name, port["bits"], nets[name]["attributes"])
    instances = (cell for cell in module["cells"].values() if not cell["type"].startswith("$"))
    for item in (*marked.values(), *instances):
        if "keep" not in item["attributes"]:
            item["attributes"] = {**item["attributes"], "keep": 1, _KEPT: 1}


def _identifier(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_$]*", name) else f"\\{name} "


def _wrapper(
    top: str,
    ports: dict[str, Any],
    signals: Sequence[Signal],
    hardware: Hardware,
    clock: str,
    reset: str,
    is_low: bool,
    frame_length: int | None,
    other_clock: Sequence[int],
) -> str:
    vector = hardware.lanes * hardware.element_bits
    declared = [
        f"    {port['direction']} {range_text(len(port['bits']))}{_identifier(name)}," for name, port in ports.items()
    ]
    links = [f"      .{_identifier(name)}({_identifier(name)})," for name in ports]
    wires, taps, frames = [], [], []
    for index, signal in enumerate(signals):
        comment = f"{' + '.join(signal.vector)}, valid with {signal.valid}"
        wires += [
            f"  wire presilicon_tap{index}_valid;  // {comment}",
            f"  wire [1:0] presilicon_tap{index}_last;",
            f"  wire [{vector - 1}:0] presilicon_tap{index}_data;",
        ]
        links += [
            f"      .presilicon_tap{index}_data(presilicon_tap{index}_data),",
            f"      .presilicon_tap{index}_valid(presilicon_tap{index}_valid),",
        ]
        own_clock, own_reset = _identifier(clock), "presilicon_reset"
        if index in other_clock:
            own_clock, own_reset = f"presilicon_tap{index}_clock", f"presilicon_tap{index}_reset"
            wires.append(f"  wire {own_clock};")
            links.append(f"      .{own_clock}({own_clock}),")
            taps += [f"      .tap{index}_clock({own_clock}),", f"      .tap{index}_reset({own_reset}),"]
            frames.append(_reset_text(index))
        if signal.last is not None:
            links.append(f"      .presilicon_tap{index}_last(presilicon_tap{index}_last),")
        else:
            assert frame_length is not None
            frames.append(_frame_text(index, frame_length, own_clock, own_reset))
        taps += [f"      .tap{index}_{part}(presilicon_tap{index}_{part})," for part in ("valid", "last", "data")]
    links[-1] = links[-1].rstrip(",")
    active = f"!{_identifier(reset)}" if is_low else _identifier(reset)
    return fill(
        "tapped.sv.in",
        top=top,
        declared=declared,
        control_bit=32 * hardware.controls + 31,
        wires=wires,
        links=links,
        active=active,
        clock=_identifier(clock),
        frames=frames,
        taps=taps,
    )


def _reset_text(index: int) -> str:
    tap = f"presilicon_tap{index}"
    return f"""
  // The same reset in the clock of tap {index}: it comes at once, however short, and goes with that clock.
  reg [2:0] {tap}_stretched = 3'b111;
  always @(posedge {tap}_clock or posedge presilicon_stretched[0])
    if (presilicon_stretched[0]) {tap}_stretched <= 3'b111;
    else {tap}_stretched <= {{{tap}_stretched[1:0], 1'b0}};
  wire {tap}_reset = {tap}_stretched[2];
"""


def _frame_text(index: int, length: int, clock: str, reset: str) -> str:
    width, tap = max(1, (length - 1).bit_length()), f"presilicon_tap{index}"
    return f"""
  // A frame of both levels ends after {length} vectors.
  reg [{width - 1}:0] {tap}_count;
  assign {tap}_last = {{2{{{tap}_count == {width}'d{length - 1}}}}};
  always @(posedge {clock})
    if ({reset}) {tap}_count <= {width}'d0;
    else if ({tap}_valid) {tap}_count <= {tap}_last[0] ? {width}'d0 : {tap}_count + {width}'d1;
"""
