"""Common parts of all models of the instrument: blocks of words, and the state that images set."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, overload

from presilicon.base import ConfigError, np
from presilicon.designs import Hardware
from presilicon.instrument.firmware.image import Chain, Image, StoredRow, read_image
from presilicon.instrument.model.words import word_limits

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class PackedBlock:
    """Words that leave the packer together: N of them, or fewer at the end of an outer frame."""

    tap: int
    words: "NDArray[np.int64]"
    last: bool
    """Whether it is the last of its outer frame; never with `flush = "never"`."""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PackedBlock):
            return NotImplemented
        return (self.tap, self.last, self.words.tolist()) == (other.tap, other.last, other.words.tolist())

    __hash__ = None  # type: ignore[assignment]


class Blocks(Sequence[PackedBlock]):
    """A sequence of blocks that are created on access; `words` are those of all, one after the other.

    >>> import numpy as np
    >>> blocks = Blocks.cut_frames(0, np.arange(5), np.array([0, 5]), 4)
    >>> [(block.words.tolist(), block.last) for block in blocks]
    [([], True), ([0, 1, 2, 3], False), ([4], True)]
    """

    def __init__(self, taps: Any, words: Any, ends: Any, lasts: Any) -> None:
        self.words: NDArray[np.int64] = words
        self._taps, self._ends, self._lasts = taps, ends, lasts

    @staticmethod
    def cut(tap: int, words: "NDArray[np.int64]", lanes: int) -> "Blocks":
        """A whole number of full blocks."""
        ends = np.arange(lanes, words.size + 1, lanes)
        return Blocks(np.full(ends.size, tap), words, ends, np.zeros(ends.size, dtype=np.bool_))

    @staticmethod
    def cut_frames(tap: int, words: "NDArray[np.int64]", frames: "NDArray[np.int64]", lanes: int) -> "Blocks":
        """The blocks of outer frames that end at `frames`: full ones, then a shorter or an empty one if need be."""
        begins = np.concatenate([[0], frames[:-1]]).astype(np.int64)[: frames.size]
        counts = np.maximum(-(-(frames - begins) // lanes), 1)
        lasts = np.zeros(int(counts.sum()), dtype=np.bool_)
        final = np.cumsum(counts) - 1
        lasts[final] = True
        number = np.arange(lasts.size) - np.repeat(final + 1 - counts, counts)
        ends = np.repeat(begins, counts) + (number + 1) * lanes
        ends[final] = frames
        return Blocks(np.full(lasts.size, tap), words, ends, lasts)

    def __add__(self, other: "Blocks") -> "Blocks":
        pairs = ((self._taps, other._taps), (self.words, other.words))
        taps, words = (np.concatenate(pair) for pair in pairs)
        ends = np.concatenate([self._ends, other._ends + self.words.size])
        return Blocks(taps, words, ends, np.concatenate([self._lasts, other._lasts]))

    def __len__(self) -> int:
        return len(self._ends)

    @overload
    def __getitem__(self, index: int) -> PackedBlock: ...
    @overload
    def __getitem__(self, index: slice) -> list[PackedBlock]: ...
    def __getitem__(self, index: int | slice) -> PackedBlock | list[PackedBlock]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        number = range(len(self))[index]
        begin = int(self._ends[number - 1]) if number else 0
        return PackedBlock(
            int(self._taps[number]), self.words[begin : int(self._ends[number])], bool(self._lasts[number])
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]


class InstrumentEngine(Protocol):
    """A model of the instrument; its state lasts from call to call.

    With `flush = "frame"`, `feed` returns the blocks of the outer frames that ended, as the chip's output buffer does;
    with "never" every full block at once. Sampling and dropping come before it: frames of a tap without a program must
    not be fed, and would give a block without words.
    """

    hardware: Hardware

    def load(self, image: Image | bytes) -> None:
        """Take an image, at once or when the outer frame that is under way has ended.

        Raises:
            ImageRefusedError: the image does not fit; everything stays as it was.
        """

    def feed(self, words: Any, last: Any, tap: int = 0) -> Sequence[PackedBlock]:
        """Run the vectors `words` [V, N] with their frame ends `last` [V, 2]; returns the blocks that leave."""

    def break_off(self) -> None:
        """End the outer frame that is under way without sending anything of it."""

    @property
    def scratchpad(self) -> "NDArray[np.int64]":
        """The words of all rows, [rows, N]."""

    @property
    def carried(self) -> "NDArray[np.int64]":
        """The carried vector."""

    @property
    def partial(self) -> "NDArray[np.int64]":
        """Words that are still in the packer."""

    @property
    def first(self) -> "NDArray[np.bool_]":
        """Whether each tap's next vector is the first of its frames, [taps, 2]."""


class Settings:
    """State that images set: programs, range rows, sampling, control registers; and images that wait for a frame's end.

    Rows that were never written are classes without members.
    """

    def __init__(self, hardware: Hardware) -> None:
        hardware.check()
        self.hardware = hardware
        self.programs: list[tuple[Chain, ...]] = [()] * hardware.taps
        empty = (0,) * (hardware.ranges + 1)
        self.rows = [StoredRow(row, True, empty) for row in range(hardware.range_rows)]
        self.sampling = [1] * hardware.taps
        self.controls = [0] * hardware.controls
        self.waiting: list[Image] = []

    def accept(self, image: Image | bytes) -> Image:
        """The image, also from its bytes; raises if it does not fit."""
        data = image.to_bytes() if isinstance(image, Image) else image
        return read_image(data, self.hardware)

    def apply(self, image: Image) -> None:
        """Put an image into force."""
        if image.chains is not None:
            self.programs = [image.chains_of(tap) for tap in range(self.hardware.taps)]
        for row in image.rows:
            self.rows[row.row] = row
        if image.sampling is not None:
            self.sampling = list(image.sampling)
        for register, value in image.controls:
            self.controls[register] = value


def check_feed(hardware: Hardware, words: Any, last: Any, tap: int) -> "tuple[NDArray[np.int64], NDArray[np.bool_]]":
    """The vectors and flags of a call as arrays.

    Raises:
        ConfigError: a shape is wrong, the hardware cannot hold a word, or there is no such tap.
    """
    vectors = np.ascontiguousarray(words, dtype=np.int64)
    flags = np.ascontiguousarray(last, dtype=np.bool_)
    if vectors.ndim != 2 or vectors.shape[1] != hardware.lanes:
        raise ConfigError(f"words have shape {vectors.shape}, expected (vectors, {hardware.lanes})")
    if flags.shape != (len(vectors), 2):
        raise ConfigError(f"last has shape {flags.shape}, expected ({len(vectors)}, 2): two flags for each vector")
    if not 0 <= tap < hardware.taps:
        raise ConfigError(f"tap {tap}, but there are taps 0 to {hardware.taps - 1}")
    low, high = word_limits(hardware)
    if vectors.size and not low <= int(vectors.min()) <= int(vectors.max()) <= high:
        raise ConfigError(f"words outside {low} to {high}; `to_words` converts numbers to words")
    return vectors, flags


def check_tap(under_way: int | None, tap: int) -> None:
    """Raise if a tap's vectors begin within an outer frame of another tap."""
    if under_way not in (None, tap):
        raise ConfigError(f"tap {tap} begins within an outer frame of tap {under_way}; end it or break it off first")
