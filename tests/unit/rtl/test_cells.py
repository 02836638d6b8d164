"""The shipped cells: sizes on the library's grid, functions, and delays near the library's own Liberty file."""

import itertools

import pytest

from presilicon.rtl.cells import liberty_text, sky130
from presilicon.rtl.netlist import _between, _compile

SITE_UM2 = 0.46 * 2.72


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        ("nand2_1", lambda a, b: not (a and b)),
        ("xnor2_1", lambda a, b: a == b),
        ("maj3_1", lambda a, b, c: a + b + c >= 2),
        ("mux2_1", lambda a0, a1, s: a1 if s else a0),
        ("a21oi_1", lambda a1, a2, b1: not ((a1 and a2) or b1)),
        ("o21ba_1", lambda a1, a2, b1_n: (a1 or a2) and not b1_n),
    ],
)
def test_functions_are_the_cells_names(cell, expected) -> None:
    pins = sky130().cells[cell].pins_pf
    function = _compile(sky130().cells[cell].function, tuple(sorted(pins)))
    for values in itertools.product((0, 1), repeat=len(pins)):
        assert function(*values) & 1 == int(expected(*values)), values


def test_areas_are_whole_sites() -> None:
    library = sky130()
    for name, cell in {**library.cells, **library.flip_flops}.items():
        sites = cell.area_um2 / SITE_UM2
        assert sites == pytest.approx(round(sites), abs=1e-3), name


def test_every_cell_has_an_arc_for_every_input() -> None:
    library = sky130()
    for name, cell in library.cells.items():
        assert list(cell.arcs) == list(cell.pins_pf), name
        for arc in cell.arcs.values():
            assert min(arc.cell_rise + arc.cell_fall + arc.rise_transition) > 0, name
            assert len(arc.cell_rise) == len(library.slews_ns) * len(library.loads_pf)


@pytest.mark.parametrize(("edge", "published_ns"), [("cell_rise", 0.0612167), ("cell_fall", 0.0504824)])
def test_delays_are_near_the_librarys_own(edge, published_ns) -> None:
    """Pin A of nand2_1, 0.0531 ns, 0.003467 pF: sky130_fd_sc_hd__nand2_1__tt_025C_1v80.lib.json of the SkyWater PDK."""
    library = sky130()
    table = getattr(library.cells["nand2_1"].arcs["A"], edge)
    assert _between(library, table, 0.0531329, 0.00346659) == pytest.approx(published_ns, rel=0.2)
    assert library.cells["nand2_1"].pins_pf["A"] == pytest.approx(0.002315, rel=0.1)


def test_liberty_has_every_cell() -> None:
    text = liberty_text(sky130())
    assert text.count("{") == text.count("}")
    assert text.count("  cell (") == len(sky130().cells) + len(sky130().flip_flops)
