"""Hardware and work of custom operators."""

from msgspec import Struct


class OperatorCost(Struct, frozen=True, kw_only=True):
    """The hardware that computes one result of an operator, once per lane of a vector unit."""

    cycles: int = 1
    """From an input to its result."""
    pipelined: bool = False
    """Whether a new input can begin in every cycle; otherwise the unit is busy until its result is there."""
    multipliers: int = 0
    adders: int = 0
    """Subtractions, roundings to an integer and multiplications by a power of two (an exponent's addition) too."""
    comparators: int = 0
    special: int = 0
    """Units for division, square root, exponential and logarithm."""
    entries: int = 0
    """Numbers in tables."""
    reads: int = 0
    """Numbers read from tables for one result."""
    bits: float = 32
    """The width of a number."""
    significand_bits: int = 24
    """The width of a multiplier."""

    def cycles_of(self, elements: int, lanes: int) -> int:
        """Cycles of so many results on so many lanes.

        >>> [OperatorCost(cycles=3, pipelined=pipelined).cycles_of(100, lanes=50) for pipelined in (False, True)]
        [6, 4]
        """
        turns = -(-elements // lanes)
        if turns == 0:
            return 0
        return turns + self.cycles - 1 if self.pipelined else turns * self.cycles


class OperatorWork(Struct, frozen=True, kw_only=True):
    """The operations of one call of an operator, on tensors of certain shapes."""

    name: str
    results: int
    """Elements of its results."""
    multiplications: int = 0
    additions: int = 0
    """Subtractions, roundings to an integer and multiplications by a power of two too."""
    comparisons: int = 0
    special: int = 0
    """Divisions, square roots, exponentials and the like."""
    lookups: int = 0
    """Numbers read from tables."""
    entries: int = 0
    """Numbers in the largest table."""
    reads: int = 0
    """Elements of operands that are read, each as often as it is."""
    lane_cycles: int = 0
    """Cycles of all results on one lane."""
    bits: float = 32
    significand_bits: int = 24

    @property
    def operations(self) -> int:
        """Arithmetic results."""
        return self.multiplications + self.additions + self.comparisons + self.special
