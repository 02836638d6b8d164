"""The parts of MAC units as circuits of their own: multipliers, adders, fused multiply-adds, converters to blocks."""

from presilicon.base import ConfigError
from presilicon.formats import BlockFloat, Float, Format, Mx, Stochastic
from presilicon.rtl.arithmetic.group import operand_of
from presilicon.rtl.arithmetic.units import Circuit, Port
from presilicon.rtl.arithmetic.words import format_word, jump_matrix, rounding_word

_CODE_ZERO_MASK = 1023


def multiply_circuit(left: Format, right: Format, product: Float, rounding: str = "nearest-even") -> Circuit:
    """left * right, rounded once; one cycle."""
    words = {"X": left, "Y": right, "OUT": product}
    return _float_circuit("presilicon_float_multiply", words, rounding, "product", 0b10)


def add_circuit(left: Format, right: Format, total: Float, rounding: str = "nearest-even") -> Circuit:
    """left + right, rounded once; one cycle."""
    words = {"X": left, "Y": right, "OUT": total}
    return _float_circuit("presilicon_float_add", words, rounding, "sum", 0b10000)


def fma_circuit(
    left: Format,
    right: Format,
    addend: Format,
    total: Float,
    rounding: str = "nearest-even",
    *,
    cuts: int = 0b100000,
) -> Circuit:
    """left * right + addend, rounded once.

    `cuts` has a bit for each place where a register may stand: behind the product, the order by exponent, the
    alignment, the addition, the normalization and the rounding; the latency is their number.
    """
    words = {"X": left, "Y": right, "Z": addend, "OUT": total}
    return _float_circuit("presilicon_float_fma", words, rounding, "sum", cuts)


def _float_circuit(module: str, formats: dict[str, Format], rounding: str, result: str, cuts: int) -> Circuit:
    words = {name: format_word(fmt) for name, fmt in formats.items()}
    operands = tuple(Port(name.lower(), fmt.bits) for name, fmt in formats.items() if name != "OUT")
    return Circuit(
        module=module,
        parameters=(*words.items(), ("ROUNDING", rounding_word(rounding)), ("CUTS", cuts)),
        inputs=(*operands, Port("draw", 16)),
        outputs=(Port(result, formats["OUT"].bits),),
        latency=cuts.bit_count(),
    )


def convert_circuit(source: Format, target: Format, rounding: str | Stochastic = "nearest-even") -> Circuit:
    """The circuit that rounds groups of floats to blocks with a power of two as scale, as `encode` does; two cycles.

    Raises:
        ConfigError: the blocks have other scales, or scales that depend on more than the group.
    """
    if not isinstance(source, Float):
        raise ConfigError(f"the numbers that are converted must be floating point, not {source}")
    if not isinstance(target, BlockFloat | Mx):
        raise ConfigError(
            f"{target}: the converter shifts, and has no divider for scales that are not powers of two; try bfp or mx"
        )
    if target.is_square or (isinstance(target, Mx) and target.scale != "floor"):
        raise ConfigError(f"{target}: the converter takes groups along one axis, and scale=floor for mx")
    grid, operand = target.block_grid(), operand_of(target)
    parameters = {
        "IN": format_word(source),
        "ELEMENT": operand.element,
        "GROUP": target.group_size,
        "ROUNDING": rounding_word(rounding),
        "EMAX": grid.emax,
        "LOWEST": grid.lowest,
        "HIGHEST": grid.highest,
        "CODE_ZERO": (operand.scale & _CODE_ZERO_MASK) - 512,
        "FLUSH": grid.flush,
        "POISON": grid.poison,
        "JUMP": jump_matrix(1),
    }
    return Circuit(
        module="presilicon_block_convert",
        parameters=tuple(parameters.items()),
        inputs=(Port("seed", 16), Port("in_valid", 1), Port("in", source.bits, target.group_size)),
        outputs=(Port("out_valid", 1), Port("out", operand.bits, target.group_size), Port("out_scale", 8)),
        latency=2,
        has_reset=True,
    )
