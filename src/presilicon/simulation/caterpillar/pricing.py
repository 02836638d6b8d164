"""A training step on CATERPILLAR: a ring of cores that trains by single samples, by batches, or as a pipeline."""

from collections.abc import Sequence
from math import inf

from msgspec import Struct

from presilicon.base import PICO, ConfigError
from presilicon.designs import MachineStep, StepPrice, Technology, curve_pj, op_cost
from presilicon.records import Op, OpCost
from presilicon.simulation.caterpillar.machine import CaterpillarMachine
from presilicon.simulation.caterpillar.passes import OpPass, PassPlanner
from presilicon.simulation.caterpillar.pipeline import CaterpillarPipeline, allot_cores
from presilicon.simulation.energy import leakage_w, mac_pj


class Placed(Struct, frozen=True, kw_only=True):
    """An op with its passes, on its cores, at its time."""

    op: Op
    op_pass: OpPass
    cores: int
    start_s: float
    compute_s: float
    memory_s: float

    @property
    def time_s(self) -> float:
        """The longer of compute and memory time."""
        return max(self.compute_s, self.memory_s)


def price_caterpillar(step: MachineStep, machine: CaterpillarMachine) -> StepPrice:
    """A step of `batch_size` samples, whatever the schedule.

    - `minibatch`: all samples at once, one update. Ops run one after another on all cores.
    - `sgd`: the samples one after another, an update after each: as many updates as samples. Every op is listed once,
      with all its passes. An update of plain SGD costs nothing of its own: the weight gradient, which comes from one
      row of activations and errors, is added to the weights at once.
    - `pipelined`: as many samples through a pipeline that is full before and after, at the pace of its slowest layer;
      filling and draining it (`Pipeline.fill_slots`) is no part of a step. Every layer updates for every sample, as in
      `sgd`. Layers run side by side, so ops overlap, and the step is shorter than their sum.

    An op takes the longer of its cycles and its DRAM traffic. Weights, their copies and optimizer state stay in the PEs
    if they fit in all MEM A together, and so does everything else if it fits in all memories; then only the batch is
    fetched. In a pipeline, the memories of a layer are those of its own cores.
    """
    if step.convention != "exact":
        raise ConfigError(
            f'SCALE-Sim counts systolic arrays only: use the convention "exact" for {step.design.name}, whose machine '
            "is a caterpillar"
        )
    if not step.executed:
        return StepPrice(ops=(), time_s=0.0, energy_by_component_j={})
    if machine.schedule == "pipelined":
        placed, time_s = _place_in_pipeline(step, machine)
    else:
        placed = _place_in_turn(step, machine)
        time_s = sum(entry.time_s for entry in placed)
    return _priced(placed, time_s, step, machine)


def pipeline_of(step: MachineStep, machine: CaterpillarMachine) -> CaterpillarPipeline:
    """The layers of a step as stages on their cores."""
    layers, last = step.graph.weighted_layers, len(step.graph.weighted_layers) - 1
    if not layers:
        raise ConfigError('machine.schedule is "pipelined", but the step has no layer with weights to make stages of')
    # Losses and ops of no layer belong to the last stage, and an update to the stage of its layer.
    stage_of = {op.index: step.graph.stages.get(op.layer, last) for op in step.executed}
    planner = PassPlanner(step, machine, delays=machine.update_rule.delays(step.graph), stage_of=stage_of)

    def cycles(stage: int, cores: int) -> int:
        return sum(planner.plan(op, cores).moves.cycles for op in step.executed if stage_of[op.index] == stage)

    def cycles_if_possible(stage: int, cores: int) -> float:
        try:
            return cycles(stage, cores)
        except ConfigError:  # a panel is too large for so few cores
            return inf

    least = [planner.cores_for_weights(stage) for stage in range(len(layers))]
    cores, _ = allot_cores(machine.cores, layers, cycles_if_possible, least)
    slot = max(cycles(stage, allotted) for stage, allotted in enumerate(cores))
    return CaterpillarPipeline(layers=layers, cores=cores, slot_cycles=slot, stage_of=stage_of)


def sustained_utilization(macs: int, time_s: float, machine: CaterpillarMachine) -> float:
    """Useful multiply-adds over those that all PEs could do in `time_s`, waiting included."""
    return macs / (time_s * machine.clock_ghz * 1e9 * machine.pes) if time_s else 0.0


def _place_in_turn(step: MachineStep, machine: CaterpillarMachine) -> list[Placed]:
    planner, placed, start_s = PassPlanner(step, machine), [], 0.0
    for op in step.executed:
        entry = _place(op, planner.plan(op, machine.cores), machine.cores, start_s, machine)
        placed.append(entry)
        start_s += entry.time_s
    return placed


def _place_in_pipeline(step: MachineStep, machine: CaterpillarMachine) -> tuple[list[Placed], float]:
    pipeline, placed = pipeline_of(step, machine), []
    planner = PassPlanner(
        step,
        machine,
        delays=machine.update_rule.delays(step.graph),
        stage_of=pipeline.stage_of,
        stage_cores=pipeline.cores,
    )
    starts = [0.0] * len(pipeline.layers)
    for op in step.executed:
        stage = pipeline.stage_of[op.index]
        cores = pipeline.cores[stage]
        entry = _place(op, planner.plan(op, cores), cores, starts[stage], machine)
        placed.append(entry)
        starts[stage] += entry.time_s
    # The DRAM channel is shared by all layers.
    return placed, max(*starts, sum(entry.memory_s for entry in placed))


def _place(op: Op, op_pass: OpPass, cores: int, start_s: float, machine: CaterpillarMachine) -> Placed:
    return Placed(
        op=op,
        op_pass=op_pass,
        cores=cores,
        start_s=start_s,
        compute_s=op_pass.repeats * op_pass.moves.cycles * 1e-9 / machine.clock_ghz,
        memory_s=op_pass.repeats * op_pass.bytes_dram / (machine.dram_gb_s * 1e9),
    )


def _priced(placed: Sequence[Placed], time_s: float, step: MachineStep, machine: CaterpillarMachine) -> StepPrice:
    assert step.technology is not None
    components = dict.fromkeys(("mac", "vector", "register", "sram", "bus", "ring", "dram"), 0.0)
    leakage = leakage_w(step.design, step.technology)
    if leakage is not None:
        components["leakage"] = 0.0
    busy_s = sum(entry.time_s for entry in placed)
    ops = []
    for entry in placed:
        energy = _energy_j(entry, step, machine, step.technology)
        if leakage is not None:
            energy["leakage"] = leakage * time_s * entry.time_s / busy_s if busy_s else 0.0
        for component, joules in energy.items():
            components[component] += joules
        ops.append(_op_cost(entry, sum(energy.values()), machine))
    return StepPrice(ops=tuple(ops), time_s=time_s, energy_by_component_j=components)


def _energy_j(
    entry: Placed, step: MachineStep, machine: CaterpillarMachine, technology: Technology
) -> dict[str, float]:
    """Joules by component, without leakage.

    A multiply-add writes its two operands and its sum to registers. Memories are priced by the bit, by their size. Any
    other operation costs as much as an addition at the accumulator's width.
    """
    op, op_pass, moves = entry.op, entry.op_pass, entry.op_pass.moves
    sums = step.formats.numerics_of(op.layer).mac_of(op.phase).widest_sum
    mac_j = register_bits = 0.0
    if op_pass.macs:
        a, b = (step.formats.format_of(tensor.role, op.layer, op.phase) for tensor in op.inputs[:2])
        mac_j = op_pass.macs * mac_pj(a, b, sums, technology)
        register_bits = op_pass.macs * (a.bits_per_element + b.bits_per_element + sums.bits_per_element)
    picojoules = {
        "mac": mac_j,
        "vector": op_pass.flops * curve_pj(technology.float_add, sums.bits_per_element),
        "register": register_bits * technology.register_bit.pj if technology.register_bit else 0.0,
        "sram": (
            moves.mem_a * curve_pj(technology.sram_64bit, machine.mem_a_kib / machine.mem_a_banks)
            + moves.mem_b * curve_pj(technology.sram_64bit, machine.mem_b_kib)
        )
        / 64,
        "bus": moves.bus * machine.bus_pj_bit,
        "ring": moves.ring * machine.hop_pj_bit,
        "dram": op_pass.bytes_dram * technology.dram_figure(machine.dram_kind).pj / 8,
    }
    return {component: op_pass.repeats * pj * PICO for component, pj in picojoules.items()}


def _op_cost(entry: Placed, energy_j: float, machine: CaterpillarMachine) -> OpCost:
    op, op_pass, moves = entry.op, entry.op_pass, entry.op_pass.moves
    pes = entry.cores * machine.nr**2
    return op_cost(
        op,
        unit="array" if op_pass.macs else "vector",
        start_s=entry.start_s,
        time_s=entry.time_s,
        energy_j=energy_j,
        compute_s=entry.compute_s,
        memory_s=entry.memory_s,
        cycles=op_pass.repeats * moves.cycles,
        bytes_dram=op_pass.repeats * op_pass.bytes_dram,
        bytes_sram=op_pass.repeats * (moves.mem_a + moves.mem_b) / 8,
        dram_gb_s=machine.dram_gb_s,
        flops=op.flops * (op_pass.repeats if op.phase == "update" and moves.cycles else 1),
        peak_flops_s=(2 if op_pass.macs else 1) * 1e9 * pes * machine.clock_ghz,
        utilization=op_pass.macs / (moves.cycles * pes) if op_pass.macs else 0.0,
    )
