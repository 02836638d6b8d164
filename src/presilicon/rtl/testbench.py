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


class Bench(NamedTuple):
    """Input and expected output of a testbench."""

    image: bytes
    words: "NDArray[np.int64]"
    last: "NDArray[np.bool_]"
    taps: list[int]
    """The tap of each vector; frames of the taps alternate."""
    expected: list[int]
    """Bytes of the stream, or the words of the bare core's blocks."""
    pause: int
    """Cycles between vectors that keep the instrument from falling behind."""


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


def make_bench(hardware: Hardware, seed: int = 0) -> Bench:
    """Random vectors through the example firmware, and the output of the reference."""
    rng = np.random.default_rng(seed)
    image = compile_firmware(example_firmware(hardware), hardware)
    count = FRAMES * LENGTH
    codes = rng.integers(0, 1 << hardware.element_bits, (count, hardware.lanes))
    if hardware.is_float:
        words = codes << hardware.word_bits - hardware.element_bits
    else:
        spare = 64 - hardware.element_bits
        words = codes << spare >> spare
    last = np.zeros((count, 2), np.bool_)
    last[LENGTH - 1 :: LENGTH] = True
    taps = [vector // LENGTH % hardware.taps for vector in range(count)]
    engine = Reference(hardware)
    engine.load(image)
    per_vector = image.initiation_interval() + 2
    most = len(image.chains_of(0)) * LENGTH * (hardware.lanes * ((hardware.word_bits + 7) // 8) + PACKET_OVERHEAD)
    if not hardware.flushes:
        mask = (1 << hardware.word_bits) - 1
        blocks = engine.feed(words, last)
        numbers = [int(word) & mask for block in blocks for word in block.words]
        return Bench(image.to_bytes(), words, last, taps, numbers, per_vector)
    return Bench(
        image.to_bytes(), words, last, taps, list(_stream(engine, image, words, last, taps)), per_vector + most
    )


def _stream(
    engine: Reference, image: Image, words: "NDArray[np.int64]", last: "NDArray[np.bool_]", taps: Sequence[int]
) -> bytes:
    hardware = engine.hardware
    writer = StreamWriter(hardware)
    checksum = int.from_bytes(image.to_bytes()[-4:], "little")
    sent = writer.status(Status(checksum, 1, 0, 0, (0,) * hardware.taps))
    numbers = [0] * hardware.taps
    for begin in range(0, len(words), LENGTH):
        tap = taps[begin]
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
    for vector, flags, tap in zip(bench.words.tolist(), bench.last.tolist(), bench.taps, strict=True):
        code = sum((word >> spare & mask) << lane * hardware.element_bits for lane, word in enumerate(vector))
        head = tap << 2 | flags[1] << 1 | flags[0]
        vectors.append(head << hardware.lanes * hardware.element_bits | code)
    return {
        "tb/image.hex": hex_text(bench.image, digits=2),
        "tb/vectors.hex": hex_text(vectors),
        "tb/expected.hex": hex_text(bench.expected),
        f"tb/{BENCH}.sv": _bench_text(hardware, bench, other_clock),
        "tb/run.md": fill("run_testbench.md.in", sources=sources),
    }


def _bench_text(hardware: Hardware, bench: Bench, other_clock: Sequence[int]) -> str:
    vector = hardware.lanes * hardware.element_bits
    head = 2 + 7
    feed = _bare_bench(hardware, bench) if not hardware.flushes else _stream_bench(hardware, bench, other_clock)
    return fill(
        "instrument_tb.sv.in",
        image_bytes=len(bench.image),
        vectors=len(bench.words),
        expected=len(bench.expected),
        vector_bit=vector + head - 1,
        feed=feed,
    )


def _stream_bench(hardware: Hardware, bench: Bench, other_clock: Sequence[int]) -> str:
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
        offer += [
            f"      tap{tap}_valid = next[{vector + 2}+:7] == {tap};",
            f"      tap{tap}_last = next[{vector}+:2];",
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
    )


def _bare_bench(hardware: Hardware, bench: Bench) -> str:
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
