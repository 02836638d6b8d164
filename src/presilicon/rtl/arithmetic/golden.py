"""Golden vectors: the inputs of a circuit for a matrix product, and the codes that emulation gives."""

from typing import TYPE_CHECKING, NamedTuple

from presilicon.base import np
from presilicon.formats import BlockCodes, BlockFloat, Format, Key, MacUnit, decode, encode, matmul, random_word
from presilicon.rtl.arithmetic.group import operand_of
from presilicon.rtl.arithmetic.mac import sliced_mantissa

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor


class Golden(NamedTuple):
    """A matrix product: the circuit's inputs, a row per cycle, and the codes of the outputs in their order."""

    rows: "dict[str, NDArray[np.int64]]"
    expected: "NDArray[np.int64]"


def golden_product(
    left: Format, right: Format, mac: MacUnit, a: "Tensor", b: "Tensor", key: Key | None = None
) -> Golden:
    """The product of `a` (M x K) and the transpose of `b` (N x K), one output after another, row by row.

    The numbers are rounded to their formats, to nearest. Short groups are filled up with zeros.
    """
    key = key or Key()
    width = mac.width if mac.order == "aligned" else 1
    first, second = (_groups(x, fmt, width) for x, fmt in ((a, left), (b, right)))
    product = matmul(first.values, second.values.T, mac, key=key, library=False)
    expected = encode(product, mac.accumulate)
    assert not isinstance(expected, BlockCodes)
    outputs, count = len(a) * len(b), first.codes.shape[1]
    position = np.tile(np.arange(count), outputs)
    rows = {
        "seed": np.full(outputs * count, random_word(key, 0, "lfsr") >> 16),
        "in_valid": np.ones(outputs * count, np.int64),
        "in_first": (position == 0).astype(np.int64),
        "in_last": (position == count - 1).astype(np.int64),
        "left": np.repeat(first.codes, len(b), axis=0).reshape(-1, width),
        "right": np.tile(second.codes, (len(a), 1, 1)).reshape(-1, width),
        "left_scale": np.repeat(first.scales, len(b), axis=0).ravel(),
        "right_scale": np.tile(second.scales, (len(a), 1)).ravel(),
    }
    if mac.slice_bits is not None:
        assert isinstance(left, BlockFloat)
        assert isinstance(right, BlockFloat)
        rows = _in_passes(rows, left, right, mac)
    return Golden(rows, expected.numpy().astype(np.int64).ravel())


class _Groups(NamedTuple):
    """A matrix in groups along the reduction axis."""

    codes: "NDArray[np.int64]"
    """[rows, groups, width]"""
    scales: "NDArray[np.int64]"
    """[rows, groups]"""
    values: "Tensor"


def _groups(x: "Tensor", fmt: Format, width: int) -> _Groups:
    encoded = encode(x, fmt)
    elements = encoded.elements if isinstance(encoded, BlockCodes) else encoded
    count = -(-x.shape[1] // width)
    codes = np.zeros((len(x), count * width), np.int64)
    codes[:, : x.shape[1]] = elements.numpy()
    scales = np.zeros((len(x), count), np.int64)
    if isinstance(encoded, BlockCodes):
        block = operand_of(fmt).block
        assert block is not None
        scales = encoded.scales.numpy().astype(np.int64)[:, np.arange(count) * width // block]
    return _Groups(codes.reshape(len(x), count, width), scales, decode(encoded, fmt))


def _in_passes(
    rows: "dict[str, NDArray[np.int64]]", left: BlockFloat, right: BlockFloat, mac: MacUnit
) -> "dict[str, NDArray[np.int64]]":
    """The rows of an fMAC: signs on top of the widest mantissa, and cycles without a group until it is ready again."""
    widest = sliced_mantissa(left, right, mac)
    for name, fmt in (("left", left), ("right", right)):
        codes = rows[name]
        rows[name] = codes & (1 << fmt.mantissa) - 1 | codes >> fmt.mantissa << widest
        rows[f"{name}_bits"] = np.full(len(codes), fmt.mantissa)
    passes = mac.passes(left.mantissa, right.mantissa)
    spaced = {name: np.repeat(column, passes, axis=0) for name, column in rows.items()}
    spaced["in_valid"] = (np.arange(len(spaced["in_valid"])) % passes == 0).astype(np.int64)
    return spaced
