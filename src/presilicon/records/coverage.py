"""Emulation coverage of a training step, op by op."""

from typing import Literal

from msgspec import Struct

from presilicon.base import columns

CoverageStatus = Literal["emulated", "float32", "uncovered"]
"""Rounded as the numerics say; left in float32 because they say so; or left although they ask for more."""

Stage = Literal["forward", "backward", "update"]


class CoveredOp(Struct, frozen=True, kw_only=True):
    """All calls of one operator in one layer and stage that were treated alike."""

    layer: str
    """Qualified name of the module; "loss" for an emulated loss, empty for the model itself and what lies
    outside."""
    stage: Stage
    operator: str
    """ATen operator, such as `aten.addmm`; `presilicon.matmul` for products of a MAC unit."""
    calls: int
    flops: int
    """Two per multiply-add in matrix products; one per arithmetic result elsewhere."""
    formats: str
    """Roles and their formats, or "float32"."""
    status: CoverageStatus


class EmulationCoverage(Struct, frozen=True, kw_only=True):
    """Every arithmetic op of one training step of a model, and the formats that it was emulated in.

    Moves (copies, views, lookups, selections), random numbers and integers are no arithmetic and are not listed.
    """

    name: str
    """Name of the model."""
    ops: tuple[CoveredOp, ...]
    """In the order in which they first ran."""

    @property
    def flops(self) -> int:
        """FLOPs of the total step."""
        return sum(op.flops for op in self.ops)

    def share(self, status: CoverageStatus) -> float:
        """The fraction of the step's FLOPs that have this status.

        >>> op = CoveredOp(layer="fc", stage="forward", operator="aten.mm", calls=1, flops=8, formats="weight e5m2",
        ...                status="emulated")
        >>> EmulationCoverage(name="tiny", ops=(op,)).share("emulated")
        1.0
        """
        total = self.flops
        return sum(op.flops for op in self.ops if op.status == status) / total if total else 0.0

    @property
    def uncovered(self) -> tuple[CoveredOp, ...]:
        """The ops that the numerics ask for and emulation does not reach."""
        return tuple(op for op in self.ops if op.status == "uncovered")

    def __str__(self) -> str:
        total = self.flops or 1
        rows = [("layer", "stage", "operator", "calls", "FLOPs", "share", "formats")]
        for op in self.ops:
            formats = f"{op.formats} (UNCOVERED)" if op.status == "uncovered" else op.formats
            layer = op.layer or "(root)"
            rows.append(
                (layer, op.stage, op.operator, str(op.calls), f"{op.flops:,}", f"{op.flops / total:.2%}", formats)
            )
        lines = columns(rows, left=(0, 1, 2, 6))
        shares = (
            f"{self.share('emulated'):.2%} of {self.flops:,} FLOPs emulated, "
            f"{self.share('float32'):.2%} left in float32, {self.share('uncovered'):.2%} uncovered"
        )
        return "\n".join([f"{self.name}: {shares}", *lines])
