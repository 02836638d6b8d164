"""MAC units in standard cells: the mapped gates compute emulation's bits, and areas agree with a published unit."""

import json

import msgspec
import pytest
import torch

from presilicon.base import ConfigError, RunFailedError
from presilicon.cli.main import main
from presilicon.designs import load_design
from presilicon.formats import MacUnit, parse
from presilicon.rtl import (
    golden_product,
    mac_circuit,
    mac_energy_pj,
    mac_synthesis,
    synthesis,
    synthesize_mac,
    synthesize_units,
)
from presilicon.rtl.cells import sky130
from presilicon.rtl.mac_synthesis import map_to_cells, product_energy, random_operands, run_mapping
from presilicon.rtl.netlist import Gate, longest_path_ns

SMALL = parse("fp4_e2m1"), parse("fp4_e2m1"), MacUnit(accumulate=parse("e4m3"))

INT8 = """
module pe (input clock, input clear, input enable, input signed [7:0] left, input signed [7:0] right,
           output reg signed [31:0] sum);
  always @(posedge clock) if (clear) sum <= 0; else if (enable) sum <= sum + left * right;
endmodule
"""


@pytest.fixture(scope="module")
def mapped(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PRESILICON_CACHE", str(tmp_path_factory.mktemp("cache")))
        circuit = mac_circuit(*SMALL)
        yield circuit, map_to_cells(circuit, sky130())


def test_mapped_gates_compute_the_bits_of_emulation(mapped) -> None:
    operands = random_operands(SMALL[2])
    energy = product_energy(*SMALL, *mapped, sky130(), *operands)
    assert (energy.results == golden_product(*SMALL, *operands).expected).all()
    assert energy.pj > 0


@pytest.mark.parametrize(
    "unit",
    [
        MacUnit(accumulate=parse("e4m3"), rounding="stochastic(bits=8, source=lfsr)"),
        MacUnit(accumulate=parse("e4m3"), chunk=24, rounding="stochastic(bits=3, source=lfsr)"),
        MacUnit(accumulate=parse("float(5, 3)"), chunk=16, order="aligned", width=4, align_bits=8,
                rounding="stochastic(bits=5, source=lfsr)"),
    ],
)  # fmt: skip
def test_gates_of_a_stochastic_unit_draw_emulations_random_words(unit) -> None:
    """A unit with a dead register computes other sums, which has no energy at all."""
    formats = parse("fp4_e2m1"), parse("fp4_e2m1")
    circuit = mac_circuit(*formats, unit)
    netlist = map_to_cells(circuit, sky130())
    drawing = product_energy(*formats, unit, circuit, netlist, sky130(), *random_operands(unit))
    assert len(set(drawing.results.tolist())) > 8
    ports = {name: nets for name, nets in netlist.ports.items() if name != "seed"}
    dead = msgspec.structs.replace(netlist, ports=ports)
    with pytest.raises(RunFailedError, match="differ from emulation"):
        product_energy(*formats, unit, circuit, dead, sky130(), *random_operands(unit))


def test_a_wrong_gate_is_noticed(mapped) -> None:
    circuit, netlist = mapped
    index = next(i for i, gate in enumerate(netlist.gates) if gate.cell == "xnor2_1")
    gate = netlist.gates[index]
    wrong = (*netlist.gates[:index], Gate("nand2_1", gate.output, gate.inputs), *netlist.gates[index + 1 :])
    mistaken = msgspec.structs.replace(netlist, gates=wrong)
    with pytest.raises(RunFailedError, match="differ from emulation"):
        product_energy(*SMALL, circuit, mistaken, sky130(), *random_operands(SMALL[2]))


def test_operands_that_change_less_take_less_energy(mapped) -> None:
    a, b = random_operands(SMALL[2])
    energies = [mac_energy_pj(*SMALL, x, b) for x in (a, a * (torch.arange(a.shape[1]) % 2), 0 * a)]
    assert energies[0] > energies[1] > energies[2] > 0


def test_a_slower_library_has_a_longer_path(mapped) -> None:
    library = sky130()
    document = msgspec.to_builtins(library)
    for cell in document["cells"].values():
        for arc in cell["arcs"].values():
            arc["cell_rise"] = [2 * delay for delay in arc["cell_rise"]]
            arc["cell_fall"] = [2 * delay for delay in arc["cell_fall"]]
    slower = msgspec.convert(document, type(library))
    first, second = (longest_path_ns(mapped[1], cells) for cells in (library, slower))
    gates = first - library.flip_flop.setup_ns
    assert first < second < first + gates


def test_a_known_unit_needs_no_tool(mapped, monkeypatch) -> None:
    monkeypatch.setattr(mac_synthesis, "run_script", None)
    assert map_to_cells(mapped[0], sky130()) == mapped[1]


@pytest.mark.parametrize("target", ["sky130", "ecp5"])
def test_a_unit_that_runs_out_of_time_says_where(tmp_path, monkeypatch, target) -> None:
    monkeypatch.setenv("PRESILICON_CACHE", str(tmp_path))
    unit = synthesize_mac(*SMALL, target, timeout_s=0.2)
    assert unit.cells is None
    assert "ran out of 0.2 s" in unit.unfinished


def test_a_product_that_hardware_cannot_do_is_refused_by_name() -> None:
    numerics = load_design("bf16-systolic", ["numerics.mac.order=pairwise"]).numerics
    with pytest.raises(ConfigError, match=r"forward: .*a tree needs all products"):
        synthesize_units(numerics)


def test_a_published_unit_has_the_same_area(tmp_path) -> None:
    """The int8 array of github.com/shlok2018/ds-cnn-kws-accelerator: 368903.8 um2 for 64 such cells, by Yosys."""
    (tmp_path / "pe.v").write_text(INT8)
    library = sky130()
    netlist = run_mapping("read_verilog pe.v", "pe", library, tmp_path)
    gates_um2 = sum(library.cells[gate.cell].area_um2 for gate in netlist.gates)
    area_um2 = gates_um2 + len(netlist.flip_flops) * library.flip_flop.area_um2
    assert len(netlist.flip_flops) == 32
    assert area_um2 == pytest.approx(368903.808 / 64, rel=0.1)


def run_command(capsys, *arguments: str) -> tuple[int, str, str]:
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    return ended.value.code, *capsys.readouterr()


def test_the_command_shows_each_unit_once(mapped, capsys) -> None:
    settings = [f"numerics.{role}=fp4_e2m1" for role in ("weight", "activation", "error")]
    settings.append("numerics.mac.accumulate=e4m3")
    options = [part for text in settings for part in ("--set", text)]
    code, out, _ = run_command(capsys, "rtl", "synth", "bf16-systolic", "--json", *options)
    assert code == 0
    (unit,) = json.loads(out)["units"]
    assert unit["products"] == ["forward", "input_grad", "weight_grad"]
    assert unit["registers"] == len(mapped[1].flip_flops)
    assert unit["area_um2"] > unit["registers_um2"] > 0


def test_the_command_without_tools_exits_with_3(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setenv("PRESILICON_CACHE", str(tmp_path))
    monkeypatch.setattr(synthesis, "TOOLS", {"no-such-tool": "1"})
    code, _, err = run_command(capsys, "rtl", "synth", "bf16-systolic")
    assert code == 3
    assert "pip install 'presilicon[rtl]'" in err
