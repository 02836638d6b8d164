"""The example with a serial line: an image in, packets out, both bit by bit, as the testbench expects them."""

import re

from circuits import make

from presilicon.rtl.generate import write_instrument
from presilicon.rtl.testbench import run_testbench

HOST = """
module serial_host (
    input logic clock,
    input logic reset,
    {ports}
    input logic config_valid,
    output logic config_ready,
    input logic [7:0] config_data,
    output logic stream_valid,
    input logic stream_ready,
    output logic [7:0] stream_data,
    output logic [{controls}:0] controls
);
  logic to_chip, to_host;
  presilicon_uart_transmitter #(.CLOCKS_PER_BIT(6)) transmitter (
      .clock(clock), .reset(reset), .valid(config_valid), .ready(config_ready), .data(config_data), .line(to_chip)
  );
  presilicon_uart_receiver #(.CLOCKS_PER_BIT(6)) receiver (
      .clock(clock), .reset(reset), .line(to_host), .valid(stream_valid), .ready(stream_ready), .data(stream_data)
  );
  instrument_uart_top #(.CLOCKS_PER_BIT(6)) chip (
      .clock(clock), .reset(reset), {links} .receive(to_chip), .transmit(to_host), .controls(controls)
  );
endmodule
"""


def test_a_serial_line_carries_images_and_packets(tmp_path) -> None:
    hardware = make(2, 1, "int8", flush="frame")
    write_instrument(hardware, tmp_path)
    names = [("tap0_valid", ""), ("tap0_last", "[1:0]"), ("tap0_data", "[15:0]")]
    host = HOST.format(
        ports=" ".join(f"input logic {width} {name}," for name, width in names),
        links=" ".join(f".{name}({name})," for name, _ in names),
        controls=32 * hardware.controls + 31,
    )
    bench = tmp_path / "tb" / "instrument_tb.sv"
    text = bench.read_text().replace("instrument_top dut", "serial_host dut")
    text, pauses = re.subn(r"repeat \((\d+)\)", lambda found: f"repeat ({60 * int(found[1])})", text)
    text, frames = re.subn(r"\? (\d+) : (\d+)\)", lambda found: f"? {60 * int(found[1])} : {found[2]})", text)
    assert (pauses, frames) == (3, 1)
    bench.write_text(text + host)
    assert run_testbench(tmp_path).startswith("PASS")
