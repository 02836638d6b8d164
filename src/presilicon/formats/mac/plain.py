"""MAC units in plain torch operations, for tensors on any device: exact, not fast.

All outputs advance together, one rounding after another, in float64: the product of two float32 is exact there, and a
sum is rounded to odd, so that the rounding to the format that follows is the only one.
"""

import torch
from torch import Tensor

from presilicon.formats.kernels.grid import Grid
from presilicon.formats.kernels.torch_kernels import power_of_two, random_words, round_to_grid
from presilicon.formats.mac.plan import SUM_FLOOR, SUM_LIMIT, ZERO_EXPONENT, MacPlan
from presilicon.formats.rounding import Key, Mode, Stochastic

_NOTHING = -2000
"""Exponent where there is none."""


def multiply(a: Tensor, b: Tensor, plan: MacPlan, key: Key) -> Tensor:
    """The product of (batches, M, K) and (batches, K, N) float32 tensors."""
    depth = a.shape[2]
    total = torch.zeros(a.shape[0], a.shape[1], b.shape[2], dtype=torch.float64, device=a.device)
    if total.numel() == 0 or depth == 0:
        return total.to(torch.float32)
    unit = _Unit(a.to(torch.float64), b.to(torch.float64), plan, key, total.numel())
    size = plan.chunk_size(depth)
    for start in range(0, depth, size):
        part = unit.add_chunk(range(start, min(start + size, depth)))
        exact = part if start == 0 else add_odd(total, part, plan.total_mode)
        total = unit.round(exact, plan.total, plan.total_mode)
    return total.to(torch.float32)


class _Unit:
    """A unit at work: it counts the roundings, whose numbers choose the random words."""

    def __init__(self, a: Tensor, b: Tensor, plan: MacPlan, key: Key, outputs: int) -> None:
        self.a, self.b, self.plan, self.key, self.outputs = a, b, plan, key, outputs
        self.draws = 0

    def round(self, x: Tensor, grid: Grid, mode: Mode) -> Tensor:
        words = None
        if isinstance(mode, Stochastic):
            words = random_words(self.key, mode, self.draws, self.outputs, x.device).view(x.shape)
        self.draws += self.outputs
        return round_to_grid(torch.where(x.isnan(), torch.nan, x), grid, mode, words)

    def add_chunk(self, chunk: range) -> Tensor:
        match self.plan.order:
            case "lanes":
                return self._add_in_lanes(chunk)
            case "pairwise":
                return self._add_in_tree([self._product(k) for k in chunk])
            case "aligned":
                return self._add_aligned(chunk)

    def _product(self, k: int) -> Tensor:
        product = self.a[:, :, k, None] * self.b[:, k, None, :]
        plan = self.plan
        return product if plan.product is None else self.round(product, plan.product, plan.product_mode)

    def _sum(self, x: Tensor, y: Tensor) -> Tensor:
        mode = self.plan.partial_mode
        return self.round(add_odd(x, y, mode), self.plan.partial, mode)

    def _zeros(self) -> Tensor:
        return self.a.new_zeros(self.a.shape[0], self.a.shape[1], self.b.shape[2])

    def _add_in_lanes(self, chunk: range) -> Tensor:
        lanes = [self._zeros() for _ in range(min(self.plan.width, len(chunk)))]
        for number, k in enumerate(chunk):
            lane = number % self.plan.width
            lanes[lane] = self._sum(lanes[lane], self._product(k))
        return lanes[0] if len(lanes) == 1 else self._add_in_tree(lanes)

    def _add_in_tree(self, terms: list[Tensor]) -> Tensor:
        if len(terms) == 1:
            return self.round(terms[0], self.plan.partial, self.plan.partial_mode)
        while len(terms) > 1:
            left_over = terms[-1:] if len(terms) % 2 else []
            terms = [self._sum(x, y) for x, y in zip(terms[::2], terms[1::2], strict=False)] + left_over
        return terms[0]

    def _add_aligned(self, chunk: range) -> Tensor:
        total = self._zeros()
        for start in range(0, len(chunk), self.plan.width):
            group = chunk[start : start + self.plan.width]
            terms = [total, *(self._product(k) for k in group)]
            left, right = self.plan.floors or (_NOTHING, _NOTHING)
            sides = [
                (
                    exponent_of(self.a[:, :, k, None]).clamp(min=left),
                    exponent_of(self.b[:, k, None, :]).clamp(min=right),
                )
                for k in group
            ]
            is_core = self.plan.floors is not None
            first = exponent_of(total).clamp(min=SUM_FLOOR if is_core else _NOTHING)
            exponents = [first, *(one + other for one, other in sides)]
            exact = _add_cut(terms, exponents, self.plan.align_bits, is_core, len(group) < self.plan.width)
            total = self.round(exact, self.plan.partial, self.plan.partial_mode)
            total = total + 0.0 if is_core else total  # a tensor core has no negative zero
        return total


def _add_cut(terms: list[Tensor], exponents: list[Tensor], align_bits: int, is_core: bool, has_zero: bool) -> Tensor:
    """The terms aligned to the largest exponent, cut and added; infinities and NaN pass all others."""
    infinite = torch.zeros_like(terms[0])
    top = torch.full_like(terms[0], ZERO_EXPONENT if is_core and has_zero else _NOTHING, dtype=torch.int64)
    for term, exponent in zip(terms, exponents, strict=True):
        finite = term.abs() < torch.inf
        infinite = infinite + torch.where(finite, 0.0, term)
        zero = top.clamp(min=ZERO_EXPONENT) if is_core else top
        top = torch.where(finite & (term != 0), torch.maximum(top, exponent), torch.where(term == 0, zero, top))
    top = torch.where(top == _NOTHING, 0, top)
    units = torch.zeros_like(infinite)
    for term in terms:
        units = units + torch.trunc(term * power_of_two(align_bits - top))
    total = units * power_of_two(top - align_bits)
    if is_core:
        total = torch.where(total.abs() >= SUM_LIMIT, total.sign() * torch.inf, total)
    return torch.where(infinite != 0, infinite, total)


def exponent_of(x: Tensor) -> Tensor:
    """floor(log2 |x|) of finite float64 that are not zero."""
    return ((x.view(torch.int64) >> 52) & 0x7FF) - 1023


def add_odd(x: Tensor, y: Tensor, mode: Mode) -> Tensor:
    """The sum of two float64 tensors, rounded to odd."""
    total = x + y
    part = total - x
    error = (x - (total - part)) + (y - part)
    bits = total.view(torch.int64)
    outward = torch.where((error > 0) == (total > 0), 1, -1)
    inexact = (error.abs() > 0) & (bits & 1 == 0)
    total = torch.where(inexact, bits + outward, bits).view(torch.float64)
    if mode == "down":
        unlike = x.signbit() != y.signbit()
        total = torch.where((total == 0) & ((x != 0) | unlike), -0.0, total)
    return total
