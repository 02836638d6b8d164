"""Energy as a function of the technology table: linear in its figures, every component on its own."""

import msgspec
import pytest

from presilicon.designs import Technology, load_design, load_technology
from presilicon.simulation import area, simulate
from presilicon.simulation.energy import leakage_w
from presilicon.simulation.systolic.cycles import transposer_writes

SETTINGS = ["machine.rows=4", "machine.cols=4"]
HOROWITZ = load_technology("horowitz-45nm")


def doubled(technology: Technology) -> Technology:
    """All energies and the leakage twice as large, areas as they are."""
    for path in technology.entries():
        if path[0] != "area":
            technology = technology.scaled(path, 2)
    return technology


@pytest.mark.parametrize("name", ["horowitz-45nm", "tpuv4i-7nm"])
@pytest.mark.parametrize("transpose", ["free", "transposer"])
def test_twice_the_table_is_twice_the_energy(linear_step, name: str, transpose: str) -> None:
    design = load_design("bf16-systolic", [*SETTINGS, f"machine.technology={name}", f"machine.transpose={transpose}"])
    technology = load_technology(name)
    once, twice = (simulate(linear_step(), design, technology=table) for table in (technology, doubled(technology)))
    assert twice.energy_j == pytest.approx(2 * once.energy_j)
    for before, after in zip(once.ops, twice.ops, strict=True):
        assert after.energy_j == pytest.approx(2 * before.energy_j)
    assert (twice.time_s, twice.cycles) == (once.time_s, once.cycles)


@pytest.mark.parametrize(
    ("path", "component"),
    [
        (("register_bit",), "register"),
        (("dram", "ddr3"), "dram"),
        (("leakage",), "leakage"),
        (("area", "register_bit"), None),
    ],
)
def test_a_figure_changes_its_own_component(linear_step, path: tuple[str, ...], component: str | None) -> None:
    design = load_design("fp32-systolic", SETTINGS)
    before = simulate(linear_step(), design).energy_by_component_j
    after = simulate(linear_step(), design, technology=HOROWITZ.scaled(path, 2)).energy_by_component_j
    for name, joules in before.items():
        if name == "leakage" and component is None:
            assert after[name] > joules
        else:
            assert after[name] == pytest.approx(joules * (2 if name == component else 1))


def test_leakage_is_the_area_times_the_time(linear_step) -> None:
    design = load_design("fp32-systolic", SETTINGS)
    cost = simulate(linear_step(), design)
    watts = leakage_w(design, HOROWITZ)
    assert watts == pytest.approx(0.012 * (area(design).mm2 or 0.0))
    assert cost.energy_by_component_j["leakage"] == pytest.approx(watts * cost.time_s)


def test_without_a_figure_there_is_no_leakage(linear_step, bare_table) -> None:
    design = load_design("fp32-systolic", [*SETTINGS, f"machine.technology={bare_table}"])
    cost = simulate(linear_step(), design)
    assert "leakage" not in cost.energy_by_component_j
    assert cost.energy_by_component_j["register"] == 0.0
    assert cost.energy_j == pytest.approx(sum(op.energy_j for op in cost.ops))


@pytest.mark.parametrize("flow", ["weight-stationary", "input-stationary", "output-stationary"])
def test_registers_follow_what_moves(linear_step, flow: str) -> None:
    design = load_design("bf16-systolic", [*SETTINGS, f"machine.dataflow.forward={flow}", "numerics.activation=e4m3"])
    table = msgspec.structs.replace(HOROWITZ, leakage=None)
    no_registers = msgspec.structs.replace(table, register_bit=None)
    with_them, without = (simulate(linear_step(), design, technology=each).ops[0] for each in (table, no_registers))
    bits = {"weight-stationary": 8 + 32, "input-stationary": 16 + 32, "output-stationary": 8 + 16 + 32}[flow]
    assert with_them.energy_j - without.energy_j == pytest.approx(4 * 6 * 3 * bits * 0.009e-12, rel=1e-4)


def move_through(height: int, width: int) -> int:
    """Writes of a transposer's registers, shift by shift: rows in from the top, then columns out at the side."""
    grid: list[list[int | None]] = [[None] * width for _ in range(height)]
    writes = 0
    for row in reversed(range(height)):
        grid = [[row] * width, *grid[:-1]]
        writes += sum(cell is not None for line in grid for cell in line)
    assert [line[0] for line in grid] == list(range(height))
    for leaving in range(width):
        # The last column to leave moves through all registers of its row, the first one only out of the last.
        writes += height * (width - leaving)
    return writes


@pytest.mark.parametrize(("height", "width"), [(1, 1), (2, 2), (3, 2), (4, 5), (7, 9), (8, 10)])
def test_transposer_writes_are_those_of_every_shift(height: int, width: int) -> None:
    rows, cols = 4, 5
    walked = sum(
        move_through(min(rows, height - top), min(cols, width - left))
        for top in range(0, height, rows)
        for left in range(0, width, cols)
    )
    assert transposer_writes(height, width, rows, cols, count=3) == 3 * walked
