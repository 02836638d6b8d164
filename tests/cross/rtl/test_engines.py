"""Reference, fast model and circuit agree bit by bit: random firmware, random vectors, random back pressure."""

import numpy as np
import pytest
from cases import differences
from circuits import CIRCUITS, case_of

from presilicon.instrument import FastModel, Firmware, Image, ImageRefusedError, Reference, compile_firmware
from presilicon.rtl import RtlModel

CASES = 40
MANY = 100_000 // len(CIRCUITS)
GAPS = [0.0, 0.3, 0.8]


def circuit(hardware, seed) -> RtlModel:
    rng = np.random.default_rng(seed)
    return RtlModel(hardware, seed=seed, in_gap=float(rng.choice(GAPS)), out_gap=float(rng.choice(GAPS)))


@pytest.mark.parametrize("name", CIRCUITS)
def test_three_engines_agree(name) -> None:
    hardware = CIRCUITS[name]
    for seed in range(CASES):
        case = case_of(hardware, seed)
        for model in (Reference(hardware), FastModel(hardware)):
            found = differences(case, model, circuit(hardware, seed))
            assert not found, (seed, found)


@pytest.mark.slow
@pytest.mark.parametrize("name", CIRCUITS)
def test_three_engines_agree_on_many_cases(name) -> None:
    hardware = CIRCUITS[name]
    for seed in range(CASES, CASES + MANY):
        case = case_of(hardware, seed)
        model = Reference(hardware) if seed % 10 == 0 else FastModel(hardware)
        found = differences(case, model, circuit(hardware, seed))
        assert not found, (seed, found)


def crowded(rng) -> Firmware:
    """Chains that write and read two rows and the carried vector again and again, early and late."""
    fw = Firmware()
    for _ in range(int(rng.integers(2, 7))):
        with fw.chain():
            if rng.random() < 0.3:
                fw.load()
            if rng.random() < 0.7:
                (fw.mul, fw.mul, fw.add, fw.max)[rng.integers(4)](int(rng.integers(2)))
            if rng.random() < 0.7:
                fw.cache(int(rng.integers(2)), *(["last"] if rng.random() < 0.3 else []))
            if rng.random() < 0.4:
                fw.save()
            fw.commit("N")
    return fw


@pytest.mark.parametrize("name", ["fixed", "half"])
def test_writes_that_overtake_late_ones(name) -> None:
    hardware = CIRCUITS[name]
    for seed in range(CASES):
        case = case_of(hardware, seed)
        images = tuple(compile_firmware(crowded(np.random.default_rng([seed, part])), hardware) for part in range(2))
        found = differences(case._replace(images=images), FastModel(hardware), circuit(hardware, seed))
        assert not found, (seed, found)


@pytest.mark.parametrize("name", ["half", "integers"])
def test_frames_that_are_broken_off(name) -> None:
    hardware = CIRCUITS[name]
    for seed in range(20):
        case = case_of(hardware, 1000 + seed, vectors=30)
        engines = (Reference(hardware), circuit(hardware, seed))
        for engine in engines:
            engine.load(case.images[0])
        for number, (tap, words, last) in enumerate(case.frames):
            for broken in {0: (False,), 1: (True, False)}[number % 2]:
                part = max(1, len(words) // 2) if broken else len(words)
                flags = last[:part] & np.array([True, not broken])
                given = [list(engine.feed(words[:part], flags, tap)) for engine in engines]
                assert given[0] == given[1]
                if broken:
                    for engine in engines:
                        engine.break_off()
                    engines[0].load(case.images[1])
                    engines[1].load(case.images[1])
            assert engines[0].first.tolist() == engines[1].first.tolist()
            assert engines[0].scratchpad.tolist() == engines[1].scratchpad.tolist()
            assert engines[0].partial.tolist() == engines[1].partial.tolist()


def test_images_that_come_within_a_frame_wait_for_its_end() -> None:
    hardware = CIRCUITS["half"]
    for seed in range(20):
        case = case_of(hardware, 2000 + seed)
        engines = (Reference(hardware), circuit(hardware, seed))
        for engine in engines:
            engine.load(case.images[0])
        for tap, words, last in case.frames:
            half = len(words) // 2
            given = [list(engine.feed(words[:half], last[:half], tap)) for engine in engines]
            assert given[0] == given[1]
            for engine in engines:  # two at once: the second comes into force over the first
                engine.load(case.images[seed % 2])
                engine.load(case.images[1 - seed % 2])
            given = [list(engine.feed(words[half:], last[half:], tap)) for engine in engines]
            assert given[0] == given[1]


def test_controls_are_exchanged_with_their_image() -> None:
    hardware = CIRCUITS["half"]
    engine = RtlModel(hardware)
    engine.load(Image(hardware, controls=((0, 7), (3, 0xFFFFFFFF))))
    engine.feed([[0, 0, 0, 0]], [[False, False]])
    engine.load(Image(hardware, controls=((3, 5),)))
    assert engine.controls == [7, 0, 0, 0xFFFFFFFF]
    engine.feed([[0, 0, 0, 0]], [[False, True]])
    assert engine.controls == [7, 0, 0, 5]


def _damaged(hardware, image):
    """Images that a chip refuses, with the code of the refusal."""
    import struct
    from zlib import crc32

    def sealed(data):
        return bytes(data) + struct.pack("<I", crc32(bytes(data)))

    def changed(place, value):
        data = bytearray(image[:-4])
        data[place] = value
        return sealed(data)

    longer = bytearray(image[:-4] + b"\0")
    longer[20:24] = struct.pack("<I", len(longer) - 24)
    shorter = bytearray(image[:-5])
    shorter[20:24] = struct.pack("<I", len(shorter) - 24)
    endless = bytearray(image)
    endless[20:24] = b"\xff\xff\xff\x7f"
    flipped = bytearray(image)
    flipped[30] ^= 4
    yield 2, changed(4, 9)
    for place in range(6, 18):
        yield 3, changed(place, image[place] + 1 & 0xFF)
    yield 3, changed(19, 0x80)
    yield 3, changed(18, image[18] ^ 1)
    yield 4, sealed(longer)
    yield 4, sealed(shorter)
    yield 4, bytes(endless[:24])
    yield 5, bytes(flipped)
    yield 5, bytes(image[:-1]) + bytes([image[-1] ^ 128])
    yield 6, changed(5, image[5] | 16)
    chain = 24 + 1 + 2 * hardware.taps
    for place, value in ((25, 100), (26, 255), (chain + 1, 50), (chain + 3, 50), (chain + 4, 99)):
        yield 6, changed(place, value)


@pytest.mark.parametrize("name", ["fixed", "integers"])
def test_images_are_refused_and_the_old_one_keeps_running(name) -> None:
    hardware = CIRCUITS[name]
    fw = Firmware()
    fw.range_row(1, [float(bound) for bound in range(hardware.ranges + 1)])
    with fw.chain():
        fw.filter(1)
        fw.reduce("M")
        fw.commit("N", "last")
    with fw.chain():
        fw.add(0, "notfirst")
        fw.cache(0)
        fw.commit("N", "last")
    good = compile_firmware(fw, hardware).to_bytes()
    case = case_of(hardware, 5)
    reference, engine = Reference(hardware), RtlModel(hardware)
    reference.load(good)
    engine.load(good)
    codes = []
    for code, bad in _damaged(hardware, good):
        with pytest.raises(ImageRefusedError) as refusal:
            engine.load(bad)
        assert refusal.value.code == code, bad.hex()
        if len(bad) > 28:
            with pytest.raises(ImageRefusedError) as expected:
                reference.load(bad)
            assert expected.value.code == code
        codes.append(code)
        tap, words, last = case.frames[len(codes) % len(case.frames)]
        words, last = words[:1], np.ones((1, 2), bool)
        assert list(engine.feed(words, last, tap)) == list(reference.feed(words, last, tap))
    assert set(codes) == {2, 3, 4, 5, 6}
    assert engine.status == (int.from_bytes(good[-4:], "little"), 1, len(codes), codes[-1])


def test_bytes_before_an_image_are_passed_over() -> None:
    hardware = CIRCUITS["half"]
    engine = RtlModel(hardware)
    engine.load(b"PSPSF\x01noise" + Image(hardware, controls=((1, 2),)).to_bytes())
    assert engine.controls[1] == 2


@pytest.mark.parametrize("name", CIRCUITS)
def test_one_chain_in_every_cycle_but_for_hazards(name) -> None:
    """Vectors are accepted as fast as the compiler says: chains plus bubbles."""
    hardware = CIRCUITS[name]
    intervals = set()
    for seed in range(12):
        case = case_of(hardware, 3000 + seed)
        image = case.images[0]
        engine = RtlModel(hardware)
        engine.load(image)
        cycles = []
        for count in (4, 30, 70):  # the program is fetched with the first; then 40 vectors more
            words = np.tile(case.frames[0][1][:1], (count, 1))
            engine.feed(words, np.zeros((count, 2), bool))
            cycles.append(engine.accept_cycles)
        assert cycles[2] - cycles[1] == 40 * image.initiation_interval()
        intervals.add(image.initiation_interval())
    assert len(intervals) > 1
