"""A self-checking testbench: firmware, vectors, and the expected output, computed by the reference."""

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from presilicon.base import RunFailedError
from presilicon.designs import Hardware
from presilicon.instrument import Firmware, Image, Reference, Status, StreamWriter, compile_firmware
from presilicon.rtl.verilator import build_program

if TYPE_CHECKING:
    import numpy as np
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
    import numpy as np

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
    most = len(image.chains_of(0)) * LENGTH * (hardware.lanes * ((hardware.word_bits + 7) // 8) + 11)
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


def write_testbench(
    hardware: Hardware, directory: Path, sources: Sequence[str], other_clock: Sequence[int] = ()
) -> list[Path]:
    """Write the testbench, its data, and a script that runs it."""
    bench = make_bench(hardware)
    directory.mkdir(parents=True, exist_ok=True)
    spare = hardware.word_bits - hardware.element_bits if hardware.is_float else 0
    mask = (1 << hardware.element_bits) - 1
    vectors = []
    for vector, flags, tap in zip(bench.words.tolist(), bench.last.tolist(), bench.taps, strict=True):
        code = sum((word >> spare & mask) << lane * hardware.element_bits for lane, word in enumerate(vector))
        head = tap << 2 | flags[1] << 1 | flags[0]
        vectors.append(f"{head << hardware.lanes * hardware.element_bits | code:x}")
    texts = {
        "image.hex": "\n".join(f"{byte:02x}" for byte in bench.image),
        "vectors.hex": "\n".join(vectors),
        "expected.hex": "\n".join(f"{number:x}" for number in bench.expected),
        f"{BENCH}.sv": _bench_text(hardware, bench, other_clock),
        "run.md": _run_text(sources),
    }
    written = []
    for name, text in texts.items():
        path = directory / name
        path.write_text(text.rstrip("\n") + "\n")
        written.append(path)
    return written


def _run_text(sources: Sequence[str]) -> str:
    return f"""# Run the testbench

From the directory above this one; it prints PASS or what differs.

```
verilator --binary --timing -Wno-fatal -f instrument.f tb/{BENCH}.sv --top-module {BENCH} && obj_dir/V{BENCH}
```

`presilicon rtl instrument ... --simulate` does the same. Other simulators were not tried.

The {len(sources)} source files are those of `instrument.f`. `image.hex` is the firmware, `vectors.hex` what is tapped
(tap, end flags and lanes of each vector), `expected.hex` what the reference says must come out."""


def _bench_text(hardware: Hardware, bench: Bench, other_clock: Sequence[int]) -> str:
    vector = hardware.lanes * hardware.element_bits
    head = 2 + 7
    common = f"""// Loads firmware, feeds vectors, and compares what comes out with what the reference computed.
`timescale 1ns / 1ps
module {BENCH};
  localparam int IMAGE = {len(bench.image)};
  localparam int VECTORS = {len(bench.words)};
  localparam int EXPECTED = {len(bench.expected)};
  logic clock = 0;
  logic reset = 1;
  always #5 clock = !clock;

  logic [7:0] image[IMAGE];
  logic [{vector + head - 1}:0] vectors[VECTORS];
  initial begin
    $readmemh("tb/image.hex", image);
    $readmemh("tb/vectors.hex", vectors);
    $readmemh("tb/expected.hex", expected);
  end

  logic config_valid = 0;
  logic config_ready;
  logic [7:0] config_data;
  integer byte_, vector_, errors = 0, seen = 0;
  logic [{vector + head - 1}:0] next;
"""
    feed = _bare_bench(hardware, bench) if not hardware.flushes else _stream_bench(hardware, bench, other_clock)
    return common + feed + _END


_END = """
  // Signals change at the falling edge, so that no simulator has to order them.
  task automatic configure;
    for (byte_ = 0; byte_ < IMAGE; byte_ = byte_ + 1) begin
      @(negedge clock);
      config_valid = 1;
      config_data = image[byte_];
      while (!config_ready) @(negedge clock);
    end
    @(negedge clock);
    config_valid = 0;
    repeat (100) @(negedge clock);
  endtask

  initial begin
    repeat (4) @(negedge clock);
    reset = 0;
    configure();
    feed();
    repeat (4000) @(negedge clock);
    if (seen != EXPECTED) begin
      $display("FAIL: %0d of %0d came out", seen, EXPECTED);
      errors = errors + 1;
    end
    if (errors == 0) $display("PASS: %0d as expected", seen);
    else $fatal(1, "FAIL: %0d errors", errors);
    $finish;
  end
endmodule
"""


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
    signal_text, port_text, offer_text, rest_text = ("\n".join(part) for part in (signals, ports, offer, rest))
    return f"""  logic [7:0] expected[EXPECTED];
  logic stream_valid;
  logic [7:0] stream_data;
  logic [{32 * hardware.controls + 31}:0] controls;
{signal_text}

  instrument_top dut (
      .clock(clock),
      .reset(reset),
{port_text}
      .config_valid(config_valid),
      .config_ready(config_ready),
      .config_data(config_data),
      .stream_valid(stream_valid),
      .stream_ready(1'b1),
      .stream_data(stream_data),
      .controls(controls)
  );

  always @(negedge clock)
    if (!reset && stream_valid) begin
      if (seen >= EXPECTED || stream_data !== expected[seen]) begin
        if (errors < 10) $display("byte %0d is %h, expected %h", seen, stream_data, expected[seen]);
        errors = errors + 1;
      end
      seen = seen + 1;
    end

  task automatic feed;
    for (vector_ = 0; vector_ < VECTORS; vector_ = vector_ + 1) begin
      next = vectors[vector_];
{offer_text}
      @(negedge clock);
{rest_text}
      repeat ({bench.pause}) @(negedge clock);
    end
  endtask
"""


def _bare_bench(hardware: Hardware, bench: Bench) -> str:
    vector = hardware.lanes * hardware.element_bits
    return f"""  logic [{hardware.word_bits - 1}:0] expected[EXPECTED];
  logic in_valid = 0;
  logic in_ready;
  logic [1:0] in_last;
  logic [{vector - 1}:0] in_data;
  logic out_valid;
  logic [{hardware.lanes * hardware.word_bits - 1}:0] out_data;
  logic [31:0] running;
  logic [15:0] taken, refused;
  logic [7:0] refusal;
  logic [{32 * hardware.controls + 31}:0] controls;

  instrument_top dut (
      .clock(clock),
      .reset(reset),
      .in_valid(in_valid),
      .in_ready(in_ready),
      .in_last(in_last),
      .in_data(in_data),
      .out_valid(out_valid),
      .out_ready(1'b1),
      .out_data(out_data),
      .config_valid(config_valid),
      .config_ready(config_ready),
      .config_data(config_data),
      .image(running),
      .taken(taken),
      .refused(refused),
      .refusal(refusal),
      .controls(controls)
  );

  integer lane;
  always @(negedge clock)
    if (!reset && out_valid)
      for (lane = 0; lane < {hardware.lanes}; lane = lane + 1) begin
        if (seen >= EXPECTED || out_data[lane*{hardware.word_bits}+:{hardware.word_bits}] !== expected[seen]) begin
          if (errors < 10)
            $display("word %0d is %h, expected %h", seen, out_data[lane*{hardware.word_bits}+:{hardware.word_bits}],
                     expected[seen]);
          errors = errors + 1;
        end
        seen = seen + 1;
      end

  task automatic feed;
    for (vector_ = 0; vector_ < VECTORS; vector_ = vector_ + 1) begin
      next = vectors[vector_];
      in_valid = 1;
      in_last = next[{vector}+:2];
      in_data = next[{vector - 1}:0];
      #1;
      while (!in_ready) begin
        @(negedge clock);
        #1;
      end
      @(negedge clock);
      in_valid = 0;
    end
  endtask
"""


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
