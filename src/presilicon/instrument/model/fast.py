"""Fast model of the instrument: the same results as the reference, for whole tensors at a time."""

from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec.structs import astuple, replace

from presilicon.base import ConfigError
from presilicon.designs import BLOCKS, Hardware
from presilicon.instrument.firmware.image import Chain, Image, StoredRow
from presilicon.instrument.model.engine import Blocks, Settings, check_feed, check_tap
from presilicon.instrument.model.fast_kernels import (
    ASCENDING,
    CLASSES,
    FIELDS,
    UNORDERED,
    Words,
    count_words,
    encode_fixed,
    encode_floats,
    run,
)
from presilicon.instrument.model.words import CLASSES as CLASS_NAMES
from presilicon.instrument.model.words import bias_of, infinity_code, word_limits

if TYPE_CHECKING:
    from numpy.typing import NDArray


class FastModel:
    """The instrument as docs/firmware.md defines it, fast enough for millions of vectors.

    Its results are those of `Reference`, bit by bit.
    """

    def __init__(self, hardware: Hardware) -> None:
        self.hardware = hardware
        self.settings = Settings(hardware)
        self._words = kernel_words(hardware)
        self._order = np.array([BLOCKS.index(name) for name in hardware.blocks], dtype=np.int64)
        self._counts = np.empty(hardware.lanes + 1, dtype=np.int64)
        count_words(self._counts, self._words)
        self._scratchpad = np.zeros((hardware.scratchpad_rows, hardware.lanes), dtype=np.int64)
        self._carried = np.zeros(hardware.lanes, dtype=np.int64)
        self._first = np.ones((hardware.taps, 2), dtype=np.bool_)
        self._held = np.zeros(0, dtype=np.int64)
        """Words that have not left: those of the outer frame under way, or without flush those in the packer."""
        self._under_way: int | None = None
        self._tabulate()

    def _tabulate(self) -> None:
        """Convert the settings to arrays for the kernels."""
        settings = self.settings
        self._chains = [_table(chains, self.hardware) for chains in settings.programs]
        self._sizes = [_sizes(table) for table in self._chains]
        self._keys = np.array([row.keys for row in settings.rows], dtype=np.int64)
        self._kinds = np.array([_kind(row) for row in settings.rows], dtype=np.int64)
        ranges_of_class = (self._keys[:, :-1, None] >> np.arange(len(CLASS_NAMES)) & 1).sum(axis=1)
        self._lane_words = self._counts[ranges_of_class]

    def load(self, image: Image | bytes) -> None:
        """Take an image, at once or when the outer frame that is under way has ended."""
        self.settings.waiting.append(self.settings.accept(image))
        self._exchange()

    def _exchange(self) -> None:
        if self._under_way is None and self.settings.waiting:
            for image in self.settings.waiting:
                self.settings.apply(image)
            self.settings.waiting.clear()
            self._tabulate()

    def feed(self, words: Any, last: Any, tap: int = 0) -> Blocks:
        """Run vectors [V, N] with their frame ends [V, 2]; returns the blocks that leave."""
        vectors, flags = check_feed(self.hardware, words, last, tap)
        check_tap(self._under_way, tap)
        if not self.settings.waiting:
            return self._run(vectors, flags, tap)
        ends = np.flatnonzero(flags[:, 1])
        if not ends.size:
            return self._run(vectors, flags, tap)
        split = int(ends[0]) + 1
        before = self._run(vectors[:split], flags[:split], tap)
        return before + self._run(vectors[split:], flags[split:], tap)

    def _run(self, vectors: "NDArray[np.int64]", flags: "NDArray[np.bool_]", tap: int) -> Blocks:
        """Run vectors under the same firmware."""
        if not len(vectors):
            return Blocks.cut(tap, self._held[:0], self.hardware.lanes)
        facts = self._facts(flags, tap)
        sent = self._sizes[tap][facts]
        out = np.empty(self._held.size + int(sent.sum()), dtype=np.int64)
        out[: self._held.size] = self._held
        run(
            vectors,
            facts,
            self._chains[tap],
            self._order,
            self._keys,
            self._kinds,
            self._lane_words,
            self._scratchpad,
            self._carried,
            self._counts,
            out[self._held.size :],
            self._words,
        )
        self._first[tap] = flags[-1]
        self._under_way = None if flags[-1, 1] else tap
        blocks = self._leave(tap, out, sent, flags)
        self._exchange()
        return blocks

    def _leave(self, tap: int, out: "NDArray[np.int64]", sent: "NDArray[np.int64]", flags: Any) -> Blocks:
        lanes = self.hardware.lanes
        if not self.hardware.flushes:
            full = out.size // lanes * lanes
            self._held = out[full:].copy()
            return Blocks.cut(tap, out[:full], lanes)
        ends = (self._held.size + np.cumsum(sent))[flags[:, 1]]
        leaving = int(ends[-1]) if ends.size else 0
        self._held = out[leaving:].copy()
        return Blocks.cut_frames(tap, out[:leaving], ends, lanes)

    def _facts(self, flags: "NDArray[np.bool_]", tap: int) -> "NDArray[np.uint8]":
        """Mask of the conditions that hold for each vector."""
        first = np.empty_like(flags)
        first[0] = self._first[tap]
        first[1:] = flags[:-1]
        facts = np.zeros(len(flags), dtype=np.uint8)
        for level in (0, 1):
            facts |= np.where(first[:, level], np.uint8(1 << 4 * level), np.uint8(2 << 4 * level))
            facts |= np.where(flags[:, level], np.uint8(4 << 4 * level), np.uint8(8 << 4 * level))
        return facts

    def break_off(self) -> None:
        """End the outer frame that is under way without sending anything of it; memories keep their contents."""
        if not self.hardware.flushes:
            raise ConfigError('with flush = "never" no frame can be broken off: the input waits instead')
        if self._under_way is not None:
            self._first[self._under_way] = True
        self._under_way, self._held = None, self._held[:0]
        self._exchange()

    @property
    def scratchpad(self) -> "NDArray[np.int64]":
        """The words of all rows, [rows, N]."""
        return self._scratchpad.copy()

    @property
    def carried(self) -> "NDArray[np.int64]":
        """The carried vector."""
        return self._carried.copy()

    @property
    def partial(self) -> "NDArray[np.int64]":
        """Words that are still in the packer."""
        return self._held[self._held.size // self.hardware.lanes * self.hardware.lanes :].copy()

    @property
    def first(self) -> "NDArray[np.bool_]":
        """Whether each tap's next vector is the first of its frames, [taps, 2]."""
        return self._first.copy()


def fast_words(hardware: Hardware, values: "NDArray[Any]") -> "NDArray[np.int64]":
    """The result of `to_words` for large arrays of float32 or float64, in one pass."""
    flat = np.ascontiguousarray(values).reshape(-1)
    if flat.dtype not in (np.float32, np.float64):
        flat = flat.astype(np.float64)
    out = np.empty(flat.size, dtype=np.int64)
    if hardware.is_float:
        element = kernel_words(replace(hardware, accumulator_bits=None))
        encode_floats(flat, out, element, hardware.word_bits - hardware.element_bits)
    else:
        encode_fixed(flat, out, 2.0**hardware.fraction_bits, float((1 << hardware.element_bits - 1) - 1))
    return out.reshape(np.shape(values))


def kernel_words(hardware: Hardware) -> Words:
    """The word format of a hardware for the kernels."""
    low, high = word_limits(hardware)
    if not hardware.is_float:
        return Words(False, hardware.word_bits, low, high, hardware.fraction_bits, 0, 0, 0, 0, 0.0, 0.0, 0)
    mantissa, bias, infinity = hardware.word_mantissa, bias_of(hardware), infinity_code(hardware)
    return Words(
        is_float=True,
        bits=hardware.word_bits,
        smallest=low,
        largest=high,
        fraction=0,
        mantissa=mantissa,
        infinity=infinity,
        nan=infinity | 1 << mantissa - 1,
        exponent_base=(1023 - bias) << 52,
        least_normal=2.0 ** (1 - bias),
        subnormal_shift=2.0 ** (52 + 1 - bias - mantissa),
        exponent_offset=(1023 - bias) << mantissa,
    )


def _kind(row: StoredRow) -> int:
    if row.is_classes:
        return CLASSES
    return ASCENDING if list(row.keys) == sorted(row.keys) else UNORDERED


def _table(chains: tuple[Chain, ...], hardware: Hardware) -> "NDArray[np.int64]":
    """A row of numbers for each chain, in the order of the kernels' columns."""
    sizes = (0, 1, hardware.ranges, hardware.lanes)
    fields = [astuple(chain)[:-1] for chain in chains]
    rows = [(*row[:-2], sizes[commit], conditions) for row in fields for commit, conditions in [row[-2:]]]
    return np.array(rows, dtype=np.int64).reshape(len(rows), FIELDS)


def _sizes(table: "NDArray[np.int64]") -> "NDArray[np.int64]":
    """Number of words that the chains commit for each mask of facts."""
    facts = np.arange(256)[:, None]
    holds = (table[None, :, -1] & ~facts) == 0
    sizes: NDArray[np.int64] = (holds * table[None, :, -2]).sum(axis=1)
    return sizes
