"""The firmware language: chains of instructions, for all taps or for some, and the ranges they use."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from msgspec import Struct

from presilicon.base import ConfigError
from presilicon.instrument.firmware.instructions import Instruction, read_chains
from presilicon.instrument.firmware.ranges import RangeRow

Chains = tuple[tuple[Instruction, ...], ...]


class TapProgram(Struct, frozen=True):
    """The chains that run for every vector of some taps."""

    chains: Chains
    taps: tuple[int, ...] | None = None
    """None: every tap that no other program names."""


class Firmware:
    """A firmware, written instruction by instruction.

    >>> fw = Firmware()
    >>> with fw.chain():  # the sum of all elements of a frame
    ...     fw.add(0, "notfirst")
    ...     fw.cache(0)
    ...     fw.total()
    ...     fw.commit(1, "last")
    >>> print(fw)
    chain 1: vv_add(0, notfirst) v_cache(0) v_reduce(sum) v_commit(1, last)
    """

    def __init__(self) -> None:
        self.rows: dict[int, RangeRow] = {}
        self._programs: list[tuple[tuple[int, ...] | None, list[list[Instruction]]]] = []
        self._taps: tuple[int, ...] | None = None
        self._chain: list[Instruction] | None = None

    @staticmethod
    def from_chains(chains: Any, rows: Mapping[int, RangeRow] | None = None) -> "Firmware":
        """Firmware from a JSON document's list of chains, or from chains that were read: tuples of instructions."""
        firmware = Firmware()
        read: Chains = chains if isinstance(chains, tuple) else read_chains(chains)
        firmware._programs.append((None, [list(chain) for chain in read]))
        firmware.rows |= dict(rows or {})
        return firmware

    @property
    def programs(self) -> tuple[TapProgram, ...]:
        """The programs that have chains."""
        return tuple(TapProgram(tuple(map(tuple, chains)), taps) for taps, chains in self._programs if chains)

    @contextmanager
    def program(self, taps: Sequence[int]) -> Iterator[None]:
        """Chains inside belong to these taps; those outside of any program to all other taps."""
        if self._taps is not None or self._chain is not None:
            raise ConfigError("a program begins inside another program or a chain; end that first")
        if not isinstance(taps, list | tuple | range):
            raise ConfigError(f"taps is {taps!r}, expected a list of tap numbers")
        self._taps = tuple(taps)
        self._programs.append((self._taps, []))
        try:
            yield
        finally:
            self._taps = None

    @contextmanager
    def chain(self) -> Iterator[None]:
        """Instructions inside are one pass through the blocks."""
        if self._chain is not None:
            raise ConfigError("a chain begins inside a chain; end that first")
        self._chain = []
        try:
            yield
            self._chains().append(self._chain)
        finally:
            self._chain = None

    def _chains(self) -> list[list[Instruction]]:
        if self._taps is None and not any(taps is None for taps, _ in self._programs):
            self._programs.append((None, []))
        if self._taps is not None:
            return self._programs[-1][1]
        return next(chains for taps, chains in self._programs if taps is None)

    def _append(self, op: str, conditions: tuple[str, ...] = (), **fields: Any) -> None:
        if self._chain is None:
            raise ConfigError(f"{op} must be inside a chain; write `with fw.chain():` above it")
        self._chain.append(Instruction(op, conditions=conditions, **fields))

    def range_row(self, row: int, boundaries: Sequence[Any]) -> None:
        """Ranges by their M + 1 boundaries: x is in range m when b[m] < x <= b[m+1]."""
        self.rows[row] = RangeRow.of_boundaries(boundaries)

    def class_row(self, row: int, ranges: Sequence[str | Sequence[str]]) -> None:
        """Ranges by classes (nan, +inf, -inf, subnormal, zero, normal), one or several names for each."""
        self.rows[row] = RangeRow.of_classes(ranges)

    def filter(self, row: int) -> None:
        """Compare every element with a row of ranges."""
        self._append("vv_filter", addr=row)

    def reduce(self, axis: str) -> None:
        """Count the filter's hits: "M" for each range, "N" for each lane."""
        self._append("m_reduce", axis=axis)

    def load(self) -> None:
        """Continue with the carried vector."""
        self._append("v_mc_load")

    def save(self) -> None:
        """Carry this vector to a later chain."""
        self._append("v_mc_save")

    def add(self, row: int, *conditions: str) -> None:
        """Add a scratchpad row."""
        self._append("vv_add", conditions, addr=row)

    def sub(self, row: int, *conditions: str) -> None:
        """Subtract a scratchpad row."""
        self._append("vv_sub", conditions, addr=row)

    def mul(self, row: int, *conditions: str) -> None:
        """Multiply by a scratchpad row."""
        self._append("vv_mul", conditions, addr=row)

    def max(self, row: int, *conditions: str) -> None:
        """Keep the greater of the vector and a scratchpad row."""
        self._append("vv_max", conditions, addr=row)

    def min(self, row: int, *conditions: str) -> None:
        """Keep the smaller of the vector and a scratchpad row."""
        self._append("vv_min", conditions, addr=row)

    def abs(self, *conditions: str) -> None:
        """Take absolute values."""
        self._append("v_abs", conditions)

    def cache(self, row: int, *conditions: str) -> None:
        """Write the vector to a scratchpad row."""
        self._append("v_cache", conditions, addr=row)

    def total(self) -> None:
        """Reduce the vector to the sum of its words."""
        self.reduce_to("sum")

    def reduce_to(self, function: str) -> None:
        """Reduce the vector to one word: sum, product, max, min."""
        self._append("v_reduce", function=function)

    def commit(self, size: int | str, *conditions: str) -> None:
        """Send words 0 to size - 1: 1, M or N of them."""
        self._append("v_commit", conditions, size=size)

    def __str__(self) -> str:
        lines = []
        for program in self.programs:
            if program.taps is not None:
                lines.append(f"taps {', '.join(map(str, program.taps))}:")
            lines += [f"chain {index + 1}: {' '.join(map(str, chain))}" for index, chain in enumerate(program.chains)]
        return "\n".join(lines)
