"""Graphs of ops and problems that several tests schedule."""

from pathlib import Path

import pytest

from presilicon.designs import load_system
from presilicon.records import Problem
from presilicon.scheduling.graphs import Graph, read_graph
from presilicon.scheduling.problems import build_problem

GRAPHS = Path(__file__).parents[3] / "benchmarks" / "graphs"


@pytest.fixture
def graph():
    def read(name: str) -> Graph:
        return read_graph(GRAPHS / f"step-{name}.json")

    return read


@pytest.fixture
def ideal(graph):
    def build(name: str, **options: float) -> Problem:
        return build_problem(load_system("v100-3xs10-ideal"), graph(name), **options)

    return build


@pytest.fixture
def real(graph):
    """With transfers, clock levels and boards that draw power when idle."""

    def build(name: str, *settings: str, **options: float) -> Problem:
        return build_problem(load_system("v100-3xs10", settings), graph(name), **options)

    return build
