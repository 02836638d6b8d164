"""The systolic machine: an array for matrix products, a vector unit for the rest, a buffer, and DRAM."""

from itertools import product
from math import inf
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct
from msgspec.structs import replace

from presilicon.base import ConfigError
from presilicon.designs import Design, Machine, MachineStep, StepPrice, Technology, load_technology
from presilicon.records import PRODUCT_PHASES, Area, ArrayFrames, Gemm, StepFacts
from presilicon.simulation.cores.description import Cores
from presilicon.simulation.sparsity.description import ROLES, Sparsity, zero_remarks
from presilicon.simulation.systolic.memories import OPERANDS, Memory, check_memories

Stationary = Literal["weight-stationary", "input-stationary", "output-stationary"]
STATIONARY: tuple[Stationary, ...] = ("weight-stationary", "input-stationary", "output-stationary")
Dataflow = Literal[Stationary, "row-stationary", "best"]
Objective = Literal["time", "energy", "product"]
Reduction = Literal["rows", "columns"]
Transpose = Literal["free", "in-place", "transposer"]
Fusion = Literal["none", "ops", "resident"]

Size = Annotated[int, Meta(ge=1, le=1 << 20)]
Positive = Annotated[float, Meta(ge=1e-6, le=1e9)]


class Dataflows(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The operand that stays in the array, for each of the three matrix products of a layer.

    `best` chooses for each product, by the machine's objective. `row-stationary` is an array of another kind, for all
    three products: see `systolic.rows`.
    """

    forward: Dataflow = "weight-stationary"
    input_grad: Dataflow = "weight-stationary"
    weight_grad: Dataflow = "output-stationary"


class SystolicMachine(
    Machine, Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="systolic"
):
    """One chip: a systolic array for matrix products, a vector unit for the rest, a buffer, and DRAM.

    Groups of fused ops run one after another. A group takes as long as the array, the vector unit, the bandwidth of the
    buffer or its DRAM traffic, whichever is longest; without a doubled buffer, it computes and transfers in turn.
    """

    rows: Size
    cols: Size
    clock_ghz: Positive
    vector_lanes: Size = 128
    """float32 operations that the vector unit starts in each cycle."""
    sram_kib: Size | None = None
    """One on-chip buffer for everything, as wide as the array needs it: the short form of `memories`; 4096 where there
    are neither. Half of it holds the data in use, the other half is being filled."""
    memories: tuple[Memory, ...] = ()
    """The levels of memory between the cells and DRAM, from the cells outward."""
    dram_gb_s: Positive = 100.0
    prefetch: bool = False
    """Whether DRAM transfers for the next group of ops begin while this one computes, as far as they do not need its
    results and fit in the half of the buffer that is being filled."""
    technology: str = "horowitz-45nm"
    """Name of the technology table, or the path of a TOML file with one."""
    dram_kind: str = "ddr3"
    """The kind of DRAM, of those that the technology table has."""
    dataflow: Dataflows = Dataflows()
    objective: Objective = "product"
    """What the mapping of each product, fusion and the division among cores make small: time (energy decides between
    equal times), energy, or the product of both. The fastest plan can take twice the energy for a few percent of
    time."""
    reduction: Reduction = "rows"
    """Axis of the reduction of a forward product: `rows`, sums move down a column of cells; `columns`, sums move
    along a row of cells."""
    fold_overlap: bool = False
    """Whether cells have a second stationary register, so that the next fold is loaded (or the last one's sums are
    drained) while operands stream."""
    fusion: Fusion = "resident"
    """How ops share what is on chip. `none`: every op reads its inputs from DRAM and writes its results there. `ops`:
    ops of the vector unit take tiles from the op before them as they come. `resident`: products do so too, slice by
    slice, and data stays in the buffer between ops as far as it fits."""
    cores: Cores = Cores()
    """Equal cores on the chip, of which all other fields but `dram_gb_s` describe one."""
    sparsity: Sparsity = Sparsity()
    """What the machine does with zeros, and how operands with zeros lie in memories."""
    transpose: Transpose = "free"
    """Source of the transposed weights of the input gradient E W^T. `in-place`: from the layout of W that the forward
    product uses, sums moving the other way. `transposer`: a unit of the array's size makes a transposed copy.
    `free`: nothing is charged, as in SCALE-Sim."""

    @property
    def function_steps(self) -> int | None:
        """None: `vector_work` prices operators itself."""
        return None

    @property
    def levels(self) -> tuple[Memory, ...]:
        """The memories, also where the short form describes them."""
        return self.memories or (Memory(name="sram", kib=self.sram_kib or 4096, gb_s=inf),)

    @property
    def buffer(self) -> Memory:
        """The outermost memory, through which the vector unit works."""
        return self.levels[-1]

    def check(self) -> None:
        """Memories are described once; weights that are transposed in place stay in the array, in both products."""
        self.sparsity.check()
        if self.memories and self.sram_kib is not None:
            raise ConfigError(
                f"sram_kib = {self.sram_kib} is the short form of memories, which are given too: leave one of them out"
            )
        if self.memories:
            check_memories(self.memories)
        self._check_rows()
        for phase, dataflow in (("forward", self.dataflow.forward), ("input_grad", self.dataflow.input_grad)):
            if self.transpose == "in-place" and dataflow != "weight-stationary":
                raise ConfigError(
                    f'dataflow.{phase} is "{dataflow}", but transpose = "in-place" keeps the weights in the array: '
                    'make it "weight-stationary", or transpose "transposer" or "free"'
                )

    def _check_rows(self) -> None:
        """Cells have memories exactly where products are row-stationary, and then all three of them are."""
        cells = [memory.name for memory in self.memories if memory.per == "cell"]
        flows = {getattr(self.dataflow, phase) for phase in PRODUCT_PHASES}
        if "row-stationary" not in flows:
            if cells:
                raise ConfigError(
                    f'memories: "{cells[0]}" is in every cell, but cells of a systolic array hold only what passes: '
                    'make it per = "row", "column" or "chip", or the dataflow "row-stationary"'
                )
            return
        if self.cores.count > 1:
            raise ConfigError('dataflow "row-stationary" is for a chip with one core: leave out cores')
        if flows != {"row-stationary"}:
            raise ConfigError('dataflow: "row-stationary" cells run no other dataflow: use it for all three products')
        held = {operand for memory in self.memories if memory.per == "cell" for operand in memory.holds}
        if len(held) < len(OPERANDS):
            raise ConfigError(
                'dataflow "row-stationary" needs memories with per = "cell" for "left", "right" and "sums" in memories'
            )
        if self.fold_overlap or self.transpose != "free":
            raise ConfigError(
                'dataflow "row-stationary" has no folds and reads weights in any order: leave out fold_overlap and '
                "transpose"
            )
        if self.sparsity.zeros not in ("computed", "gated") or self.sparsity.compressed_in == "chip":
            raise ConfigError(
                'dataflow "row-stationary": cells may gate zeros (sparsity.zeros = "gated") but skip none, and '
                'operands may be compressed in DRAM only (sparsity.compressed_in = "dram")'
            )

    def check_design(self, design: Design) -> None:
        """A MAC unit that adds in the order of the array must have as many rows as a tile has along its sums.

        Cells can be processing units, on a chip with one core that multiplies zeros too. The technology table must have
        the figures of what only some machines have.
        """
        self._check_table(load_technology(self.technology))
        unit = design.numerics.unit_name
        if unit is not None and (self.cores.count > 1 or self.dataflow.forward == "row-stationary"):
            raise ConfigError(
                f"numerics.mac.unit {unit}: cells can be processing units on a chip with one core whose dataflow is "
                "not row-stationary"
            )
        if unit is not None and self.sparsity.zeros not in ("computed", "gated"):
            raise ConfigError(
                f"numerics.mac.unit {unit}: a processing unit takes its lanes together and skips no zeros; "
                'set sparsity.zeros = "computed" or "gated"'
            )
        for numerics, phase in product(design.numerics.variants(), PRODUCT_PHASES):
            mac = numerics.mac_of(phase)
            is_turned = phase == "input_grad" and self.transpose == "in-place"
            axis = "cols" if (self.reduction == "columns") != is_turned else "rows"
            length = getattr(self, axis)
            if mac.order == "systolic" and mac.rows != length:
                own = f"numerics.{phase}.mac" if self.rows != self.cols else "numerics.mac"
                raise ConfigError(
                    f"the MAC unit adds in the order of {mac.rows} rows, but the machine has {length} {axis} along the "
                    f"sums of {phase}: set rows = {length} in [{own}]"
                )

    def _check_table(self, technology: Technology) -> None:
        area, sparsity, cores = technology.area, self.sparsity, self.cores
        selects, has_area = sparsity.selected_inputs != (1, 1), area is not None
        selection = f'sparsity.zeros = "{sparsity.zeros}" selects operands'
        edram = next(
            (f'memory "{memory.name}" is embedded DRAM' for memory in self.memories if memory.kind == "edram"), ""
        )
        has_wires, links = cores.count > 1 and cores.pj_bit_hop is None, "cores have links without pj_bit_hop"
        for reason, is_needed, entry, figure in (
            (selection, selects, "mux_bit", technology.mux_bit),
            (selection, selects and has_area, "area.mux_bit", area and area.mux_bit),
            (edram, edram and has_area, "area.edram", area and area.edram),
            (links, has_wires, "wire", technology.wire),
            (links, has_wires, "area", area),
        ):
            if is_needed and figure is None:
                raise ConfigError(f"{reason}, but technology {technology.name} has no {entry}: add it to the table")

    def price(self, step: MachineStep) -> StepPrice:
        """See `price_systolic` and `price_cores`."""
        if self.cores.count > 1:
            from presilicon.simulation.cores.pricing import price_cores

            return price_cores(step, self)
        from presilicon.simulation.systolic.pricing import price_systolic

        return price_systolic(step, self)

    def remarks(self, facts: StepFacts) -> tuple[str, ...]:
        """Zeros that the hardware cannot use or that nobody has measured, and assumptions about those that it uses."""
        sparsity = self.sparsity
        if sparsity == Sparsity():
            return super().remarks(facts)
        remarks = zero_remarks(sparsity, facts, self.cols if self.reduction == "rows" else self.rows)
        if any(map(sparsity.encoding_of, ROLES)) and load_technology(self.technology).codec_bit is None:
            free = f"technology {self.technology} has no codec_bit: compressing and expanding operands takes no energy"
            return (*remarks, free)
        return tuple(remarks)

    def area(self, design: Design, technology: Technology | None) -> Area:
        """See `systolic_area`."""
        from presilicon.simulation.systolic.area import systolic_area

        assert technology is not None
        return systolic_area(design, self, technology)

    def describe_product(self) -> dict[str, Any]:
        """The array, and how the product lies in it."""
        return {
            "array": f"{self.rows}x{self.cols}",
            "dataflow": self.dataflow.forward,
            "reduction": self.reduction,
            "fold_overlap": self.fold_overlap,
            "objective": self.objective,
        }

    def for_product(self) -> Machine:
        """A single product uses nothing transposed."""
        return replace(self, transpose="free")

    def array_settings(self, sides: tuple[int, int] | None, dataflow: str | None, overlap: bool | None) -> list[str]:
        """Settings for those that are given; the dataflow is that of all three products."""
        settings = []
        if sides is not None:
            settings += [f"machine.rows={sides[0]}", f"machine.cols={sides[1]}"]
        if dataflow is not None:
            settings += [f"machine.dataflow.{phase}={dataflow}" for phase in PRODUCT_PHASES]
        if overlap is not None:
            settings.append(f"machine.fold_overlap={str(overlap).lower()}")
        return settings

    def play_product(self, gemm: Gemm) -> ArrayFrames:
        """See `frames.play_product`."""
        from presilicon.simulation.systolic.frames import play_product

        if self.dataflow.forward not in STATIONARY:
            raise ConfigError(
                f'dataflow "{self.dataflow.forward}" has no frames of its own: choose one with --dataflow'
            )
        return play_product(
            gemm,
            self.rows,
            self.cols,
            self.dataflow.forward,
            reduction=self.reduction,
            fold_overlap=self.fold_overlap,
        )
