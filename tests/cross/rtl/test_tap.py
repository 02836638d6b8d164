"""Designs with the instrument beside them: their outputs stay, and the stream is that of the watched signals.

Each design is simulated twice: as it is, with its signals read by hierarchical names, and as `presilicon rtl tap`
wrote it. The values of the first are fed to the reference; the second must send the same packets.
"""

import json
from pathlib import Path

import numpy as np
import pytest
from circuits import make
from click.testing import CliRunner
from test_instrument import packets

from presilicon.base import ConfigError
from presilicon.cli.rtl import command
from presilicon.instrument import Firmware, Reference, compile_firmware
from presilicon.instrument.host.stream import BLOCK, SYNC, Status, StreamWriter, unpack_words
from presilicon.rtl.parameters import parse_parameters
from presilicon.rtl.tap import Signal, list_signals, tap_design
from presilicon.rtl.verilator import build_program

EXAMPLES = Path(__file__).parents[3] / "examples" / "rtl"
MLP, MATRIX = EXAMPLES / "mlp_training.sv", EXAMPLES / "matrix_vector.v"
SAMPLES = 24


def run(program) -> dict[str, list[str]]:
    """The lines that a testbench printed, by their first word."""
    import subprocess

    done = subprocess.run([str(program)], capture_output=True, text=True, check=True)
    lines: dict[str, list[str]] = {}
    for line in done.stdout.splitlines():
        word, _, rest = line.partition(" ")
        lines.setdefault(word, []).append(rest)
    return lines


def bench(module, ports, drive, watch, image=b"") -> str:
    """A testbench: the user's inputs the same in both, the instrument's where there is one."""
    config = "\n".join(f"    image_bytes[{place}] = 8'h{byte:02x};" for place, byte in enumerate(image))
    names = ", ".join(f".{name}({name})" for name in ports)
    extra = (
        ", .presilicon_config_valid(config_valid), .presilicon_config_ready(config_ready)"
        ", .presilicon_config_data(config_data), .presilicon_stream_valid(stream_valid)"
        ", .presilicon_stream_ready(1'b1), .presilicon_stream_data(stream_data), .presilicon_controls()"
    )
    declared = "\n".join(f"  logic {width} {name} = 0;" for name, width in ports.items())
    return f"""
`timescale 1ns / 1ps
module bench;
{declared}
  logic config_valid = 0, config_ready, stream_valid = 0;
  logic [7:0] config_data, stream_data;
  logic [7:0] image_bytes [{max(len(image), 1)}];
  integer cycle = 0, sent = 0;
  {module} dut ({names}{extra if image else ""});
  always #5 clk = !clk;
  initial begin
{config}
  end
  always @(negedge clk) begin
    cycle = cycle + 1;
    {drive}
    if ({int(bool(image))} && cycle > 20 && sent < {len(image)}) begin
      if (config_valid && config_ready) sent = sent + 1;
      config_valid = sent < {len(image)};
      config_data = image_bytes[sent];
    end
    if (cycle == 40000) $finish;
  end
  always @(posedge clk) begin
    if (stream_valid && cycle > 20) $display("BYTE %h", stream_data);
    {watch}
  end
endmodule
"""


def firmware(hardware):
    fw = Firmware()
    with fw.chain():
        fw.add(0, "notfirst@1")
        fw.cache(0)
        fw.commit("N", "last@1")
    with fw.chain():
        fw.commit("N")
    return compile_firmware(fw, hardware)


def expected_stream(hardware, image, frames) -> bytes:
    """What the reference sends of (tap, vectors) in order, after the status of the image."""
    engine, writer = Reference(hardware), StreamWriter(hardware)
    engine.load(image)
    checksum = int.from_bytes(image.to_bytes()[-4:], "little")
    sent = writer.status(Status(checksum, 1, 0, 0, (0,) * hardware.taps))
    numbers = [0] * hardware.taps
    for tap, vectors in frames:
        last = np.zeros((len(vectors), 2), bool)
        last[-1] = True
        blocks = engine.feed(vectors, last, tap)
        sent += writer.frame(tap, numbers[tap], [block.words.tolist() for block in blocks])
        numbers[tap] += 1
    return sent


def vector_of(text, hardware) -> list[int]:
    code, bits = int(text, 16), hardware.element_bits
    lanes = [code >> lane * bits & (1 << bits) - 1 for lane in range(hardware.lanes)]
    return [lane - (1 << bits) if lane >> bits - 1 else lane for lane in lanes]


# ---- the perceptron

MLP_PORTS = {
    "clk": "",
    "rst": "",
    "learning_rate": "[15:0]",
    "sample_valid": "",
    "sample_ready": "",
    "sample": "[63:0]",
    "target": "[31:0]",
    "output_valid": "",
    "prediction": "[31:0]",
}


def mlp_samples():
    rng = np.random.default_rng(1)
    samples = rng.integers(-512, 512, (SAMPLES, 4))
    return samples, np.stack([samples[:, 0] + samples[:, 1], -samples[:, 2]], 1).clip(-400, 400)


def packed(numbers, bits=16) -> int:
    return sum((int(number) & (1 << bits) - 1) << place * bits for place, number in enumerate(numbers))


def mlp_drive() -> str:
    samples, targets = mlp_samples()
    cases = " ".join(
        f"{300 + 600 * number}: begin sample_valid = 1; sample = 64'h{packed(x):x}; target = 32'h{packed(t):x}; end"
        for number, (x, t) in enumerate(zip(samples, targets, strict=True))
    )
    return f"rst = cycle < 10; learning_rate = 16'd24; sample_valid = 0; case (cycle) {cases} default: ; endcase"


def mlp_model() -> tuple[list[list[int]], list[list[int]], list[list[int]]]:
    """The perceptron in Python: predictions, hidden activations and their errors, in steps of 1/256."""

    def shrink(wide) -> int:
        return int(min(max(wide >> 8, -32768), 32767))

    def words(code, count):
        return [(code >> 16 * place & 0xFFFF ^ 0x8000) - 0x8000 for place in range(count)]

    start_1 = 0x0040FFD000180050FFC800600028FFE800380010FFB800480020FFF00058FFD8
    start_2 = 0x0030FFE00050FFC0FFD8004800200060
    first = np.array(words(start_1, 16)).reshape(4, 4)
    second = np.array(words(start_2, 8)).reshape(2, 4)
    predictions, hidden, errors = [], [], []
    for x, target in zip(*mlp_samples(), strict=True):
        h = [max(shrink(row @ x), 0) for row in first]
        y = [shrink(row @ h) for row in second]
        error = [min(max(a - b, -32768), 32767) for a, b in zip(y, target.tolist(), strict=True)]
        back = [0 if h[i] == 0 else shrink(second[:, i] @ np.array(error)) for i in range(4)]
        for weights, out, into in ((second, error, h), (first, back, x.tolist())):
            for row, wrong in enumerate(out):
                for column, number in enumerate(into):
                    weights[row, column] = shrink(weights[row, column] * 256 - 24 * shrink(wrong * number))
        predictions.append(y)
        hidden.append(h)
        errors.append(back)
    return predictions, hidden, errors


@pytest.fixture(scope="module")
def mlp_lines(tmp_path_factory):
    text = bench(
        "mlp_training",
        MLP_PORTS,
        mlp_drive(),
        'if (output_valid) $display("OUT %h", prediction);'
        ' if (dut.layer1.out_valid) $display("HIDDEN %h", dut.layer1.out);'
        ' if (dut.hidden_error_valid) $display("ERROR %h", dut.hidden_error);',
    )
    path = tmp_path_factory.mktemp("mlp") / "bench.sv"
    path.write_text(text)
    return run(build_program("bench", [MLP, path], []))


def test_the_perceptron_computes_what_python_does(mlp_lines) -> None:
    predictions, hidden, errors = mlp_model()
    hardware = make(4, 4, "fixed(8, 8)")
    assert [vector_of(text, hardware) for text in mlp_lines["HIDDEN"]] == hidden
    assert [vector_of(text, hardware) for text in mlp_lines["ERROR"]] == errors
    two = make(2, 2, "fixed(8, 8)")
    assert [vector_of(text, two) for text in mlp_lines["OUT"]] == predictions
    _, targets = mlp_samples()
    loss = np.abs(np.array(predictions) - targets).sum(axis=1)
    assert loss[-6:].mean() < loss[:6].mean()  # it learns


def test_the_perceptron_watched(mlp_lines, tmp_path) -> None:
    hardware = make(4, 4, "fixed(8, 8)", 24)
    signals = [Signal.parse("layer1.out:out_valid"), Signal.parse("hidden_error:hidden_error_valid")]
    tapped = tap_design([MLP], "mlp_training", signals, hardware, tmp_path, frame_length=4)
    assert (tapped.clock, tapped.reset, tapped.reset_is_low) == ("clk", "rst", False)
    image = firmware(tapped.hardware)
    text = bench(
        tapped.top, MLP_PORTS, mlp_drive(), 'if (output_valid) $display("OUT %h", prediction);', image.to_bytes()
    )
    lines = run(program_of(tmp_path, text))
    assert lines["OUT"] == mlp_lines["OUT"]
    sent = [packet for packet in packets(bytes(int(text, 16) for text in lines["BYTE"])) if packet.kind == BLOCK]
    # Frames of the errors begin while one of the hidden vectors is under way: only those of the first tap come through.
    assert {packet.tap for packet in sent} == {0}
    hidden = [vector_of(text, hardware) for text in mlp_lines["HIDDEN"]]
    frames = [(0, hidden[begin : begin + 4]) for begin in range(0, SAMPLES, 4)]
    wanted = packets(expected_stream(tapped.hardware, image, frames))
    assert [packet[3:] for packet in sent] == [packet[3:] for packet in wanted if packet.kind == BLOCK]


@pytest.mark.parametrize(("signal", "word"), [("hidden_error:hidden_error_valid", "ERROR"), ("hidden:1", None)])
def test_the_perceptron_watched_elsewhere(signal, word, mlp_lines, tmp_path) -> None:
    """The errors of the hidden layer, byte by byte; and a signal that is always valid, which no link can carry."""
    hardware = make(4, 4, "fixed(8, 8)", 24)
    tapped = tap_design([MLP], "mlp_training", [Signal.parse(signal)], hardware, tmp_path, frame_length=6)
    image = firmware(tapped.hardware)
    watch = 'if (output_valid) $display("OUT %h", prediction);'
    lines = run(program_of(tmp_path, bench(tapped.top, MLP_PORTS, mlp_drive(), watch, image.to_bytes())))
    assert lines["OUT"] == mlp_lines["OUT"]
    stream = bytes(int(text, 16) for text in lines["BYTE"])
    if word:
        vectors = [vector_of(text, hardware) for text in mlp_lines[word]]
        frames = [(0, vectors[begin : begin + 6]) for begin in range(0, SAMPLES, 6)]
        assert stream == expected_stream(tapped.hardware, image, frames)
    else:
        numbers = [packet.frame for packet in packets(stream[: stream.rfind(SYNC)]) if packet.kind == BLOCK]
        assert len(set(numbers)) < numbers[-1]


def program_of(directory, text):
    path = directory / "bench.sv"
    path.write_text(text)
    names = [line for line in (directory / "instrument.f").read_text().splitlines() if not line.startswith("+")]
    headers = sorted((directory / "rtl").glob("*.svh"))
    return build_program("bench", [*(directory / name for name in names), path], headers)


# ---- a design in Verilog-2001 that knows nothing of instruments

MATRIX_PORTS = {
    "clk": "",
    "rst_n": "",
    "write": "",
    "address": "[7:0]",
    "value": "[7:0]",
    "start": "",
    "busy": "",
    "done": "",
    "checksum": "[23:0]",
}
MATRIX_DRIVE = """rst_n = cycle >= 10; write = 0; start = 0;
    if (cycle >= 400 && cycle < 544) begin
      write = 1; address = 8'(cycle - 400); value = 8'(cycle * 37 + (cycle >> 3) * 11);
    end
    if (cycle > 600 && cycle % 500 < 16) begin write = 1; address = 8'(128 + cycle % 500); value = 8'(cycle * 91); end
    if (cycle > 600 && cycle < 30000 && cycle % 500 == 40) start = 1;"""


def test_a_design_written_for_no_instrument(tmp_path) -> None:
    watch = 'if (done) $display("OUT %h", checksum);'
    path = tmp_path / "plain.sv"
    path.write_text(
        bench("matrix_vector", MATRIX_PORTS, MATRIX_DRIVE, watch + ' if (dut.finished) $display("SUMS %h", dut.sums);')
    )
    plain = run(build_program("bench", [MATRIX, path], []))
    hardware = make(8, 4, "int(24)", 32)
    joined = "+".join(f"row[{row}].cell_.acc" for row in range(8))
    tapped = tap_design([MATRIX], "matrix_vector", [Signal.parse(f"{joined}:finished:1")], hardware, tmp_path / "out")
    assert (tapped.clock, tapped.reset, tapped.reset_is_low) == ("clk", "rst_n", True)
    image = firmware(tapped.hardware)
    lines = run(program_of(tmp_path / "out", bench(tapped.top, MATRIX_PORTS, MATRIX_DRIVE, watch, image.to_bytes())))
    assert lines["OUT"] == plain["OUT"]
    sums = [vector_of(text, hardware) for text in plain["SUMS"]]
    assert len(sums) > 50
    assert len({tuple(vector) for vector in sums}) > 50
    stream = bytes(int(text, 16) for text in lines["BYTE"])
    assert stream == expected_stream(tapped.hardware, image, [(0, [vector]) for vector in sums])


# ---- two clocks

TWO_CLOCKS = """module two_clocks (
    input clk, input rst, input fast, input gate, output reg [31:0] slow, output [31:0] seen);
  reg [31:0] sum = 0;
  reg [15:0] count = 0;
  reg [7:0] table_ [0:15];
  reg done = 0, halved = 0;
  wire gated = clk & gate;
  reg [31:0] held;
  assign seen = sum + 1;
  always @(posedge fast) begin
    count <= count + 1;
    done <= count > 2000 && count < 30000 && count[6:0] == 0;
    sum <= {sum[30:0], 1'b0} ^ (sum[31] ? 32'h04C11DB7 : 32'h0) ^ {16'b0, count};
    table_[count[3:0]] <= sum[7:0];
  end
  always @(posedge clk) begin slow <= rst ? 0 : slow + 3; halved <= !halved; end
  always @(posedge gated) held <= slow;
  reg [31:0] rare;
  always @(posedge halved) rare <= slow;
  wire [31:0] looked = {24'b0, table_[slow[3:0]]};
  wire [31:0] mixed = slow ^ sum;
endmodule
"""
TWO_PORTS = {"clk": "", "rst": "", "fast": "", "gate": "", "slow": "[31:0]", "seen": "[31:0]"}


@pytest.fixture
def two_clocks(tmp_path) -> Path:
    path = tmp_path / "two_clocks.v"
    path.write_text(TWO_CLOCKS)
    return path


@pytest.mark.parametrize("period", [3, *(pytest.param(other, marks=pytest.mark.slow) for other in (7, 12))])
def test_a_signal_of_another_clock_crosses(period, two_clocks, tmp_path) -> None:
    hardware = make(4, 4, "int8", 12)
    signals = [Signal.parse("sum:done:1")]
    tapped = tap_design([two_clocks], "two_clocks", signals, hardware, tmp_path / "out", other_clock=[0])
    image = firmware(tapped.hardware)
    text = bench(tapped.top, TWO_PORTS, "rst = cycle < 10; gate = 1;", "", image.to_bytes())
    text = text.replace("always #5 clk = !clk;", f"always #5 clk = !clk;\n  always #{period} fast = !fast;")
    lines = run(program_of(tmp_path / "out", text))
    vectors, sum_, is_done = [], 0, False
    for count in range(30002):
        if is_done:
            vectors.append(vector_of(f"{sum_:x}", tapped.hardware))
        is_done = 2000 < count < 30000 and count % 128 == 0
        sum_ = (sum_ << 1 & 0xFFFFFFFF) ^ (0x04C11DB7 if sum_ >> 31 else 0) ^ count
    stream = bytes(int(text, 16) for text in lines["BYTE"])
    expected = expected_stream(tapped.hardware, image, [(0, [vector]) for vector in vectors])
    assert len(stream) > 4000
    assert expected.startswith(stream)


@pytest.mark.parametrize(
    ("signal", "crossing", "message"),
    [
        (
            "sum:done:1",
            [],
            r'"sum": it belongs to the clock fast, but the instrument runs with clk; add --other-clock 0',
        ),
        ("seen:1:1", [], "belongs to the clock fast"),
        ("held:gate:1", [], "belongs to the clock gated"),
        ("rare:1:1", [], "belongs to the clock halved"),
        ("mixed:1:1", [], r"several clocks \(clk and fast\)"),
        ("looked:1:1", [], r"several clocks \(clk and fast\)"),
        ("slow:done:1", [0], r"several clocks \(clk and fast\)"),
        ("slow:1:1", [0], '"slow" belongs to clk, as the instrument does'),
        ("slow:1:1", [1], "there are signals 0 to 0"),
    ],
)
def test_a_signal_of_another_clock_is_not_sampled_by_mistake(signal, crossing, message, two_clocks, tmp_path) -> None:
    hardware = make(4, 4, "int8", 12)
    signals = [Signal.parse(signal)]
    with pytest.raises(ConfigError, match=message):
        tap_design([two_clocks], "two_clocks", signals, hardware, tmp_path / "out", other_clock=crossing)


# ---- parameters of the top

PARAMETRIC = """module counters #(
    parameter LANES = 2, parameter WIDTH = 4, parameter [7:0] EVERY = 8'd3, parameter STEP = 1, parameter MODE = "up"
) (input clk, input rst, output [LANES*WIDTH-1:0] all, output reg valid);
  localparam TOTAL = LANES * WIDTH;
  reg [7:0] wait_;
  genvar lane;
  generate for (lane = 0; lane < LANES; lane = lane + 1) begin : row
    reg signed [WIDTH-1:0] count;
    always @(posedge clk)
      if (rst) count <= lane;
      else if (valid) count <= MODE == "up" ? count + STEP : count - STEP;
    assign all[lane*WIDTH +: WIDTH] = count;
  end endgenerate
  always @(posedge clk) begin
    wait_ <= rst || wait_ == EVERY ? 8'd0 : wait_ + 8'd1;
    valid <= !rst && wait_ == EVERY;
  end
endmodule
"""
PARAMETERS = {"LANES": "4", "WIDTH": "12", "EVERY": "8'h7f", "STEP": "-3", "MODE": '"down"'}


@pytest.fixture
def counters(tmp_path) -> Path:
    path = tmp_path / "counters.v"
    path.write_text(PARAMETRIC)
    return path


def test_a_design_with_parameters(counters, tmp_path) -> None:
    hardware = make(4, 4, "int(12)", 24)
    ports = {"clk": "", "rst": "", "all": "[47:0]", "valid": ""}
    drive, watch = "rst = cycle < 10;", 'if (valid) $display("OUT %h", all);'
    path = tmp_path / "plain.sv"
    values = ", ".join(f".{name}({value})" for name, value in PARAMETERS.items())
    path.write_text(bench(f"counters #({values})", ports, drive, watch))
    plain = run(build_program("bench", [counters, path], []))
    signals = [Signal.parse("all:valid:1")]
    tapped = tap_design([counters], "counters", signals, hardware, tmp_path / "out", parameters=PARAMETERS)
    image = firmware(tapped.hardware)
    lines = run(program_of(tmp_path / "out", bench(tapped.top, ports, drive, watch, image.to_bytes())))
    assert lines["OUT"] == plain["OUT"]
    vectors = [vector_of(text, hardware) for text in plain["OUT"]]
    assert vectors[:2] == [[0, 1, 2, 3], [3, 4, 5, 6]], "down by -3"
    assert len(vectors) > 300
    stream = bytes(int(text, 16) for text in lines["BYTE"])
    sent = [packet for packet in packets(stream[: stream.rfind(SYNC)]) if packet.kind == BLOCK]
    first = next(place for place, vector in enumerate(vectors) if vector == list(sent_vector(sent[0], tapped.hardware)))
    wanted = packets(expected_stream(tapped.hardware, image, [(0, [vector]) for vector in vectors[first:]]))
    blocks = [packet.payload for packet in wanted if packet.kind == BLOCK]
    assert [packet.payload for packet in sent] == blocks[: len(sent)]
    assert len(sent) > 300


def sent_vector(packet, hardware) -> list[int]:
    return unpack_words(packet.payload, hardware)[: hardware.lanes]


def test_signals_have_the_width_that_parameters_give_them(counters) -> None:
    assert list_signals([counters], "counters")["all"] == 8
    found = list_signals([counters], "counters", parameters=PARAMETERS)
    assert (found["all"], found["row[3].count"]) == (48, 12)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            "WIDT=3",
            '"counters" has no parameter "WIDT": Allowed: EVERY, LANES, MODE, STEP, WIDTH',
        ),
        ("TOTAL=3", '"counters" has no parameter "TOTAL": Allowed'),
        ("WIDTH", "expected NAME=VALUE"),
        ("=3", "expected NAME=VALUE"),
        ("WIDTH=", "expected NAME=VALUE"),
        ("WIDTH=wide", "given wide, expected an integer"),
        ("WIDTH=1.5", "given 1.5, expected an integer"),
        ("WIDTH=8'b12", "a sized literal"),
        ("MODE=up", "a text in double quotes"),
        ("WIDTH=3); evil #(", "expected an integer"),
    ],
)
def test_parameters_that_cannot_be(given, message, counters) -> None:
    arguments = ["tap", str(counters), "--top", "counters", "--signals", "--param", given]
    with pytest.raises(ConfigError, match=message):
        CliRunner().invoke(command, arguments, catch_exceptions=False)


def test_a_top_without_parameters_and_one_without_defaults(two_clocks, tmp_path) -> None:
    with pytest.raises(ConfigError, match='--param WIDTH: the module "two_clocks" has no parameters'):
        list_signals([two_clocks], "two_clocks", parameters={"WIDTH": "3"})
    bare = tmp_path / "bare.sv"
    bare.write_text("module bare #(parameter W) (input clk, output [W-1:0] q); assign q = {W{clk}}; endmodule\n")
    assert list_signals([bare], "bare", parameters={"W": "5"})["q"] == 5
    with pytest.raises(ConfigError, match="--param WIDTH: given twice"):
        parse_parameters(["WIDTH=3", "WIDTH=4"])


# ---- what goes wrong


@pytest.mark.parametrize(
    ("module", "port", "message"),
    [
        ("instrument_top", "more", 'the instrument has a module called "instrument_top" too; rename yours'),
        ("presilicon_fifo", "more", 'a module called "presilicon_fifo" too'),
        ("mine", "presilicon_config_valid", 'its signal "presilicon_config_valid" begins with presilicon_'),
        ("mine", "user_design", 'its port "user_design"'),
    ],
)
def test_names_that_collide(module, port, message, tmp_path) -> None:
    path = tmp_path / "mine.v"
    path.write_text(
        f"module {module} (input clk, input rst, input {port}, output reg [31:0] q);\n"
        f"  always @(posedge clk) q <= rst ? 0 : q + {port};\nendmodule\n"
    )
    with pytest.raises(ConfigError, match=message):
        tap_design([path], module, [Signal.parse("q:1:1")], make(4, 4, "int8", 12), tmp_path / "out")


@pytest.mark.parametrize(
    ("signal", "options", "message"),
    [
        ("layer1.oot:out_valid", {}, "no signal .layer1.oot.; did you mean layer1.out"),
        ("layer1.out:nothing", {}, "no signal .nothing."),
        ("layer1.out:hidden", {}, "flag .hidden. is 64 bits wide"),
        ("outputs:outputs_valid", {}, "32 bits wide, but 4 lanes of 16 bits"),
        ("layer1.out[70:7]:out_valid", {}, "has bits 63 to 0"),
        ("layer1.out:out_valid", {"frame_length": None}, "ends of its frames are unknown"),
        ("layer1.out:out_valid", {"frame_length": 0}, "at least 1"),
        ("layer1.out:out_valid", {"top": "mlp_trainin"}, "did you mean .mlp_training."),
        ("layer1.out:out_valid", {"clock": "klk"}, "no input .klk."),
        ("layer1.out:out_valid", {"reset": "!rest"}, "no input .rest."),
        ("layer1.out:out_valid", {"sources": [Path("nowhere.v")]}, "nowhere.v: there is no such file"),
    ],
)
def test_mistakes_are_explained(signal, options, message, tmp_path) -> None:
    given = {"sources": [MLP], "top": "mlp_training", "frame_length": 4, **options}
    hardware = make(4, 4, "fixed(8, 8)")
    with pytest.raises(ConfigError, match=message):
        tap_design(signals=[Signal.parse(signal)], hardware=hardware, directory=tmp_path, **given)


def test_bits_have_the_numbers_of_their_declaration(tmp_path) -> None:
    path = tmp_path / "numbers.v"
    path.write_text(
        "module numbers (input clk, input rst, input [0:7] up, output reg [8:1] one);\n"
        "  reg [-1:-8] below;\n"
        "  always @(posedge clk) begin one <= up; below <= one; end\nendmodule\n"
    )
    signal = Signal.parse("one[8:5]+one[4:1]+up[0:3]+up[4:7]+below[-1:-8]+one:up[7]:one[1]")
    tap_design([path], "numbers", [signal], make(4, 4, "int8", 12), tmp_path / "out")
    text = (tmp_path / "out" / "rtl" / "numbers_tapped.v").read_text()
    assert "presilicon_tap0_data = { one, below, up[4:7], up[0:3], one[4:1], one[8:5] };" in text
    assert "presilicon_tap0_valid = up[7];" in text
    assert "presilicon_tap0_last = { one[1], one[1] };" in text
    for wrong, message in (("one[7:0]", "bits 8 to 1"), ("up[7:0]", "bits 0 to 7"), ("below[0]", "bits -1 to -8")):
        with pytest.raises(ConfigError, match=message):
            tap_design([path], "numbers", [Signal.parse(f"{wrong}:1:1")], make(1, 1, "int8", 12), tmp_path / "out")


def test_a_file_that_is_no_verilog(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    broken = Path("broken.v")
    broken.write_text("module broken (input a;\nendmodule\n")
    with pytest.raises(ConfigError, match=r"Yosys cannot read the design: broken\.v:1"):
        list_signals([broken], "broken")


@pytest.mark.parametrize("text", ["vector", "vector:", ":valid", "a:b:c:d:e"])
def test_signals_have_a_shape(text) -> None:
    with pytest.raises(ConfigError, match="VECTOR:VALID"):
        Signal.parse(text)


def test_the_command(tmp_path, counters) -> None:
    config = tmp_path / "c.json"
    config.write_text(json.dumps({"lanes": 4, "ranges": 4, "element": "fixed(8,8)", "chains": 4}))
    arguments = ["tap", str(MLP), "--top", "mlp_training"]
    runner = CliRunner()
    listed = runner.invoke(command, [*arguments, "--signals", "--json"], catch_exceptions=False)
    assert json.loads(listed.stdout)["signals"]["layer1.out"] == 64
    other = [str(counters), "--top", "counters", "--signals", "--json", "--param", "LANES=3", "--param", "WIDTH=7"]
    assert json.loads(runner.invoke(command, ["tap", *other], catch_exceptions=False).stdout)["signals"]["all"] == 21
    assert "64 layer1.out\n" in runner.invoke(command, [*arguments, "--signals"], catch_exceptions=False).stdout
    with pytest.raises(ConfigError, match="--config"):
        runner.invoke(command, [*arguments, "--signal", "a:b"], catch_exceptions=False)
    arguments += ["--config", str(config), "--out", str(tmp_path / "out")]
    signal = ["--signal", "layer1.out:out_valid", "--frame-length", "4"]
    result = runner.invoke(command, [*arguments, *signal, "--json"], catch_exceptions=False)
    document = json.loads(result.stdout)
    assert document["top"] == "mlp_training_instrumented"
    assert all((tmp_path / "out" / name).exists() for name in document["files"])
    assert "mlp_training_tapped.v" in (tmp_path / "out" / "vivado.tcl").read_text()
    assert "mlp_training_instrumented.sv" in (tmp_path / "out" / "quartus.qip").read_text()
