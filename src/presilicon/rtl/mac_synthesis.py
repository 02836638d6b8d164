"""Area, clock and energy of a MAC unit, in an FPGA or in standard cells."""

from hashlib import sha256
from pathlib import Path
from time import monotonic
from typing import Any, Literal

import msgspec
from msgspec import Struct

from presilicon.base import RunFailedError, located, np, torch
from presilicon.designs import Numerics
from presilicon.formats import Format, Key, MacUnit
from presilicon.records import OPERANDS, PRODUCT_PHASES, ProductPhase
from presilicon.rtl.arithmetic.golden import Golden, golden_product
from presilicon.rtl.arithmetic.mac import mac_circuit
from presilicon.rtl.arithmetic.units import Circuit
from presilicon.rtl.cells import CellLibrary, liberty_text, sky130
from presilicon.rtl.netlist import CircuitEnergy, Netlist, longest_path_ns, read_netlist, toggle_energy
from presilicon.rtl.sources import module_files
from presilicon.rtl.synthesis import (
    ChipResources,
    OutOfTimeError,
    cached,
    estimate_clock,
    read_script,
    run_script,
    synthesize,
)

MacTarget = Literal["ecp5", "cyclonev", "sky130"]
_CARRIES = ("CCU2C", "MISTRAL_ALUT_ARITH")
_SIDE, _TERMS, _GROUPS = 16, 64, 8
"""Energy is that of a product of normal random matrices with this many rows each, and so many products or groups."""


# Yosys maps once, to cells, and not to gates of its own before.
_MAPPING = """synth -flatten -noabc -top {top}
dfflibmap -liberty cells.lib
opt
abc -liberty cells.lib -constr cells.constr
opt_clean -purge
write_json netlist.json
"""
_CONSTRAINTS = "set_driving_cell inv_2\nset_load 0.005\n"


class MacSynthesis(Struct, frozen=True, kw_only=True):
    """A synthesized MAC unit. What the target does not have, or what was not finished, is None."""

    target: MacTarget
    left: str
    right: str
    mac: str
    products_per_cycle: float
    """Multiply-adds in a cycle: the lanes of a group, fewer if it takes several passes."""
    passes: int
    cells: int | None = None
    registers: int | None = None
    luts: int | None = None
    carries: int | None = None
    multipliers: int | None = None
    memories: int | None = None
    area_um2: float | None = None
    registers_um2: float | None = None
    """Share of the area that is flip-flops."""
    fmax_mhz: float | None = None
    mac_pj: float | None = None
    """Of one multiply-add with normal random operands, without wires and glitches."""
    registers_pj: float | None = None
    """Share of that energy that flip-flops and their clock take."""
    unfinished: str = ""
    """Why something is missing."""

    @property
    def mac_um2(self) -> float | None:
        """Area per multiply-add and cycle."""
        return None if self.area_um2 is None else self.area_um2 / self.products_per_cycle


def synthesize_mac(
    left: Format, right: Format, mac: MacUnit, target: MacTarget = "sky130", *, timeout_s: float | None = None
) -> MacSynthesis:
    """Synthesize the circuit of two operand formats and a MAC unit; results are cached by content.

    `timeout_s` is the time that tools may take in all; the result has what was finished by then.

    Raises:
        ConfigError: the hardware cannot do it.
        MissingToolError: Yosys or nextpnr is not installed.
    """
    circuit = mac_circuit(left, right, mac)
    result = MacSynthesis(
        target=target,
        left=str(left),
        right=str(right),
        mac=str(mac),
        passes=_passes(left, right, mac),
        products_per_cycle=_products_per_cycle(left, right, mac),
    )
    if target == "sky130":
        return _in_cells(result, left, right, mac, circuit, timeout_s)
    return _in_fpga(result, circuit, target, timeout_s)


def synthesize_units(
    numerics: Numerics, target: MacTarget = "sky130", *, timeout_s: float | None = None
) -> dict[tuple[ProductPhase, ...], MacSynthesis]:
    """The MAC units of a design's numerics, each with the products that it computes.

    Raises:
        ConfigError: the hardware cannot do one of them; the message names the product.
    """
    units: dict[tuple[Format, Format, MacUnit], list[ProductPhase]] = {}
    for product in PRODUCT_PHASES:
        roles = OPERANDS[product]
        left, right = (numerics.operand(role, product).format for role in roles)
        unit = numerics.unit_of(product, *roles)
        with located(product):
            mac_circuit(left, right, unit)
        units.setdefault((left, right, unit), []).append(product)
    return {tuple(products): synthesize_mac(*unit, target, timeout_s=timeout_s) for unit, products in units.items()}


def _passes(left: Format, right: Format, mac: MacUnit) -> int:
    return 1 if mac.slice_bits is None else mac.passes(left.significand_bits, right.significand_bits)


def _products_per_cycle(left: Format, right: Format, mac: MacUnit) -> float:
    lanes = mac.width if mac.order == "aligned" else 1
    return lanes / _passes(left, right, mac)


def _in_fpga(
    result: MacSynthesis, circuit: Circuit, target: Literal["ecp5", "cyclonev"], timeout_s: float | None
) -> MacSynthesis:
    parameters = dict(circuit.parameters)
    begin = monotonic()
    try:
        area = synthesize(circuit.module, parameters, target, timeout_s=timeout_s)
        result = _with_area(result, area)
        if target == "cyclonev":
            return msgspec.structs.replace(result, unfinished="no open tool times a Cyclone V")
        left_s = None if timeout_s is None else max(timeout_s - (monotonic() - begin), 1.0)
        timing = estimate_clock(circuit.module, parameters, timeout_s=left_s)
    except OutOfTimeError as error:
        return msgspec.structs.replace(result, unfinished=str(error))
    return msgspec.structs.replace(result, fmax_mhz=timing.fmax_mhz)


def _with_area(result: MacSynthesis, area: ChipResources) -> MacSynthesis:
    return msgspec.structs.replace(
        result,
        cells=sum(area.cells.values()),
        registers=area.registers,
        luts=area.luts,
        carries=sum(area.cells.get(name, 0) for name in _CARRIES),
        multipliers=area.multipliers,
        memories=area.memories,
    )


def _in_cells(
    result: MacSynthesis, left: Format, right: Format, mac: MacUnit, circuit: Circuit, timeout_s: float | None
) -> MacSynthesis:
    library = sky130()
    try:
        netlist = map_to_cells(circuit, library, timeout_s=timeout_s)
    except OutOfTimeError as error:
        return msgspec.structs.replace(result, unfinished=str(error))
    energy = product_energy(left, right, mac, circuit, netlist, library, *random_operands(mac))
    products = energy.cycles * result.products_per_cycle
    registers_um2 = len(netlist.flip_flops) * library.flip_flop.area_um2
    return msgspec.structs.replace(
        result,
        cells=len(netlist.gates) + len(netlist.flip_flops),
        registers=len(netlist.flip_flops),
        area_um2=round(registers_um2 + sum(library.cells[gate.cell].area_um2 for gate in netlist.gates), 1),
        registers_um2=round(registers_um2, 1),
        fmax_mhz=round(1000 / longest_path_ns(netlist, library), 1),
        mac_pj=round(energy.pj / products, 3),
        registers_pj=round(energy.register_pj / products, 3),
    )


def map_to_cells(circuit: Circuit, library: CellLibrary, *, timeout_s: float | None = None) -> Netlist:
    """A circuit in standard cells, mapped for the smallest area.

    Raises:
        OutOfTimeError: it takes longer than `timeout_s`.
    """
    paths = module_files(circuit.module)
    read = read_script(circuit.module, dict(circuit.parameters), paths)

    def run(folder: Path) -> dict[str, Any]:
        netlist = run_mapping(read, circuit.module, library, folder, timeout_s)
        return msgspec.to_builtins(netlist)  # type: ignore[no-any-return]

    key = f"{read}\n{_MAPPING}\n{_CONSTRAINTS}\n{sha256(liberty_text(library).encode()).hexdigest()}"
    return msgspec.convert(cached("cells", key, paths, run), Netlist)


def run_mapping(read: str, top: str, library: CellLibrary, folder: Path, timeout_s: float | None = None) -> Netlist:
    """Map what the commands `read` read in a folder."""
    (folder / "cells.lib").write_text(liberty_text(library), encoding="utf-8")
    (folder / "cells.constr").write_text(_CONSTRAINTS, encoding="utf-8")
    run_script(f"{read}\n{_MAPPING.format(top=top)}", folder, timeout_s)
    document = msgspec.json.decode((folder / "netlist.json").read_bytes())
    return read_netlist(document["modules"][top], library)


def mac_energy_pj(left: Format, right: Format, mac: MacUnit, a: "torch.Tensor", b: "torch.Tensor") -> float:
    """Picojoules of a multiply-add in sky130_fd_sc_hd when `a` (M x K) and the transpose of `b` (N x K) are multiplied.

    Every output is a stream of its own through the unit; operands of an emulated training step may be given.

    Raises:
        ConfigError: the hardware cannot do it.
        MissingToolError: Yosys is not installed.
        RunFailedError: the mapped unit computes something else than emulation.
    """
    circuit, library = mac_circuit(left, right, mac), sky130()
    netlist = map_to_cells(circuit, library)
    energy = product_energy(left, right, mac, circuit, netlist, library, a, b)
    return energy.pj / energy.cycles / _products_per_cycle(left, right, mac)


def product_energy(
    left: Format,
    right: Format,
    mac: MacUnit,
    circuit: Circuit,
    netlist: Netlist,
    library: CellLibrary,
    a: "torch.Tensor",
    b: "torch.Tensor",
) -> CircuitEnergy:
    """The energy of a product of matrices in the mapped circuit, which must compute what emulation computes.

    Raises:
        RunFailedError: it computes something else.
    """
    golden = _golden_streams(left, right, mac, a, b)
    rows = {name: codes.reshape(len(a) * len(b), -1, *codes.shape[1:]) for name, codes in golden.rows.items()}
    energy = toggle_energy(netlist, library, rows, circuit.latency)
    if wrong := int((energy.results != golden.expected).sum()):
        raise RunFailedError(
            f"{mac}: {wrong} of {len(golden.expected)} sums of the mapped gates for {left} by {right} differ from "
            "emulation's: their energy would be that of another unit"
        )
    return energy


def _golden_streams(left: Format, right: Format, mac: MacUnit, a: "torch.Tensor", b: "torch.Tensor") -> Golden:
    """A product whose sums are each computed by a unit of their own, with random words of its own."""
    if not mac.is_stochastic:
        return golden_product(left, right, mac, a, b)
    goldens = [
        golden_product(left, right, mac, row[None], column[None], Key(tensor=index * len(b) + other))
        for index, row in enumerate(a)
        for other, column in enumerate(b)
    ]
    rows = {name: np.concatenate([golden.rows[name] for golden in goldens]) for name in goldens[0].rows}
    return Golden(rows, np.concatenate([golden.expected for golden in goldens]))


def random_operands(mac: MacUnit) -> "tuple[torch.Tensor, torch.Tensor]":
    """Matrices of normal random numbers."""
    terms = _TERMS if mac.order != "aligned" else _GROUPS * mac.width
    generator = torch.Generator().manual_seed(0)
    return torch.randn(_SIDE, terms, generator=generator), torch.randn(_SIDE, terms, generator=generator)
