"""CATERPILLAR: a ring of cores, each a square of processing elements with row and column buses."""

from itertools import product
from typing import Annotated, Literal

from msgspec import Meta, Struct

from presilicon.base import ConfigError
from presilicon.designs import Design, Machine, MachineStep, StepPrice, Technology, UpdateRule
from presilicon.records import OPERANDS, PRODUCT_PHASES, Area
from presilicon.simulation.area import mac_area_um2, register_area_um2, sram_area_um2
from presilicon.simulation.operators import SPECIAL_STEPS
from presilicon.simulation.systolic.machine import Positive, Size

Schedule = Literal["sgd", "minibatch", "pipelined"]
BatchOver = Literal["outputs", "samples"]

Side = Annotated[int, Meta(ge=1, le=1 << 10)]
Kibibytes = Annotated[float, Meta(ge=1 / 1024, le=1 << 20)]


class CaterpillarMachine(
    Machine, Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="caterpillar"
):
    """A ring of cores; a core is nr x nr processing elements (PEs), each with a MAC unit and three levels of memory.

    The accumulator holds a sum (in the format of `numerics.mac`), MEM B (two ports) activations and errors, MEM A (one
    port) the weights, which are spread over all PEs. Matrix products run as rank-1 updates with operands broadcast on
    the row and column buses of a core; products of a matrix and a vector as sums that move from PE to PE. Panels
    circulate on the ring while cores compute.
    """

    nr: Side
    """PEs along each side of a core."""
    cores: Size
    clock_ghz: Positive
    mem_a_kib: Kibibytes
    """One-port memory of one PE."""
    mem_a_banks: Side = 1
    """Banks of MEM A; an access costs as much as in a memory of one bank's size."""
    mem_b_kib: Kibibytes
    """Two-port memory of one PE."""
    port_words: Side = 4
    """Words that one access of MEM A reads or writes. With one, an update of a weight in place takes two cycles."""
    mac_stages: Side = 4
    """Pipeline stages of the MAC unit; the last one accumulates."""
    ring_words: Side = 4
    """Words that a core sends to its neighbour per cycle."""
    hop_cycles: Annotated[int, Meta(ge=0, le=1 << 20)] = 2
    """Cycles from one core to the next, in addition to those of the words themselves."""
    dram_gb_s: Positive = 100.0
    schedule: Schedule = "minibatch"
    """`sgd`: one sample after another, weights updated after each. `minibatch`: whole batches. `pipelined`: every layer
    has its own cores, samples stream through them, and layers update at once, from stale weights."""
    batch_over: BatchOver = "outputs"
    """Distribution of a batch over the cores. `outputs`: each has its own outputs of every layer, and activations go
    around. `samples`: each has its own samples, and weights and gradients go around."""
    technology: str = "horowitz-45nm"
    """Name of the technology table, or the path of a TOML file with one."""
    dram_kind: str = "ddr3"
    """The kind of DRAM, of those that the technology table has."""
    bus_pj_bit: Positive = 0.05
    """Energy of a bit on a row or column bus, or on the way to the next PE; technology tables have no wires."""
    hop_pj_bit: Positive = 0.2
    """Energy of a bit from one core to the next."""

    @property
    def function_steps(self) -> int | None:
        """Those of a multiply-add unit, which is all that a PE has."""
        return SPECIAL_STEPS

    @property
    def pes(self) -> int:
        """Processing elements of all cores."""
        return self.cores * self.nr**2

    @property
    def update_rule(self) -> UpdateRule:
        """One update per batch, or one per sample, made late where layers are stages of a pipeline."""
        return UpdateRule(per_sample=self.schedule != "minibatch", pipelined=self.schedule == "pipelined")

    def check_design(self, design: Design) -> None:
        """A pipeline updates each layer before it could know whether a later one overflowed."""
        super().check_design(design)
        if self.schedule == "pipelined" and design.numerics.loss_scale.kind != "none":
            raise ConfigError(
                'machine.schedule = "pipelined": layers that update at once do not know whether a later layer '
                'overflowed; set numerics.loss_scale.kind = "none", or choose another schedule'
            )

    def price(self, step: MachineStep) -> StepPrice:
        """See `price_caterpillar`."""
        from presilicon.simulation.caterpillar.pricing import price_caterpillar

        return price_caterpillar(step, self)

    def area(self, design: Design, technology: Technology | None) -> Area:
        """MAC units for the widest product of any layer at any time, registers, and two memories in each PE.

        A PE has registers for two operands in every stage of its MAC unit, for the sum, and for what its port reads
        ahead and writes late. Buses and ring are in the overhead on logic. The second port of MEM B is not counted.
        """
        assert technology is not None
        assert technology.area is not None
        banks = self.mem_a_banks
        macs, bits = [], []
        for numerics, phase in product(design.numerics.variants(), PRODUCT_PHASES):
            mac = numerics.mac_of(phase)
            left, right = (numerics.operand(role, phase).format for role in OPERANDS[phase])
            macs.append(mac_area_um2(left, right, mac.widest_sum, technology))
            operands = left.bits_per_element + right.bits_per_element
            bits.append(self.mac_stages * operands + 3 * mac.widest_sum.bits_per_element)
        logic = {
            "multipliers and adders": self.pes * max(macs),
            "registers": self.pes * register_area_um2(max(bits), technology),
        }
        parts = logic | {
            "control and wiring": technology.area.overhead.share * sum(logic.values()),
            "MEM A": self.pes * banks * sram_area_um2(self.mem_a_kib / banks, technology),
            "MEM B": self.pes * sram_area_um2(self.mem_b_kib, technology),
        }
        return Area(
            parts_mm2={name: um2 * 1e-6 for name, um2 in parts.items()},
            how=f"units, registers and SRAM of technology {technology.name}; no pads, no DRAM interface",
        )
