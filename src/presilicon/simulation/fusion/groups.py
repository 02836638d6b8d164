"""Groups of ops: which ops of a step run together, tile by tile, and in which order the groups run.

Ops are taken in the order of the step. One joins the group that produces its inputs if it can take them as they come,
and nothing that it needs is made after that group. Ops of the vector unit that nothing feeds wait for the op that needs
them, so a normalization runs with its consumer. Batch normalization runs twice: its sums are gathered in the group of
its producer, and its result, which needs all of them, is computed in a later group that reads the data again.

A product heads a group of its own, tiled for the least traffic, and ops of the vector unit follow it. With `slicing`, a
product can also take its operand from the group: all products of the group then run slice by slice (whole samples, or
lines of them, with those that the next window of a convolution needs), with weights and sums of weight gradients held
in the buffer. The sums are there when the last slice has passed; updates of the weights follow them.
"""

from collections.abc import Container, Mapping, Sequence
from itertools import pairwise
from math import ceil
from typing import Literal

from msgspec import Struct

from presilicon.records import Op
from presilicon.simulation.fusion.parts import ProductPart, Style
from presilicon.simulation.fusion.values import StepValues

NONE = -1
State = Literal["stream", "end", "dram"]
"""Where other ops of a group find a value that it computes: piece by piece while it runs, on chip when it ends, or only
in DRAM."""


class Group(Struct, frozen=True, kw_only=True):
    """Ops that run together, by their positions in the step."""

    members: tuple[int, ...]
    statistics: tuple[int, ...]
    """Batch normalizations whose sums are gathered here; they are members of a later group."""
    tiled: int
    """The product that is tiled, or `NONE`."""
    sliced: tuple[int, ...]
    """The products that run slice by slice."""
    slices: int
    late: tuple[int, ...]
    """Members that wait for sums over all slices, such as updates of weights."""
    reserved_bytes: float
    """Space for tiles in use and being filled, and for what the products hold."""


class GroupLimits(Struct, frozen=True, kw_only=True):
    """Limits within which groups form."""

    buffer_bytes: float
    """Share of the buffer that a running group may use."""
    batch_size: int
    """Samples of a forward or backward pass, which are those of a micro-batch."""
    bytes_per_cycle: float
    """Bandwidth of DRAM or of the vector unit: what a further slice costs in cycles must be won in transfers, or by
    array and vector unit that work at the same time."""
    slicing: bool
    """Whether products may take operands from the group that computes them."""


def form_groups(
    ops: Sequence[Op],
    values: StepValues,
    styles: Sequence[Style],
    aligned: Sequence[tuple[bool, ...]],
    products: Mapping[int, ProductPart],
    limits: GroupLimits,
    fences: Container[int] = (),
    units: Sequence[float] = (),
) -> tuple[Group, ...]:
    """The groups of a step in the order in which they run; each op is a member of one.

    `aligned` says of each input of each op whether it comes in the pieces that the op works on. From an op of `fences`
    on, ops join no group that was there before. `units` are the bytes of a row or sample that an op needs at once.
    """
    former = _Former(ops, values, styles, aligned, products, limits, units)
    for position in range(len(ops)):
        if position in fences:
            former.close_groups()
        former.place(position)
    return former.finish()


def recomputations(ops: Sequence[Op], micro_batches: int) -> frozenset[int]:
    """Where parts of the forward pass run again in the backward pass: sooner, their results would only be held longer.

    A step of several micro-batches goes forward again for each, which is no recomputation.
    """
    begins = [
        position
        for position, (before, op) in enumerate(pairwise(ops), 1)
        if op.phase == "forward" and before.phase in ("input_grad", "weight_grad")
    ]
    return frozenset(begins) if len(begins) >= micro_batches else frozenset()


class _Open:
    """A group that is being formed. It has no slot in the order until something needs it to be before or after."""

    __slots__ = (
        "blocks",
        "halo",
        "held",
        "late",
        "lines",
        "lowest",
        "members",
        "refill",
        "sliced",
        "slices",
        "slot",
        "states",
        "statistics",
        "tiled",
        "whole_samples",
    )

    def __init__(self, lowest: int) -> None:
        self.slot = NONE
        self.lowest = lowest
        """The first slot that it could take."""
        self.members: list[int] = []
        self.statistics: list[int] = []
        self.late: list[int] = []
        self.states: dict[int, State] = {}
        self.tiled = NONE
        self.sliced: list[int] = []
        self.slices = 1
        self.held = self.halo = self.refill = 0.0
        self.lines = 1 << 62
        self.blocks: dict[int, float] = {}
        self.whole_samples = False


def _has_end(group: _Open, values: Sequence[int]) -> bool:
    """Whether some of the values are only there when a group ends."""
    return "end" in map(group.states.get, values)


class _Sources(Struct):
    """Groups that an op could join for its inputs."""

    target: _Open | None
    """The group with a slot that it can join."""
    waiting: list[_Open]
    """Groups without a slot, which would be merged into the op's own."""
    lowest: int
    """The first slot that the op can take if it does not join the target."""


class _Former:
    def __init__(
        self,
        ops: Sequence[Op],
        values: StepValues,
        styles: Sequence[Style],
        aligned: Sequence[tuple[bool, ...]],
        products: Mapping[int, ProductPart],
        limits: GroupLimits,
        units: Sequence[float],
    ) -> None:
        self._units = units
        self._ops, self._values, self._styles, self._aligned = ops, values, styles, aligned
        self._products, self._limits = products, limits
        self._order: list[_Open] = []
        self._floor = 0
        self._pinned = {value for value, is_pinned in enumerate(values.pinned) if is_pinned}
        self._waiting: dict[_Open, None] = {}
        self._home: dict[int, _Open] = {}
        self._group: dict[int, _Open] = {}

    def place(self, position: int) -> None:
        style = self._styles[position]
        if style == "alone" or (self._pinned and self._touches_pinned(position)):
            self._place_alone(position)
        elif style == "product":
            self._place_product(position)
        elif style == "norm":
            self._place_norm(position)
        else:
            self._place_vector(position, style)

    def _touches_pinned(self, position: int) -> bool:
        return not self._pinned.isdisjoint((*self._values.reads[position], *self._values.writes[position]))

    def close_groups(self) -> None:
        for group in list(self._waiting):
            self._settle(group)
        self._floor = len(self._order)

    def finish(self) -> tuple[Group, ...]:
        self.close_groups()
        return tuple(map(self._close, self._order))

    def _close(self, group: _Open) -> Group:
        if group.sliced:
            batch = self._limits.batch_size
            if group.slices <= batch:
                share, halo = ceil(batch / group.slices) / batch, 0.0
            else:
                share = ceil(group.lines * batch / group.slices) / (group.lines * batch)
                halo = group.halo
            reserved = group.held + halo + 2 * sum(group.blocks.values()) * share
        else:
            reserved = self._products[group.tiled].tile_bytes if group.tiled != NONE else self._units_in_use(group)
        return Group(
            members=tuple(sorted(group.members)),
            statistics=tuple(group.statistics),
            tiled=group.tiled,
            sliced=tuple(group.sliced),
            slices=group.slices,
            late=tuple(group.late) if group.sliced else (),
            reserved_bytes=reserved,
        )

    def _units_in_use(self, group: _Open) -> float:
        """Bytes of the row or sample that ops without a product need at once, and of the next one."""
        held = 0.0
        for position in group.members if self._units else ():
            if self._styles[position] in ("rows", "samples"):
                largest = max((self._values.size_bytes[value] for value in self._values.reads[position]), default=0.0)
                held = max(held, min(2 * self._units[position], largest))
        return held

    # Ops by style.

    def _place_alone(self, position: int) -> None:
        for group in list(self._waiting):
            self._settle(group)
        group = _Open(0)
        self._add(position, group, "dram")
        self._settle(group)

    def _place_vector(self, position: int, style: Style) -> None:
        sources = self._sources(position, self._aligned[position], at_end=True)
        target = sources.target
        if target is not None and not self._admits(target, style, position):
            target = None
        if target is None and sources.target is not None:
            sources.lowest = max(sources.lowest, sources.target.slot + 1)
        inputs = self._values.reads[position]
        at_end = target is not None and _has_end(target, inputs)
        if target is None:
            target = sources.waiting.pop(0) if sources.waiting else _Open(0)
            target.lowest = max(target.lowest, sources.lowest)
            at_end = _has_end(target, inputs)
            self._waiting[target] = None
        for group in sources.waiting:
            at_end = at_end or _has_end(group, inputs)
            self._merge(group, target, at_end=at_end)
        target.whole_samples |= style == "samples"
        self._add(position, target, "end" if at_end else "stream")
        target.late += [position] if at_end else []
        if style == "sum":
            for value, tensor in zip(self._values.writes[position], self._ops[position].outputs, strict=True):
                target.states[value] = "end" if tensor.role == "gradient" else "dram"

    def _place_norm(self, position: int) -> None:
        """The sums join the group of the producer; the result waits for its consumer."""
        sources = self._sources(position, self._aligned[position], at_end=True)
        for group in sources.waiting:
            self._settle(group)
        target = sources.waiting[-1] if sources.waiting else sources.target
        own = _Open(max([sources.lowest, *(group.slot + 1 for group in (*sources.waiting, target) if group)]))
        if target is not None and all(target.states.get(value) != "end" for value in self._values.reads[position]):
            target.statistics.append(position)
        self._waiting[own] = None
        self._add(position, own, "stream")
        largest = max(tensor.elements for tensor in self._ops[position].outputs)
        for value, tensor in zip(self._values.writes[position], self._ops[position].outputs, strict=True):
            own.states[value] = "stream" if tensor.elements == largest else "end"

    def _place_product(self, position: int) -> None:
        product = self._products[position]
        sources = self._sources(position, product.streaming if self._limits.slicing else (), at_end=False)
        state: State = "end" if product.sums_slices else "stream"
        if sources.target is not None and self._slice_with(sources.target, sources.waiting, position):
            for group in sources.waiting:
                self._merge(group, sources.target, at_end=False)
            self._add(position, sources.target, state)
            return
        if sources.waiting:
            fresh = _Open(0)
            if self._slice_with(fresh, sources.waiting, position):
                for group in sources.waiting:
                    self._merge(group, fresh, at_end=False)
                self._add(position, fresh, state)
                self._settle(fresh)
                return
            for group in sources.waiting:
                self._settle(group)
        group = _Open(0)
        group.tiled = position
        self._add(position, group, "stream")
        self._settle(group)

    # Whether an op can take part in a group.

    def _sources(self, position: int, streaming: Sequence[bool], *, at_end: bool) -> _Sources:
        """The groups that the inputs of an op stream from; those that it cannot join get a slot before it.

        `streaming` says which of the first inputs the op takes piece by piece; `at_end`, whether it also follows what
        is there when a group ends.
        """
        joinable: list[_Open] = []
        barred: list[_Open] = []
        home = self._home
        for index, value in enumerate(self._values.reads[position]):
            group = home.get(value)
            if group is not None:
                state = group.states[value]
                if state == "stream":
                    joins = index < len(streaming) and streaming[index]
                else:
                    joins = at_end and state == "end"
                found = joinable if joins else barred
                if group not in found:
                    found.append(group)
        lowest = self._floor
        for group in barred:
            self._settle(group)
            lowest = max(lowest, group.slot + 1)
        earlier = self._readers_of_replaced(position, joinable) if self._values.replaced[position] else 0
        if not joinable:
            return _Sources(None, [], max(lowest, earlier))
        waiting = [group for group in joinable if group.slot == NONE]
        settled = [group for group in joinable if group.slot != NONE]
        target = max(settled, key=lambda group: group.slot, default=None)
        if target is not None:
            first = max([lowest, earlier, *(group.lowest for group in waiting)])
            mixed = len({target.states[v] for v in self._values.reads[position] if v in target.states}) > 1
            if target.slot < first or mixed:
                lowest = max(lowest, target.slot + 1)
                target = None
        lowest = max([lowest, earlier, *(group.slot + 1 for group in settled if group is not target)])
        return _Sources(target, waiting, lowest)

    def _readers_of_replaced(self, position: int, joinable: list[_Open]) -> int:
        """The last slot in which data that an op overwrites is still needed."""
        last = 0
        for value in self._values.replaced[position]:
            needing = [self._group[reader] for reader in self._values.readers[value] if reader < position]
            if value in self._home:
                needing.append(self._home[value])
            for group in needing:
                if group not in joinable:
                    self._settle(group)
                last = max(last, group.slot)
        return last

    def _admits(self, group: _Open, style: Style, position: int) -> bool:
        """Whether the pieces of a group are large enough for an op of that style, or can be made so."""
        if style not in ("rows", "samples"):
            return True
        if group.tiled == NONE:
            return style == "rows" or not group.sliced or self._reslice(group, style, position)
        if style == "rows" and self._products[group.tiled].whole_rows:
            return True
        return self._limits.slicing and self._reslice(group, style, position)

    def _reslice(self, group: _Open, style: Style, position: int) -> bool:
        """Cut a group into slices that an op can take, if that is possible and worth its cycles."""
        tiled = [group.tiled] if group.tiled != NONE else []
        won = sum(self._values.size_bytes[value] for value in self._values.reads[position] if value in group.states)
        return self._try_slices(group, tiled, style == "samples" or group.whole_samples, won)

    def _slice_with(self, group: _Open, waiting: Sequence[_Open], position: int) -> bool:
        """Let a product run in the slices of a group, if the buffer has room and the transfers won are worth it."""
        if group.tiled != NONE and self._products[group.tiled].sums_slices:
            return False
        values, product = self._values, self._products[position]
        won = 0.0
        for index, value in enumerate(values.reads[position][:2]):
            if any(value in source.states for source in (group, *waiting)):
                is_dead = values.last_reader(value) == position and not values.outlives[value]
                won += product.read_bytes[index] * (2 if is_dead else 1)
        fresh = [*([group.tiled] if group.tiled != NONE else []), position]
        whole = group.whole_samples or any(source.whole_samples for source in waiting)
        return self._try_slices(group, fresh, whole, won)

    def _try_slices(self, group: _Open, fresh: Sequence[int], whole_samples: bool, won_bytes: float) -> bool:
        held, halo, refill, lines = group.held, group.halo, group.refill, group.lines
        blocks = dict(group.blocks)
        for position in fresh:
            product = self._products[position]
            held += product.held_bytes
            halo += product.halo_bytes
            refill += product.refill_cycles
            lines = min(lines, product.lines)
            data = (*self._values.reads[position][:2], self._values.writes[position][0])
            for value, size in zip(data, product.slice_bytes, strict=True):
                blocks[value] = max(size, blocks.get(value, 0.0))
        slices = self._count_slices(held, halo, sum(blocks.values()), lines, whole_samples)
        paid = (slices - 1) * refill - (group.slices - 1) * group.refill
        if slices == 0 or paid > won_bytes / self._limits.bytes_per_cycle:
            return False
        group.held, group.halo, group.refill, group.lines, group.blocks = held, halo, refill, lines, blocks
        group.sliced += fresh
        group.tiled, group.slices, group.whole_samples = NONE, slices, whole_samples
        return True

    def _count_slices(self, held: float, halo: float, blocks: float, lines: int, whole_samples: bool) -> int:
        """The fewest slices, of whole samples or else of lines, that fit twice beside what is held; 0 if none do."""
        room, batch = self._limits.buffer_bytes - held, self._limits.batch_size
        if room <= 0:
            return 0
        samples = int(room * batch / (2 * blocks)) if blocks else batch
        if samples:
            return ceil(batch / min(samples, batch))
        if whole_samples or room <= halo:
            return 0
        lines_fit = int((room - halo) * batch * lines / (2 * blocks))
        return batch * ceil(lines / lines_fit) if lines_fit else 0

    # Changes of groups.

    def _add(self, position: int, group: _Open, state: State) -> None:
        group.members.append(position)
        self._group[position] = group
        for value in self._values.writes[position]:
            group.states[value] = state
            self._home[value] = group

    def _merge(self, group: _Open, into: _Open, *, at_end: bool) -> None:
        self._waiting.pop(group, None)
        into.members += group.members
        into.statistics += group.statistics
        into.late += group.members if at_end else group.late
        into.whole_samples |= group.whole_samples
        into.lowest = max(into.lowest, group.lowest)
        for value, state in group.states.items():
            into.states[value] = "end" if at_end else state
            self._home[value] = into
        for position in (*group.members, *group.statistics):
            if self._group[position] is group:
                self._group[position] = into

    def _settle(self, group: _Open) -> None:
        """Give a group the next slot in the order, if it has none."""
        if group.slot == NONE:
            group.slot = len(self._order)
            self._order.append(group)
            self._waiting.pop(group, None)
