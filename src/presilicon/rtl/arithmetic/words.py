"""Formats and roundings as the words that the arithmetic modules take as parameters (sv/presilicon_format.svh)."""

from presilicon.base import ConfigError
from presilicon.formats import BlockFloat, Fixed, Float, Format, Integer, Stochastic, parse_rounding

SPECIALS = ("ieee", "fn", "fnuz", "p3109", "none")
OVERFLOWS = ("infinity", "saturate", "nan")
MODES = ("nearest-even", "nearest-away", "toward-zero", "up", "down")
STOCHASTIC = len(MODES)

COMPLEMENT, MAGNITUDE, UNSIGNED = 1, 2, 3
LFSR_BITS = 16
LFSR_TAPS = (0, 1, 3, 12)
"""Bits of the state whose sum modulo 2 is shifted in, as in `presilicon.formats.rounding.lfsr_states`."""


def format_word(fmt: Format) -> int:
    """The word of a format whose numbers stand alone, or of the elements of block floating point.

    >>> from presilicon.formats import parse
    >>> hex(format_word(parse("float32"))), hex(format_word(parse("int8")))
    ('0xff5e0', '0x200008')

    Raises:
        ConfigError: a circuit cannot compute with codes of the format; the message says why.
    """
    match fmt:
        case Float():
            flags = SPECIALS.index(fmt.specials) << 23 | (not fmt.subnormals) << 26
            flags |= OVERFLOWS.index(str(fmt.overflow)) << 27 | (fmt.nan == "max") << 29
            return fmt.bits | fmt.mantissa << 6 | (fmt.exponent_bias + 128) << 12 | flags
        case Fixed():
            if fmt.wraps:
                raise ConfigError(f"{fmt}: the circuits saturate; try overflow=saturate")
            return fmt.bits | fmt.fraction << 6 | (COMPLEMENT if fmt.signed else UNSIGNED) << 21
        case Integer():
            if fmt.scale != 1.0:
                raise ConfigError(
                    f"{fmt}: emulation multiplies integers by their scale, in float32, before they are multiplied; "
                    f"a circuit multiplies codes: use int({fmt.bits}), or fixed(i, f) for a power of two"
                )
            return format_word(fmt.codes)
        case BlockFloat():
            return fmt.bits | (fmt.mantissa - 1) << 6 | MAGNITUDE << 21
    raise ConfigError(f"{fmt}: there is no circuit for this family; try a float, fixed, int, bfp, mx or nvfp format")


def rounding_word(mode: str | Stochastic) -> int:
    """The word of a rounding mode.

    >>> rounding_word("toward-zero"), rounding_word("stochastic(bits=8, source=lfsr)")
    (2, 69)

    Raises:
        ConfigError: stochastic rounding whose random words do not come from a shift register.
    """
    mode = parse_rounding(mode) if isinstance(mode, str) else mode
    if not isinstance(mode, Stochastic):
        return MODES.index(mode)
    if mode.source != "lfsr":
        raise ConfigError(
            f"{mode}: this source hashes a counter with two 32-bit products per rounding; a circuit has a shift "
            f"register: try stochastic(bits={min(mode.bits, LFSR_BITS)}, source=lfsr)"
        )
    return STOCHASTIC | mode.bits << 3


def jump_matrix(steps: int) -> int:
    """The shift register's next state after so many steps, as the rows of a 16 x 16 matrix over GF(2), row 0 lowest.

    >>> f"{jump_matrix(1):064x}"[:4]
    '100b'
    """
    rows = [1 << row for row in range(LFSR_BITS)]
    for _ in range(steps % (2**LFSR_BITS - 1)):
        fed_back = 0
        for tap in LFSR_TAPS:
            fed_back ^= rows[tap]
        rows = [*rows[1:], fed_back]
    return sum(row << LFSR_BITS * index for index, row in enumerate(rows))
