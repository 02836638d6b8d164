"""Random hardware, firmware and vectors: what the engines are held against each other on.

Every draw is legal: `compile_firmware` takes it. Vectors reach the ends of the number format, repeat, and come in
frames of both levels.
"""

from typing import NamedTuple

import numpy as np

from presilicon.designs import ALU_FUNCTIONS, BLOCKS, REDUCE_FUNCTIONS, Hardware
from presilicon.formats import parse
from presilicon.instrument import Firmware, Image, InstrumentEngine, compile_firmware
from presilicon.instrument.firmware.instructions import CONDITIONS
from presilicon.instrument.model.words import CLASSES, values_of, word_limits

# element, accumulator widths (None is the element's own)
WORDS = [
    ("int8", (None, 12, 20)),
    ("int(4)", (None, 7)),
    ("fixed(4, 4)", (None, 16)),
    ("fixed(16, 16)", (None, 40, 48)),
    ("fixed(8, 8)", (None, 32)),
    ("fixed(1, 7)", (None, 9)),
    ("fixed(32, 0)", (None, 48)),
    ("fixed(1, 31)", (None, 48)),
    ("e5m2", (None, 12, 29)),
    ("float(4, 3)", (None, 16)),
    ("float(2, 1)", (None, 6)),
    ("float(5, 4, bias=20)", (None, 20)),
    ("float16", (None, 24)),
    ("bfloat16", (None, 24, 32)),
    ("float32", (None,)),
]


def random_hardware(rng: np.random.Generator, *, taps: bool = True) -> Hardware:
    """A small instrument of any block order, with most functions built; `taps` False keeps it to the bare core."""
    lanes = 1 << int(rng.integers(0, 5))
    element, widths = WORDS[rng.integers(len(WORDS))]
    blocks = tuple(str(name) for name in rng.permutation(BLOCKS)[: rng.choice([3, 3, 3, 2, 1])])
    several = taps and bool(rng.random() < 0.4)
    return Hardware(
        lanes=lanes,
        ranges=1 << int(rng.integers(0, lanes.bit_length())),
        buffer=1 << int(rng.integers(1, 5)),
        range_rows=int(rng.integers(1, 5)),
        scratchpad_rows=int(rng.integers(1, 6)),
        chains=int(rng.integers(4, 9)),
        blocks=blocks,
        alu=_most(rng, ALU_FUNCTIONS),
        reduce=_most(rng, REDUCE_FUNCTIONS),
        element=parse(element),
        accumulator_bits=widths[rng.integers(len(widths))],
        taps=int(rng.integers(2, 4)) if several else 1,
        flush="frame" if several else ("frame" if taps and rng.random() < 0.4 else "never"),
    )


def _most(rng, names):
    return tuple(name for name in names if rng.random() < 0.85)


def random_firmware(rng: np.random.Generator, hardware: Hardware) -> Firmware:
    """Firmware that fits a hardware: one program, or one for each of some taps, and a range row in most places."""
    firmware = Firmware()
    for row in range(hardware.range_rows):
        if rng.random() < 0.85:
            _random_row(rng, firmware, hardware, row)
    if hardware.taps == 1 or rng.random() < 0.5:
        _random_chains(rng, firmware, hardware, int(rng.integers(1, 5)))
        return firmware
    for tap in range(hardware.taps):
        if rng.random() < 0.8 or tap == 0:
            with firmware.program([tap]):
                _random_chains(
                    rng, firmware, hardware, max(1, int(rng.integers(1, hardware.chains // hardware.taps + 1)))
                )
    return firmware


def _random_chains(rng, firmware, hardware, count):
    made = 0
    while made < count:
        with firmware.chain():
            for block in hardware.blocks:
                {"filter_reduce": _filter, "vector_alu": _alu, "scalar_reduce": _reduce}[block](rng, firmware, hardware)
            if rng.random() < 0.7:
                firmware.commit(rng.choice(["M", "N"]) if rng.random() < 0.6 else 1, *_conditions(rng))
        made += 1


def _filter(rng, firmware, hardware):
    if rng.random() < 0.5:
        firmware.filter(int(rng.integers(hardware.range_rows)))
        firmware.reduce(str(rng.choice(["M", "N"])))


def _alu(rng, firmware, hardware):
    def row():
        return int(rng.integers(hardware.scratchpad_rows))

    if rng.random() < 0.3:
        firmware.load()
    if hardware.alu and rng.random() < 0.75:
        name = str(rng.choice(hardware.alu))
        getattr(firmware, name)(*([] if name == "abs" else [row()]), *_conditions(rng))
    after = [lambda: firmware.cache(row(), *_conditions(rng)), firmware.save]
    for act, odds in zip(rng.permutation(after), (0.6, 0.4), strict=True):
        if rng.random() < odds:
            act()


def _reduce(rng, firmware, hardware):
    if hardware.reduce and rng.random() < 0.4:
        firmware.reduce_to(str(rng.choice(hardware.reduce)))


def _conditions(rng):
    """Up to three conditions, none of which contradicts another."""
    names = []
    for begin in (0, 2):
        for level in ("", "@1"):
            if rng.random() < 0.25:
                names.append(CONDITIONS[begin + int(rng.integers(2))] + level)
    return names


def _random_row(rng, firmware, hardware, row):
    if rng.random() < 0.3:
        known = CLASSES if hardware.is_float else ("zero", "normal")
        firmware.class_row(row, [[name for name in known if rng.random() < 0.4] for _ in range(hardware.ranges)])
        return
    values = values_of(hardware, random_words(rng, hardware, hardware.ranges + 1))
    values = np.where(np.isnan(values), 0.0, values)
    nudged = np.where(rng.random(values.shape) < 0.3, values * (1 + rng.normal(size=values.shape) / 16), values)
    boundaries = np.sort(nudged)
    if rng.random() < 0.4:
        boundaries[0] = -np.inf
    if rng.random() < 0.4:
        boundaries[-1] = np.inf
    firmware.range_row(row, boundaries.tolist())


def random_words(rng: np.random.Generator, hardware: Hardware, count: int) -> np.ndarray:
    """Words that are widened elements: small numbers, ends of the format, zeros of both signs, codes at random."""
    spread = hardware.word_bits - hardware.element_bits
    if hardware.is_float:
        bits, mantissa = hardware.element_bits, hardware.word_mantissa - spread
        infinity = ((1 << hardware.exponent_bits) - 1) << mantissa
        one = (((1 << hardware.exponent_bits - 1) - 1) << mantissa) + rng.integers(
            -(2 << mantissa), 2 << mantissa, count
        )
        corners = [0, 1, (1 << mantissa) - 1, 1 << mantissa, infinity - 1, infinity, infinity + 1, (1 << bits - 1) - 1]
        magnitude = np.where(rng.random(count) < 0.6, np.clip(one, 0, infinity - 1), rng.choice(corners, count))
        anything = rng.integers(0, 1 << bits, count)
        signed = magnitude | (rng.integers(0, 2, count) << (bits - 1))
        return np.where(rng.random(count) < 0.2, anything, signed).astype(np.int64) << spread
    most = (1 << hardware.element_bits - 1) - 1
    near = rng.integers(-4, 5, count) << int(rng.integers(0, max(1, hardware.fraction_bits + 1)))
    corners = rng.choice([0, 1, -1, most, most - 1, -most, -most - 1], count)
    anything = rng.integers(-most - 1, most + 1, count)
    chosen = np.choose(rng.choice(3, count, p=[0.5, 0.2, 0.3]), [near, corners, anything])
    return np.clip(chosen, -most - 1, most).astype(np.int64)


def random_vectors(rng: np.random.Generator, hardware: Hardware, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Words [count, lanes] and frame ends [count, 2]; ends of level 1 mostly end level 0 too."""
    words = random_words(rng, hardware, count * hardware.lanes).reshape(count, hardware.lanes)
    outer = rng.random(count) < rng.choice([0.1, 0.3, 0.6])
    inner = (rng.random(count) < rng.choice([0.1, 0.4, 0.8])) | (outer & (rng.random(count) < 0.9))
    return words, np.stack([inner, outer], axis=1)


def differences(case: "Case", one: InstrumentEngine, other: InstrumentEngine) -> list[str]:
    """What two engines do differently on a case, frame by frame; nothing where they agree."""
    for engine in (one, other):
        engine.load(case.images[0])
    for number, (tap, words, last) in enumerate(case.frames):
        if number == len(case.frames) // 2:
            for engine in (one, other):
                engine.load(case.images[1].to_bytes())
        mine, theirs = list(one.feed(words, last, tap)), list(other.feed(words, last, tap))
        found = [] if mine == theirs else [f"frame {number}: blocks {mine} and {theirs}"]
        for name in ("scratchpad", "carried", "partial", "first"):
            a, b = getattr(one, name).tolist(), getattr(other, name).tolist()
            found += [] if a == b else [f"frame {number}: {name} {a} and {b}"]
        if found:
            return found
    return []


class Case(NamedTuple):
    """An instrument, two images for it, and what it is fed: (tap, words, last), each ending an outer frame."""

    hardware: Hardware
    images: tuple[Image, Image]
    frames: list[tuple[int, np.ndarray, np.ndarray]]


def random_case(seed: int, *, taps: bool = True, vectors: int = 24) -> Case:
    """The case of a seed: frames of random taps; the second image is meant for the middle of them."""
    rng = np.random.default_rng(seed)
    hardware = random_hardware(rng, taps=taps)
    images = tuple(compile_firmware(random_firmware(rng, hardware), hardware) for _ in range(2))
    words, last = random_vectors(rng, hardware, vectors)
    ends = [int(end) + 1 for end in np.flatnonzero(last[:, 1])]
    frames = []
    for begin, end in zip([0, *ends], [*ends, vectors], strict=True):
        if begin < end:
            frames.append((int(rng.integers(hardware.taps)), words[begin:end], last[begin:end]))
    if hardware.taps > 1 and frames:  # a frame that has not ended cannot make room for another tap
        frames[-1][2][-1] = True
    low, high = word_limits(hardware)
    assert low <= words.min() <= words.max() <= high
    return Case(hardware, images, frames)
