"""MAC units as circuits: the module and the parameters of two operand formats and a `MacUnit`."""

from presilicon.base import ConfigError
from presilicon.formats import BlockFloat, Fixed, Float, Format, Integer, MacUnit
from presilicon.rtl.arithmetic.group import check_group, group_parameters, operand_of
from presilicon.rtl.arithmetic.units import Circuit, Port
from presilicon.rtl.arithmetic.words import format_word, jump_matrix, rounding_word

MOST_FIXED_BITS = 24
"""Magnitude bits of a fixed-point sum that emulation, in float32, holds exactly."""
OVERFLOWS = 1 << 8
"""In the word of a rounding: numbers beyond the largest overflow in every mode."""


def mac_circuit(left: Format, right: Format, mac: MacUnit, *, outputs: int = 1, cut: bool = True) -> Circuit:
    """The circuit that adds up products of two formats as `mac` does, bit for bit.

    `outputs` is the number of sums that share the random words of stochastic rounding, as those of a matrix product do:
    rounding t of sum e draws word t x outputs + e. `cut` puts a register behind the multiplier.

    >>> from presilicon.formats import parse
    >>> mac_circuit(parse("e4m3"), parse("e5m2"), MacUnit(order="chunked", chunk=64)).module
    'presilicon_mac'

    Raises:
        ConfigError: the hardware cannot do it; the message says why and what to try.
    """
    mac.check()
    if mac.slice_bits is not None:
        return _sliced_circuit(left, right, mac, outputs)
    if mac.order == "aligned":
        return _group_circuit(left, right, mac, outputs, cut)
    _refuse(left, right, mac)
    parameters = {
        "LEFT": format_word(left),
        "RIGHT": format_word(right),
        **_product_parameters(mac),
        **sum_parameters(mac),
        "CHUNK": (mac.rows if mac.order == "systolic" else mac.chunk) or 0,
        "CUT": int(cut),
        "JUMP": jump_matrix(outputs),
    }
    _check_numbers(left, right, mac)
    return Circuit(
        module="presilicon_mac",
        parameters=tuple(parameters.items()),
        inputs=(*CONTROL_PORTS, Port("left", left.bits), Port("right", right.bits)),
        outputs=(Port("out_valid", 1), Port("out", mac.accumulate.bits)),
        latency=1 + cut + (parameters["TOTAL"] != 0),
        has_reset=True,
    )


def _group_circuit(left: Format, right: Format, mac: MacUnit, outputs: int, cut: bool) -> Circuit:
    check_group(left, right, mac)
    one, other = operand_of(left), operand_of(right)
    parameters = {
        **group_parameters(one, other, mac),
        **sum_parameters(mac),
        "CUT": int(cut),
        "JUMP": jump_matrix(outputs),
    }
    if mac.left is not None:
        parameters["PARTIAL_ROUNDING"] |= OVERFLOWS
    ports = (Port("left", one.bits, mac.width), Port("right", other.bits, mac.width))
    return Circuit(
        module="presilicon_mac_group",
        parameters=tuple(parameters.items()),
        inputs=(*CONTROL_PORTS, *ports, Port("left_scale", 8), Port("right_scale", 8)),
        outputs=(Port("out_valid", 1), Port("out", mac.accumulate.bits)),
        latency=1 + cut + (parameters["TOTAL"] != 0),
        has_reset=True,
    )


def _sliced_circuit(left: Format, right: Format, mac: MacUnit, outputs: int) -> Circuit:
    """FAST's fMAC; its latency is that of a group of these formats, pass by pass."""
    if not (isinstance(left, BlockFloat) and isinstance(right, BlockFloat)):
        raise ConfigError(
            f"{mac}: mantissas are multiplied slice by slice in block floating point, not {left}, {right}"
        )
    if mac.order != "aligned" or mac.chunk != mac.width:
        raise ConfigError(
            f"{mac}: slices of a group's products are added before anything is rounded: try order=aligned, with width "
            "and chunk as long as a group, and align_bits"
        )
    check_group(left, right, mac)
    one, other = operand_of(left), operand_of(right)
    if group_parameters(one, other, mac)["ALIGN"]:
        raise ConfigError(f"{mac}: a group's sum is exact: try align_bits={one.spread + other.spread}")
    widest = sliced_mantissa(left, right, mac)
    parameters = {
        "MANTISSA": widest,
        "SLICE": mac.slice_bits or 1,
        "WIDTH": mac.width,
        "LEFT_SCALE": one.scale,
        "RIGHT_SCALE": other.scale,
        **sum_parameters(mac),
        "JUMP": jump_matrix(outputs),
    }
    ports = (
        *(Port("left", widest + 1, mac.width), Port("right", widest + 1, mac.width)),
        *(Port("left_bits", 5), Port("right_bits", 5), Port("left_scale", 8), Port("right_scale", 8)),
    )
    return Circuit(
        module="presilicon_fmac",
        parameters=tuple(parameters.items()),
        inputs=(*CONTROL_PORTS, *ports),
        outputs=(Port("in_ready", 1), Port("out_valid", 1), Port("out", mac.accumulate.bits)),
        latency=mac.passes(left.mantissa, right.mantissa) + 2,
        has_reset=True,
    )


def sliced_mantissa(left: BlockFloat, right: BlockFloat, mac: MacUnit) -> int:
    """Mantissa bits of both ports of an fMAC: whole slices that hold the wider operand."""
    assert mac.slice_bits is not None
    return -(-max(left.mantissa, right.mantissa) // mac.slice_bits) * mac.slice_bits


CONTROL_PORTS = (Port("seed", 16), Port("in_valid", 1), Port("in_first", 1), Port("in_last", 1))


def sum_parameters(mac: MacUnit) -> dict[str, int]:
    """Formats and roundings of the sums within a chunk and of the chunks' sums."""
    partial, partial_mode = _partial(mac)
    has_total = mac.chunk is not None or mac.rows is not None or partial != mac.accumulate
    return {
        "PARTIAL": format_word(partial),
        "PARTIAL_ROUNDING": rounding_word(partial_mode),
        "TOTAL": format_word(mac.accumulate) if has_total else 0,
        "TOTAL_ROUNDING": rounding_word(mac.rounding) if has_total else 0,
    }


def _partial(mac: MacUnit) -> tuple[Format, str]:
    """Format and rounding of the sums within a chunk."""
    if mac.partial is None:
        return mac.accumulate, mac.rounding
    return mac.partial, mac.partial_rounding or "nearest-even"


def _product(mac: MacUnit) -> tuple[Format, str] | None:
    """Format and rounding of the products; None if they are exact."""
    if mac.multiply is not None:
        return mac.multiply, mac.rounding
    return _partial(mac) if mac.fused is False else None


def _product_parameters(mac: MacUnit) -> dict[str, int]:
    product = _product(mac)
    if product is None:
        return {"PRODUCT": 0, "PRODUCT_ROUNDING": 0}
    return {"PRODUCT": format_word(product[0]), "PRODUCT_ROUNDING": rounding_word(product[1])}


def _refuse(left: Format, right: Format, mac: MacUnit) -> None:
    if mac.is_user_defined:
        raise ConfigError(f"{mac}: there is no circuit for a user's functions; write them in SystemVerilog")
    if mac.order == "pairwise":
        raise ConfigError(
            f"{mac}: a tree needs all products of a sum at once; try order=aligned with the width of the circuit, or "
            "order=chunked"
        )
    for fmt in (left, right):
        if fmt.is_blocked:
            raise ConfigError(
                f"{mac}: products of blocks are added group by group, not one after another; for {fmt} try "
                "order=aligned with width and chunk as long as a block, and align_bits"
            )
    if mac.width > 1:
        raise ConfigError(
            f"{mac}: a unit has one lane; try width=1 and as many units, or order=aligned, which adds width products "
            "at once"
        )


def _check_numbers(left: Format, right: Format, mac: MacUnit) -> None:
    """Raise if operands and sums do not go together in one circuit."""
    product = _product(mac)
    sums = [mac.accumulate, _partial(mac)[0], *([product[0]] if product else [])]
    if all(isinstance(fmt, Float) for fmt in sums):
        return
    if not all(isinstance(fmt, Fixed | Integer) for fmt in (left, right, *sums)):
        names = ", ".join(dict.fromkeys(str(fmt) for fmt in (left, right, *sums)))
        raise ConfigError(
            f"{mac}: sums in fixed point need operands, products and sums in fixed point, not {names}; try a "
            "floating-point accumulate"
        )
    for fmt in sums:
        if fmt.bits - int(fmt.is_twos_complement) > MOST_FIXED_BITS:
            raise ConfigError(
                f"{mac}: emulation holds {fmt} as float32, with {MOST_FIXED_BITS} significant bits, and an adder all "
                f"{fmt.bits}: they differ; try accumulate=fixed({MOST_FIXED_BITS + 1 - fmt.fraction_bits}, "
                f"{fmt.fraction_bits})"
            )
