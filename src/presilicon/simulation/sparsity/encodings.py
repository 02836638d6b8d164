"""Compressed tensors: the bits of their values that are not zero, and of the index that says where those lie."""

from typing import Literal, get_args

Encoding = Literal["bitmap", "run-length", "coordinate"]
ENCODINGS: tuple[Encoding, ...] = get_args(Encoding)


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
