"""Least time of an FPGA kernel: cycles of its parallel multipliers, and the traffic that on-chip buffers leave.

A work group computes a tile of results. Every cycle, each compute unit starts `simd` work items, and `unroll`
iterations of each one's loop. So a work group takes

    ceil(work group / SIMD width) * ceil(loop / unroll)

cycles, and the compute units take one work group each at a time. A product goes block by block of results (a power of
two of tiles in each direction): the block's sums stay on chip, and `unroll` columns of its left rows and `unroll` rows
of its right columns are loaded at a time, into two buffers in turn. So the left operand is read once per column of
blocks, the right one once per row of blocks, and each result is written once. Other ops read and write each word once.
Of the blocks whose buffers fit on the board, the one with the least time counts.

The time is that of the cycles or that of the traffic, whichever is longer. Filling pipelines, conflicts in memory and
the start of a kernel come on top.
"""

from math import ceil, isqrt
from typing import Literal, NamedTuple

from msgspec import Struct

from presilicon.base import ConfigError
from presilicon.scheduling.kernel_ops import Input, KernelConfig, KernelProduct

WORD_BYTES = 4
NO_DSP = ("MaxPool", "Transpose")
"""Kinds that compare or move only; in the others a lane is a float32 multiplier, adder or both: one DSP block."""


class FpgaBoard(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A board that kernels have to fit on; by default a Stratix 10 GX 2500 with the memory of the GPU-FPGA paper."""

    dsps: int = 5011
    ram_blocks: int = 9963
    ram_block_words: int = 512
    """Words of 32 bits in a block, which reads one and writes one per cycle."""
    memory_gb_s: float = 14.9

    def check(self) -> None:
        """Refuse figures that are not above 0."""
        for name in self.__struct_fields__:
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name} must be above 0, not {getattr(self, name):g}")


class Estimate(Struct, frozen=True, kw_only=True):
    """Resources and least time of a kernel for an op."""

    dsps: int
    ram_blocks: int
    block_results: tuple[int, int] | None
    """Rows and columns of results that stay on chip together; None if the op is no product."""
    compute_cycles: int
    dram_bytes: int
    compute_s: float
    dram_s: float

    @property
    def time_s(self) -> float:
        """The longer of both times: they overlap."""
        return max(self.compute_s, self.dram_s)

    @property
    def limit(self) -> Literal["compute", "memory"]:
        """The resource that limits the time."""
        return "compute" if self.compute_s >= self.dram_s else "memory"

    def excess(self, board: FpgaBoard) -> str | None:
        """The resource of which a kernel needs more than the board has; None if it fits."""
        for needed, there, name in (
            (self.dsps, board.dsps, "DSP blocks"),
            (self.ram_blocks, board.ram_blocks, "RAM blocks"),
        ):
            if needed > there:
                return f"{needed:,} {name}, and the board has {there:,}"
        return None


class _Block(NamedTuple):
    """A block of results that stays on chip."""

    rows: int
    columns: int


def estimate(op: Input, config: KernelConfig, fmax_mhz: float, board: FpgaBoard) -> Estimate:
    """Resources and least time of a configuration for an op, whether it fits on the board or not.

    >>> from presilicon.scheduling.kernel_ops import make_input
    >>> product = make_input("MatMul", (2048, 1024, 1024))
    >>> slow = estimate(product, KernelConfig(1, 1, 256, 1), 480, FpgaBoard())
    >>> slow.compute_cycles == 2048 * 1024 * 1024, slow.limit, round(slow.time_s, 2)
    (True, 'compute', 4.47)
    """
    if min(config) < 1 or not fmax_mhz > 0:
        raise ConfigError(f"build parameters and Fmax must be above 0, not {list(config)} and {fmax_mhz:g} MHz")
    if op.product is not None:
        blocks = _blocks(op.product, config, board)
        options = [_product(op.product, config, block, fmax_mhz, board) for block in blocks]
        return min(options, key=lambda option: (option.time_s, option.ram_blocks))
    rounds = ceil(ceil(op.items / config.work_group) / config.compute_units)
    cycles = rounds * ceil(config.work_group / config.simd) * ceil(op.longest_loop / config.unroll)
    dsps = 0 if op.kind in NO_DSP else config.lanes
    return _timed(dsps, 0, None, cycles, op.streamed_words, fmax_mhz, board)


def tile_sides(work_group: int) -> tuple[int, int]:
    """Rows and columns of the results of a work group, as square as they can be.

    >>> tile_sides(256), tile_sides(128)
    ((16, 16), (8, 16))
    """
    rows = next(side for side in range(isqrt(work_group), 0, -1) if work_group % side == 0)
    return rows, work_group // rows


def _blocks(product: KernelProduct, config: KernelConfig, board: FpgaBoard) -> list[_Block]:
    """The largest blocks whose buffers fit, for each number of rows; one tile if none does."""
    tile_rows, tile_columns = tile_sides(config.work_group)
    rows, columns = tile_rows, tile_columns
    while columns < product.columns:
        columns *= 2
    blocks = []
    while columns >= tile_columns:
        if _ram_blocks(config, _Block(rows, columns), board) > board.ram_blocks:
            columns //= 2
            continue
        blocks.append(_Block(rows, columns))
        if rows >= product.rows:
            break
        rows *= 2
    return blocks or [_Block(tile_rows, tile_columns)]


def _ram_blocks(config: KernelConfig, block: _Block, board: FpgaBoard) -> int:
    """RAM blocks of the sums and of both double buffers: a bank per word that a cycle reads, in every compute unit."""
    tile_columns = tile_sides(config.work_group)[1]
    wide = min(config.simd, tile_columns)
    high = ceil(config.simd / tile_columns)
    tiles = ceil(block.rows * block.columns / config.work_group / config.compute_units)

    def blocks(banks: int, words: int) -> int:
        return banks * ceil(words / board.ram_block_words)

    left = blocks(config.unroll * high, 2 * ceil(block.rows / high))
    right = blocks(config.unroll * wide, 2 * ceil(block.columns / wide))
    sums = blocks(config.simd, tiles * ceil(config.work_group / config.simd))
    return config.compute_units * (left + right + sums)


def _product(
    product: KernelProduct, config: KernelConfig, block: _Block, fmax_mhz: float, board: FpgaBoard
) -> Estimate:
    tile_rows, tile_columns = tile_sides(config.work_group)
    rounds = sum(
        rows * columns * ceil(high * wide / config.compute_units)
        for high, rows in _tiles(product.rows, block.rows, tile_rows)
        for wide, columns in _tiles(product.columns, block.columns, tile_columns)
    )
    cycles = rounds * ceil(config.work_group / config.simd) * ceil(product.reduction / config.unroll)
    words = product.left_words * ceil(product.columns / block.columns)
    words += product.right_words * ceil(product.rows / block.rows) + product.rows * product.columns
    ram = _ram_blocks(config, block, board)
    return _timed(config.lanes, ram, (block.rows, block.columns), cycles, words, fmax_mhz, board)


def _tiles(side: int, block: int, tile: int) -> list[tuple[int, int]]:
    """Along one side of the result: tiles in a block, and how many blocks have so many."""
    whole, rest = divmod(side, block)
    return [(block // tile, whole), *([(ceil(rest / tile), 1)] if rest else [])]


def _timed(
    dsps: int, ram: int, block: tuple[int, int] | None, cycles: int, words: int, fmax_mhz: float, board: FpgaBoard
) -> Estimate:
    moved = words * WORD_BYTES
    return Estimate(
        dsps=dsps,
        ram_blocks=ram,
        block_results=block,
        compute_cycles=cycles,
        dram_bytes=moved,
        compute_s=cycles / (fmax_mhz * 1e6),
        dram_s=moved / (board.memory_gb_s * 1e9),
    )
