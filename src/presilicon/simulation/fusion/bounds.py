"""Lower bounds of the DRAM traffic of a step, whatever the order of its ops and however they are fused.

Compulsory traffic is what the step begins with and uses, once, and what must be in DRAM at its end, once. A buffer of
limited size adds to that. The sums of a batch normalization or of a loss need all the data before them, and what comes
after needs the sums. So a chain of such ops cuts the step into phases. Data that is made before a phase and used in it
was on chip when the phase began, or is loaded: all but a buffer of it. Data that is made before a cut and used after it
is stored, all but a buffer of it. Each op is taken to run once: recomputing data could need less.
"""

from collections.abc import Sequence
from itertools import accumulate

from presilicon.records import DramBounds
from presilicon.simulation.fusion.parts import Style
from presilicon.simulation.fusion.schedule import OpBytes
from presilicon.simulation.fusion.values import BEFORE, StepValues
from presilicon.simulation.recent import Recent

_SINGLE_CUTS = 1
"""Cuts that are also tried alone, those with the most data alive: many cuts count the buffer many times."""
_SMALL = 1e-3
"""Values of a smaller share of the buffer are left out, for speed: that makes a bound lower, and no less true."""


def bound_traffic(
    values: StepValues, styles: Sequence[Style], sizes: Sequence[OpBytes], buffer_bytes: float
) -> DramBounds:
    """The lower bounds of a step, with every op on its own and with all of them fused."""
    separate = sum(sum(size.stores) for size in sizes)
    read = [0.0] * len(values.writer)
    written = [0.0] * len(values.writer)
    inputs: list[dict[int, float]] = []
    for position, size in enumerate(sizes):
        inputs.append(dict(zip(values.reads[position], size.once, strict=True)))
        separate += sum(inputs[-1].values())
        for value, size_bytes in inputs[-1].items():
            read[value] = max(read[value], size_bytes)
        for value, size_bytes in zip(values.writes[position], size.stores, strict=True):
            written[value] = size_bytes
    compulsory = 0.0
    for value, writer in enumerate(values.writer):
        compulsory += read[value] if writer == BEFORE else written[value] if values.outlives[value] else 0.0
    cuts = [position for position, style in enumerate(styles) if style in ("norm", "sum")]
    chains = [_longest_chain(cuts, values), *([cut] for cut in _widest(cuts, values))] if cuts else []
    is_whole = tuple([size.is_whole for size in sizes])
    smallest = _SMALL * buffer_bytes
    counted = [
        value
        for value, readers in enumerate(values.readers)
        if readers and values.size_bytes[value] >= smallest and not values.pinned[value]
    ]
    excess = []
    for chain in chains:
        windows = _WINDOWS.find(
            values.reads,
            (tuple(chain), is_whole),
            lambda chain=chain: _windows(chain, styles, values, _complete_edges(values, is_whole)),  # type: ignore[misc]
        )
        excess.append(_excess(chain, counted, windows, values, inputs, buffer_bytes))
    return DramBounds(
        separate_bytes=separate,
        compulsory_bytes=compulsory,
        buffered_bytes=compulsory + max(excess, default=0.0),
    )


_WINDOWS = Recent[list[list[tuple[int, int]]]](64)


def _widest(cuts: Sequence[int], values: StepValues) -> list[int]:
    """The cuts with the most data alive around them, in the order of the step."""
    change = [0.0] * (len(values.reads) + 1)
    for value, readers in enumerate(values.readers):
        if readers and values.writer[value] != BEFORE:
            change[values.writer[value]] += values.size_bytes[value]
            change[readers[-1]] -= values.size_bytes[value]
    alive = list(accumulate(change))
    return sorted(cuts, key=lambda position: -alive[position])[:_SINGLE_CUTS]


def _longest_chain(cuts: Sequence[int], values: StepValues) -> list[int]:
    """Cuts that depend on one another, those with the most input."""
    is_cut = frozenset(cuts)
    weight = [0.0] * len(values.reads)
    source = [BEFORE] * len(values.reads)
    for position, reads in enumerate(values.reads):
        for value in reads:
            writer = values.writer[value]
            if writer == BEFORE:
                continue
            through = weight[writer]
            if writer in is_cut:
                through += sum(values.size_bytes[read] for read in values.reads[writer])
            if through > weight[position]:
                weight[position] = through
                source[position] = writer if writer in is_cut else source[writer]
    chain = []
    position = max(cuts, key=weight.__getitem__)
    while position != BEFORE:
        chain.append(position)
        position = source[position]
    return chain[::-1]


def _complete_edges(values: StepValues, used: Sequence[Sequence[bool]]) -> list[list[int]]:
    """For each op, the ops of whose results it reads all, so that they are complete before it is."""
    edges = []
    for position, reads in enumerate(values.reads):
        edges.append(
            [
                values.writer[value]
                for value, is_used, is_whole in zip(reads, used[position], values.whole[position], strict=True)
                if is_used and is_whole and values.writer[value] != BEFORE and not values.pinned[value]
            ]
        )
    return edges


def _excess(
    chain: Sequence[int],
    counted: Sequence[int],
    windows: Sequence[Sequence[tuple[int, int]]],
    values: StepValues,
    inputs: Sequence[dict[int, float]],
    buffer_bytes: float,
) -> float:
    """Traffic beyond the compulsory that a chain of cuts forces; phase j begins when cut j has its sums."""
    last = len(chain)
    loads, crossing = [0.0] * (last + 1), [0.0] * (last + 1)
    for value in counted:
        writer, readers = values.writer[value], values.readers[value]
        uses = [(window, inputs[at][value]) for at in readers for window in windows[at]]
        made = min(end for (_, end), _ in uses) if writer == BEFORE else windows[writer][-1][1]
        phases: dict[int, float] = {}
        for (start, end), size_bytes in uses:
            if made <= start == end - 1:
                phases[start] = max(phases.get(start, 0.0), size_bytes)
        for phase, size_bytes in phases.items():
            loads[phase] += size_bytes
        latest = max(start for (start, _), _ in uses)
        if writer != BEFORE and not values.outlives[value] and made <= latest:
            size_bytes = max(size for (start, _), size in uses if start == latest)
            crossing[made] += size_bytes
            crossing[latest + 1] -= size_bytes
    stored = max(accumulate(crossing))
    return sum(max(load - buffer_bytes, 0.0) for load in loads) + max(stored - buffer_bytes, 0.0)


def _windows(
    chain: Sequence[int], styles: Sequence[Style], values: StepValues, completes: Sequence[Sequence[int]]
) -> list[list[tuple[int, int]]]:
    """For each op, the phases between which it reads its input: not before the first, complete before the second.

    A sum on the chain has read all when its phase begins; a batch normalization then reads its input once more.
    """
    number = {position: index for index, position in enumerate(chain)}
    earliest, starts = [-1] * len(styles), [-1] * len(styles)
    ends = [len(chain)] * len(styles)
    for position, reads in enumerate(values.reads):
        after = [starts[values.writer[value]] for value in reads if values.writer[value] != BEFORE]
        earliest[position] = max(after, default=-1)
        starts[position] = max(earliest[position], number.get(position, -1))
    for position in reversed(range(len(styles))):
        end = number.get(position, ends[position])
        for writer in completes[position]:
            ends[writer] = min(ends[writer], end)
    windows = []
    for position in range(len(styles)):
        own = [(starts[position], ends[position])]
        if position in number:
            own = [(earliest[position], number[position])] + (own if styles[position] == "norm" else [])
        windows.append(own)
    return windows
