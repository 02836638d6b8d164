"""Reference model of the instrument in plain Python: one vector and one chain at a time, slow and obvious."""

from collections.abc import Callable
from typing import Any

from presilicon.base import ConfigError, np
from presilicon.designs import ALU_FUNCTIONS, REDUCE_FUNCTIONS, Hardware
from presilicon.instrument.firmware.image import Chain, Image
from presilicon.instrument.model.arithmetic import NAN, arithmetic_of, tree
from presilicon.instrument.model.engine import PackedBlock, Settings, check_feed, check_tap

Vector = list[int]
Flags = tuple[bool, bool]


class Reference:
    """The instrument as docs/firmware.md defines it.

    >>> from presilicon.formats import parse
    >>> from presilicon.instrument import Firmware, compile_firmware
    >>> hardware = Hardware(lanes=2, ranges=2, element=parse("int8"))
    >>> fw = Firmware()
    >>> with fw.chain():
    ...     fw.add(0, "notfirst")
    ...     fw.cache(0)
    ...     fw.commit("N", "last")
    >>> engine = Reference(hardware)
    >>> engine.load(compile_firmware(fw, hardware))
    >>> [block.words.tolist() for block in engine.feed([[1, 2], [3, 4]], [[False, False], [True, True]])]
    [[4, 6]]
    """

    def __init__(self, hardware: Hardware) -> None:
        self.hardware = hardware
        self.settings = Settings(hardware)
        self._arithmetic = arithmetic_of(hardware)
        self._scratchpad = [[0] * hardware.lanes for _ in range(hardware.scratchpad_rows)]
        self._carried = [0] * hardware.lanes
        self._first: list[Flags] = [(True, True)] * hardware.taps
        self._packer: Vector = []
        self._leaving: list[Vector] = []
        """Blocks that wait for the end of the outer frame, or without flush for the end of the call."""
        self._under_way: int | None = None
        """The tap whose outer frame has begun and not ended."""

    def load(self, image: Image | bytes) -> None:
        """Take an image, at once or when the outer frame that is under way has ended."""
        self.settings.waiting.append(self.settings.accept(image))
        self._exchange()

    def _exchange(self) -> None:
        if self._under_way is None:
            for image in self.settings.waiting:
                self.settings.apply(image)
            self.settings.waiting.clear()

    def feed(self, words: Any, last: Any, tap: int = 0) -> list[PackedBlock]:
        """Run vectors [V, N] with their frame ends [V, 2]; returns the blocks that leave."""
        vectors, flags = check_feed(self.hardware, words, last, tap)
        check_tap(self._under_way, tap)
        blocks: list[PackedBlock] = []
        for vector, (inner, outer) in zip(vectors.tolist(), flags.tolist(), strict=True):
            self._under_way = tap
            for chain in self.settings.programs[tap]:
                self._run(chain, vector, self._first[tap], (inner, outer))
            self._first[tap] = (inner, outer)
            if outer:
                blocks += self._end_frame(tap)
        if not self.hardware.flushes:
            blocks += self._leave(tap, ends=False)
        return blocks

    def _end_frame(self, tap: int) -> list[PackedBlock]:
        """The blocks that leave at the end of an outer frame; images that wait take effect."""
        if self.hardware.flushes:
            if self._packer or not self._leaving:
                self._leaving.append(self._packer)
            self._packer = []
        blocks = self._leave(tap, ends=self.hardware.flushes)
        self._under_way = None
        self._exchange()
        return blocks

    def _leave(self, tap: int, ends: bool) -> list[PackedBlock]:
        count = len(self._leaving)
        leaving = [np.array(words, dtype=np.int64) for words in self._leaving]
        self._leaving = []
        return [PackedBlock(tap, words, ends and index == count - 1) for index, words in enumerate(leaving)]

    def break_off(self) -> None:
        """End the outer frame that is under way without sending anything of it; memories keep their contents."""
        if not self.hardware.flushes:
            raise ConfigError('with flush = "never" no frame can be broken off: the input waits instead')
        if self._under_way is not None:
            self._first[self._under_way] = (True, True)
        self._under_way, self._packer, self._leaving = None, [], []
        self._exchange()

    def _run(self, chain: Chain, vector: Vector, first: Flags, last: Flags) -> None:
        """One pass through the blocks and to the packer."""
        words = vector
        for block in self.hardware.blocks:
            if block == "filter_reduce":
                words = self._filter(chain, words)
            elif block == "vector_alu":
                words = self._alu(chain, words, first, last)
            else:
                words = self._reduce(chain, words)
        if chain.commit and holds(chain.commit_conditions, first, last):
            size = (1, self.hardware.ranges, self.hardware.lanes)[chain.commit - 1]
            self._packer += words[:size]
            while len(self._packer) >= self.hardware.lanes:
                self._leaving.append(self._packer[: self.hardware.lanes])
                self._packer = self._packer[self.hardware.lanes :]

    def _filter(self, chain: Chain, words: Vector) -> Vector:
        if not chain.filter:
            return words
        hits = [[self._is_in(word, chain.range_row, m) for m in range(self.hardware.ranges)] for word in words]
        if chain.axis == 1:
            return [self._arithmetic.count(sum(row)) for row in hits]
        counts = [self._arithmetic.count(sum(column)) for column in zip(*hits, strict=True)]
        return counts + [0] * (self.hardware.lanes - self.hardware.ranges)

    def _is_in(self, word: int, row: int, m: int) -> bool:
        """Whether a word is in range m of a row: open below, closed above."""
        stored = self.settings.rows[row]
        kind = self._arithmetic.class_of(word)
        if stored.is_classes:
            return bool(stored.keys[m] & kind)
        return kind != NAN and stored.keys[m] < self._arithmetic.key(word) <= stored.keys[m + 1]

    def _alu(self, chain: Chain, words: Vector, first: Flags, last: Flags) -> Vector:
        if chain.load:
            words = self._carried
        if chain.alu and holds(chain.alu_conditions, first, last):
            name = ALU_FUNCTIONS[chain.alu - 1]
            if name == "abs":
                words = [self._arithmetic.abs(word) for word in words]
            else:
                function: Callable[[int, int], int] = getattr(self._arithmetic, name)
                words = [function(x, s) for x, s in zip(words, self._scratchpad[chain.alu_row], strict=True)]
        if chain.cache and holds(chain.cache_conditions, first, last):
            self._scratchpad[chain.cache_row] = words
        if chain.save:
            self._carried = words
        return words

    def _reduce(self, chain: Chain, words: Vector) -> Vector:
        if not chain.reduce:
            return words
        name = REDUCE_FUNCTIONS[chain.reduce - 1]
        arithmetic = self._arithmetic
        functions = {"product": arithmetic.mul, "max": arithmetic.max, "min": arithmetic.min}
        result = arithmetic.total(words) if name == "sum" else tree(functions[name], words)
        return [result] + [0] * (self.hardware.lanes - 1)

    @property
    def scratchpad(self) -> "np.typing.NDArray[np.int64]":
        """The words of all rows, [rows, N]."""
        return _array(self._scratchpad)

    @property
    def carried(self) -> "np.typing.NDArray[np.int64]":
        """The carried vector."""
        return _array(self._carried)

    @property
    def partial(self) -> "np.typing.NDArray[np.int64]":
        """Words that are still in the packer."""
        return _array(self._packer)

    @property
    def first(self) -> "np.typing.NDArray[np.bool_]":
        """Whether each tap's next vector is the first of its frames, [taps, 2]."""
        return _array(self._first).astype(bool)


def holds(mask: int, first: Flags, last: Flags) -> bool:
    """Whether every condition of a mask holds."""
    facts = 0
    for level in (0, 1):
        facts |= (1 if first[level] else 2) << 4 * level
        facts |= (4 if last[level] else 8) << 4 * level
    return mask & ~facts == 0


def _array(numbers: Any) -> "np.typing.NDArray[np.int64]":
    return np.array(numbers, dtype=np.int64)
