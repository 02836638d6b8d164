"""Statistics of a tensor before and after rounding in one pass on a GPU, in Triton."""

import triton
import triton.language as tl


@triton.jit
def measure_kernel(before, after, parts, count, lowest, highest, turns, BLOCK: tl.constexpr):
    """The statistics of each program's share of a tensor, a row of `parts` for each in the order of the stores."""
    program, programs = tl.program_id(0), tl.num_programs(0)
    nonzero = tl.zeros((BLOCK,), tl.int32)
    finite, nans, underflowed, overflowed, saturated = nonzero, nonzero, nonzero, nonzero, nonzero
    total = tl.zeros((BLOCK,), tl.float64)
    absolute, square, signal, error = total, total, total, total
    maximum = tl.full((BLOCK,), -float("inf"), tl.float32)
    minimum, smallest = -maximum, -maximum
    index = program.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    for _ in range(turns):
        inside = index < count
        x = tl.load(before + index, mask=inside, other=0.0)
        y = tl.load(after + index, mask=inside, other=0.0)
        is_finite = (tl.abs(x) < float("inf")) & inside
        stays = is_finite & (tl.abs(y) < float("inf"))
        is_nonzero = (x != 0) & inside
        nonzero += is_nonzero.to(tl.int32)
        finite += is_finite.to(tl.int32)
        nans += (x != x).to(tl.int32)
        underflowed += (is_nonzero & (y == 0)).to(tl.int32)
        overflowed += (is_finite & (stays == 0)).to(tl.int32)
        is_held = ((x > highest) & (y == highest)) | ((x < lowest) & (y == lowest))
        saturated += (is_held & is_finite).to(tl.int32)
        value = tl.where(is_finite, x, 0.0).to(tl.float64)
        kept = tl.where(stays, x, 0.0).to(tl.float64)
        miss = kept - tl.where(stays, y, 0.0).to(tl.float64)
        total += value
        absolute += tl.abs(value)
        square += value * value
        signal += kept * kept
        error += miss * miss
        maximum = tl.where(is_finite, tl.maximum(maximum, x), maximum)
        minimum = tl.where(is_finite, tl.minimum(minimum, x), minimum)
        smallest = tl.where(is_finite & is_nonzero, tl.minimum(smallest, tl.abs(x)), smallest)
        index += programs * BLOCK
    row = parts + program
    tl.store(row, tl.sum(nonzero.to(tl.float64)))
    tl.store(row + programs, tl.sum(finite.to(tl.float64)))
    tl.store(row + 2 * programs, tl.sum(nans.to(tl.float64)))
    tl.store(row + 3 * programs, tl.sum(underflowed.to(tl.float64)))
    tl.store(row + 4 * programs, tl.sum(overflowed.to(tl.float64)))
    tl.store(row + 5 * programs, tl.sum(saturated.to(tl.float64)))
    tl.store(row + 6 * programs, tl.sum(total))
    tl.store(row + 7 * programs, tl.sum(absolute))
    tl.store(row + 8 * programs, tl.sum(square))
    tl.store(row + 9 * programs, tl.sum(signal))
    tl.store(row + 10 * programs, tl.sum(error))
    tl.store(row + 11 * programs, tl.max(maximum).to(tl.float64))
    tl.store(row + 12 * programs, tl.min(minimum).to(tl.float64))
    tl.store(row + 13 * programs, tl.min(smallest).to(tl.float64))
