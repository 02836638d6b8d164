"""Memories between the cells of an array and DRAM, with the energy and area of banks and of the wires between them."""

from math import ceil, inf, sqrt
from typing import Annotated, Literal

from msgspec import Meta, Struct

from presilicon.base import PICO, ConfigError
from presilicon.designs import Technology, curve_pj
from presilicon.simulation.area import area_table, register_area_um2, sram_area_um2

Operand = Literal["left", "right", "sums"]
OPERANDS: tuple[Operand, ...] = ("left", "right", "sums")
"""The two factors of a matrix product, and its sums; forward: activations, weights and outputs."""
Copies = Literal["chip", "row", "column", "cell"]

BANK_KIB = 32
"""Capacity of a bank, unless the number of banks is given: the largest that tables have a figure for and that is built
as one array of cells."""


class Memory(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One level of memory on the chip.

    >>> buffer = Memory(name="buffer", kib=4096)
    >>> buffer.bank_count, buffer.usable_bits == 4096 * 1024 * 8 / 2
    (128, True)
    """

    name: Annotated[str, Meta(min_length=1, max_length=40)]
    kib: Annotated[float, Meta(ge=1 / 8192, le=1 << 24)]
    """Capacity of each copy; 1/8192 is a single bit."""
    kind: Literal["registers", "sram", "edram"] = "sram"
    per: Copies = "chip"
    """Number of copies: one on the chip, or one for each row, column or cell of the array."""
    holds: Annotated[tuple[Operand, ...], Meta(min_length=1)] = OPERANDS
    banks: Annotated[int, Meta(ge=1, le=1 << 20)] | None = None
    """Without it, banks of 32 KiB, as many as it takes."""
    width_bits: Annotated[int, Meta(ge=1, le=1 << 20)] = 64
    """Bits that a bank reads, or writes, in a cycle."""
    ports: Annotated[int, Meta(ge=1, le=2)] = 2
    """Two: a bank reads and writes in the same cycle. One: it does one or the other."""
    gb_s: Annotated[float, Meta(ge=1e-6)] | None = None
    """Bandwidth of a copy in each direction, if it is not that of all its banks."""
    doubled: bool = True
    """Whether half of it holds the data in use while the other half is being filled. If not, all of it holds data in
    use, and what uses it waits while it is filled; only registers of cells hand on the last number meanwhile."""
    retention_us: Annotated[float, Meta(gt=0, le=1e9)] | None = None
    """Time for which embedded DRAM keeps data; what stays longer is refreshed: one read and one write in its bank."""

    def check(self) -> None:
        """Embedded DRAM forgets, and nothing else does; an operand is named once."""
        if (self.kind == "edram") != (self.retention_us is not None):
            raise ConfigError(f'"{self.name}": retention_us must be given for kind "edram", and only for that')
        if len(set(self.holds)) < len(self.holds):
            raise ConfigError(f'"{self.name}": holds names an operand twice: {", ".join(self.holds)}')

    @property
    def bank_count(self) -> int:
        """Banks of each copy."""
        return self.banks or ceil(self.kib / BANK_KIB)

    @property
    def bank_kib(self) -> float:
        """Capacity of a bank."""
        return self.kib / self.banks if self.banks else min(self.kib, BANK_KIB)

    @property
    def usable_bits(self) -> float:
        """Bits of each copy that hold data in use."""
        return self.kib * 1024 * 8 / (2 if self.doubled else 1)

    def copies(self, rows: int, cols: int) -> int:
        """Copies on a chip whose array has so many rows and columns."""
        return {"chip": 1, "row": rows, "column": cols, "cell": rows * cols}[self.per]

    def bits_per_cycle(self, clock_ghz: float) -> float:
        """Bits that a copy reads in a cycle; as many are written, at the same time where it has two ports."""
        most = inf if self.kind == "registers" else self.bank_count * self.width_bits
        return most if self.gb_s is None else self.gb_s * 8 / clock_ghz

    def bit_pj(self, technology: Technology) -> float:
        """Energy of a bit read or written: that of a bank of its size, and of the wires of an H-tree to the bank.

        From the middle of a square of side s, an H-tree leads to the middle of each of n banks over s (1 - 1/sqrt n).
        """
        if self.kind == "registers":
            return technology.register_bit.pj if technology.register_bit else 0.0
        if technology.wire is None or technology.area is None:
            return curve_pj(technology.sram_64bit, self.kib) / 64
        side_mm = sqrt(self.area_um2(technology)) / 1000
        wire_mm = side_mm * (1 - 1 / sqrt(self.bank_count))
        return self._bank_pj(technology) + technology.wire.pj_bit_mm * wire_mm

    def area_um2(self, technology: Technology) -> float:
        """Area of a copy.

        Raises:
            ConfigError: the table has no areas, or none of embedded DRAM.
        """
        table = area_table(technology)
        if self.kind == "registers":
            return register_area_um2(self.kib * 1024 * 8, technology)
        um2 = self.kib / self.bank_kib * sram_area_um2(self.bank_kib, technology)
        if self.kind == "sram":
            return um2
        if table.edram is None:
            raise ConfigError(f'memory "{self.name}": technology {technology.name} has no area of embedded DRAM')
        return um2 * table.edram.share

    def refresh_byte_j(self, technology: Technology) -> float:
        """Joules of refreshing a byte once."""
        return 2 * 8 * self._bank_pj(technology) * PICO

    def _bank_pj(self, technology: Technology) -> float:
        return curve_pj(technology.sram_64bit, self.bank_kib) / 64


def check_memories(memories: tuple[Memory, ...]) -> None:
    """Refuse a list of levels in which products or vector ops would have no way to DRAM.

    Raises:
        ConfigError: two memories of one name, or an outermost one that is not shared by the whole chip.
    """
    for memory in memories:
        memory.check()
    names = [memory.name for memory in memories]
    for name in names:
        if names.count(name) > 1 or name in RESERVED:
            raise ConfigError(
                f'memories: "{name}" is there twice, or a name of another part ({", ".join(RESERVED)}): rename it'
            )
    for operand in OPERANDS:
        outermost = next((memory for memory in reversed(memories) if operand in memory.holds), None)
        if outermost is None or outermost.per != "chip":
            raise ConfigError(
                f'memories: the last one that holds "{operand}" must be one for the whole chip (per = "chip"), not '
                + ("missing" if outermost is None else f'"{outermost.name}" for each {outermost.per}')
            )


RESERVED = ("mac", "vector", "register", "dram", "codec", "network", "leakage", "refresh")
"""Components of the energy that are no memories."""
