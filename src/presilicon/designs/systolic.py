"""The systolic machine: an array for matrix products, a vector unit for the rest, a buffer, and DRAM."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from presilicon.base.errors import ConfigError

Dataflow = Literal["weight-stationary", "input-stationary", "output-stationary"]
Reduction = Literal["rows", "columns"]
Transpose = Literal["free", "in-place", "transposer"]

Size = Annotated[int, Meta(ge=1, le=1 << 20)]
Positive = Annotated[float, Meta(ge=1e-6, le=1e9)]


class Dataflows(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which operand stays in the array, for each of the three matrix products of a layer."""

    forward: Dataflow = "weight-stationary"
    input_grad: Dataflow = "weight-stationary"
    weight_grad: Dataflow = "output-stationary"


class SystolicMachine(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="systolic"):
    """One chip: a systolic array for matrix products, a vector unit for the rest, a buffer, and DRAM.

    Matrix products take the cycles of the array or the time of their DRAM traffic, whichever is longer (transfers are
    double-buffered); the rest runs on the vector unit by the same rule. Ops run one after another.
    """

    rows: Size
    cols: Size
    clock_ghz: Positive
    vector_lanes: Size = 128
    """float32 operations that the vector unit starts in each cycle."""
    sram_kib: Size = 4096
    """On-chip buffer; half of it holds the data in use while the other half is filled."""
    dram_gb_s: Positive = 100.0
    prefetch: bool = False
    """Whether DRAM transfers of the next op, as far as they need no result of this one and fit in the half of the
    buffer that is being filled, begin while this one computes."""
    technology: str = "horowitz-45nm"
    """Name of the technology table, or the path of a TOML file with one."""
    dram_kind: str = "ddr3"
    """The kind of DRAM, of those that the technology table has."""
    dataflow: Dataflows = Dataflows()
    reduction: Reduction = "rows"
    """Where the reduction of a forward product lies: `rows`, sums move down a column of cells; `columns`, sums move
    along a row of cells."""
    fold_overlap: bool = False
    """Whether cells have a second stationary register, so that the next fold is loaded (or the last one's sums are
    drained) while operands stream."""
    transpose: Transpose = "free"
    """How the input gradient E W^T gets its transposed weights. `in-place`: from the layout of W that the forward
    product uses, sums moving the other way. `transposer`: a unit of the array's size makes a transposed copy.
    `free`: nothing is charged, as in SCALE-Sim."""

    def check(self) -> None:
        """Weights that are transposed in place stay in the array, in both products that use them."""
        for phase in ("forward", "input_grad"):
            given = getattr(self.dataflow, phase)
            if self.transpose == "in-place" and given != "weight-stationary":
                raise ConfigError(
                    f'dataflow.{phase} is "{given}", but transpose = "in-place" keeps the weights in the array: '
                    'make it "weight-stationary", or transpose "transposer" or "free"'
                )
