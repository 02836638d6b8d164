"""MAC units that add a group of products at once: tensor cores, and dot products of BFP, MX and NVFP4 blocks."""

from typing import NamedTuple

from presilicon.base import ConfigError
from presilicon.formats import BlockFloat, Fixed, Float, Format, Integer, MacUnit, Mx, Nvfp4
from presilicon.rtl.arithmetic.words import format_word

POWER_SCALE = 1 << 30
NAN_SCALE = 1 << 10
_NVFP4_ELEMENT, _NVFP4_SCALE = Float(2, 1, specials="none"), Float(4, 3, specials="fn", overflow="saturate")


class Operand(NamedTuple):
    """One operand of a group of products, as the circuit sees it."""

    element: int
    """Word of the elements' format."""
    bits: int
    """Width of an element."""
    scale: int
    """Word of the scale (sv/arithmetic/presilicon_scale.sv); 0 without one."""
    block: int | None
    """Elements that share a scale."""
    spread: int
    """Bits from the largest exponent of a number to the last place of the smallest one, under one scale."""


def operand_of(fmt: Format) -> Operand:
    """An operand format, with its scale.

    Raises:
        ConfigError: scales that the circuit cannot apply.
    """
    match fmt:
        case BlockFloat():
            scale = POWER_SCALE + 512 + _exponent_of_code_zero(fmt)
            return Operand(format_word(fmt), fmt.bits, scale, fmt.group, fmt.mantissa - 1)
        case Mx():
            element = fmt.element
            scale = POWER_SCALE + NAN_SCALE + 512 - 127
            return Operand(format_word(element), element.bits, scale, fmt.block, _spread(element))
        case Nvfp4():
            if fmt.tensor_scale:
                raise ConfigError(
                    f"{fmt}: emulation multiplies every element by the tensor's scale, in float32, before it is "
                    "multiplied; a circuit multiplies codes: use nvfp(tensor_scale=false)"
                )
            # The product of an element and its scale has the places of both, and may have an exponent one higher.
            spread = _spread(_NVFP4_ELEMENT) + _NVFP4_SCALE.mantissa + 1
            return Operand(format_word(_NVFP4_ELEMENT), 4, format_word(_NVFP4_SCALE), fmt.block, spread)
    return Operand(format_word(fmt), fmt.bits, 0, None, _spread(fmt))


def _exponent_of_code_zero(fmt: BlockFloat) -> int:
    if fmt.top is not None:
        return max(fmt.top - (1 << fmt.exponent) + 1, -127)
    if fmt.exponent < 8:
        raise ConfigError(
            f"{fmt}: the window of {1 << fmt.exponent} exponents hangs on the largest of the whole tensor, which a "
            "circuit does not see; set top, as in bfp(mantissa=4, exponent=3, top=0), or exponent=8"
        )
    return -127


def _spread(fmt: Format) -> int:
    if isinstance(fmt, Float):
        return fmt.max_exponent - fmt.min_exponent + fmt.mantissa
    assert isinstance(fmt, Fixed | Integer)
    return fmt.bits - 1


def group_parameters(left: Operand, right: Operand, mac: MacUnit) -> dict[str, int]:
    """Parameters of `presilicon_mac_group` that concern groups; `mac` is of the order `aligned`."""
    assert mac.align_bits is not None
    chunk = 0 if mac.chunk is None else -(-mac.chunk // mac.width)
    is_exact = chunk == 1 and mac.left is None and mac.align_bits >= left.spread + right.spread
    return {
        "LEFT": left.element,
        "RIGHT": right.element,
        "LEFT_SCALE": left.scale,
        "RIGHT_SCALE": right.scale,
        "WIDTH": mac.width,
        "ALIGN": 0 if is_exact else mac.align_bits,
        "FLOORED": int(mac.left is not None),
        "CHUNK": chunk,
    }


def check_group(left: Format, right: Format, mac: MacUnit) -> None:
    """Raise if the groups of a unit do not fit its operands."""
    if mac.multiply is not None or mac.fused is False:
        raise ConfigError(f"{mac}: products enter an aligned sum exactly; leave out multiply and fused=false")
    if mac.chunk is not None and mac.chunk % mac.width:
        raise ConfigError(f"{mac}: a chunk must have whole groups: chunk={mac.chunk} is no multiple of {mac.width}")
    for fmt in (left, right):
        block = operand_of(fmt).block
        if block is not None and block % mac.width:
            raise ConfigError(
                f"{mac}: groups of {mac.width} products do not fit blocks of {block} in {fmt}; the width must divide "
                f"the block: try width={block}"
            )
    for fmt in (mac.accumulate, mac.partial or mac.accumulate):
        if not isinstance(fmt, Float):
            raise ConfigError(f"{mac}: an aligned sum is rounded to floating point, not {fmt}; try float32")
        if mac.left is not None and (fmt.exponent != 8 or not fmt.is_ieee):
            raise ConfigError(f"{mac}: sums of a tensor core have the exponents of float32, not those of {fmt}")
    if mac.left is not None and (left, right) != (mac.left, mac.right):
        raise ConfigError(
            f"{mac}: this unit takes {mac.left} by {mac.right}, not {left} by {right}; try tensor_core(left, right)"
        )
    if isinstance(left, Nvfp4) or isinstance(right, Nvfp4):
        parameters = group_parameters(operand_of(left), operand_of(right), mac)
        if parameters["ALIGN"]:
            least = operand_of(left).spread + operand_of(right).spread
            raise ConfigError(
                f"{mac}: scales of NVFP4 multiply a group's sum, which must be exact: try chunk={mac.width} and "
                f"align_bits={least}"
            )
