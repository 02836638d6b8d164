"""A Triton kernel that writes the random bits of roundings."""

import triton
import triton.language as tl

from presilicon.formats.mac.triton_rounding import _draw_near


@triton.jit
def draw_kernel(out, keys, base, last_block, DRAW_BITS: tl.constexpr, COUNT: tl.constexpr):  # noqa: N803
    element = tl.arange(0, COUNT).to(tl.uint32)
    word = _draw_near(base + tl.zeros((), tl.int64), element, keys, last_block, DRAW_BITS)
    tl.store(out + tl.arange(0, COUNT), word.to(tl.int64))
