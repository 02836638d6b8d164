"""The reproduction of CATERPILLAR: published figures as they are, and what is said about ours."""

import pytest

from presilicon.designs import load_design
from presilicon.simulation import simulate
from presilicon.study import reproduce
from presilicon_evidence.reproductions import caterpillar


@pytest.fixture(scope="module")
def found():
    return reproduce("caterpillar")


def test_published_figures(found) -> None:
    published = [(row.unit, row.published) for row in found.rows if row.published is not None]
    assert published == [("GFLOPS/W", 177), ("mm2", 103.2), ("GFLOPS/W", 211), ("mm2", 178.9)]
    notes = [row.note for row in found.rows if "utilization" in row.quantity]
    assert notes == ["published: over 80%", "published: over 90%"]


def test_ours_are_near(found) -> None:
    assert all(abs(row.difference) < 0.25 for row in found.rows if row.difference is not None)
    assert all(row.ours is not None for row in found.rows)


def test_small_networks_favour_single_samples_only_so_long_as_batches_are_spread_by_outputs() -> None:
    crossover, lost = caterpillar.Contest("time_s").crossover()
    assert lost == tuple(width for width in caterpillar.WIDTHS if width < crossover)
    assert caterpillar.Contest("energy_j").crossover()[0] == 128
    assert caterpillar.Contest("energy_j", batch_over=("outputs", "samples")).crossover() == (16, ())
    # If batches needed many more samples they would never win.
    assert caterpillar.Contest("time_s", samples=1e6).crossover() == (None, caterpillar.WIDTHS)


def test_the_assumption_that_would_close_the_gap_does(found) -> None:
    design = load_design("caterpillar-small")
    small = caterpillar.price(caterpillar.SMALL, "small", "sgd")
    factor = 1 + small.excess_j(177) / small.sram_j
    technology = design.technology
    for place in range(len(technology.sram_64bit)):
        technology = technology.scaled(("sram_64bit", place), factor)
    graph = caterpillar._graph(caterpillar.SMALL, 1)
    cost = simulate(graph, design, technology=technology)
    assert graph.flops(matrix_only=True) / cost.energy_j / 1e9 == pytest.approx(177)
    gap = next(row.ours for row in found.rows if row.quantity.startswith("small: energy of SRAM accesses"))
    assert gap == pytest.approx(factor)
