"""Images: bytes as documented, refused as documented, and the old firmware keeps running."""

import struct
from zlib import crc32

import numpy as np
import pytest
from msgspec.structs import replace

from presilicon.base import ConfigError
from presilicon.designs import Hardware
from presilicon.formats import parse
from presilicon.instrument import (
    FastModel,
    Firmware,
    ImageRefusedError,
    Reference,
    compile_firmware,
    disassemble,
    read_image,
)

HARDWARE = Hardware(lanes=4, ranges=2, range_rows=2, scratchpad_rows=2, chains=3, element=parse("int8"), controls=2)


def firmware() -> Firmware:
    fw = Firmware()
    fw.range_row(1, ["-inf", 0, 5])
    fw.class_row(0, ["zero"])
    with fw.chain():
        fw.filter(1)
        fw.reduce("N")
        fw.load()
        fw.sub(1, "notfirst", "last@1")
        fw.cache(1, "first")
        fw.save()
        fw.reduce_to("max")
        fw.commit("M", "last", "notfirst@1")
    with fw.chain():
        fw.commit("N")
    return fw


IMAGE = compile_firmware(firmware(), HARDWARE, sampling=[3], controls={1: 9})


def sealed(data: bytes) -> bytes:
    """Bytes with a checksum that is right again."""
    return data[:-4] + struct.pack("<I", crc32(data[:-4]))


def patched(place: int, value: int, seal: bool = True) -> bytes:
    data = bytearray(IMAGE.to_bytes())
    data[place] = value
    return sealed(bytes(data)) if seal else bytes(data)


def test_the_bytes_by_hand() -> None:
    chain_1 = bytes([0b10_1_1_1_1_1 | 0, 1, 2 | 3 << 4, 1, 1, 0, 0b0100_0010, 0b0001, 0b0010_0100, 0, 0, 0])
    chain_1 = bytes([1 | 2 | 4 | 8 | 16 | 2 << 5]) + chain_1[1:]
    chain_2 = bytes([3 << 5, *[0] * 11])
    program = bytes([2, 0, 2]) + chain_1 + chain_2
    row_0 = bytes([0, 1]) + struct.pack("<3h", 16, 0, 0)
    row_1 = bytes([1, 0]) + struct.pack("<3h", -129, 0, 5)
    rows = bytes([2]) + row_0 + row_1
    payload = program + rows + struct.pack("<H", 3) + bytes([1, 1]) + struct.pack("<I", 9)
    geometry = struct.pack("<HHBBBBBBBB", 4, 2, 8, 0, 0, 0, 1, 1, 2, 0)
    features = bytes([1 << 1, 1 << 2 | 0b111 << 4])
    message = b"PSFW" + bytes([1, 15]) + geometry + features + struct.pack("<I", len(payload)) + payload
    assert IMAGE.to_bytes() == message + struct.pack("<I", crc32(message))


def test_there_and_back() -> None:
    assert read_image(IMAGE.to_bytes(), HARDWARE) == IMAGE
    assert read_image(IMAGE.to_bytes(), HARDWARE).to_bytes() == IMAGE.to_bytes()


def test_sizes_that_are_equal_take_the_larger_code() -> None:
    fw = Firmware()
    with fw.chain():
        fw.commit(1)
    assert compile_firmware(fw, replace(HARDWARE, ranges=1)).chains[0].commit == 2
    assert compile_firmware(fw, replace(HARDWARE, lanes=1, ranges=1)).chains[0].commit == 3
    fw = Firmware()
    with fw.chain():
        fw.commit("M")
    assert compile_firmware(fw, replace(HARDWARE, ranges=4)).chains[0].commit == 3


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", 4),
        (b"PSFW", 4),
        (b"NOPE" + IMAGE.to_bytes()[4:], 2),
        (patched(4, 2), 2),
        (patched(6, 8), 3),  # lanes
        (patched(10, 16), 3),  # word bits
        (patched(11, 1), 3),  # kind
        (patched(17, 1), 3),  # taps
        (patched(18, 0xC0), 3),  # functions that do not exist
        (patched(18, 1 << 2), 3),  # others than the chains use
        (IMAGE.to_bytes()[:-1], 4),
        (IMAGE.to_bytes() + b"\0", 4),
        (sealed(IMAGE.to_bytes()[:-8] + b"\0\0\0\0"), 4),
        (patched(20, 3), 4),
        (patched(60, 77, seal=False), 5),
        (IMAGE.to_bytes()[:-1] + bytes([IMAGE.to_bytes()[-1] ^ 1]), 5),
        (patched(24, 9), 4),  # more chains than bytes
        (patched(26, 3), 6),  # a tap's chains beyond the program
        (patched(28, 2), 6),  # a range row
        (patched(30, 2), 6),  # a scratchpad row
        (patched(31, 200), 6),
        (patched(52, 2), 6),  # where a row of ranges goes
        (patched(53, 2), 6),  # its kind
        (patched(len(IMAGE.to_bytes()) - 9, 2), 6),  # a register
        (patched(5, 0x1F), 6),  # a section that does not exist
    ],
)
@pytest.mark.parametrize("kind", [Reference, FastModel])
def test_a_bad_image_is_refused_and_the_old_one_stays(kind, data: bytes, code: int) -> None:
    fw = Firmware()
    with fw.chain():
        fw.add(0, "notfirst")
        fw.cache(0)
        fw.commit("N")
    engine = kind(HARDWARE)
    engine.load(compile_firmware(fw, HARDWARE))
    flags = [[False, False]]
    before = engine.feed([[1, 2, 3, 4]], flags)[0].words.tolist()
    with pytest.raises(ImageRefusedError) as caught:
        engine.load(data)
    assert caught.value.code == code, caught.value
    assert isinstance(caught.value, ConfigError)
    assert engine.feed([[1, 1, 1, 1]], flags)[0].words.tolist() == [word + 1 for word in before]


def test_every_flipped_bit_is_found() -> None:
    data = IMAGE.to_bytes()
    for bit in range(8 * len(data)):
        wrong = bytearray(data)
        wrong[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ImageRefusedError):
            read_image(bytes(wrong), HARDWARE)


def test_functions_that_were_not_built_are_refused() -> None:
    fw = Firmware()
    with fw.chain():
        fw.mul(0)
        fw.commit("N")
    data = compile_firmware(fw, HARDWARE).to_bytes()
    for fewer in (replace(HARDWARE, alu=("add",)), replace(HARDWARE, blocks=("filter_reduce",))):
        with pytest.raises(ImageRefusedError) as caught:
            FastModel(fewer).load(data)
        assert caught.value.code == 3


def test_disassembly_reads_like_firmware() -> None:
    assert disassemble(IMAGE.to_bytes()).splitlines() == [
        "for 4 lanes, 2 ranges, 8-bit fixed point with 0 fraction bits, 2 range rows, 2 scratchpad rows, 3 chains, "
        "1 taps",
        "ranges 0: classes zero | -",
        "ranges 1: low < x <= high between -inf, 0, 5",
        "tap 0: initiation interval 2",
        "  chain 1: vv_filter(1) m_reduce(N) v_mc_load() vv_sub(1, notfirst, last@1) v_cache(1, first) v_mc_save() "
        "v_reduce(max) v_commit(M, last, notfirst@1)",
        "  chain 2: v_commit(N)",
        "sampling of outer frames: tap 0: every 3",
        "control 1 = 9",
    ]


def test_disassembly_of_floats() -> None:
    hardware = replace(HARDWARE, element=parse("bfloat16"), accumulator_bits=32)
    fw = Firmware()
    fw.range_row(0, ["-inf", -1.5, "inf"])
    fw.class_row(1, ["nan", ["+inf", "-inf"]])
    text = disassemble(compile_firmware(fw, hardware).to_bytes())
    assert "32-bit floats (e8m23)" in text
    assert "between -inf, -1.5, inf" in text
    assert "classes nan | +inf -inf" in text


def test_disassembly_refuses_what_is_no_image() -> None:
    for data in (b"", b"x" * 200, IMAGE.to_bytes()[:20], patched(60, 77, seal=False), patched(6, 3)):
        with pytest.raises(ConfigError):
            disassemble(data)


@pytest.mark.parametrize("kind", [Reference, FastModel])
def test_an_image_changes_what_it_has_and_no_more(kind) -> None:
    """Ranges alone leave the program; a program alone leaves the ranges; memories keep what they hold."""
    counting = Firmware()
    counting.range_row(0, [0, 1, 2])
    with counting.chain():
        counting.filter(0)
        counting.reduce("M")
        counting.cache(1)
        counting.commit("N")
    engine = kind(HARDWARE)
    engine.load(compile_firmware(counting, HARDWARE))
    vector, end = [[1, 1, 2, 5]], [[True, True]]
    assert engine.feed(vector, end)[0].words.tolist() == [2, 1, 0, 0]
    other = Firmware()
    other.range_row(0, [1, 2, 9])
    engine.load(compile_firmware(other, HARDWARE))
    assert engine.feed(vector, end)[0].words.tolist() == [1, 1, 0, 0]
    adding = Firmware()
    with adding.chain():
        adding.add(1)
        adding.commit("N")
    engine.load(compile_firmware(adding, HARDWARE))
    assert engine.feed(vector, end)[0].words.tolist() == [2, 2, 2, 5]
    engine.load(compile_firmware(Firmware(), HARDWARE, controls={1: 5}, sampling=[4]))
    assert (engine.settings.controls, engine.settings.sampling) == ([0, 5], [4])


@pytest.mark.parametrize("kind", [Reference, FastModel])
def test_an_image_in_the_middle_of_a_frame_waits(kind) -> None:
    def passing(size):
        fw = Firmware()
        with fw.chain():
            fw.commit(size)
        return compile_firmware(fw, HARDWARE)

    engine = kind(HARDWARE)
    engine.load(passing("N"))
    open_, end = [False, False], [True, True]
    engine.feed([[1, 2, 3, 4]], [open_])
    engine.load(passing(1))
    assert engine.feed([[5, 6, 7, 8]], [open_])[0].words.tolist() == [5, 6, 7, 8]
    blocks = engine.feed(np.array([[1, 1, 1, 1], [2, 2, 2, 2], [3, 3, 3, 3]]), [end, open_, end])
    assert [block.words.tolist() for block in blocks] == [[1, 1, 1, 1]]
    assert engine.partial.tolist() == [2, 3]
