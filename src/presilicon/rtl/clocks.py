"""Clock domains of the signals of a flattened design, from Yosys' netlist."""

from collections.abc import Iterable
from typing import Any

_BUFFERS = ("$buf", "$pos", "$not", "$logic_not", "$_BUF_", "$_NOT_")


class Clocks:
    """The clocks of a module's signals, by the netlist's bit numbers."""

    def __init__(self, module: Any, clock: str) -> None:
        self.own: int = module["ports"][clock]["bits"][0]
        self._drivers: dict[int, tuple[str, Any]] = {}
        for name, cell in module["cells"].items():
            for port, bits in cell["connections"].items():
                if cell["port_directions"].get(port) in ("output", "inout"):
                    self._drivers |= {bit: (name, cell) for bit in bits if isinstance(bit, int)}
        nets = [(name, net["bits"]) for name, net in module["netnames"].items() if not net.get("hide_name")]
        nets += [(name, port["bits"]) for name, port in module["ports"].items()]
        # The shortest name last, and ports last of all, so that these win: a reader knows them.
        nets.sort(key=lambda net: (net[0] in module["ports"], -net[0].count("."), -len(net[0])))
        self._names: dict[int, str] = {bits[0]: name for name, bits in nets if len(bits) == 1}

    def behind(self, bits: Iterable[Any]) -> tuple[list[int], list[str]]:
        """The clocks of the registers and memories that drive signals through combinational logic alone, and the
        instances of modules that are not part of the netlist, whose clocks are unknown.

        A clock that is buffered or inverted is the clock before the buffer; one that is gated, selected or divided is a
        clock of its own. A signal straight from an input has none.
        """
        clocks: set[int] = set()
        unknown: list[str] = []
        for name, cell, bit in self._sources(bits):
            if cell["type"].startswith("$"):
                clocks |= {self._root(clock) for clock in _clocks(cell, bit) if isinstance(clock, int)}
            else:
                unknown.append(f'the instance "{name}" of {cell["type"]}')
        return sorted(clocks), list(dict.fromkeys(unknown))

    def name(self, clock: int) -> str:
        """Name of a clock in the design."""
        return self._names.get(clock, "a signal without a name")

    def _sources(self, bits: Iterable[Any]) -> list[tuple[str, Any, int]]:
        """The nearest clocked cells and instances upstream, with their names and the bits that they drive."""
        seen: set[Any] = set()
        waiting, cells = list(bits), []
        while waiting:
            bit = waiting.pop()
            if bit in seen:
                continue
            seen.add(bit)
            if bit not in self._drivers:
                continue
            name, cell = self._drivers[bit]
            if _clocks(cell, bit) or not cell["type"].startswith("$"):
                cells.append((name, cell, bit))
            if cell["type"].startswith("$"):
                waiting += _passed(cell, bit)
        return cells

    def _root(self, clock: int) -> int:
        """The clock in front of buffers and inverters."""
        while clock in self._drivers and self._drivers[clock][1]["type"] in _BUFFERS:
            cell = self._drivers[clock][1]
            (source,) = cell["connections"]["A"][:1]
            if not isinstance(source, int):
                break
            clock = source
        return clock


def _read_port(cell: Any, bit: int) -> tuple[int, bool]:
    """The port of a memory that drives a bit, and whether it reads at its clock; each port has its own way."""
    data, ports = cell["connections"]["RD_DATA"], len(cell["connections"]["RD_CLK"])
    port = data.index(bit) * ports // len(data)
    return port, cell["parameters"].get("RD_CLK_ENABLE", "1" * ports)[-1 - port] != "0"


def _clocks(cell: Any, bit: int) -> list[Any]:
    """The clock pins of the register or memory that drives a bit: an asynchronous read shows what was written."""
    pins = cell["connections"]
    if cell["type"].startswith("$mem"):
        port, is_clocked = _read_port(cell, bit)
        return [pins["RD_CLK"][port]] if is_clocked else list(pins.get("WR_CLK", ()))
    if "CLK" in pins and cell["type"].startswith("$"):
        return list(pins["CLK"])
    return list(pins["C"]) if cell["type"].startswith("$_") and "DFF" in cell["type"] else []


def _passed(cell: Any, bit: int) -> list[Any]:
    """The inputs that drive a bit of a cell's outputs combinationally."""
    pins, directions = cell["connections"], cell["port_directions"]
    if cell["type"].startswith("$mem"):
        port, is_clocked = _read_port(cell, bit)
        width = len(pins["RD_ADDR"]) // len(pins["RD_CLK"])
        return [] if is_clocked else list(pins["RD_ADDR"][port * width : (port + 1) * width])
    if _clocks(cell, bit):
        return []
    return [bit for port, bits in pins.items() if directions.get(port) == "input" for bit in bits]
