"""What waits for its reader stays: `valid && !ready` keeps valid and data, proven by induction with Yosys."""

import pytest

from presilicon.rtl.sources import SOURCES, module_files
from presilicon.rtl.yosys import YosysError, run_yosys

WRAPPER = """module holds (input clock, input reset, {ports});
  {module} #({parameters}) dut (.clock(clock), .reset(reset), {pins});
  reg waited = 0;
  reg [{bits}:0] data;
  always @(posedge clock) begin
    waited <= !reset && {valid} && !{ready};
    data <= {{{data}}};
    if (waited) assert ({valid} && {{{data}}} == data);
  end
endmodule
"""
CASES = {
    "packetizer": (
        "presilicon_packetizer",
        {"LANES": 2, "WORD": 8, "TAPS": 1},
        {"block_valid": 1, "block_last": 1, "block_tag": 34, "block_count": 2, "block_data": 16, "exchange": 1,
         "none_ahead": 1, "report": 1, "changed": 1, "image": 32, "taken": 16, "refused": 16, "refusal": 8,
         "dropped": 32, "out_ready": 1},
        {"block_ready": 1, "report_busy": 1, "out_valid": 1, "out_data": 8},
        ["out_data"],
    ),
    "frame_buffer": (
        "presilicon_frame_buffer",
        {"BITS": 4, "COUNT": 2, "PLACES": 4, "TAG": 3},
        {"in_valid": 1, "in_end": 1, "in_abort": 1, "in_count": 2, "in_data": 4, "in_tag": 3, "out_ready": 1},
        {"in_ready": 1, "out_valid": 1, "out_last": 1, "out_tag": 3, "out_count": 2, "out_data": 4, "none": 1,
         "overflow": 1, "too_late": 1, "overflow_tag": 3},
        ["out_last", "out_tag", "out_count", "out_data"],
    ),
}  # fmt: skip


def prove(name: str, directory, change=lambda text: text) -> None:
    module, parameters, inputs, outputs, data = CASES[name]
    ports = ", ".join(
        f"{way} [{bits - 1}:0] {port}"
        for way, side in (("input", inputs), ("output", outputs))
        for port, bits in side.items()
    )
    pins = ", ".join(f".{port}({port})" for port in (*inputs, *outputs))
    text = WRAPPER.format(
        ports=ports, module=module, pins=pins, valid="out_valid", ready="out_ready", data=", ".join(data),
        parameters=", ".join(f".{key}({value})" for key, value in parameters.items()),
        bits=sum(outputs[port] for port in data) - 1,
    )  # fmt: skip
    (directory / "holds.sv").write_text(text)
    for path in (*module_files(module), *SOURCES.glob("*.svh")):
        (directory / path.name).write_text(change(path.read_text()))
    files = " ".join(path.name for path in module_files(module))
    run_yosys(
        f"read_verilog -sv -formal -I. {files} holds.sv\nhierarchy -top holds\nproc\nflatten\nmemory\nasync2sync\n"
        "chformal -lower\nopt_clean\nsat -tempinduct -prove-asserts -set-assumes -seq 1 -maxsteps 4 -verify\n",
        directory,
    )


@pytest.mark.parametrize("name", CASES)
def test_what_waits_for_its_reader_stays(name, tmp_path) -> None:
    prove(name, tmp_path)


def test_a_packet_that_does_not_wait_is_found(tmp_path) -> None:
    with pytest.raises(YosysError):
        prove("packetizer", tmp_path, lambda text: text.replace("!out_valid || out_ready;", "1'b1;"))
