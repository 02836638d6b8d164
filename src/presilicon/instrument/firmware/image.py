"""The image: firmware as the bytes that a chip takes. docs/firmware.md has the layout."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from zlib import crc32

from msgspec import Struct

from presilicon.base import ConfigError
from presilicon.designs import ALU_FUNCTIONS, BLOCKS, REDUCE_FUNCTIONS, Hardware

MAGIC = b"PSFW"
VERSION = 1
PROGRAM, ROWS, SAMPLING, CONTROLS = 1, 2, 4, 8
HEADER = 24
CHAIN_BYTES = 12
BAD_VERSION, BAD_GEOMETRY, BAD_LENGTH, BAD_CHECKSUM, OUTSIDE = 2, 3, 4, 5, 6


class ImageRefusedError(ConfigError):
    """An image that a chip would not take; `code` is the reason that its status gives."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"image refused (code {code}): {message}")
        self.code = code


class Chain(Struct, frozen=True):
    """One pass through the blocks, as the image holds it."""

    filter: bool = False
    axis: int = 0
    """0 counts for each range (M), 1 for each lane (N)."""
    range_row: int = 0
    load: bool = False
    alu: int = 0
    """0 passes the vector; else one more than the index in `ALU_FUNCTIONS`."""
    alu_row: int = 0
    alu_conditions: int = 0
    cache: bool = False
    cache_row: int = 0
    cache_conditions: int = 0
    save: bool = False
    reduce: int = 0
    """0 for none; else one more than the index in `REDUCE_FUNCTIONS`."""
    commit: int = 0
    """0 for none, 1 for one word, 2 for M, 3 for N."""
    commit_conditions: int = 0
    bubbles: int = 0
    """Empty cycles before the chain."""

    def to_bytes(self) -> bytes:
        """The chain as 12 bytes of an image."""
        first = self.filter | self.axis << 1 | self.cache << 2 | self.load << 3 | self.save << 4 | self.commit << 5
        rows = (self.range_row, self.alu | self.reduce << 4, self.alu_row, self.cache_row, self.bubbles)
        conditions = (self.alu_conditions, self.cache_conditions, self.commit_conditions)
        return bytes((first, *rows, *conditions, 0, 0, 0))

    @staticmethod
    def from_bytes(data: bytes) -> "Chain":
        """The chain in 12 bytes of an image."""
        return Chain(
            filter=bool(data[0] & 1),
            axis=data[0] >> 1 & 1,
            range_row=data[1],
            load=bool(data[0] & 8),
            alu=data[2] & 15,
            alu_row=data[3],
            alu_conditions=data[6],
            cache=bool(data[0] & 4),
            cache_row=data[4],
            cache_conditions=data[7],
            save=bool(data[0] & 16),
            reduce=data[2] >> 4 & 7,
            commit=data[0] >> 5 & 3,
            commit_conditions=data[8],
            bubbles=data[5],
        )

    def features(self) -> int:
        """Features that the chip must have: ALU functions in bits 0-5, reduce functions in 8-11, blocks in 12-14."""
        bits = 1 << self.alu - 1 if self.alu else 0
        bits |= 1 << 7 + self.reduce if self.reduce else 0
        used = (self.filter, bool(self.alu) or self.cache or self.load or self.save, bool(self.reduce))
        return bits | sum(1 << 12 + block for block, use in enumerate(used) if use)


class StoredRow(Struct, frozen=True):
    """A range row as the image holds it: `keys` are M + 1 keys, or M class masks and a 0."""

    row: int
    is_classes: bool
    keys: tuple[int, ...]


@dataclass(frozen=True)
class Image:
    """One message from the host. Parts that are None stay as they are on the chip."""

    hardware: Hardware
    chains: tuple[Chain, ...] | None = None
    taps: tuple[tuple[int, int], ...] = ()
    """First chain and number of chains of each tap; 0 chains: the tap is not watched."""
    rows: tuple[StoredRow, ...] = ()
    sampling: tuple[int, ...] | None = None
    """A number k for each tap: every k-th outer frame is looked at, 0 for none."""
    controls: tuple[tuple[int, int], ...] = ()
    """Registers and their values."""
    warnings: tuple[str, ...] = dataclass_field(default=(), compare=False)

    def chains_of(self, tap: int) -> tuple[Chain, ...]:
        """The program of a tap."""
        if self.chains is None:
            return ()
        first, count = self.taps[tap]
        return self.chains[first : first + count]

    def initiation_interval(self, tap: int = 0) -> int:
        """Cycles from one vector of a tap to its next: chains and the bubbles between them."""
        return sum(1 + chain.bubbles for chain in self.chains_of(tap))

    def features(self) -> int:
        """Features that the chains need, as `Chain.features`."""
        bits = 0
        for chain in self.chains or ():
            bits |= chain.features()
        return bits

    def to_bytes(self) -> bytes:
        """The message as bytes."""
        sections = (PROGRAM if self.chains is not None else 0) | (ROWS if self.rows else 0)
        sections |= (SAMPLING if self.sampling is not None else 0) | (CONTROLS if self.controls else 0)
        payload = b"".join(self._sections())
        head = MAGIC + bytes((VERSION, sections)) + geometry(self.hardware) + struct.pack("<H", self.features())
        message = head + struct.pack("<I", len(payload)) + payload
        return message + struct.pack("<I", crc32(message))

    def _sections(self) -> Iterator[bytes]:
        if self.chains is not None:
            yield bytes((len(self.chains), *(number for pair in self.taps for number in pair)))
            yield b"".join(chain.to_bytes() for chain in self.chains)
        if self.rows:
            width = key_bytes(self.hardware)
            yield bytes((len(self.rows),))
            for row in self.rows:
                keys = b"".join(key.to_bytes(width, "little", signed=True) for key in row.keys)
                yield bytes((row.row, row.is_classes)) + keys
        if self.sampling is not None:
            yield struct.pack(f"<{len(self.sampling)}H", *self.sampling)
        if self.controls:
            yield bytes((len(self.controls),))
            yield b"".join(struct.pack("<BI", register, value) for register, value in self.controls)


def longest_payload(hardware: Hardware) -> int:
    """The largest payload of any image for a hardware: every number of items at its largest, 255.

    A larger length is refused before the payload comes, so that a damaged length swallows no more than that.
    """
    row = 2 + (hardware.ranges + 1) * key_bytes(hardware)
    return 3 + 4 * hardware.taps + 255 * (CHAIN_BYTES + row + 5)


def key_bytes(hardware: Hardware) -> int:
    """Bytes of a stored key."""
    return -(-hardware.key_bits // 8)


def geometry(hardware: Hardware) -> bytes:
    """12 bytes that an image and its chip must have in common."""
    fraction = hardware.word_mantissa if hardware.is_float else hardware.fraction_bits
    kinds = (hardware.word_bits, hardware.is_float, hardware.exponent_bits, fraction)
    sizes = (hardware.range_rows, hardware.scratchpad_rows, hardware.chains, hardware.taps)
    return struct.pack("<HH8B", hardware.lanes, hardware.ranges, *kinds, *(size - 1 for size in sizes))


def built_features(hardware: Hardware) -> int:
    """Features of a hardware, as `Chain.features`."""
    alu = sum(1 << ALU_FUNCTIONS.index(name) for name in hardware.alu)
    reduce = sum(1 << 8 + REDUCE_FUNCTIONS.index(name) for name in hardware.reduce)
    return alu | reduce | sum(1 << 12 + BLOCKS.index(name) for name in hardware.blocks)


def read_image(data: bytes, hardware: Hardware) -> Image:
    """The image in a message, checked as the chip checks it: version, geometry, length, checksum, then contents.

    Raises:
        ImageRefusedError: with the code of the first check that fails.
    """
    sections = _check_frame(data, hardware)
    reader = _Reader(data[HEADER:-4])
    image = Image(hardware, *_read_program(reader, hardware)) if sections & PROGRAM else Image(hardware)
    rows = _read_rows(reader, hardware) if sections & ROWS else ()
    sampling = struct.unpack(f"<{hardware.taps}H", reader.take(2 * hardware.taps)) if sections & SAMPLING else None
    controls = _read_controls(reader) if sections & CONTROLS else ()
    reader.end()
    image = Image(hardware, image.chains, image.taps, rows, sampling, controls)
    if image.features() != int.from_bytes(data[18:20], "little"):
        raise ImageRefusedError(BAD_GEOMETRY, "its chains use other functions than its header says")
    _check_inside(image)
    return image


def _check_frame(data: bytes, hardware: Hardware) -> int:
    """Check everything around the payload; returns the bits of its sections."""
    check_beginning(data)
    if data[6:18] != geometry(hardware):
        raise ImageRefusedError(BAD_GEOMETRY, f"it is for {describe_geometry(data[6:18])}")
    features = int.from_bytes(data[18:20], "little")
    if features & ~built_features(hardware):
        raise ImageRefusedError(BAD_GEOMETRY, "it uses functions or blocks that were not built")
    announced = int.from_bytes(data[20:24], "little")
    if announced > longest_payload(hardware):
        raise ImageRefusedError(BAD_LENGTH, f"its header announces {announced} bytes, more than any image has")
    if len(data) != HEADER + announced + 4:
        raise ImageRefusedError(BAD_LENGTH, f"{len(data)} bytes, but its header announces another length")
    if crc32(data[:-4]) != int.from_bytes(data[-4:], "little"):
        raise ImageRefusedError(BAD_CHECKSUM, "its checksum does not match")
    if data[5] >> 4:
        raise ImageRefusedError(OUTSIDE, f"it announces sections that do not exist ({data[5]:#x})")
    return data[5]


def check_beginning(data: bytes) -> None:
    """Raise unless bytes are long enough for an image's header and begin as one of this version.

    Raises:
        ImageRefusedError: they do not.
    """
    if len(data) < HEADER:
        raise ImageRefusedError(BAD_LENGTH, f"{len(data)} bytes, fewer than a header has")
    if data[:4] != MAGIC:
        raise ImageRefusedError(BAD_VERSION, f"it begins with {data[:4]!r}, not {MAGIC!r}")
    if data[4] != VERSION:
        raise ImageRefusedError(BAD_VERSION, f"version {data[4]}, but this chip takes version {VERSION}")


def describe_geometry(data: bytes) -> str:
    """The 12 geometry bytes in words."""
    lanes, ranges, bits, kind, exponent, fraction, rows, scratchpad, chains, taps = struct.unpack("<HH8B", data)
    word = f"{bits}-bit " + (
        f"floats (e{exponent}m{fraction})" if kind else f"fixed point with {fraction} fraction bits"
    )
    return (
        f"{lanes} lanes, {ranges} ranges, {word}, {rows + 1} range rows, {scratchpad + 1} scratchpad rows, "
        f"{chains + 1} chains, {taps + 1} taps"
    )


class _Reader:
    """Reads a payload part by part; one that is too short or too long is refused."""

    def __init__(self, payload: bytes) -> None:
        self.payload = payload
        self.position = 0

    def take(self, count: int) -> bytes:
        if self.position + count > len(self.payload):
            raise ImageRefusedError(BAD_LENGTH, "its payload ends within a section")
        self.position += count
        return self.payload[self.position - count : self.position]

    def byte(self) -> int:
        return self.take(1)[0]

    def end(self) -> None:
        if self.position != len(self.payload):
            raise ImageRefusedError(BAD_LENGTH, f"{len(self.payload) - self.position} bytes follow its last section")


def _read_program(reader: _Reader, hardware: Hardware) -> tuple[tuple[Chain, ...], tuple[tuple[int, int], ...]]:
    count = reader.byte()
    taps = tuple((reader.byte(), reader.byte()) for _ in range(hardware.taps))
    return tuple(Chain.from_bytes(reader.take(CHAIN_BYTES)) for _ in range(count)), taps


def _read_rows(reader: _Reader, hardware: Hardware) -> tuple[StoredRow, ...]:
    width, rows = key_bytes(hardware), []
    for _ in range(reader.byte()):
        row, kind = reader.byte(), reader.byte()
        data = reader.take(width * (hardware.ranges + 1))
        keys = (int.from_bytes(data[at : at + width], "little", signed=True) for at in range(0, len(data), width))
        if kind > 1:
            raise ImageRefusedError(OUTSIDE, f"range row {row} is of kind {kind}, which does not exist")
        rows.append(StoredRow(row, bool(kind), tuple(keys)))
    return tuple(rows)


def _read_controls(reader: _Reader) -> tuple[tuple[int, int], ...]:
    return tuple((reader.byte(), int.from_bytes(reader.take(4), "little")) for _ in range(reader.byte()))


def _check_inside(image: Image) -> None:
    hardware, chains = image.hardware, image.chains or ()
    problems = [
        (len(chains) > hardware.chains, f"{len(chains)} chains, but there is room for {hardware.chains}"),
        (any(first + count > len(chains) for first, count in image.taps), "a tap's chains lie outside of the program"),
        (any(row.row >= hardware.range_rows for row in image.rows), "a range row lies outside of the memory"),
        (any(register >= hardware.controls for register, _ in image.controls), "a register does not exist"),
    ]
    for number, chain in enumerate(chains, start=1):
        rows = max(chain.alu_row, chain.cache_row)
        problems += [
            (chain.alu > len(ALU_FUNCTIONS), f"chain {number} has an ALU function that does not exist"),
            (chain.reduce > len(REDUCE_FUNCTIONS), f"chain {number} has a reduce function that does not exist"),
            (chain.range_row >= hardware.range_rows, f"chain {number} uses range row {chain.range_row}"),
            (rows >= hardware.scratchpad_rows, f"chain {number} uses scratchpad row {rows}"),
        ]
    for is_wrong, message in problems:
        if is_wrong:
            raise ImageRefusedError(OUTSIDE, message)
