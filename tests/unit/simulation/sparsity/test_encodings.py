"""Bits of compressed tensors against encoders that write every token, on random zeros."""

import numpy as np
import pytest

from presilicon.simulation.sparsity.description import ENCODINGS, encoded_bits

VALUE_BITS, INDEX_BITS, COUNT = 16, 4, 1 << 16


def tokens_by_hand(encoding: str, mask: np.ndarray) -> tuple[float, np.ndarray]:
    """Bits of an encoded tensor, and the mask that a decoder gets back."""
    block, bits = 1 << INDEX_BITS, 0.0
    decoded: list[bool] = []
    if encoding == "bitmap":
        return len(mask) + VALUE_BITS * int(mask.sum()), mask
    if encoding == "run-length":
        run = 0
        for is_value in mask:
            if is_value or run == block - 1:  # a value, or a zero that stands for one at the end of the longest run
                bits += INDEX_BITS + VALUE_BITS
                decoded += [False] * run + [bool(is_value)]
                run = 0
            else:
                run += 1
        return bits, np.array(decoded + [False] * run)
    for first in range(0, len(mask), block):
        part = mask[first : first + block]
        bits += INDEX_BITS + 1 + int(part.sum()) * (INDEX_BITS + VALUE_BITS)
        decoded += [place in set(np.nonzero(part)[0]) for place in range(len(part))]
    return bits, np.array(decoded)


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("density", [0.01, 0.05, 0.3, 0.7, 1.0])
def test_bits_are_those_of_an_encoder_whose_tokens_can_be_decoded(encoding: str, density: float):
    mask = np.random.default_rng(1).random(COUNT) < density
    bits, decoded = tokens_by_hand(encoding, mask)
    assert (decoded == mask).all()
    expected = encoded_bits(encoding, VALUE_BITS, float(mask.mean()), INDEX_BITS)
    assert bits / COUNT == pytest.approx(expected, rel=0.02)
    assert bits / COUNT != pytest.approx(expected * 1.05, rel=0.02)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_denser_tensors_never_take_fewer_bits_and_the_index_is_counted(encoding: str):
    curve = [encoded_bits(encoding, VALUE_BITS, step / 100, INDEX_BITS) for step in range(101)]
    assert curve == sorted(curve)
    assert curve[0] > 0
    assert curve[-1] > VALUE_BITS
