"""TensorDash (Mahmoud et al., MICRO 2020, arXiv 2009.00748): hardware that skips the zeros that training makes.

Training itself does not change: as `measure-zeros`, it looks at the operands of some steps, and simulates the lanes of
`simulation.sparsity` on samples of their dot products. Lookahead, lookaside and the multiplexer are the source's; the
order in which lanes choose is ours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from presilicon.base import ConfigError
from presilicon.designs import AttachedMethod, Design, TrainingRun
from presilicon.methods.measure_zeros import Looking, MeasureZeros

if TYPE_CHECKING:
    from torch import Tensor


class TensorDash(
    MeasureZeros, Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="name", tag="tensordash"
):
    """Skips multiplications by zero, in the order in which operands come."""

    in_hardware = "cycles of each product from its zeros, on a machine that skips pairs"

    def check_design(self, design: Design) -> None:
        """The machine must have the lanes."""
        super().check_design(design)
        sparsity = getattr(design.machine, "sparsity", None)
        if sparsity is None or sparsity.zeros != "pairs":
            raise ConfigError(
                "methods: tensordash simulates lanes that skip pairs with a zero, which this machine does not have: "
                'set machine.sparsity.zeros = "pairs" on a systolic machine'
            )

    def attach(self, training: TrainingRun) -> AttachedMethod:
        """See `Looking`."""
        return Looking(self.member_name, training, self.every, self.samples, zeros="pairs", measure=_lane_share)


def _lane_share(samples: Tensor) -> float:
    from presilicon.simulation import LANES, lane_cycles

    pairs = samples.cpu().numpy()
    rows = -(-pairs.shape[1] // LANES)
    lines = np.zeros((len(pairs), rows * LANES), bool)  # the last lanes of the last row may have nothing to do
    lines[:, : pairs.shape[1]] = pairs
    cycles = sum(lane_cycles(line) for line in lines.reshape(len(pairs), rows, LANES))
    return float(cycles / (len(pairs) * rows))
