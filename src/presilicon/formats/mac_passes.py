"""Multipliers that take a mantissa in slices, as the fMAC of FAST does (Zhang, McDanel and Kung, HPCA 2022).

A multiplier of b x b bits works through two longer mantissas slice by slice, and adds the shifted partial products: the
product is exact, only the number of passes grows.
"""

from presilicon.base.errors import FormatError


def slices_of(mantissa: int, bits: int, slice_bits: int = 2) -> list[int]:
    """The slices of a mantissa of `bits` bits, lowest first.

    >>> slices_of(0b1101, bits=4)
    [1, 3]
    """
    if not 0 <= mantissa < 2**bits:
        raise FormatError(f"mantissa {mantissa} does not fit {bits} bits; allowed: 0 to {2**bits - 1}")
    count = -(-bits // slice_bits)
    return [(mantissa >> (slice_bits * i)) % 2**slice_bits for i in range(count)]


def multiply_in_passes(a: int, b: int, bits_a: int, bits_b: int, slice_bits: int = 2) -> tuple[int, int]:
    """The product of two signed mantissas (sign and magnitude), and the passes that it took.

    >>> multiply_in_passes(-13, 6, bits_a=4, bits_b=4)
    (-78, 4)
    """
    total, passes = 0, 0
    for i, low in enumerate(slices_of(abs(a), bits_a, slice_bits)):
        for j, high in enumerate(slices_of(abs(b), bits_b, slice_bits)):
            total += (low * high) << (slice_bits * (i + j))
            passes += 1
    return (-total if (a < 0) != (b < 0) else total), passes
