"""A machine's hardware for zeros, as a design describes it."""

from collections.abc import Iterator
from math import ceil, log2
from typing import Annotated, Literal, get_args

from msgspec import Meta, Struct

from presilicon.base import ConfigError
from presilicon.records import Role, StepFacts

Encoding = Literal["bitmap", "run-length", "coordinate"]
ENCODINGS: tuple[Encoding, ...] = get_args(Encoding)
ROLES: tuple[Role, ...] = ("weight", "activation", "error")
"""Roles of the operands that can be compressed."""


def encoded_bits(encoding: Encoding, value_bits: float, density: float, index_bits: int) -> float:
    """Mean bits of an element of a tensor of which a share of `density` is not zero.

    `bitmap`: one bit for each element. `run-length`: before each value, the number of zeros before it in `index_bits`;
    a longer run takes tokens with a zero for a value. Runs are those of zeros that lie independently of each other.
    `coordinate`: beside each value, its position in a block of 2^`index_bits` elements, and one count for each block.

    >>> [round(encoded_bits(encoding, 16, 0.25, 5), 3) for encoding in ENCODINGS]
    [5.0, 5.251, 5.438]
    """
    block = 1 << index_bits
    match encoding:
        case "bitmap":
            return density * value_bits + 1
        case "run-length":
            tokens = density / (1 - (1 - density) ** block) if density > 0 else 1 / block
            return tokens * (value_bits + index_bits)
        case "coordinate":
            return density * (value_bits + index_bits) + (index_bits + 1) / block


ZEROS = ("computed", "gated", "pairs", "weights")
"""What a machine may do with zeros, beside patterns of structured weights."""
LANE_INPUTS = 8
"""Inputs of the multiplexer of a lane that skips pairs."""


def parse_pattern(pattern: str) -> tuple[int, int]:
    """N and M of a pattern such as "2:4".

    Raises:
        ConfigError: they are not numbers with 1 <= N < M <= 64.
    """
    first, _, second = pattern.partition(":")
    if first.isdecimal() and second.isdecimal() and 1 <= int(first) < int(second) <= 64:
        return int(first), int(second)
    raise ConfigError(f'a pattern of structured weights must be N:M with 1 <= N < M <= 64, as "2:4", not "{pattern}"')


class Sparsity(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The way a machine treats zeros, and how operands with zeros lie in its memories.

    >>> Sparsity(zeros="2:4").pattern, Sparsity(zeros="gated").pattern
    ('2:4', None)
    """

    zeros: str = "computed"
    """`computed`: as all other numbers. `gated`: a cell with a zero operand does not multiply, which saves energy, not
    time. `pairs`: products skip pairs of operands with a zero as TensorDash does, in groups of 16 cells along the
    reduction. `weights`: they skip zero weights; a column of cells holds the other weights of its output, packed along
    the reduction, and gradients of skipped weights are not computed. `N:M` (as `2:4`): of each M neighbours along the
    reduction, a cell has slots for N weights and selects their inputs; other weights are computed densely."""
    weight: Encoding | None = None
    """How weights are compressed; without it, they are as large as without zeros. Weights that are skipped lie as a
    bitmap unless this says otherwise, N:M weights with an index for each slot."""
    activation: Encoding | None = None
    error: Encoding | None = None
    index_bits: Annotated[int, Meta(ge=1, le=16)] = 5
    """Bits of a run length or of a coordinate."""
    compressed_in: Literal["dram", "chip"] = "dram"
    """`dram`: operands are expanded on their way to the chip's memories. `chip`: they lie compressed in those too,
    and are expanded at the array and the vector unit. Memories still have room for tiles without zeros: any tile may
    be dense."""

    def check(self) -> None:
        """Zeros must be treated in one of the known ways.

        Raises:
            ConfigError: they are not.
        """
        if self.pattern is not None:
            parse_pattern(self.pattern)
        elif self.zeros not in ZEROS:
            raise ConfigError(f'sparsity.zeros must be {", ".join(ZEROS)} or N:M as "2:4", not "{self.zeros}"')

    @property
    def pattern(self) -> str | None:
        """N:M, for a machine with slots for structured weights."""
        return self.zeros if ":" in self.zeros else None

    @property
    def selected_inputs(self) -> tuple[int, int]:
        """Inputs of the multiplexers that a cell has for its two operands; one where it has none."""
        if self.pattern is not None:
            return int(self.pattern.partition(":")[2]), 1
        return (LANE_INPUTS, LANE_INPUTS) if self.zeros == "pairs" else (1, 1)

    def encoding_of(self, role: Role) -> Encoding | None:
        """How operands of a role are compressed."""
        if role == "weight":
            return self.weight or ("bitmap" if self.zeros == "weights" else None)
        return self.activation if role == "activation" else self.error if role == "error" else None

    def is_packed(self, role: Role) -> bool:
        """Whether the array takes operands of a role without their zeros, so that all memories hold them like that."""
        return role == "weight" and (self.zeros == "weights" or self.pattern is not None)

    def stored_share(self, role: Role, value_bits: float, density: float, structured: float | None) -> float:
        """Bits of a stored operand over those that it has expanded; `structured` is the share of slots of N:M weights.

        >>> Sparsity(activation="bitmap").stored_share("activation", 16, 0.5, None)
        0.5625
        """
        if role == "weight" and structured is not None and self.pattern is not None and self.weight is None:
            index_bits = ceil(log2(int(self.pattern.partition(":")[2])))
            return structured * (1 + index_bits / value_bits)
        encoding = self.encoding_of(role)
        if encoding is None:
            return 1.0
        return encoded_bits(encoding, value_bits, density, self.index_bits) / value_bits


def zero_remarks(sparsity: Sparsity, facts: StepFacts, columns: int) -> Iterator[str]:
    """Sentences for a result on zeros that were not measured, and on what is assumed of those that were.

    `columns` of cells share a tile of weights.
    """
    zeros, densities = sparsity.zeros, {fact.role for fact in facts.layers if fact.density is not None}
    simulated = any(fact.zeros == zeros for fact in facts.products)
    if zeros == "pairs" and not simulated:
        yield "zero pairs are skipped only as simulated, and nobody has looked at them: add the method tensordash"
    elif zeros == "pairs":
        yield "pairs with a zero are skipped as simulated on samples of each product"
    elif zeros == "weights" and any(fact.role == "weight" and fact.density not in (None, 1.0) for fact in facts.layers):
        packing = "simulated" if simulated else "perfect"
        yield f"zero weights are skipped with {packing} packing and at no area, which favours the machine"
        others = {fact.columns for fact in facts.products if fact.columns not in (None, columns)}
        yield from (
            f"weights are packed for tiles of {other} columns, but the machine has {columns}: set the method's columns"
            for other in sorted(filter(None, others))
        )
    elif zeros == "gated" and not simulated:
        yield "zeros are gated only as measured, by the densities that are known: add the method measure-zeros"
    elif sparsity.pattern is not None and not simulated:
        yield f"weights that are not known to be {zeros} are computed densely: a method must make them {zeros}"
    unknown = [role for role in ROLES if getattr(sparsity, role) is not None and role not in densities]
    if unknown:
        yield (
            f"nobody has measured the zeros of compressed operands ({', '.join(unknown)}): they are priced as dense, "
            "with their index; add the method measure-zeros"
        )
    elif "run-length" in (sparsity.weight, sparsity.activation, sparsity.error):
        yield "run lengths are those of zeros that lie independently of each other"
