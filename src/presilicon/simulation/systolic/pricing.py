"""A training step on a systolic machine: the array for matrix products, the vector unit for the rest, in groups."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import floor

from msgspec import Struct
from msgspec.structs import replace

from presilicon.designs import MachineStep, StepPrice, op_cost
from presilicon.records import DramBounds, OpCost
from presilicon.simulation.fusion.schedule import Stay
from presilicon.simulation.fusion.values import BEFORE, StepValues
from presilicon.simulation.mapping.tiles import goal_of
from presilicon.simulation.systolic.machine import SystolicMachine
from presilicon.simulation.systolic.plan import GroupPlan, Planner
from presilicon.simulation.systolic.work import Rates, systolic_rates

_ARITHMETIC = ("mac", "vector", "register")
"""Components of the energy that depend on the arithmetic of an op alone."""


class Demand(Struct, frozen=True, kw_only=True, gc=False):
    """Demand of a group of ops for the resources that work in parallel."""

    compute_s: float
    transfer_s: float
    """Time on the DRAM channel, in total."""
    early_s: float = 0.0
    """The part of the transfer that does not depend on the previous group."""


class GroupSpan(Struct, frozen=True, kw_only=True, gc=False):
    """Position of a group on the timeline."""

    start_s: float
    time_s: float
    prefetched_s: float
    """Transfer that ran before its start, while the channel was idle during the previous group."""


def lay_out(demands: Iterable[Demand], *, prefetch: bool, overlaps: bool = True) -> list[GroupSpan]:
    """Groups one after another, each as long as the longer of its compute and of the transfer that is still to do.

    With `prefetch`, the channel fetches for the next group once it has done the transfers of this one. Where nothing
    `overlaps`, because the buffer is not doubled, groups transfer and compute in turn.

    >>> ops = [Demand(compute_s=5.0, transfer_s=2.0), Demand(compute_s=1.0, transfer_s=4.0, early_s=4.0)]
    >>> [span.time_s for span in lay_out(ops, prefetch=False)], [span.time_s for span in lay_out(ops, prefetch=True)]
    ([5.0, 4.0], [5.0, 1.0])
    """
    spans: list[GroupSpan] = []
    start_s = idle_s = 0.0
    for demand in demands:
        if not overlaps:
            demand = replace(demand, compute_s=demand.compute_s + demand.transfer_s, transfer_s=0.0)
        prefetched_s = min(demand.early_s, demand.transfer_s, idle_s) if prefetch else 0.0
        left_s = demand.transfer_s - prefetched_s
        time_s = max(demand.compute_s, left_s)
        spans.append(GroupSpan(start_s=start_s, time_s=time_s, prefetched_s=prefetched_s))
        idle_s = time_s - left_s
        start_s += time_s
    return spans


def price_systolic(step: MachineStep, machine: SystolicMachine) -> StepPrice:
    """Groups of ops one after another, each as long as the array, the vector unit or the DRAM channel needs.

    Of the plans that the machine's fusion allows, the one that is best by its objective is taken. The time
    of a group is divided among its ops in proportion to what each would need on its own. Where the technology has a
    figure for leakage, the whole die leaks all the time.
    """
    assert step.technology is not None
    rates = systolic_rates(step.design, machine, step.technology)
    planner = Planner(step, machine, rates)
    plan, spans = choose_plan(planner, machine, rates)
    return price_plan(step, plan, spans, machine, rates, planner.bound_traffic())


def choose_plan(
    planner: Planner,
    machine: SystolicMachine,
    rates: Rates,
    network_s: Callable[[GroupPlan], Sequence[float]] | None = None,
) -> tuple[GroupPlan, list[GroupSpan]]:
    """The best plan and its timeline; `network_s` is the time of each group on a network to other cores."""
    timed = []
    for plan in planner.plans():
        demands = list(_demands(plan, planner.values, machine))
        if network_s is not None:
            demands = [
                replace(demand, compute_s=max(demand.compute_s, own_s))
                for demand, own_s in zip(demands, network_s(plan), strict=True)
            ]
        timed.append((plan, lay_out(demands, prefetch=machine.prefetch, overlaps=machine.buffer.doubled)))
    return min(timed, key=lambda pair: goal_of(machine.objective, *_time_energy(pair[0], pair[1], rates)))


def _time_energy(plan: GroupPlan, spans: list[GroupSpan], rates: Rates) -> tuple[float, float]:
    time_s = spans[-1].start_s + spans[-1].time_s if spans else 0.0
    dynamic_j = sum(work.dynamic_j(rates, moved) for work, moved in zip(plan.works, plan.moved, strict=True))
    return time_s, dynamic_j + sum(refresh_of_groups(plan, spans, rates)) + (rates.leakage_w or 0.0) * time_s


def refresh_of_groups(plan: GroupPlan, spans: list[GroupSpan], rates: Rates) -> list[float]:
    """Joules of refreshing embedded DRAM, by the group in which it is charged.

    Data that lives for t is refreshed floor(t / retention) times. What a group uses lives as long as the group runs;
    what stays between groups lives from its first use to its last, and is charged to the later ones.
    """
    joules = [0.0] * len(spans)
    for memory in rates.forgetful:
        for slot, (group, span) in enumerate(zip(plan.groups, spans, strict=True)):
            held_bytes = group.reserved_bytes if memory.held_bytes is None else memory.held_bytes
            joules[slot] += floor(span.time_s / memory.retention_s) * held_bytes * memory.byte_j
        if memory.held_bytes is not None:
            continue
        before: Stay | None = None
        birth_s, done = 0.0, 0
        for stay in plan.transfers.stays:
            if before is None or (before.value, before.last) != (stay.value, stay.first):
                birth_s, done = spans[stay.first].start_s, 0
            end_s = spans[stay.last].start_s + spans[stay.last].time_s
            times = floor((end_s - birth_s) / memory.retention_s)
            joules[stay.last] += (times - done) * stay.size_bytes * memory.byte_j
            before, done = stay, times
    return joules


def _demands(plan: GroupPlan, values: StepValues, machine: SystolicMachine) -> Iterator[Demand]:
    """Demand of each group; data that the previous group does not write can come early if the buffer has room.

    The ops of a group share the bandwidth of the buffer with one another and with DRAM.
    """
    bytes_s = machine.dram_gb_s * 1e9
    gathered = frozenset(position for group in plan.groups for position in group.statistics)
    works = plan.works
    buffer_rate = machine.buffer.bits_per_cycle(machine.clock_ghz) / 8 * machine.buffer.ports
    moved = [sum([works[position].spills for position in group.members]) for group in plan.groups]
    waiting = [0.0] * len(plan.groups)
    home = {position: slot for slot, group in enumerate(plan.groups) for position in group.members}
    for load in plan.transfers.loads:
        moved[load.slot] += load.size_bytes
        writer = values.writer[load.value]
        if writer == BEFORE or home[writer] != load.slot - 1:
            waiting[load.slot] += load.size_bytes
    for store in plan.transfers.stores:
        moved[store.slot] += store.size_bytes
    room, most = 0.0, machine.buffer.usable_bits / 8
    for slot, group in enumerate(plan.groups):
        passing = sum([works[at].bytes_sram + plan.moved[at].passed for at in group.members])
        cycles = max(plan.compute_cycles(group, gathered), passing / buffer_rate)
        yield Demand(
            compute_s=cycles * 1e-9 / machine.clock_ghz,
            transfer_s=moved[slot] / bytes_s,
            early_s=min(waiting[slot], room) / bytes_s,
        )
        room = min(plan.free_bytes[slot] + group.reserved_bytes / 2, most)


def price_plan(
    step: MachineStep,
    plan: GroupPlan,
    spans: list[GroupSpan],
    machine: SystolicMachine,
    rates: Rates,
    bounds: DramBounds,
    shares: Sequence[float] | None = None,
    cores: int = 1,
) -> StepPrice:
    """The price of every op of a plan on its timeline.

    For the busiest of several `cores`, joules are those of all: `shares` says how many times its part of the arithmetic
    an op has, which is less than there are cores where it divides unevenly.
    """
    memories = (buffer.name for buffer in rates.buffers)
    components = dict.fromkeys(("mac", "vector", "register", *memories, "dram"), 0.0)
    bytes_s, cycle_s = machine.dram_gb_s * 1e9, 1e-9 / machine.clock_ghz
    join: Callable[[list[float]], float] = max if machine.buffer.doubled else sum
    costs: dict[int, OpCost] = {}
    refresh_j = refresh_of_groups(plan, spans, rates)
    for group, span, refreshed_j in zip(plan.groups, spans, refresh_j, strict=True):
        alone_s = [join([plan.works[at].cycles * cycle_s, plan.moved[at].dram / bytes_s]) for at in group.members]
        transfer_s = sum(plan.moved[at].dram for at in group.members) / bytes_s
        scale = span.time_s / sum(alone_s) if any(alone_s) else 0.0
        name = step.executed[group.members[0]].name if len(group.members) > 1 else ""
        start_s = span.start_s
        for at, own_s in zip(group.members, alone_s, strict=True):
            work, moved = plan.works[at], plan.moved[at]
            memory_s = moved.dram / bytes_s
            energy = work.energy_j(rates, own_s * scale, moved)
            if rates.forgetful:
                energy["refresh"] = refreshed_j * own_s * scale / span.time_s if span.time_s else 0.0
            if shares is not None:
                times = dict.fromkeys(_ARITHMETIC, shares[at])
                energy = {name: joules * times.get(name, cores) for name, joules in energy.items()}
            for component, joules in energy.items():
                components[component] = components.get(component, 0.0) + joules
            costs[at] = op_cost(
                step.executed[at],
                unit=work.unit,
                start_s=start_s,
                time_s=own_s * scale,
                energy_j=sum(energy.values()),
                compute_s=work.cycles * cycle_s,
                memory_s=memory_s,
                prefetched_s=span.prefetched_s * memory_s / transfer_s if transfer_s else 0.0,
                cycles=work.cycles,
                bytes_dram=moved.dram,
                bytes_sram=work.bytes_on_chip(moved.passed),
                dram_gb_s=machine.dram_gb_s,
                peak_flops_s=work.peak_flops_s,
                utilization=work.utilization,
                group=name,
            )
            start_s += own_s * scale
    ops = tuple(costs[at] for at in range(len(step.executed)))
    return StepPrice(
        ops=ops,
        time_s=sum(op.time_s for op in ops),
        energy_by_component_j=components,
        dram_bounds=bounds,
    )
