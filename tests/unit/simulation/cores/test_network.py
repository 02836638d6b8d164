"""Loads of links against a network that sends every flit."""

import random

import numpy as np
import pytest

from oracles.flits import neighbours_route, send
from presilicon.simulation.cores.description import Cores
from presilicon.simulation.cores.network import Flow, Network
from presilicon.simulation.cores.splits import CoreGrid, flows_of, traffic_of

NETWORKS = [Network("mesh", 2, 3), Network("mesh", 3, 3), Network("ring", 1, 5), Network("ring", 1, 6),
            Network("all-to-all", 1, 4), Network("mesh", 1, 4)]  # fmt: skip


def flits_of(flows: list[Flow], scale: int) -> list[tuple[int, tuple[int, ...], int, bool]]:
    return [(flow.source, flow.targets, round(flow.size * scale), flow.summed) for flow in flows]


@pytest.mark.parametrize("network", NETWORKS, ids=str)
def test_routes_are_those_of_the_rule_and_use_links_of_the_network(network: Network):
    links = set(network.links())
    for source in range(network.count):
        for target in range(network.count):
            way = neighbours_route(network.topology, network.rows, network.cols, source, target)
            route = network.route(source, target)
            assert set(route) <= links
            assert len(route) == (len(way) - 1 if source != target else 0)
            if source != target:
                assert [begin for begin, _ in route] + [route[-1][1]] == way


@pytest.mark.parametrize("network", NETWORKS, ids=str)
@pytest.mark.parametrize("seed", range(6))
def test_random_traffic_loads_links_and_takes_time_as_every_flit_does(network: Network, seed: int):
    draw = random.Random(seed)
    flows = []
    for _ in range(draw.randint(1, 2 * network.count)):
        source = draw.randrange(network.count)
        others = [core for core in range(network.count) if core != source]
        targets = tuple(draw.sample(others, draw.randint(1, len(others))))
        flows.append(Flow(source, targets, draw.randint(10, 60), draw.random() < 0.3))
    loads = network.load(flows)
    cycles, used = send(network.topology, network.rows, network.cols, flits_of(flows, 1))
    assert {link: round(load) for link, load in loads.items()} == used
    busiest = max(loads.values())
    assert busiest <= cycles <= 1.7 * busiest + network.count  # queues of one flow behind another
    assert (network.loads(flows).max(), network.loads(flows).sum()) == (busiest, sum(loads.values()))


@pytest.mark.parametrize("network", [Network("mesh", 2, 2), Network("mesh", 2, 4), Network("ring", 1, 8)], ids=str)
def test_traffic_of_products_takes_as_long_as_its_busiest_link(network: Network):
    """The traffic that pricing counts, all at once: flits never wait much longer than the busiest link works."""
    count = network.count
    for grid in (
        CoreGrid(m=count),
        CoreGrid(n=count),
        CoreGrid(m=count // 2, n=2),
        CoreGrid(k=2, n=count // 2),
        CoreGrid(2, count // 2, 1),
    ):
        flows = [flow for part in flows_of(count, grid, "mkn") for flow in part]
        scale = 8 * count * count
        cycles, used = send(network.topology, network.rows, network.cols, flits_of(flows, scale))
        loads = network.load(Flow(*flow) for flow in flits_of(flows, scale))
        assert {link: round(load) for link, load in loads.items()} == used
        assert max(loads.values()) <= cycles <= 1.01 * max(loads.values()) + count


def owners_by_hand(count: int, grid: CoreGrid, order: str) -> dict[str, float]:
    """Bytes that all cores receive, element by element of small tensors: as many samples as cores."""
    sides = {"m": grid.m, "k": grid.k, "n": grid.n}
    cells = list(np.ndindex(*(sides[axis] for axis in order)))
    at = {core: dict(zip(order, cell, strict=True)) for core, cell in enumerate(cells)}
    received = {"left": 0.0, "right": 0.0, "sums": 0.0}
    samples, other = order[0], {"left": "mk", "right": "kn", "sums": "mn"}
    for name, axes in other.items():
        if samples in axes:  # an element is (sample, part of the other axis); a core owns its sample
            [second] = set(axes) - {samples}
            for owner in range(count):
                for part in range(sides[second]):
                    needs = [
                        core for core in at if at[core][samples] == at[owner][samples] and at[core][second] == part
                    ]
                    received[name] += sum(core != owner for core in needs) / (count * sides[second])
        else:
            for owner in range(count):
                needs = [core for core in at if all(at[core][axis] == at[owner][axis] for axis in axes)]
                received[name] += (len(needs) - 1) / count
    return received


@pytest.mark.parametrize("order", ["mkn", "mnk", "kmn", "knm"])
def test_cores_receive_what_they_need_and_do_not_own(order: str):
    network = Network("mesh", 2, 4)
    for grid in (
        CoreGrid(8, 1, 1),
        CoreGrid(1, 8, 1),
        CoreGrid(1, 1, 8),
        CoreGrid(2, 2, 2),
        CoreGrid(4, 1, 2),
        CoreGrid(1, 2, 4),
    ):
        own = traffic_of(network, grid, sums_samples=order[0] == "k")
        number = ["mkn", "mnk"].index(order) if order[0] == "m" else ["kmn", "knm"].index(order)
        by_hand = owners_by_hand(8, grid, order)
        assert own[number].received == pytest.approx(tuple(by_hand.values()))
    by_samples = traffic_of(network, CoreGrid(8, 1, 1), sums_samples=False)[0].received
    assert by_samples == (0, 7, 0)  # weights to all others, activations to none


@pytest.mark.parametrize("topology", ["mesh", "ring", "all-to-all"])
def test_parts_are_the_networks_of_smaller_chips_and_halves(topology):
    for count in (3, 4, 6, 8, 12, 16, 24):
        parts = Network.of_cores(Cores(count=count, network=topology)).parts()
        smaller = [chip for chip in (1, 2, 3, 4, 6, 8, 12, 16, 24) if chip <= count]
        assert [part.count for part in parts] == smaller[::-1]
        assert all(part == Network.of_cores(Cores(count=part.count, network=topology)) for part in parts)
    assert [Network.of_cores(Cores(count=count)).parts()[1].count for count in (5, 7, 49)] == [3, 3, 24]
    assert 21 in [part.count for part in Network.of_cores(Cores(count=49)).parts()]


@pytest.mark.parametrize("count", [3, 4, 5])
def test_a_row_of_cores_that_bends_once_loads_no_link_more(count):
    row, square = Network("mesh", 1, count), Network("mesh", 3, 3)
    corner = [0, 1, 2, 5, 8][:count]  # along the first row, then down the last column
    for source in range(count):
        targets = tuple(target for target in range(count) if target != source)
        for summed in (False, True):
            straight = row.load([Flow(source, targets, 1.0, summed)])
            bent = square.load([Flow(corner[source], tuple(corner[target] for target in targets), 1.0, summed)])
            assert max(bent.values()) <= max(straight.values())
    everyone = [(a, b) for a in range(count) for b in range(count) if a != b]
    straight = row.load(Flow(a, (b,), 1.0) for a, b in everyone)
    bent = square.load(Flow(corner[a], (corner[b],), 1.0) for a, b in everyone)
    assert max(bent.values()) <= max(straight.values())
