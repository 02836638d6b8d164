"""A self-checking testbench: firmware, vectors, and the expected output, computed by the reference."""

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from presilicon.base import RunFailedError, np
from presilicon.designs import Hardware
from presilicon.instrument import PACKET_OVERHEAD, Firmware, Image, Reference, Status, StreamWriter, compile_firmware
from presilicon.rtl.project import hex_text
from presilicon.rtl.sources import fill
from presilicon.rtl.verilator import build_program

if TYPE_CHECKING:
    from numpy.typing import NDArray

FRAMES, LENGTH = 6, 5
BENCH = "instrument_tb"
GARBLED = 5
"""Refusal code of an image with a wrong checksum."""


class TestVectors(NamedTuple):
    """Input and expected output of a testbench."""

    image: bytes
    """A damaged image, which is refused, and the right one."""
    words: "NDArray[np.int64]"
    last: "NDArray[np.bool_]"
    taps: list[int]
    """The tap of each vector; frames of the taps alternate."""
    also: "NDArray[np.bool_]"
    """Vectors at which the last tap offers a frame of one vector, too: it is dropped."""
    expected: list[int]
    """Bytes of the stream, or the words of the bare core's blocks."""
    pause: int
    """Cycles behind each frame (of the bare core: each vector) that keep the instrument from falling behind."""
    interval: int
    """Cycles from one vector of a frame to the next."""


def example_firmware(hardware: Hardware) -> Firmware:
    """Firmware that uses every built block: counts, sums over the frame, reductions, the vectors themselves."""
    fw = Firmware()
    with fw.chain():
        fw.commit("N", "first@1")
    chains = 1
    if "filter_reduce" in hardware.blocks and chains < hardware.chains:
        fw.range_row(0, [float("-inf"), *(0.25 * bound for bound in range(hardware.ranges - 1)), float("inf")])
        chains += 1
        with fw.chain():
            fw.filter(0)
            fw.reduce("M")
            fw.commit("M")
    if "vector_alu" in hardware.blocks and "add" in hardware.alu and chains < hardware.chains:
        chains += 1
        with fw.chain():
            fw.add(0, "notfirst@1")
            fw.cache(0)
            fw.commit("N", "last@1")
    if "scalar_reduce" in hardware.blocks and hardware.reduce and chains < hardware.chains:
        with fw.chain():
            fw.reduce_to(hardware.reduce[0])
            fw.commit(1)
    return fw


def make_bench(hardware: Hardware, seed: int = 0) -> TestVectors:
    """Random vectors, with numbers at the ends, through the example firmware, and the output of the reference."""
    rng = np.random.default_rng(seed)
    image = compile_firmware(example_firmware(hardware), hardware)
    sent = image.to_bytes()
    sent = sent[:-1] + bytes([sent[-1] ^ 1]) + sent
    count = FRAMES * LENGTH
    codes = rng.integers(0, 1 << hardware.element_bits, (count, hardware.lanes))
    largest = (1 << hardware.element_bits - 1) - 1
    ends = rng.choice([largest, largest + 1], (count // LENGTH, hardware.lanes)).repeat(LENGTH, axis=0)
    codes = np.where(rng.random(codes.shape) < 0.4, ends, codes)
    if hardware.is_float:
        words = codes << hardware.word_bits - hardware.element_bits
    else:
        spare = 64 - hardware.element_bits
        words = codes << spare >> spare
    last = np.zeros((count, 2), np.bool_)
    last[LENGTH - 1 :: LENGTH] = True
    taps = [vector // LENGTH % hardware.taps for vector in range(count)]
    also = np.zeros(count, np.bool_)
    if hardware.taps > 1:
        also[1 + (LENGTH * hardware.taps if hardware.taps < FRAMES else 0)] = True  # while the first tap's is under way
    engine = Reference(hardware)
    engine.load(image)
    per_vector = image.initiation_interval() + 2
    most = len(image.chains_of(0)) * LENGTH * (hardware.lanes * ((hardware.word_bits + 7) // 8) + PACKET_OVERHEAD)
    if not hardware.flushes:
        mask = (1 << hardware.word_bits) - 1
        blocks = engine.feed(words, last)
        numbers = [int(word) & mask for block in blocks for word in block.words]
        return TestVectors(sent, words, last, taps, also, numbers, per_vector, per_vector)
    stream = list(_stream(engine, image, words, last, taps, also))
    return TestVectors(sent, words, last, taps, also, stream, LENGTH * (per_vector + 2 * most), per_vector - 2)


def _stream(
    engine: Reference,
    image: Image,
    words: "NDArray[np.int64]",
    last: "NDArray[np.bool_]",
    taps: Sequence[int],
    also: "NDArray[np.bool_]",
) -> bytes:
    hardware = engine.hardware
    writer = StreamWriter(hardware)
    checksum = int.from_bytes(image.to_bytes()[-4:], "little")
    dropped = [0] * hardware.taps
    sent = writer.status(Status(0, 0, 1, GARBLED, tuple(dropped)))
    sent += writer.status(Status(checksum, 1, 1, GARBLED, tuple(dropped)))
    numbers = [0] * hardware.taps
    for begin in range(0, len(words), LENGTH):
        tap = taps[begin]
        if also[begin : begin + LENGTH].any():
            dropped[-1] += 1
            numbers[-1] += 1
            sent += writer.status(Status(checksum, 1, 1, GARBLED, tuple(dropped)))
        blocks = engine.feed(words[begin : begin + LENGTH], last[begin : begin + LENGTH], tap)
        sent += writer.frame(tap, numbers[tap], [block.words.tolist() for block in blocks])
        numbers[tap] += 1
    return sent


def testbench_texts(hardware: Hardware, other_clock: Sequence[int], *, sources: int) -> dict[str, str]:
    """The testbench of a circuit with so many source files, its data, and how to run it, by path."""
    bench = make_bench(hardware)
    spare = hardware.word_bits - hardware.element_bits if hardware.is_float else 0
    mask = (1 << hardware.element_bits) - 1
    vectors = []
    rows = zip(bench.words.tolist(), bench.last.tolist(), bench.taps, bench.also.tolist(), strict=True)
    for vector, flags, tap, also in rows:
        code = sum((word >> spare & mask) << lane * hardware.element_bits for lane, word in enumerate(vector))
        head = also << 9 | tap << 2 | flags[1] << 1 | flags[0]
        vectors.append(head << hardware.lanes * hardware.element_bits | code)
    return {
        "tb/image.hex": hex_text(bench.image, digits=2),
        "tb/vectors.hex": hex_text(vectors),
        "tb/expected.hex": hex_text(bench.expected),
        f"tb/{BENCH}.sv": _bench_text(hardware, bench, other_clock),
        "tb/run.md": fill("run_testbench.md.in", sources=sources),
    }


def _bench_text(hardware: Hardware, bench: TestVectors, other_clock: Sequence[int]) -> str:
    vector = hardware.lanes * hardware.element_bits
    head = 2 + 7 + 1
    feed = _bare_bench(hardware, bench) if not hardware.flushes else _stream_bench(hardware, bench, other_clock)
    return fill(
        "instrument_tb.sv.in",
        image_bytes=len(bench.image),
        vectors=len(bench.words),
        expected=len(bench.expected),
        vector_bit=vector + head - 1,
        feed=feed,
        ends=_ends(hardware, bench),
    )


def _ends(hardware: Hardware, bench: TestVectors) -> str:
    """Checks after the last vector: of the bare core's status, which the stream does not carry."""
    if hardware.flushes:
        return ""
    checksum = int.from_bytes(bench.image[-4:], "little")
    return f"""    if (running !== 32'h{checksum:x} || taken !== 1 || refused !== 1 || refusal !== {GARBLED}) begin
      $display("FAIL: image %h, %0d taken, %0d refused with %0d", running, taken, refused, refusal);
      errors = errors + 1;
    end"""


def _stream_bench(hardware: Hardware, bench: TestVectors, other_clock: Sequence[int]) -> str:
    vector = hardware.lanes * hardware.element_bits
    signals, ports, offer, rest = [], [], [], []
    for tap in range(hardware.taps):
        signals += [
            f"  logic tap{tap}_valid = 0;",
            f"  logic [1:0] tap{tap}_last;",
            f"  logic [{vector - 1}:0] tap{tap}_data;",
        ]
        ports += [f"      .tap{tap}_{name}(tap{tap}_{name})," for name in ("valid", "last", "data")]
        if tap in other_clock:  # of the same speed here
            ports += [f"      .tap{tap}_{name}({name})," for name in ("clock", "reset")]
        also = f" || next[{vector + 9}]" if tap == hardware.taps - 1 else ""
        alone = f"next[{vector + 9}] ? 2'b11 : " if also else ""
        offer += [
            f"      tap{tap}_valid = next[{vector + 2}+:7] == {tap}{also};",
            f"      tap{tap}_last = {alone}next[{vector}+:2];",
            f"      tap{tap}_data = next[{vector - 1}:0];",
        ]
        rest.append(f"      tap{tap}_valid = 0;")
    return fill(
        "stream_bench.sv.in",
        control_bit=32 * hardware.controls + 31,
        signals=signals,
        ports=ports,
        offer=offer,
        rest=rest,
        pause=bench.pause,
        between=bench.interval - 1,
        outer=vector + 1,
    )


def _bare_bench(hardware: Hardware, bench: TestVectors) -> str:
    vector = hardware.lanes * hardware.element_bits
    return fill(
        "bare_bench.sv.in",
        word_bit=hardware.word_bits - 1,
        vector_bit=vector - 1,
        out_bit=hardware.lanes * hardware.word_bits - 1,
        control_bit=32 * hardware.controls + 31,
        lanes=hardware.lanes,
        word_bits=hardware.word_bits,
        vector=vector,
    )


def run_testbench(directory: Path, name: str = "instrument") -> str:
    """Run the testbench of a written circuit in Verilator; what it printed.

    Raises:
        MissingToolError: Verilator, perl or g++ is absent.
        RunFailedError: the output differs from the reference's.
    """
    lines = (directory / f"{name}.f").read_text().splitlines()
    sources = [directory / line for line in lines if line.endswith(".sv")]
    headers = sorted((directory / "rtl").glob("*.svh"))
    program = build_program(f"{name}_tb", [*sources, directory / "tb" / f"{name}_tb.sv"], headers)
    done = subprocess.run([str(program)], cwd=directory, capture_output=True, text=True, check=False)
    verdict = next((line for line in done.stdout.splitlines() if line.startswith("PASS")), None)
    if done.returncode or verdict is None:
        raise RunFailedError(f"the testbench fails: {done.stdout.strip()[:2000]}")
    return verdict
