"""The price of a step whose layers are spread over cores, with micro-batches that pass through them."""

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from presilicon.base import ConfigError
from presilicon.designs import MachineStep, StepPrice
from presilicon.records import CoresUse, DramBounds, Op, OpCost
from presilicon.simulation.cores.division import describe_network, evenly, one_core
from presilicon.simulation.cores.network import Flow, Network
from presilicon.simulation.cores.stages import PipelinePass, blocks_of, order_of_blocks, stages_of
from presilicon.simulation.fusion.values import BEFORE, StepValues, find_values
from presilicon.simulation.systolic.machine import SystolicMachine
from presilicon.simulation.systolic.plan import GroupPlan, Planner
from presilicon.simulation.systolic.pricing import GroupSpan, choose_plan, price_plan
from presilicon.simulation.systolic.work import Rates, systolic_rates


class Stage(NamedTuple):
    """The part of a step that one core runs."""

    step: MachineStep
    positions: tuple[int, ...]
    """Position of each of its ops in the whole step."""
    plan: GroupPlan
    spans: list[GroupSpan]
    """Its groups one after another, as if nothing came from other cores."""


class CorePipeline:
    """A step with its layers on the cores of a network; neighbours in the order of layers are neighbours there."""

    def __init__(
        self, step: MachineStep, machine: SystolicMachine, network: Network, alone: StepPrice, hop_byte_j: float
    ) -> None:
        assert step.technology is not None
        self._step, self._network, self._alone, self._hop_byte_j = step, network, alone, hop_byte_j
        self._cores, self._machine = machine.cores, one_core(machine, network.count)
        self._link_s = 1e-9 / (machine.cores.link_bytes * machine.clock_ghz)
        self._rates: Rates = systolic_rates(step.design, self._machine, step.technology)
        times_s = {position: op.time_s for position, op in enumerate(alone.ops)}
        self._stage_of = stages_of(step.executed, times_s, network.count)
        self._values: StepValues = find_values(step.graph, step.executed, step.formats)
        self._stages = self._plan_stages()

    def price(self) -> StepPrice:
        """The price of the whole step, all cores together."""
        flows, latest_s = self._flows(), self._schedule()
        loads = self._network.loads(flows)
        if self._cores.memory == "shared":
            loads = loads + self._bytes_of_buffer() * evenly(self._network)
        busiest_s = float(loads.max(initial=0.0)) * self._link_s
        time_s = max([busiest_s, *(span.start_s + span.time_s for spans in latest_s for span in spans)])
        ops, components = self._price_ops(latest_s)
        components["network"] = float(loads.sum()) * self._hop_byte_j
        received = sum(flow.size * len(flow.targets) for flow in flows)
        components[self._rates.buffers[-1].name] += 2 * received * self._rates.sram_byte_j
        if self._rates.leakage_w is not None:
            components["leakage"] = self._rates.leakage_w * time_s
        bounds = self._alone.dram_bounds
        assert bounds is not None
        return StepPrice(
            ops=ops,
            time_s=time_s,
            energy_by_component_j=components,
            dram_bounds=DramBounds(
                separate_bytes=bounds.separate_bytes,
                compulsory_bytes=bounds.compulsory_bytes,
                buffered_bytes=bounds.compulsory_bytes,  # the buffers of all cores hold more than one
            ),
            cores=CoresUse(
                parallel="layer",
                used=len(self._stages),
                count=self._cores.count,
                network=describe_network(self._cores),
                bytes_noc=float(loads.sum()),
                busiest_s=busiest_s,
                alone_s=self._alone.time_s,
            ),
        )

    def _bytes_of_buffer(self) -> float:
        """Bytes between the cores and the memory that they share."""
        return sum(
            work.bytes_sram + moved.passed
            for stage in self._stages
            for work, moved in zip(stage.plan.works, stage.plan.moved, strict=True)
        )

    def _plan_stages(self) -> list[Stage]:
        ops, blocks = self._step.executed, blocks_of(self._step.executed)
        count = max(self._stage_of) + 1
        micro_batches = max(block.micro_batch for block in blocks) + 1
        by_stage: list[dict[PipelinePass, list[int]]] = [{} for _ in range(count)]
        for position, (stage, block) in enumerate(zip(self._stage_of, blocks, strict=True)):
            for number in range(count) if _is_for_all(ops[position]) else (stage,):
                by_stage[number].setdefault(block, []).append(position)
        stages = []
        for number, own in enumerate(by_stage):
            positions: list[int] = []
            fences: set[int] = set()
            for block in order_of_blocks(number, count, micro_batches):
                fences.add(len(positions))
                positions += own.get(block, [])
            stages.append(self._plan_stage(number, tuple(positions), fences))
        return stages

    def _plan_stage(self, number: int, positions: tuple[int, ...], fences: set[int]) -> Stage:
        ops = [self._step.executed[position] for position in positions]
        written = {tensor.id for op in ops if not _is_for_all(op) for tensor in op.outputs}
        own_ops = tuple(_for_stage(op, written) if _is_for_all(op) else op for op in ops)
        step = replace(self._step, executed=own_ops)
        values = find_values(step.graph, own_ops, step.formats)
        imported, exported = set(), set()
        for index, position in enumerate(positions):
            if _is_for_all(self._step.executed[position]):
                continue
            for value, whole in zip(values.reads[index], self._values.reads[position], strict=True):
                writer = self._values.writer[whole]
                if writer != BEFORE and self._stage_of[writer] != number and values.writer[value] == BEFORE:
                    imported.add(value)
            for value, whole in zip(values.writes[index], self._values.writes[position], strict=True):
                if any(self._stage_of[reader] != number for reader in self._readers(whole)):
                    exported.add(value)
        planner = Planner(step, self._machine, self._rates, fences=fences, imported=imported, exported=exported)
        return Stage(step, positions, *choose_plan(planner, self._machine, self._rates))

    def _readers(self, value: int) -> list[int]:
        """Ops that read a value; the rounding of all weights happens in every stage."""
        return [at for at in self._values.readers[value] if not _is_for_all(self._step.executed[at])]

    def _flows(self) -> list[Flow]:
        """Transfers between stages: each value once to all that need it."""
        flows = []
        for value, writer in enumerate(self._values.writer):
            if writer == BEFORE or _is_for_all(self._step.executed[writer]):
                continue
            own = self._stage_of[writer]
            others = sorted({self._stage_of[reader] for reader in self._readers(value)} - {own})
            if others:
                targets = tuple(map(self._core_of, others))
                flows.append(Flow(self._core_of(own), targets, self._values.size_bytes[value]))
        return flows

    def _core_of(self, stage: int) -> int:
        """The core of a stage: along the rows of the mesh, one forth, the next one back."""
        row, col = divmod(stage, self._network.cols)
        return row * self._network.cols + (col if row % 2 == 0 else self._network.cols - 1 - col)

    def _schedule(self) -> list[list[GroupSpan]]:
        """The spans of each stage's groups: each begins when the one before is done, and what it needs has come."""
        done_s: dict[int, float] = {}
        started: list[list[GroupSpan]] = [[] for _ in self._stages]
        pending = sum(len(stage.spans) for stage in self._stages)
        while pending:
            before = pending
            for number, stage in enumerate(self._stages):
                while len(started[number]) < len(stage.spans):
                    span = self._begin(number, stage, started[number], done_s)
                    if span is None:
                        break
                    started[number].append(span)
                    pending -= 1
            if pending == before:  # passes of micro-batches are not told apart, as where activations are recomputed
                raise ConfigError("machine.cores.parallel: the layers of this step cannot be passed from core to core")
        return started

    def _begin(self, number: int, stage: Stage, started: list[GroupSpan], done_s: dict[int, float]) -> GroupSpan | None:
        """The span of the next group, or None if it needs what is not there yet."""
        slot = len(started)
        ready_s = started[-1].start_s + started[-1].time_s if started else 0.0
        group = stage.plan.groups[slot]
        for index in (*group.members, *group.statistics):
            position = stage.positions[index]
            if _is_for_all(self._step.executed[position]):
                continue
            for value in self._values.reads[position]:
                writer = self._values.writer[value]
                if writer == BEFORE or self._stage_of[writer] == number:
                    continue
                if writer not in done_s:
                    return None
                ready_s = max(ready_s, done_s[writer] + self._values.size_bytes[value] * self._link_s)
        span = replace(stage.spans[slot], start_s=ready_s)
        for index in group.members:
            done_s[stage.positions[index]] = ready_s + span.time_s
        return span

    def _price_ops(self, spans: Sequence[list[GroupSpan]]) -> tuple[tuple[OpCost, ...], dict[str, float]]:
        """Every op on its core, and energy by component; leakage is that of the whole chip."""
        costs: dict[int, OpCost] = {}
        components: dict[str, float] = {}
        quiet = replace(self._rates, leakage_w=None)
        bounds = self._alone.dram_bounds
        assert bounds is not None
        for stage, own in zip(self._stages, spans, strict=True):
            price = price_plan(stage.step, stage.plan, own, self._machine, quiet, bounds)
            for component, joules in price.energy_by_component_j.items():
                components[component] = components.get(component, 0.0) + joules
            for position, cost in zip(stage.positions, price.ops, strict=True):
                costs[position] = _join(costs[position], cost) if position in costs else cost
        return tuple(costs[position] for position in range(len(self._step.executed))), components


def _is_for_all(op: Op) -> bool:
    """Whether an op is the rounding of the weights of all layers, which every stage does for its own."""
    return op.operator == "presilicon.round"


def _for_stage(op: Op, written: set[int]) -> Op:
    """The rounding of a stage's own weights."""
    pairs = [pair for pair in zip(op.inputs, op.outputs, strict=True) if pair[0].id in written]
    return replace(
        op,
        inputs=tuple(master for master, _ in pairs),
        outputs=tuple(weight for _, weight in pairs),
        flops=sum(weight.elements for _, weight in pairs),
    )


def _join(first: OpCost, second: OpCost) -> OpCost:
    """The cost of an op that two cores run, each a part of it."""
    added = {
        name: getattr(first, name) + getattr(second, name)
        for name in ("time_s", "cycles", "energy_j", "bytes_dram", "bytes_sram", "flops", "compute_s", "memory_s")
    }
    return replace(first, start_s=min(first.start_s, second.start_s), **added)
