r"""Synthesizes the MAC units of docs/area.md in both flows and writes their figures.

    python benchmarks/synthesize_macs.py --target sky130 --target ecp5 --out macs.json \
        --table src/presilicon/designs/technologies

Results are cached by content. Without a cache: about ten minutes on one core.
"""

import argparse
import json
from importlib.resources import files
from pathlib import Path

import msgspec

from presilicon.designs import load_technology
from presilicon.formats import MacUnit, parse
from presilicon.rtl import MacSynthesis, synthesize_mac
from presilicon.simulation import mac_area_um2, mac_pj

GROUP = 16
"""Products that are added at once; the length of a block of NVFP4."""

DENSER = 15.8
"""Logic of 7 nm against 45 nm, as TSMC states (recalled): 40 nm 1.235, 28 nm 2, 16 nm 2, 10 nm 2, 7 nm 1.6."""


def units() -> dict[str, tuple[str, str, MacUnit]]:
    """Operand formats and unit by the name in the table; sums are float32, of integers fixed point."""
    float32 = parse("float32")
    scalar = MacUnit(accumulate=float32)

    def grouped(align_bits: int, slice_bits: int | None = None) -> MacUnit:
        return MacUnit(
            accumulate=float32,
            order="aligned",
            width=GROUP,
            chunk=GROUP,
            align_bits=align_bits,
            slice_bits=slice_bits,
        )

    def bfp(mantissa: int) -> str:
        return f"bfp(mantissa={mantissa}, exponent=8, group={GROUP})"

    scalars = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16", "e5m2": "e5m2", "e4m3": "e4m3"}
    return {
        **{name: (fmt, fmt, scalar) for name, fmt in scalars.items()},
        "e5m2 x e4m3": ("e5m2", "e4m3", scalar),
        "int8": ("int8", "int8", MacUnit(accumulate=parse("fixed(25, 0)"))),
        "BFP m=2": (bfp(2), bfp(2), grouped(2)),
        "BFP m=4": (bfp(4), bfp(4), grouped(6)),
        "fMAC m=4": (bfp(4), bfp(4), grouped(6, slice_bits=2)),
        "NVFP4": ("nvfp(tensor_scale=false)", "nvfp(tensor_scale=false)", grouped(14)),
        "MXFP8": ("mxfp8_e4m3", "mxfp8_e4m3", grouped(34)),
    }


def more_units() -> dict[str, tuple[str, str, MacUnit]]:
    """Units that only the tables have: those of docs/equal-area.md that the table of docs/area.md does not show."""
    float32, float16, dlfloat = parse("float32"), parse("float16"), parse("float(6, 9)")

    def grouped(align_bits: int) -> MacUnit:
        return MacUnit(accumulate=float32, order="aligned", width=GROUP, chunk=GROUP, align_bits=align_bits)

    def bfp(mantissa: int) -> str:
        return f"bfp(mantissa={mantissa}, exponent=8, group={GROUP})"

    return {
        "tf32": ("float(8, 10)", "float(8, 10)", MacUnit(accumulate=float32)),
        "bf16, bf16 sums": ("bfloat16", "bfloat16", MacUnit(accumulate=parse("bfloat16"))),
        "fp16, fp16 sums": ("float16", "float16", MacUnit(accumulate=float16)),
        "dlfloat, its own sums": (str(dlfloat), str(dlfloat), MacUnit(accumulate=dlfloat)),
        "e4m3, fp16 sums": ("e4m3", "e4m3", MacUnit(accumulate=float16)),
        "e5m2 x e4m3, fp16 sums": ("e5m2", "e4m3", MacUnit(accumulate=float16)),
        "e5m2, fp16 sums": ("e5m2", "e5m2", MacUnit(accumulate=float16)),
        "fixed point": ("fixed(4, 12)", "fixed(4, 12)", MacUnit(accumulate=parse("fixed(13, 12)"))),
        "BFP m=3": (bfp(3), bfp(3), grouped(4)),
        "BFP m=8": (bfp(8), bfp(8), grouped(14)),
        "MXFP8 e5m2": ("mxfp8_e5m2", "mxfp8_e4m3", grouped(34)),
        "MXFP6": ("mxfp6_e3m2", "mxfp6_e3m2", grouped(18)),
        "MXFP4": ("mxfp4", "mxfp4", grouped(6)),
    }


def table_text(figures: dict[str, dict[str, MacSynthesis]]) -> str:
    """The table of 45 nm with the units' areas, so scaled that the float32 unit is as large as the table's own."""
    name = "horowitz-45nm"
    float32 = parse("float32")
    table = load_technology(name)
    scale = mac_area_um2(float32, float32, float32, table) / lane_um2(figures["fp32"]["sky130"], 1)
    scale_pj = mac_pj(float32, float32, float32, table) / gate_pj(figures["fp32"]["sky130"])
    base = (files("presilicon.designs") / "technologies" / f"{name}.toml").read_text(encoding="utf-8")
    lines = [base.replace(f'name = "{name}"', f'name = "{name}-synthesized"', 1).rstrip(), ""]
    lines.append("# Written by benchmarks/synthesize_macs.py: docs/area.md.")
    for unit, (left, right, mac) in (units() | more_units()).items():
        area_um2, pj = lane_um2(figures[unit]["sky130"], mac.width), gate_pj(figures[unit]["sky130"])
        source = f"{area_um2:.0f} um2 in sky130_fd_sc_hd, times {scale:.4f}: as large as this table's unit in float32"
        lines += entry("area.macs", left, right, mac, f"um2 = {area_um2 * scale:.0f}", source)
        source = f"{pj:.2f} pJ in sky130_fd_sc_hd with normal random operands, times {scale_pj:.4f}: float32 as here"
        lines += entry("macs", left, right, mac, f"pj = {pj * scale_pj:.4g}", source)
    return "\n".join(lines)


def entry(name: str, left: str, right: str, mac: MacUnit, figure: str, source: str) -> list[str]:
    """The lines of a unit's figure in a table."""
    lines = [f"[[{name}]]", f'left = "{left}"', f'right = "{right}"', f'accumulate = "{mac.accumulate}"']
    lines += [f"slice_bits = {mac.slice_bits}"] if mac.slice_bits else []
    return [*lines, figure, 'label = "assumed"', f'source = "{source}"', ""]


def seven_nm_text(path: Path) -> str:
    """The table of 7 nm with the units of the table at `path`, which has those of 45 nm, divided by `DENSER`."""
    name = "tpuv4i-7nm"
    base = (files("presilicon.designs") / "technologies" / f"{name}.toml").read_text(encoding="utf-8")
    table, float32 = load_technology(str(path)), parse("float32")
    assert table.area is not None
    scale = mac_pj(float32, float32, float32, load_technology(name)) / mac_pj(float32, float32, float32, table)
    lines = [base.replace(f'name = "{name}"', f'name = "{name}-synthesized"', 1).rstrip(), ""]
    lines.append("# Written by benchmarks/synthesize_macs.py: docs/area.md.")
    for area, energy in zip(table.area.macs, table.macs, strict=True):
        mac = MacUnit(accumulate=parse(area.accumulate), slice_bits=area.slice_bits)
        source = f"45 nm divided by {DENSER:g}: density that TSMC states from node to node"
        lines += entry("area.macs", area.left, area.right, mac, f"um2 = {area.um2 / DENSER:.4g}", source)
        source = f"45 nm times {scale:.4f}: float32 as in this table"
        lines += entry("macs", energy.left, energy.right, mac, f"pj = {energy.pj * scale:.4g}", source)
    return "\n".join(lines)


def lane_um2(unit: MacSynthesis, lanes: int) -> float:
    """Area of the gates of a lane; registers are counted apart."""
    assert unit.area_um2 is not None
    assert unit.registers_um2 is not None
    return (unit.area_um2 - unit.registers_um2) / lanes


def gate_pj(unit: MacSynthesis) -> float:
    """Energy of a multiply-add without registers, which are counted apart."""
    assert unit.mac_pj is not None
    assert unit.registers_pj is not None
    return unit.mac_pj - unit.registers_pj


def main() -> None:
    """Synthesize all units in turn; print and write them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", action="append", choices=["sky130", "ecp5", "cyclonev"], required=True)
    parser.add_argument("--timeout", type=float, default=900.0)
    parser.add_argument("--out", type=Path, help="All figures, as JSON.")
    parser.add_argument("--table", type=Path, help="Folder of technology tables with the units, scaled.")
    options = parser.parse_args()
    figures: dict[str, dict[str, MacSynthesis]] = {}
    wanted = units() | (more_units() if options.table else {})
    for name, (left, right, mac) in wanted.items():
        for target in options.target if name in units() else ("sky130",):
            unit = synthesize_mac(parse(left), parse(right), mac, target, timeout_s=options.timeout)
            figures.setdefault(name, {})[target] = unit
            print(name, unit, flush=True)
    if options.table is not None:
        path = options.table / "horowitz-45nm-synthesized.toml"
        path.write_text(table_text(figures), encoding="utf-8")
        (options.table / "tpuv4i-7nm-synthesized.toml").write_text(seven_nm_text(path), encoding="utf-8")
    if options.out is not None:
        options.out.write_text(json.dumps(msgspec.to_builtins(figures), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
