"""A step divided among cores by samples or product by product: one core priced for all of them.

One core is a machine of its own, with its share of every op and of DRAM; what it gets from others and sends to them
crosses the network while its group of ops runs. With one core, that is the price of the single machine.
"""

from collections.abc import Sequence
from functools import lru_cache
from math import ceil
from typing import Any, NamedTuple

from msgspec.structs import replace

from presilicon.designs import MachineStep, StepPrice
from presilicon.records import CoresUse, DramBounds, Gemm, Op, OpCost, Phase
from presilicon.simulation.cores.description import Cores
from presilicon.simulation.cores.network import Flow, Network
from presilicon.simulation.cores.splits import (
    ALONE,
    CoreGrid,
    Traffic,
    grid_by_samples,
    grids,
    share_of_gemm,
    share_of_graph,
    share_of_op,
    traffic_of,
)
from presilicon.simulation.fusion.groups import Group
from presilicon.simulation.fusion.parts import Style, style_of
from presilicon.simulation.systolic.cycles import gemm_cycles
from presilicon.simulation.systolic.machine import STATIONARY, SystolicMachine
from presilicon.simulation.systolic.mappings import dataflow_of
from presilicon.simulation.systolic.plan import GroupPlan, Planner
from presilicon.simulation.systolic.pricing import choose_plan, price_plan
from presilicon.simulation.systolic.slices import used_shares
from presilicon.simulation.systolic.work import systolic_rates

_WORTHWHILE = 0.9
"""A grid other than that by samples must save a tenth of the cycles: ops around the product are divided by samples."""


class Exchange(NamedTuple):
    """Traffic of an op between cores."""

    links: Any
    """Bytes on each link."""
    received: float

    @property
    def links_sum(self) -> float:
        """Bytes on all links."""
        return float(self.links.sum())


class DividedProduct(NamedTuple):
    """A product on a grid of cores."""

    grid: CoreGrid
    traffic: Traffic
    sizes: tuple[float, float, float]
    """Bytes of A, B and the results or parts of sums."""


class Division:
    """A step divided by samples, or product by product, among the cores of a network."""

    def __init__(
        self, step: MachineStep, machine: SystolicMachine, network: Network, parallel: str, hop_byte_j: float
    ) -> None:
        assert step.technology is not None
        used = network.count
        self._step, self._network, self._parallel, self._hop_byte_j = step, network, parallel, hop_byte_j
        self._cores, self._machine = machine.cores, one_core(machine, used)
        self._link_s = 1e-9 / (machine.cores.link_bytes * machine.clock_ghz)
        self._known: dict[Any, DividedProduct] = {}
        self._nothing = Exchange(network.loads(()), 0.0)
        rates = systolic_rates(step.design, self._machine, step.technology)
        self._rates = replace(rates, leakage_w=None if rates.leakage_w is None else rates.leakage_w / used)
        self._layouts = {
            position: self._lay_out(op, op.gemm) for position, op in enumerate(step.executed) if op.gemm is not None
        }
        self._share = step
        if used > 1:
            self._share = replace(
                step,
                graph=share_of_graph(step.graph, used),
                executed=tuple(
                    share_of_op(op, used, self._layouts[position].grid if op.gemm is not None else ALONE)
                    for position, op in enumerate(step.executed)
                ),
            )
        self._planner = Planner(
            self._share,
            self._machine,
            self._rates,
            whole=step.executed,
            copies={position: layout.grid.copies for position, layout in self._layouts.items()},
        )

    def price(self) -> StepPrice:
        """The price of the whole step, all cores together."""
        plan, spans = choose_plan(self._planner, self._machine, self._rates, self._network_s)
        bounds = self._planner.bound_traffic()
        shares = [_times(*pair) for pair in zip(self._step.executed, self._share.executed, strict=True)]
        used = self._network.count
        price = price_plan(self._share, plan, spans, self._machine, self._rates, bounds, shares, used)
        exchanges = self._exchanges(plan)
        ops = [self._whole_op(own, position, exchanges[position]) for position, own in enumerate(price.ops)]
        for group, span, network_s in zip(plan.groups, spans, self._network_s(plan), strict=True):
            if network_s >= span.time_s > 0:
                for position in group.members:
                    ops[position] = replace(ops[position], bound="network")
        components = price.energy_by_component_j
        components["network"] = sum(own.links_sum for own in exchanges) * self._hop_byte_j
        components[self._rates.buffers[-1].name] += 2 * sum(own.received for own in exchanges) * self._rates.sram_byte_j
        loads = sum((own.links for own in exchanges), self._nothing.links)
        return StepPrice(
            ops=tuple(ops),
            time_s=price.time_s,
            energy_by_component_j=components,
            dram_bounds=DramBounds(
                separate_bytes=used * bounds.separate_bytes,
                compulsory_bytes=used * bounds.compulsory_bytes,
                buffered_bytes=used * bounds.buffered_bytes,
            ),
            cores=CoresUse(
                parallel=self._parallel,
                used=used,
                count=self._cores.count,
                network=describe_network(self._cores),
                bytes_noc=sum(own.links_sum for own in exchanges),
                busiest_s=float(loads.max(initial=0.0)) * self._link_s,
                alone_s=price.time_s,
            ),
        )

    def _whole_op(self, own: OpCost, position: int, exchange: Exchange) -> OpCost:
        """An op on all cores, from the share of the busiest one."""
        op, share, used = self._step.executed[position], self._share.executed[position], self._network.count
        utilization = own.utilization
        if op.gemm is not None and share.gemm is not None:
            utilization *= op.gemm.macs / (share.gemm.macs * self._cores.count)
        energy_j = exchange.links_sum * self._hop_byte_j + 2 * exchange.received * self._rates.sram_byte_j
        return replace(
            own,
            energy_j=own.energy_j + energy_j,
            bytes_dram=used * own.bytes_dram,
            bytes_sram=used * own.bytes_sram + 2 * exchange.received,
            bytes_noc=exchange.links_sum,
            flops=op.flops,
            roof_flops_s=used * own.roof_flops_s,
            utilization=utilization,
        )

    def _network_s(self, plan: GroupPlan) -> list[float]:
        """Seconds for which the busiest link works in each group."""
        exchanges = self._exchanges(plan)
        return [
            float(sum((exchanges[position].links for position in group.members), self._nothing.links).max(initial=0.0))
            * self._link_s
            for group in plan.groups
        ]

    def _exchanges(self, plan: GroupPlan) -> list[Exchange]:
        """The traffic of every op."""
        exchanges = [self._nothing] * len(self._step.executed)
        if self._network.count == 1:
            return exchanges
        for group in plan.groups:
            for position in group.members:
                exchanges[position] = self._exchange(plan, group, position)
        return exchanges

    def _exchange(self, plan: GroupPlan, group: Group, position: int) -> Exchange:
        op = self._step.executed[position]
        if op.gemm is None:
            exchange = self._of_sums(op, style_of(op))
        else:
            layout, operands = self._layouts[position], self._planner.operands(position)
            times = self._planner.read_times(plan, group, position)
            sizes = (*(size * share * count for size, share, count in zip(
                layout.sizes, operands.on_chip, times, strict=False)), layout.sizes[2])  # fmt: skip
            exchange = _add(layout.traffic, sizes)
        if self._cores.memory == "private":
            return exchange
        work = plan.works[position]
        crossing = self._network.count * (work.bytes_sram + plan.moved[position].passed)
        sums = exchange if op.gemm is None else _add(layout.traffic, (0.0, 0.0, layout.sizes[2]))
        return Exchange(sums.links + crossing * evenly(self._network), sums.received)

    def _of_sums(self, op: Op, style: Style) -> Exchange:
        """Sums over all samples: each core has a part of them; those of a batch normalization go back to all cores."""
        if style not in ("norm", "sum"):
            return self._nothing
        largest = max((tensor.elements for tensor in op.outputs), default=0)
        small = [tensor for tensor in op.outputs if style == "sum" or tensor.elements < largest]
        size = sum(self._step.formats.written_bytes(tensor, op.layer) for tensor in small)
        used = self._network.count
        traffic = traffic_of(self._network, CoreGrid(k=used), sums_samples=True)[0]
        exchange = _add(traffic, (0.0, 0.0, size))
        if style == "norm":
            back = _add(traffic_of(self._network, CoreGrid(m=used), sums_samples=False)[0], (0.0, size, 0.0))
            exchange = Exchange(exchange.links + back.links, exchange.received + back.received)
        return exchange

    def _lay_out(self, op: Op, gemm: Gemm) -> DividedProduct:
        """The grid of a product: by samples, or with the least time of the array and the busiest link."""
        used, formats = self._network.count, self._step.formats
        first, second = used_shares(op, gemm, (1, 1, 1))
        left, right = (formats.bytes_of(tensor, op.layer, op.phase) for tensor in op.inputs[:2])
        sum_bytes = formats.numerics_of(op.layer).mac_of(op.phase).widest_sum.bits_per_element / 8
        results = sum(tensor.elements for tensor in op.outputs)
        choices = grids(op, used) if self._parallel == "tile" else [grid_by_samples(op, used)]
        key = (gemm, op.phase, choices[0], left * first, right * second, results, sum_bytes)
        if key in self._known:
            return self._known[key]
        layouts: list[tuple[tuple[float, float], DividedProduct]] = []
        stored = sum(formats.written_bytes(tensor, op.layer) for tensor in op.outputs)
        for grid in choices:
            cycles = self._cycles(share_of_gemm(gemm, grid), op.phase)
            if layouts and cycles > _WORTHWHILE * layouts[0][0][0]:
                continue
            sizes = (left * first, right * second, results * sum_bytes if grid.k > 1 else stored)
            for traffic in traffic_of(self._network, grid, sums_samples=op.phase == "weight_grad"):
                exchange = _add(traffic, sizes)
                link_cycles = float(exchange.links.max(initial=0.0)) / self._cores.link_bytes
                layouts.append(((max(cycles, link_cycles), exchange.links_sum), DividedProduct(grid, traffic, sizes)))
        goal, layout = min(layouts, key=lambda pair: pair[0])
        if goal[0] > _WORTHWHILE * layouts[0][0][0]:
            layout = layouts[0][1]
        self._known[key] = layout
        return layout

    def _cycles(self, gemm: Gemm, phase: Phase) -> int:
        machine, flow = self._machine, dataflow_of(self._machine, phase)
        assert flow != "row-stationary"
        return min(
            gemm_cycles(
                gemm, machine.rows, machine.cols, own, self._step.convention, fold_overlap=machine.fold_overlap
            ).cycles
            for own in (STATIONARY if flow == "best" else (flow,))
        )


def _times(whole: Op, share: Op) -> float:
    """How many times the arithmetic of a core's share an op has."""
    if whole.gemm is not None and share.gemm is not None:
        return whole.gemm.macs / max(share.gemm.macs, 1)
    return whole.flops / max(share.flops, 1)


def _add(traffic: Traffic, sizes: Sequence[float]) -> Exchange:
    links = sum(size * loads for size, loads in zip(sizes, traffic.links, strict=True))
    return Exchange(links, sum(size * share for size, share in zip(sizes, traffic.received, strict=True)))


@lru_cache(maxsize=64)
def evenly(network: Network) -> Any:
    """Bytes on each link for one byte between all cores and a memory that is spread over them."""
    cores = range(network.count)
    size = 1 / network.count**2
    return network.loads(Flow(source, (target,), size) for source in cores for target in cores if source != target)


def one_core(machine: SystolicMachine, used: int) -> SystolicMachine:
    """A core as a machine of its own: it has its share of the DRAM channel, and of a memory that cores share."""
    levels = machine.levels
    if machine.cores.memory == "shared":
        shared = levels[-1]
        bits = shared.bits_per_cycle(machine.clock_ghz)
        own = replace(
            shared,
            kib=shared.kib / used,
            banks=None if shared.banks is None else ceil(shared.banks / used),
            gb_s=bits / used * machine.clock_ghz / 8,
        )
        levels = (*levels[:-1], own)
    memories = machine.memories if levels == machine.levels else levels
    return replace(
        machine,
        cores=Cores(),
        dram_gb_s=machine.dram_gb_s / used,
        memories=memories,
        sram_kib=machine.sram_kib if memories is machine.memories else None,
    )


def describe_network(cores: Cores) -> str:
    """The network in words.

    >>> describe_network(Cores(count=16)), describe_network(Cores(count=4, network="ring"))
    ('4 x 4 mesh', 'ring of 4')
    """
    return "{} x {} mesh".format(*cores.sides) if cores.network == "mesh" else f"{cores.network} of {cores.count}"
