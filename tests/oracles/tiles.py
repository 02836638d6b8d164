"""Mappings of matrix products walked tile by tile and fold by fold: what each level of memory fetches, and when."""

from collections.abc import Iterator, Sequence
from itertools import permutations, product

Span = tuple[int, int]
Box = tuple[Span, ...]
Level = tuple[tuple[int, ...], tuple[int, ...]]
"""The sides of a tile along m, k and n, and the loops around it, outermost first."""
HAS = ((0, 1), (1, 2), (0, 2))
"""Dimensions of A, of B and of the sums."""
ORDERS = tuple(permutations(range(3)))


def walk(sizes: Sequence[int], levels: Sequence[Level], fold: Sequence[int]) -> list[list[float]]:
    """For each level, the array last: how often each operand enters it, over the operand's size."""
    whole = tuple((0, size) for size in sizes)
    held: list[list[object]] = [[None] * 3 for _ in range(len(levels) + 1)]
    entered = [[0] * 3 for _ in range(len(levels) + 1)]
    for path in _boxes(whole, [*levels, (tuple(fold), (0, 1, 2))]):
        for level, box in enumerate(path):
            for operand, dims in enumerate(HAS):
                part = tuple(box[dim] for dim in dims)
                if held[level][operand] != part:
                    held[level][operand] = part
                    entered[level][operand] += _volume(part)
    return [
        [count / _volume(tuple(whole[dim] for dim in dims)) for count, dims in zip(level, HAS, strict=True)]
        for level in entered
    ]


def all_tiles(
    sizes: Sequence[int], steps: Sequence[int], element: Sequence[float], capacity: float
) -> Iterator[tuple[int, ...]]:
    """Every tile that fits; small shapes only."""
    choices = [
        [min(size, side) for side in range(step, size + step, step)] for size, step in zip(sizes, steps, strict=True)
    ]
    for tile in product(*choices):
        held = sum(bytes_ * tile[dims[0]] * tile[dims[1]] for bytes_, dims in zip(element, HAS, strict=True))
        if held <= capacity:
            yield tile


def _boxes(box: Box, levels: Sequence[Level]) -> Iterator[tuple[Box, ...]]:
    if not levels:
        yield ()
        return
    (sides, order), inner = levels[0], levels[1:]
    for spans in product(*(list(_cut(box[dim], sides[dim])) for dim in order)):
        by_dim = dict(zip(order, spans, strict=True))
        part = tuple(by_dim[dim] for dim in range(3))
        for path in _boxes(part, inner):
            yield (part, *path)


def _cut(span: Span, side: int) -> Iterator[Span]:
    for begin in range(span[0], span[1], side):
        yield begin, min(begin + side, span[1])


def _volume(part: tuple[Span, ...]) -> int:
    volume = 1
    for begin, end in part:
        volume *= end - begin
    return volume
