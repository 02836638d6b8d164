"""A training step planned on a systolic machine: groups of ops, their work, and what crosses DRAM for each op."""

from collections.abc import Container, Hashable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from presilicon.base import ConfigError
from presilicon.designs import MachineStep
from presilicon.records import DramBounds, Op
from presilicon.simulation.fusion.bounds import bound_traffic
from presilicon.simulation.fusion.groups import NONE, Group, GroupLimits, form_groups, recomputations
from presilicon.simulation.fusion.parts import ProductPart, Style, aligned_inputs, style_of, unit_elements
from presilicon.simulation.fusion.schedule import OpBytes, Transfers, exchange, find_transfers, keep_on_chip
from presilicon.simulation.fusion.sinking import sink
from presilicon.simulation.fusion.values import StepValues, find_values
from presilicon.simulation.operators import Functions
from presilicon.simulation.recent import Recent
from presilicon.simulation.systolic.compression import EXPANDED, Operands, stored_values
from presilicon.simulation.systolic.machine import SystolicMachine
from presilicon.simulation.systolic.mappings import ArrayProduct, dataflow_of, describe_product
from presilicon.simulation.systolic.products import Resident, array_work, finds_tile, resident_after, spare_load
from presilicon.simulation.systolic.slices import part_of_product, slice_work, tile_space, used_shares
from presilicon.simulation.systolic.vectors import vector_work
from presilicon.simulation.systolic.work import ChargedTraffic, Rates, Work

_HALF = 0.5
"""Share of the buffer that a running group may use instead of all of it, to leave more for data that stays."""
_LANE_BYTES = 1.0
"""Bytes of an operand that a lane of the vector unit passes in a cycle. Joined products gain that time, however fast
DRAM is: the vector unit works behind one while the array does the next. Assumed: two operations for a bfloat16."""
_STATISTICS = 0.5
"""Share of the cycles of a batch normalization that gathers its sums. Assumed: the unit does about as much for both."""


class GroupPlan(Struct, frozen=True, kw_only=True):
    """Groups in the order in which they run, with the work and the DRAM bytes of every op."""

    groups: tuple[Group, ...]
    works: tuple[Work, ...]
    """By position of the op."""
    moved: tuple[ChargedTraffic, ...]
    """Transfers that are charged to an op."""
    transfers: Transfers
    free_bytes: tuple[float, ...]
    """Space in the buffer that is free while a group runs."""

    def compute_cycles(self, group: Group, gathered: frozenset[int]) -> float:
        """Cycles of array and vector unit in a group; the sums of `gathered` normalizations are gathered elsewhere.

        The vector unit works on pieces that the array has done. What waits for sums of all slices comes at the end.
        """
        stages, late = _stages(group, self.works, gathered)
        if not group.sliced:
            return max(sum(array for array, _ in stages), sum(vector for _, vector in stages))
        return pipelined_cycles(stages, group.slices) + late


def _stages(
    group: Group, works: Sequence[Work], gathered: frozenset[int], refill: Mapping[int, float] | None = None
) -> tuple[list[list[float]], float]:
    """Cycles of array and vector unit for each product with what follows it, and of what comes at the end.

    `refill` is added to the cycles of products.
    """
    stages = [[0.0, 0.0]]
    late = 0.0
    for position in sorted((*group.members, *group.statistics)):
        work = works[position]
        if work.unit == "array":
            stages.append([work.cycles + (refill[position] if refill else 0.0), 0.0])
            continue
        is_statistics = position in group.statistics
        share = _STATISTICS if is_statistics else 1 - _STATISTICS if position in gathered else 1.0
        if position in group.late:
            late += work.cycles * share
        else:
            stages[-1][1] += work.cycles * share
    return stages, late


def pipelined_cycles(stages: Sequence[Sequence[float]], slices: int) -> float:
    """Cycles of products with the vector ops behind them, in slices.

    The vector unit works on one slice while the array does the next: one slice goes through all stages one after
    another, and each of the others takes as long as the slower unit.

    >>> pipelined_cycles([(4, 2), (2, 4)], slices=1), pipelined_cycles([(4, 2), (2, 4)], slices=4)
    (8.0, 6.5)
    """
    slower = max(sum(array for array, _ in stages), sum(vector for _, vector in stages))
    return slower + (sum(map(max, stages)) - slower) / slices


class Planner:
    """Plans of one step on a machine, with different fusion."""

    def __init__(
        self,
        step: MachineStep,
        machine: SystolicMachine,
        rates: Rates,
        *,
        whole: tuple[Op, ...] | None = None,
        copies: Mapping[int, tuple[int, int, int]] | None = None,
        fences: Container[int] = (),
        imported: Container[int] = (),
        exported: Container[int] = (),
    ) -> None:
        """For one core among several: `whole` ops, of which the step has a share, and copies (see `Operands`).

        With `fences` no group has ops from before and behind one. `imported` values come from other cores, `exported`
        ones go there.
        """
        self._fences = fences or recomputations(step.executed, step.graph.micro_batches)
        self._imported, self._exported = imported, exported
        self._step, self._machine, self._rates = step, machine, rates
        self._copies = copies or {}
        self._parameters = {tensor.id: tensor.elements for tensor in step.graph.parameters}
        self._buffer_bytes = machine.buffer.kib * 1024
        undivided = step.executed if whole is None else whole
        manners = _MANNERS.find(undivided, "", lambda: _find_manners(undivided))
        self._whole_styles, self._aligned = manners.styles, manners.aligned
        self._twins = manners.twins if step.formats.is_same_in_all_layers else range(len(undivided))
        self.values: StepValues = find_values(step.graph, step.executed, step.formats, undivided)
        self._units = self._unit_bytes(undivided)
        self.styles: list[Style] = [
            "norm" if unit > self._buffer_bytes / 2 else style
            for style, unit in zip(manners.styles, self._units, strict=True)
        ]
        self._passes = list(map(_passes, undivided, self.styles))
        self._sized: dict[int, tuple[Work, OpBytes]] = {}
        self._described: dict[int, ArrayProduct] = {}
        self._stored = stored_values(step.executed, self.values, step.formats, machine.sparsity)
        self._vectors = self._vector_works(Functions(step.design.numerics))
        self._whole = self._works(1.0)
        self._products: dict[int, ProductPart] = {}
        for position, op in enumerate(step.executed):
            if op.gemm is not None:
                work, twin = self._whole[position], self._twins[position]
                self._products[position] = (
                    self._products[twin]
                    if twin != position and work is self._whole[twin]
                    else part_of_product(op, op.gemm, work, step, machine, self.operands(position))
                )

    def _unit_bytes(self, ops: Sequence[Op]) -> list[float]:
        """Bytes of a row or a sample that a normalization or softmax of rows or samples needs at once; 0 for others.

        One that is larger than half of the buffer is read twice, as a batch normalization reads the batch.
        """
        units = []
        for position, op in enumerate(ops):
            unit = float(unit_elements(op))
            if unit:
                sizes = [tensor.elements for tensor in op.inputs]
                largest = sizes.index(max(sizes))
                own = self._step.executed[position].inputs[largest].elements
                unit *= self.values.read_bytes[position][largest] / max(own, 1)
            units.append(unit)
        return units

    def _vector_works(self, functions: Functions) -> dict[int, Work]:
        step, works = self._step, dict[int, Work]()
        for position, (op, loads, stores, passes) in enumerate(
            zip(step.executed, self.values.read_bytes, self.values.written_bytes, self._passes, strict=True)
        ):
            if op.gemm is not None:
                continue
            twin = self._twins[position]
            if twin != position and not self._stored:
                works[position] = works[twin]
                continue
            own = vector_work(
                op, step, self._machine, self._rates, functions, loads=loads, stores=stores, passes=passes
            )
            works[position] = self._compress(position, own)
        return works

    def plans(self) -> list[GroupPlan]:
        """The plans to choose from, for the fusion of the machine."""
        match self._machine.fusion:
            case "none":
                return [self._separate()]
            case "ops":
                return self._fused(self._whole, 1.0, slicing=False, stays=False)
            case "resident":
                slicing = self._machine.dataflow.forward != "row-stationary"  # its products have no slices
                plans = self._fused(self._whole, 1.0, slicing=slicing, stays=True)
                with suppress(ConfigError):  # half may be too small for one tile of some product
                    plans += self._fused(self._works(_HALF), _HALF, slicing=slicing, stays=True)
                return plans

    def read_times(self, plan: GroupPlan, group: Group, position: int) -> tuple[float, float]:
        """How often a product of a group reads each of its operands."""
        if group.tiled != position:
            return 1.0, 1.0
        loads, once = plan.works[position].loads, self._products[position].read_bytes
        return (loads[0] / once[0] if once[0] else 1.0), (loads[1] / once[1] if once[1] else 1.0)

    def bound_traffic(self) -> DramBounds:
        """Lower bounds of the DRAM traffic of any plan."""
        sizes = self._sizes(self._whole)
        return bound_traffic(self.values, self._whole_styles, sizes, self._buffer_bytes)

    def _separate(self) -> GroupPlan:
        works = self._whole
        groups = tuple(
            Group(
                members=(position,),
                statistics=(),
                tiled=NONE if op.gemm is None else position,
                sliced=(),
                slices=1,
                late=(),
                reserved_bytes=tile_space(works[position], self._machine),
            )
            for position, op in enumerate(self._step.executed)
        )
        return self._finish(groups, works, stays=False)

    def _fused(self, alone: Sequence[Work], share: float, *, slicing: bool, stays: bool) -> list[GroupPlan]:
        """Plans with groups that use a share of the buffer, from the work of each op on its own.

        In the second one, where there is one, ops run with those that read them.
        """
        step, machine, works = self._step, self._machine, list(alone)
        products = self._products
        if alone is not self._whole:
            products = {
                position: replace(
                    product, tile_bytes=tile_space(works[position], machine), whole_rows=works[position].whole_rows
                )
                for position, product in products.items()
            }
        limits = GroupLimits(
            buffer_bytes=self._buffer_bytes * share,
            batch_size=step.graph.samples_per_pass,
            bytes_per_cycle=min(machine.dram_gb_s / machine.clock_ghz, _LANE_BYTES * machine.vector_lanes),
            slicing=slicing,
        )
        groups = form_groups(
            step.executed, self.values, self.styles, self._aligned, products, limits, self._fences, self._units
        )
        gathered = frozenset(position for group in groups for position in group.statistics)
        groups = tuple(self._overlapped(group, works, gathered) if group.sliced else group for group in groups)
        for group in groups:
            for position in group.sliced:
                op = step.executed[position]
                assert op.gemm is not None
                works[position] = replace(
                    slice_work(op, self._product(position), works[position], group.slices, step, machine, self._rates),
                    loads=(*products[position].read_bytes, *works[position].loads[2:]),
                )
        if stays:
            self._spare_loads(groups, works)
        plans = [self._finish(groups, works, stays=stays)]
        sunk = groups if self._fences else sink(groups, self.values, self.styles, self._aligned)
        return plans if sunk == groups else [*plans, self._finish(sunk, works, stays=stays)]

    def _spare_loads(self, groups: Sequence[Group], works: list[Work]) -> None:
        """Leave weights in the array from one product to the next in the order in which groups run.

        Products that take turns slice by slice replace one another's tiles; only the first finds what was there before
        its group. DRAM is not spared: what of the weights stays on chip between groups is decided for the buffer.
        """
        step, machine = self._step, self._machine
        resident: Resident | None = None
        for group in groups:
            products = [position for position in group.members if position in self._products]
            takes_turns = group.slices > 1 and len(products) > 1
            for position in sorted(group.members, key=lambda position: (position in group.late, position)):
                op = step.executed[position]
                may_find = position in self._products and not (takes_turns and position != products[0])
                if may_find and finds_tile(op, resident, step, machine):
                    operands = self.operands(position)
                    works[position] = spare_load(
                        works[position], self._product(position), machine, self._rates, operands
                    )
                resident = resident_after(op, machine, step.formats, self._parameters, resident)

    def _overlapped(self, group: Group, works: Sequence[Work], gathered: frozenset[int]) -> Group:
        """A group in the fastest number of slices: more of them overlap better, but refill the array more often."""
        batch_size = self._step.graph.samples_per_pass
        counts = [group.slices]
        while 2 * counts[-1] <= batch_size:
            counts.append(2 * counts[-1])

        def cycles(slices: int) -> float:
            refill = {position: (slices - 1) * self._products[position].refill_cycles for position in group.sliced}
            return pipelined_cycles(_stages(group, works, gathered, refill)[0], slices)

        return replace(group, slices=min(counts, key=cycles)) if len(counts) > 1 else group

    def _finish(self, groups: tuple[Group, ...], works: Sequence[Work], *, stays: bool) -> GroupPlan:
        transfers = find_transfers(groups, self.values, self._sizes(works))
        free = [self._buffer_bytes - group.reserved_bytes for group in groups]
        if stays:
            transfers, free = keep_on_chip(groups, self.values, transfers, self._buffer_bytes)
        transfers = exchange(transfers, self._imported, self._exported)
        moved = self._charge(works, transfers)
        return GroupPlan(groups=groups, works=tuple(works), moved=moved, transfers=transfers, free_bytes=tuple(free))

    def _charge(self, works: Sequence[Work], transfers: Transfers) -> tuple[ChargedTraffic, ...]:
        """The DRAM traffic of each op."""
        dram = [work.spills for work in works]
        for transfer in (*transfers.loads, *transfers.stores):
            dram[transfer.position] += transfer.size_bytes
        if not self._stored:
            return tuple([ChargedTraffic(own, own, 0.0) for own in dram])
        more, coded = [0.0] * len(works), [0.0] * len(works)
        for transfer in (*transfers.loads, *transfers.stores):
            stored = self._stored.get(transfer.value)
            if stored is not None and stored.in_dram != stored.on_chip:
                passed = transfer.size_bytes / stored.in_dram * stored.on_chip
                more[transfer.position] += passed - transfer.size_bytes
                coded[transfer.position] += passed
        return tuple(ChargedTraffic(own, own + extra, part) for own, extra, part in zip(dram, more, coded, strict=True))

    def operands(self, position: int) -> Operands:
        """How the operands of a product are stored."""
        left, right = (self._stored.get(value, EXPANDED) for value in self.values.reads[position][:2])
        return Operands(left, right, self._copies.get(position, (1, 1, 1)))

    def _compress(self, position: int, work: Work) -> Work:
        """The work of an op with compressed data: an op of the vector unit, or the results of a product."""
        if not self._stored:
            return work
        read, written = (
            [self._stored.get(value, EXPANDED) for value in values]
            for values in (self.values.reads[position], self.values.writes[position])
        )
        stores = tuple(size * share.in_dram for size, share in zip(work.stores, written, strict=True))
        if work.unit == "array":
            return replace(work, stores=stores)
        moves = [
            *zip(work.loads, read, self._passes[position], strict=True),
            *((size, share, 1) for size, share in zip(work.stores, written, strict=True)),
        ]
        return replace(
            work,
            loads=tuple(size * share.in_dram for size, share in zip(work.loads, read, strict=True)),
            stores=stores,
            bytes_sram=sum(size * share.on_chip * passes for size, share, passes in moves),
            coded_bytes=sum(size * passes for size, share, passes in moves if share.on_chip != 1.0),
        )

    def _sizes(self, works: Sequence[Work]) -> list[OpBytes]:
        sizes = []
        for position, work in enumerate(works):
            known = self._sized.get(self._twins[position])
            if known is None or known[0] is not work:
                known = self._sized[self._twins[position]] = (work, self._size(position, work))
            sizes.append(known[1])
        return sizes

    def _size(self, position: int, work: Work) -> OpBytes:
        op, passes = self._step.executed[position], self._passes[position]
        once, is_whole = work.loads, (True,) * len(work.loads)
        if op.gemm is not None:
            once = (*self._products[position].read_bytes, *once[2:])
            shares = used_shares(op, op.gemm, self.operands(position).copies)
            is_whole = (*(share == 1.0 for share in shares), *is_whole[2:])
        fits = max(passes, default=1) == 1 or max(work.loads) <= self._buffer_bytes / 2
        return OpBytes(
            tiled=work.loads,
            once=once,
            stores=work.stores,
            passes=(1,) * len(passes) if fits else passes,
            is_whole=is_whole,
        )

    def _is_like(self, position: int, twin: int) -> bool:
        """Whether two equal products take equal work: nothing is compressed, left in the array or divided otherwise."""
        is_alike = not self._stored and self._machine.fusion == "resident"
        return is_alike and self._copies.get(position) == self._copies.get(twin)

    def _product(self, position: int) -> ArrayProduct:
        """A product as the array sees it, described once."""
        product = self._described.get(position)
        if product is None:
            op = self._step.executed[position]
            assert op.gemm is not None
            product = describe_product(op, op.gemm, self._step, self._machine, self._rates, self.operands(position))
            self._described[position] = product
        return product

    def _works(self, share: float) -> list[Work]:
        """The work of every op on its own, with tiles in a share of the buffer.

        Weights that a product leaves in the array serve the next one, here where products run in the order of the step
        and otherwise in that of the groups (`_spare_loads`).
        """
        step, machine = self._step, self._machine
        resident: Resident | None = None
        works: list[Work] = []
        for position, op in enumerate(step.executed):
            twin = self._twins[position]
            if op.gemm and twin != position and self._is_like(position, twin):
                works.append(works[twin])
            elif op.gemm:
                operands = self.operands(position)
                if dataflow_of(machine, op.phase) == "row-stationary":
                    own = _row_work(op, step, machine, self._rates, operands, share)
                else:
                    own = array_work(
                        op,
                        self._product(position),
                        step,
                        machine,
                        self._rates,
                        operands,
                        resident=resident,
                        share=share,
                    )
                works.append(self._compress(position, own))
            else:
                works.append(self._vectors[position])
            if machine.fusion != "resident":
                resident = resident_after(op, machine, step.formats, self._parameters, resident)
        return works


def _row_work(
    op: Op, step: MachineStep, machine: SystolicMachine, rates: Rates, operands: Operands, share: float
) -> Work:
    if step.convention != "exact":
        raise ConfigError('SCALE-Sim does not model row-stationary arrays: use the convention "exact"')
    from presilicon.simulation.systolic.rows import row_work  # needs Numba

    return row_work(op, step, machine, rates, operands=operands, share=share)


class _Manners(NamedTuple):
    """The part that each op can take in groups."""

    styles: list[Style]
    aligned: list[tuple[bool, ...]]
    twins: list[int]
    """The first op that is equal but for its layer."""


_MANNERS = Recent[_Manners](32)


def _find_manners(ops: Sequence[Op]) -> _Manners:
    styles = [style_of(op) for op in ops]
    first: dict[Hashable, int] = {}
    twins = [first.setdefault(_likeness(op), position) for position, op in enumerate(ops)]
    return _Manners(styles, [aligned_inputs(op) for op in ops], twins)


def _likeness(op: Op) -> Hashable:
    """Everything about an op that its work depends on, but for the formats of its layer."""
    tensors = tuple((tensor.elements, tensor.role) for tensor in (*op.inputs, *op.outputs))
    return (
        op.operator, op.kind, op.phase, op.layer == "", op.flops, op.gemm, op.convolution, len(op.inputs), tensors,
        op.work, op.fixed_statistics,
    )  # fmt: skip


def _passes(op: Op, style: Style) -> tuple[int, ...]:
    """How often an op reads each input: a `norm` needs the sums over its large ones first."""
    if style != "norm":
        return (1,) * len(op.inputs)
    largest = max(tensor.elements for tensor in op.inputs)
    return tuple(2 if tensor.elements == largest else 1 for tensor in op.inputs)
