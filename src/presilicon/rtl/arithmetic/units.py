"""Arithmetic units: ports and parameters of their circuits, and codes as the bits of wide ports."""

from collections.abc import Sequence

from msgspec import Struct

from presilicon.base import np

LEAST_BITS = 65
"""Verilator has ports of this width and more as arrays of 32-bit words."""


class Port(Struct, frozen=True):
    """A port of a circuit: `count` codes of `bits` each, the first in the lowest bits."""

    name: str
    bits: int
    count: int = 1


class Circuit(Struct, frozen=True, kw_only=True):
    """A module with its parameters. Beside its ports it has `clock` and `enable`, and `reset` if it has state."""

    module: str
    parameters: tuple[tuple[str, int], ...]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    latency: int
    """Enabled cycles from the operands to the result."""
    has_reset: bool = False


def port_codes(port: Port, bits: "np.typing.NDArray[np.uint8]") -> "np.typing.NDArray[np.int64]":
    """The codes [rows, count] of a port from its bits, a row of them per cycle."""
    weights = np.left_shift(np.int64(1), np.arange(port.bits, dtype=np.int64))
    codes: np.typing.NDArray[np.int64] = bits.reshape(len(bits), port.count, port.bits).astype(np.int64) @ weights
    return codes


def port_bits(port: Port, column: "np.typing.NDArray[np.int64] | None", rows: int) -> "np.typing.NDArray[np.uint8]":
    """A column as bits, one row of them per cycle."""
    codes = np.zeros((rows, port.count), np.int64)
    if column is not None:
        codes[: len(column)] = np.asarray(column, np.int64).reshape(len(column), port.count)
    return (codes[:, :, None] >> np.arange(port.bits) & 1).astype(np.uint8).reshape(rows, -1)


def pack_bits(bits: "np.typing.NDArray[np.uint8]") -> "np.typing.NDArray[np.uint32]":
    """Rows of bits as the words of a wide port, the first bit lowest."""
    wide = -(-max(LEAST_BITS, bits.shape[1]) // 32) * 32
    padded = np.pad(bits, ((0, 0), (0, wide - bits.shape[1])))
    return np.ascontiguousarray(np.packbits(padded, axis=1, bitorder="little")).view(np.uint32)


def instance_text(circuit: Circuit, name: str, pins: Sequence[str]) -> str:
    """An instance of a circuit with these connections."""
    settings = ", ".join(f".{parameter}({literal(value)})" for parameter, value in circuit.parameters)
    return f"  {circuit.module} #({settings}) {name} (\n" + ",\n".join(pins) + "\n  );"


def literal(value: int) -> str:
    """An integer as Verilator and Yosys read it.

    >>> literal(7), literal(-3), literal(2**40)
    ('7', "32'hfffffffd", "256'h10000000000")
    """
    if value < 0:
        return f"32'h{value & 0xFFFFFFFF:x}"
    return str(value) if value < 2**31 else f"256'h{value:x}"
