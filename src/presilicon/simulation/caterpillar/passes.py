"""Passes of an op over CATERPILLAR's cores: one for the whole batch, or one for each sample."""

from collections.abc import Mapping, Sequence
from math import ceil
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from presilicon.base import ConfigError
from presilicon.designs import MachineStep
from presilicon.records import Gemm, Op, Role, TensorRef
from presilicon.simulation.caterpillar.machine import CaterpillarMachine
from presilicon.simulation.caterpillar.products import Bits, Moves, product_moves, update_moves
from presilicon.simulation.memory import Course, Holding, find_holdings, held_by_part

IN_MEM_A: tuple[Role, ...] = ("weight", "master", "gradient", "state")
"""Roles of data as large as the weights; activations and errors live in MEM B."""


class OpPass(Struct, frozen=True, kw_only=True):
    """One pass of an op, of `repeats` equal ones in a step."""

    repeats: int
    moves: Moves
    macs: int
    flops: float
    """Arithmetic outside matrix products."""
    bytes_dram: float


class Kept(NamedTuple):
    """Data that the memories of some cores hold."""

    mem_a_bytes: float
    weights: bool
    """Whether weights, their copies and optimizer state stay in MEM A."""
    activations: bool
    """Whether everything else stays, too."""


class PassPlanner:
    """Plans the passes of a step's ops, by samples or by batches, and the data that stays in the PEs' memories.

    An op that belongs to no sample (an update, a product of weights) is done in every pass.
    """

    def __init__(
        self,
        step: MachineStep,
        machine: CaterpillarMachine,
        *,
        delays: Mapping[str, int] | None = None,
        stage_of: Mapping[int, int] | None = None,
        stage_cores: Sequence[int] = (),
    ) -> None:
        """In a pipeline, `delays` says for how many samples the activations of a layer wait for their errors.

        Layers keep their data in the memories of their own cores: `stage_of` gives the layer of each op, by position,
        and `stage_cores` the cores of each. As long as cores are not allotted, only the cycles of passes are meant.
        """
        self.step, self.machine = step, machine
        by_samples = machine.schedule != "minibatch"
        self.samples = max(step.graph.samples_per_pass, 1) if by_samples else 1
        self.updates = max(step.graph.batch_size, 1) if by_samples else 1
        self.fused = {} if machine.schedule == "minibatch" else self._fused_updates()
        self.written = {tensor.id for op in step.executed for tensor in op.outputs}
        self.fetched: set[int] = set()
        self.stage_of = stage_of or {}
        self.homes = self._homes()
        self.stages = [
            self._keep(number, cores, delays) for number, cores in enumerate(stage_cores or (machine.cores,))
        ]

    def _keep(self, stage: int, cores: int, delays: Mapping[str, int] | None) -> Kept:
        """The data of a stage that the memories of its cores hold."""
        pes, machine = cores * self.machine.nr**2, self.machine
        mem_a_bytes, mem_b_bytes = pes * machine.mem_a_kib * 1024, pes * machine.mem_b_kib * 1024
        permanent = self._permanent_bytes(stage)
        rest = self._peak_bytes() if delays is None else permanent + self._waiting_bytes(delays, stage)
        return Kept(mem_a_bytes, permanent <= mem_a_bytes, rest <= mem_a_bytes + mem_b_bytes)

    def _stage_of(self, op: Op) -> int:
        return self.stage_of.get(op.index, 0)

    def plan(self, op: Op, cores: int) -> OpPass:
        """A pass of `op` on `cores` cores. Ops must be planned in order: a batch is fetched when it is first used."""
        if op.phase == "update" and not op.layer:
            cores = self.machine.cores  # it belongs to all layers, wherever they are
        if op.index in self.fused.values():
            return OpPass(repeats=self.updates, moves=Moves(0, 0, 0, 0, 0), macs=0, flops=0.0, bytes_dram=0.0)
        gemm = None if op.gemm is None else self._gemm(op.gemm, op)
        share = 1 if op.phase == "update" else self.samples
        if gemm is None:
            moves = self._lane_moves(op, cores, share)
        else:
            moves = self._product(op, gemm, cores)
        return OpPass(
            repeats=self.updates if op.phase == "update" else self.samples,
            moves=moves,
            macs=gemm.macs if gemm else 0,
            flops=0.0 if gemm else op.flops / share,
            bytes_dram=self._bytes_dram(op, moves.slices),
        )

    def _product(self, op: Op, gemm: Gemm, cores: int) -> Moves:
        a, b = (self.step.formats.format_of(tensor.role, op.layer, op.phase) for tensor in op.inputs[:2])
        mac = self.step.formats.numerics_of(op.layer).mac_of(op.phase)
        if mac.passes(a.significand_bits, b.significand_bits) != 1:
            raise ConfigError(
                f"numerics.mac.slice_bits is {mac.slice_bits}, but CATERPILLAR multiplies in one pass: leave it out"
            )
        bits = Bits(a.bits_per_element, b.bits_per_element, mac.widest_sum.bits_per_element)
        if op.phase == "weight_grad" and gemm.k == gemm.count == 1 and self.machine.schedule != "minibatch":
            stored: Role = "master" if op.index in self.fused else "gradient"
            bits = bits._replace(sums=self.step.formats.format_of(stored, op.layer).bits_per_element)
            return update_moves(gemm.m, gemm.n, bits, cores, self.machine)
        return product_moves(gemm, op.phase, bits, cores, self.machine)

    def _lane_moves(self, op: Op, cores: int, share: int) -> Moves:
        """Any other op, on the MAC units of all PEs: a result per PE and cycle; operands stay in their PE."""
        work = ceil(max(op.flops, op.elements_out) / share / (cores * self.machine.nr**2))
        mem_a, mem_b = (8 * part for part in self._bytes_by_memory(op))
        return Moves(work + self.machine.mac_stages + 2 if work else 0, mem_a, mem_b, 0.0, 0.0)

    def _gemm(self, gemm: Gemm, op: Op) -> Gemm:
        """The product of one pass: the batch dimension divided by the samples."""
        samples = self.samples
        if gemm.count % samples == 0:
            return replace(gemm, count=gemm.count // samples)
        side = "k" if op.phase == "weight_grad" else "m"
        if op.phase != "update" and getattr(gemm, side) % samples == 0:
            return replace(gemm, **{side: getattr(gemm, side) // samples})
        return gemm

    def _bytes_by_memory(self, op: Op) -> tuple[float, float]:
        """Bytes of one pass's operands and results in MEM A, and in MEM B."""
        mem_a = mem_b = 0.0
        operands = [(tensor, op.product_phase) for tensor in op.inputs]
        for tensor, phase in [*operands, *((tensor, None) for tensor in op.outputs)]:
            size = self.step.formats.bytes_of(tensor, op.layer, phase)
            if tensor.role in IN_MEM_A:
                mem_a += size
            else:
                mem_b += size / self.samples
        return mem_a, mem_b

    def _bytes_dram(self, op: Op, slices: int) -> float:
        """DRAM traffic of one pass: data that does not stay on the chip, and the batch when it is first used.

        Weights that do not stay are fetched once per op, and once per slice where MEM A does not even hold one
        layer. A fused update reads and writes them.
        """
        mem_a, mem_b = self._bytes_by_memory(op)
        if op.index in self.fused:
            gradient = op.outputs[0]
            mem_a = 2 * self.step.formats.bytes_of(TensorRef(gradient.id, gradient.shape, "master"), op.layer)
        inputs = [tensor for tensor in op.inputs if tensor.id not in self.written and tensor.id not in self.fetched]
        self.fetched |= {tensor.id for tensor in inputs}
        total, kept = 0.0, self.stages[self._stage_of(op) if len(self.stages) > 1 else 0]
        if op.phase == "update" and not op.layer:  # it rounds the weights of all layers
            sizes = [self._permanent_bytes(number) for number in range(len(self.stages))]
            fetched = sum(size for size, own in zip(sizes, self.stages, strict=True) if not own.weights)
            total += mem_a * fetched / max(sum(sizes), 1e-300)
        elif not kept.weights:
            total += mem_a * (slices if mem_a > kept.mem_a_bytes else 1)
        if not kept.activations:
            total += mem_b
        else:
            batch = [tensor for tensor in inputs if tensor.role == "activation"]
            total += sum(self.step.formats.bytes_of(tensor, op.layer) for tensor in batch) / self.samples
        return total

    def _fused_updates(self) -> dict[int, int]:
        """Weight gradients that are added to their weights at once: op index, and that of the update.

        This holds for plain SGD: the gradient comes from one row of activations and errors, and is used by one update
        that reads only gradient and weights.
        """
        readers: dict[int, list[Op]] = {}
        for op in self.step.executed:
            for tensor in op.inputs:
                readers.setdefault(tensor.id, []).append(op)
        fused: dict[int, int] = {}
        for op in self.step.executed:
            if op.phase != "weight_grad" or op.gemm is None or op.gemm.k != self.samples or op.gemm.count != 1:
                continue
            using = readers.get(op.outputs[0].id, [])
            if len(using) == 1 and _is_plain_update(using[0], op.outputs[0]):
                fused[op.index] = using[0].index
        return fused

    def cores_for_weights(self, stage: int) -> int:
        """The fewest cores whose MEM A holds the weights of a stage, their copies and optimizer state."""
        core_bytes = self.machine.nr**2 * self.machine.mem_a_kib * 1024
        return max(ceil(self._permanent_bytes(stage) / core_bytes), 1)

    def _permanent_bytes(self, stage: int) -> float:
        """Bytes of the weights, their copies and the optimizer state of a stage."""
        formats, graph = self.step.formats, self.step.graph
        masters = [TensorRef(tensor.id, tensor.shape, "master") for tensor in graph.parameters]
        copies = graph.parameters if formats.copies_weights else ()
        own = (tensor for tensor in (*masters, *copies, *graph.state) if self.homes.get(tensor.id, 0) == stage)
        return sum(formats.bytes_of(tensor, "") for tensor in own)

    def _homes(self) -> dict[int, int]:
        """The stage of each storage that an op of a layer uses."""
        homes: dict[int, int] = {}
        for op in self.step.executed:
            if op.layer and self.stage_of:
                for tensor in (*op.inputs, *op.outputs):
                    homes.setdefault(tensor.id, self._stage_of(op))
        return homes

    def _peak_bytes(self) -> float:
        """Peak memory of a pass: one sample's activations, without gradients that are never stored."""
        step = self.step
        unstored = {op.outputs[0].id for op in step.executed if op.index in self.fused}
        holdings = [
            _per_sample(holding, self.samples)
            for (storage, _), holding in find_holdings(step.graph, Course(step.executed), step.formats).items()
            if storage not in unstored
        ]
        return max((sum(sizes) for sizes in held_by_part(holdings, len(step.executed))), default=0.0)

    def _waiting_bytes(self, delays: Mapping[str, int], stage: int) -> float:
        """Activations that wait for their errors: those of samples within a layer's delay and the current one."""
        return sum(
            self.step.formats.bytes_of(op.inputs[0], op.layer, op.phase) / self.samples * (delays.get(op.layer, 0) + 1)
            for op in self.step.executed
            if op.phase == "weight_grad" and op.gemm is not None and self._stage_of(op) == stage
        )


def _is_plain_update(op: Op, gradient: TensorRef) -> bool:
    others = [tensor for tensor in op.inputs if tensor.id != gradient.id]
    is_sum = len(op.inputs) == 2 and len(others) == 1 and others[0].role == "master"
    return op.phase == "update" and is_sum and [tensor.id for tensor in op.outputs] == [others[0].id]


def _per_sample(holding: Holding, samples: int) -> Holding:
    if holding.part in ("activations", "transients"):
        return holding._replace(size_bytes=holding.size_bytes / samples)
    return holding
