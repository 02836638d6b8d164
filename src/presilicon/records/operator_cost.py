"""Hardware cost of a scalar function: its units and its time."""

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
