"""Processing units as the cells of an array: cycles, energy, area, and where they are refused."""

from dataclasses import replace as changed

import pytest
from msgspec.structs import replace

from presilicon.base import ConfigError, FormatError, to_plain
from presilicon.cli.main import main
from presilicon.designs import load_design
from presilicon.formats import NAMED_UNITS, MacUnit, ProcessingUnit, UserFormat, parse_unit, register_unit
from presilicon.records import Gemm
from presilicon.simulation import area, simulate
from presilicon.simulation.systolic.cycles import gemm_cycles


def value(code):
    return code * 0.25


def clip(number):
    return int(max(min(number * 4, 255.0), 0.0))


def add(a, b):
    return min(a + b, 255)


def mul(a, b):
    return min(a * b // 4, 255)


BYTE = UserFormat("byte_of_units", (("m", 8),), value, clip, add=add, mul=mul)
TREE16 = ProcessingUnit("tree16", BYTE, lanes=16, depth=4)


@pytest.fixture
def named():
    yield register_unit(TREE16)
    NAMED_UNITS.pop("tree16")


def test_a_design_file_names_a_registered_unit(named) -> None:
    design = load_design("fp32-systolic", ["numerics.mac.unit=tree16"])
    mac = design.numerics.mac
    assert mac.unit is TREE16
    assert (mac.accumulate, mac.order, mac.chunk) == (BYTE, "pairwise", 16)
    assert str(mac) == "tree16 (16 lanes of byte_of_units, tree, depth 4)"
    plain = to_plain(design.numerics)
    assert plain["mac"]["unit"] == "tree16"
    with pytest.raises(FormatError, match=r'"tree61" is unknown: .*tree16'):
        parse_unit("tree61")
    with pytest.raises(ConfigError, match="tree61"):
        load_design("fp32-systolic", ["numerics.mac.unit=tree61"])
    with pytest.raises(FormatError, match="has its own chunk; leave out chunk=8"):
        MacUnit(unit=TREE16, chunk=8)


def pipelined_cycles(rows: int, cols: int, streamed: int, depth: int) -> int:
    """A fold of stationary weights, cell by cell: a sum enters the next row `depth` cycles later."""
    last = 0
    for item in range(streamed):
        for col in range(cols):
            ready = 0
            for row in range(rows):
                operand = item + row * depth + col  # skewed so that it meets its sum
                ready = max(ready, operand) + depth
            last = max(last, ready)
    return rows + last  # after the load of the weights


@pytest.mark.parametrize("depth", [1, 3])
@pytest.mark.parametrize("size", [(4, 4, 5), (2, 5, 7)])
def test_sums_take_the_depth_of_a_cell_in_every_row(size, depth: int) -> None:
    rows, cols, streamed = size
    found = gemm_cycles(Gemm(m=streamed, k=rows, n=cols), rows, cols, "weight-stationary", depth=depth).cycles
    assert found == pipelined_cycles(rows, cols, streamed, depth)


def test_a_sum_that_stays_is_added_to_once_in_the_depth() -> None:
    gemm = Gemm(m=4, k=10, n=4)
    plain, deep = (gemm_cycles(gemm, 4, 4, "output-stationary", depth=depth).cycles for depth in (1, 3))
    assert plain == 10 + 6 + 4
    assert deep == 3 * (10 + 6) + 4


def priced(unit: ProcessingUnit | None):
    design = load_design("fp32-systolic", ["machine.rows=16", "machine.cols=16", "machine.fusion=none"])
    mac = MacUnit(accumulate=BYTE) if unit is None else MacUnit(unit=unit)
    return replace(design, numerics=replace(design.numerics, mac=mac))


def array_work(graph, unit: ProcessingUnit | None) -> tuple[int, float]:
    """Cycles and joules of the three products."""
    cost = simulate(graph, priced(unit))
    ops = [op for op in cost.ops if op.name.startswith("fc.") and "update" not in op.name]
    assert len(ops) == 3
    return sum(op.cycles for op in ops), cost.energy_by_component_j["mac"]


def test_lanes_save_cycles_and_not_energy(linear_step) -> None:
    graph = linear_step(64, 512, 256)
    single, lanes, deep = (array_work(graph, unit) for unit in (None, changed(TREE16, depth=1), TREE16))
    assert lanes[0] < single[0] / 4
    assert lanes[1] == pytest.approx(single[1])
    assert deep[0] > lanes[0]


def test_the_forward_product_by_hand(linear_step) -> None:
    m, k, n = 64, 512, 20
    forward = simulate(linear_step(m, k, n), priced(TREE16)).ops[0]
    folds = 2 * 2  # 512 / 16 lanes on 16 rows; 20 on 16 columns
    assert forward.cycles == folds * (16 + m + 16 + 16 - 2 + 3 * 16)


def test_a_users_energy_and_area_are_those_of_the_unit(linear_step) -> None:
    own = array_work(linear_step(64, 512, 256), changed(TREE16, energy_pj=8.0))[1]
    assert own == pytest.approx(3 * 64 * 512 * 256 * 8.0e-12 / 16)
    part = "multipliers and adders"
    given, table = (area(priced(unit)).parts_mm2[part] for unit in (changed(TREE16, area_um2=1000.0), TREE16))
    assert given == pytest.approx(256 * 1000.0e-6)
    assert table == pytest.approx(16 * area(priced(None)).parts_mm2[part])


def test_the_result_names_the_unit(named, capsys) -> None:
    with pytest.raises(SystemExit) as end:
        main(["simulate", "fp32-systolic", "--workload", "digits-mlp", "--set", "numerics.mac.unit=tree16"])
    assert not end.value.code
    assert "cells are processing units tree16 (16 lanes of byte_of_units, tree, depth 4)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("design", "settings", "words"),
    [
        ("h200", [], "kind roofline has arithmetic of its own"),
        ("caterpillar-small", ["numerics.mac.accumulate=float32"], "kind caterpillar has arithmetic of its own"),
        ("fp32-systolic", ["machine.cores.count=4"], "one core"),
        ("fp32-systolic", ["machine.sparsity.zeros=weights"], "skips no zeros"),
    ],
)
def test_machines_that_cannot_be_built_of_units_say_so(named, design: str, settings: list[str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        load_design(design, ["numerics.mac.unit=tree16", *settings])


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"lanes": 0}, "lanes must be an integer from 1 to 256, not 0"),
        ({"order": "pairs"}, "order"),
        ({"depth": 1.5}, "depth must be an integer"),
        ({"mad": value}, "running sum c: 2 or 3 arguments, not 1"),
        ({"mad": mul, "order": "lanes"}, 'order must be "tree" or "sequential"'),
        ({"energy_pj": -1.0}, "energy_pj must be a number of at least 0"),
        ({"format": "e4m3"}, "format must be a UserFormat"),
        ({"name": "two words"}, "name must be a word"),
    ],
)
def test_units_that_cannot_exist(fields: dict[str, object], words: str) -> None:
    with pytest.raises(FormatError, match=words):
        ProcessingUnit(**{"name": "u", "format": BYTE, **fields})  # type: ignore[arg-type]
