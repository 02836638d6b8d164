"""Rounding modes, and the counter-based random numbers of stochastic rounding.

The random word of an element depends on (seed, step, tensor, index) only: not on threads, device or block size.
"""

from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import Literal, get_args

from presilicon.base import FormatError, did_you_mean

Rounding = Literal["nearest-even", "nearest-away", "toward-zero", "up", "down", "stochastic"]
ROUNDINGS: tuple[str, ...] = get_args(Rounding)

RANDOM_BITS = 24
"""The most random bits per rounding: as many as a float32 significand has."""

ALL_BITS = -1
"""As many random bits as the source has."""

WEYL = 0x9E3779B9
"""Step of the counter that the generator hashes: 2^32 over the golden ratio."""

LFSR_BITS = 16
_LFSR_TAPS = (16, 15, 13, 4)


@dataclass(frozen=True, slots=True)
class Key:
    """The key of a tensor's random numbers; together with an element's index it determines them.

    >>> Key(seed=7, step=120, tensor="conv1.weight").words() == Key(7, 120, "conv1.weight").words()
    True
    """

    seed: int = 0
    step: int = 0
    tensor: int | str = 0
    """A number or a name that tells the tensors of a step apart."""

    def words(self, block: int = 0) -> tuple[int, int]:
        """The two 32-bit words that seed the generator for the `block`-th 2^32 elements."""
        text = f"{self.seed} {self.step} {self.tensor!r} {block}".encode()
        digest = blake2b(text, digest_size=8).digest()
        return int.from_bytes(digest[:4], "little"), int.from_bytes(digest[4:], "little")


@dataclass(frozen=True, slots=True)
class Stochastic:
    """Stochastic rounding with the random source that the hardware has.

    The discarded fraction is cut to `bits` bits and added to a random word of as many bits; a carry rounds away from
    zero. A number is rounded away with a probability equal to its fraction, and an exact value stays.

    >>> str(Stochastic()), str(Stochastic(bits=8, source="lfsr"))
    ('stochastic', 'stochastic(bits=8, source=lfsr)')
    """

    bits: int = ALL_BITS
    """Random bits per rounding; hardware has few. The default is all bits of the source: 24, or 16 for `lfsr`."""
    source: Literal["counter", "lfsr"] = "counter"
    """`counter`: a hash of key and index. `lfsr`: element `i` takes the top bits of a 16-bit maximal-length shift
    register (taps 16, 15, 13, 4), `i` steps after a start that the key chooses; at most 16 bits."""

    def __post_init__(self) -> None:
        if self.source not in ("counter", "lfsr"):
            hint = did_you_mean(str(self.source), ("counter", "lfsr"))
            raise FormatError(f'stochastic: source="{self.source}": {hint}')
        most = LFSR_BITS if self.source == "lfsr" else RANDOM_BITS
        if self.bits == ALL_BITS:
            object.__setattr__(self, "bits", most)
        if not isinstance(self.bits, int) or isinstance(self.bits, bool) or not 1 <= self.bits <= most:
            raise FormatError(f"stochastic: bits must be an integer from 1 to {most}, not {self.bits!r}")

    def __str__(self) -> str:
        default = LFSR_BITS if self.source == "lfsr" else RANDOM_BITS
        bits = [] if self.bits == default else [f"bits={self.bits}"]
        source = [] if self.source == "counter" else [f"source={self.source}"]
        inside = ", ".join(bits + source)
        return f"stochastic({inside})" if inside else "stochastic"


Mode = str | Stochastic
"""The rounding to perform: a deterministic mode's name, or a `Stochastic`."""


def check_rounding(rounding: str | Stochastic | None, default: str = "nearest-even") -> Mode:
    """The rounding to perform: a deterministic mode's name, or a `Stochastic`.

    >>> check_rounding("stochastic")
    Stochastic(bits=24, source='counter')

    Raises `FormatError` for an unknown name.
    """
    if rounding is None:
        rounding = default
    if isinstance(rounding, Stochastic):
        return rounding
    if rounding not in ROUNDINGS:
        raise FormatError(f'unknown rounding "{rounding}": {did_you_mean(str(rounding), ROUNDINGS)}')
    return Stochastic() if rounding == "stochastic" else rounding


def random_word(key: Key, index: int, source: str = "counter") -> int:
    """The random word of element `index`, as plain integers: the reference for every kernel.

    A word has 32 bits, of which the top 24 are used.

    >>> 0 <= random_word(Key(seed=1), 5) < 2**32
    True
    """
    first, second = key.words(index >> 32)
    if source == "lfsr":
        states = lfsr_states()
        return states[(first + (index & 0xFFFFFFFF)) % len(states)] << (32 - LFSR_BITS)
    mask = 0xFFFFFFFF
    x = (index * WEYL + first) & mask
    x = ((x ^ (x >> 16)) * 0x21F0AAAD) & mask
    x = (x + second) & mask
    return ((x ^ (x >> 15)) * 0xD35A2D97) & mask


@lru_cache(maxsize=1)
def lfsr_states() -> tuple[int, ...]:
    """All 65,535 states of the shift register, in the order in which it passes through them."""
    state, states = 1, []
    for _ in range(2**LFSR_BITS - 1):
        states.append(state)
        bit = 0
        for tap in _LFSR_TAPS:
            bit ^= state >> (LFSR_BITS - tap)
        state = (state >> 1) | ((bit & 1) << (LFSR_BITS - 1))
    return tuple(states)
