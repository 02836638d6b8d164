"""Clock domains of the signals of a flattened design, from Yosys' netlist."""

from collections.abc import Iterable
from typing import Any


class Clocks:
    """The clocks of a module's signals, by the netlist's bit numbers."""

    def __init__(self, module: Any, clock: str) -> None:
        self.own: int = module["ports"][clock]["bits"][0]
        self._drivers: dict[int, Any] = {}
        for cell in module["cells"].values():
            for port, bits in cell["connections"].items():
                if cell["port_directions"].get(port) == "output":
                    self._drivers |= {bit: cell for bit in bits if isinstance(bit, int)}
        nets = [(name, net["bits"]) for name, net in module["netnames"].items() if not net.get("hide_name")]
        nets += [(name, port["bits"]) for name, port in module["ports"].items()]
        # The shortest name last, and ports last of all, so that these win: a reader knows them.
        nets.sort(key=lambda net: (net[0] in module["ports"], -net[0].count("."), -len(net[0])))
        self._names: dict[int, str] = {bits[0]: name for name, bits in nets if len(bits) == 1}

    def behind(self, bits: Iterable[Any]) -> set[int]:
        """The clocks of the registers and memories that drive signals through combinational logic alone.

        A clock that is gated or buffered from the module's own counts as that. A signal straight from an input has no
        known clock.
        """
        clocks: set[int] = set()
        for cell in self._sources(bits):
            clocks |= {self._root(bit) for bit in _clocks(cell) if isinstance(bit, int)}
        return clocks

    def name(self, clock: int) -> str:
        """Name of a clock in the design."""
        return self._names.get(clock, "a signal without a name")

    def _sources(self, bits: Iterable[Any]) -> list[Any]:
        """The nearest clocked cells upstream of signals."""
        seen: set[Any] = set()
        waiting, cells = list(bits), []
        while waiting:
            bit = waiting.pop()
            if bit in seen:
                continue
            seen.add(bit)
            cell = self._drivers.get(bit)
            if cell is None:
                continue
            if _clocks(cell):
                cells.append(cell)
            waiting += _passed(cell)
        return cells

    def _root(self, clock: int) -> int:
        """The module's own clock if a clock comes from it through gates alone; else the clock itself."""
        seen: set[Any] = set()
        waiting: list[Any] = [clock]
        while waiting:
            bit = waiting.pop()
            if bit == self.own:
                return self.own
            if bit in seen or bit not in self._drivers:
                continue
            seen.add(bit)
            cell = self._drivers[bit]
            waiting += [] if _clocks(cell) else _passed(cell)
        return clock


def _reads_at_clock(cell: Any) -> bool:
    return "0" not in cell["parameters"].get("RD_CLK_ENABLE", "1")


def _clocks(cell: Any) -> list[Any]:
    """The clock pins of a register or memory."""
    pins = cell["connections"]
    if cell["type"].startswith("$mem"):
        return list(pins["RD_CLK"] if _reads_at_clock(cell) else pins.get("WR_CLK", ()))
    if "CLK" in pins and cell["type"].startswith("$"):
        return list(pins["CLK"])
    return list(pins["C"]) if cell["type"].startswith("$_") and "DFF" in cell["type"] else []


def _passed(cell: Any) -> list[Any]:
    """The inputs that drive a cell's outputs combinationally."""
    pins, directions = cell["connections"], cell["port_directions"]
    if cell["type"].startswith("$mem"):
        return [] if _reads_at_clock(cell) else list(pins["RD_ADDR"])
    if _clocks(cell):
        return []
    return [bit for port, bits in pins.items() if directions.get(port) == "input" for bit in bits]
