"""TensorDash: lanes that skip pairs with a zero, on random zeros and on those of training."""

from collections.abc import Iterator

import numpy as np

from presilicon.records import Curve, Panel, Reproduced, Reproduction
from presilicon.simulation import lane_speedup
from presilicon_evidence.reproductions.methods import SEEDS, OnEvent, Trial, named
from presilicon_evidence.reproductions.verdicts import Rows, Statement, conclude, stated

WORKLOAD = "fashion-cnn"
_LANES = ["machine.sparsity.zeros=pairs"]
_ROWS, _LEVELS = 3000, 20
_PUBLISHED = 1.95
"""On average over larger networks."""
NEAR = 0.2
"""Part of a published gain by which ours may differ."""
_LARGE = "time to 85% of a dense array of 32 x 32 over TensorDash's"
_SMALL = "the same on 16 x 16 cells, where products take most of the time"
_ENERGY = "the same for energy"


def random_speedup(sparsity: float) -> float:
    """Speedup of one unit for pairs of which a share is zero at random."""
    return lane_speedup(np.random.default_rng(0).random((_ROWS, 16)) >= sparsity)


def reproduce(on_event: OnEvent | None = None) -> Reproduction:
    """The curve over random zeros, and the gain of a step and to accuracy."""
    shares = [level / _LEVELS for level in range(_LEVELS)]
    curve = Curve(name="simulated", x=tuple(shares), y=tuple(random_speedup(share) for share in shares))
    ideal = Curve(
        name="ideal", x=tuple(shares), y=tuple(1 / (1 - share) if share <= 0.75 else None for share in shares)
    )
    trial = Trial(
        [
            named("dense", "edge-bf16"),
            named("TensorDash", "edge-bf16", _LANES, method="tensordash"),
            named("dense, 16 x 16", "edge-bf16", ["machine.rows=16", "machine.cols=16"]),
            named(
                "TensorDash, 16 x 16", "edge-bf16", [*_LANES, "machine.rows=16", "machine.cols=16"], method="tensordash"
            ),
        ],
        WORKLOAD,
        on_event,
    )
    small = "TensorDash, 16 x 16", "dense, 16 x 16"
    rows = (
        trial.row(_LARGE, "TensorDash", "dense", _PUBLISHED),
        trial.row(_SMALL, *small, _PUBLISHED),
        trial.row(_ENERGY, *small, 1.6, energy=True, note="memory included"),
        *(
            Reproduced(f"speedup of a unit at {share:.0%} random zeros", "x", ours=random_speedup(share))
            for share in (0.5, 0.7, 0.9)
        ),
    )
    return Reproduction(
        name="tensordash",
        title="TensorDash: the zeros of training, skipped",
        source="Mahmoud et al., TensorDash: Exploiting Sparsity to Accelerate Deep Neural Network Training, MICRO 2020",
        rows=rows,
        assumptions=(
            "16 lanes, three rows held, the eight inputs of the multiplexer in the order (0,0), (1,0), (2,0), (1,1), "
            "(1,-1), (2,2), (2,-2), (1,3), lanes one after another; other orders have other curves.",
            f"{WORKLOAD} in bfloat16, {SEEDS} seeds, which train to the same bits with and without; both operands of "
            "each product are looked at every 50 steps, 64 dot products of each. The multiplexers have no area.",
            "The zeros are those of ReLUs and of errors behind them; the first layer and the classifier have few.",
        ),
        verdict=conclude(statements, rows),
        panels=(
            Panel(title="(a) Speedup over the share of zeros", x_label="share of zero pairs", curves=(curve, ideal)),
            Panel(title="(b) Accuracy over modelled time", x_label="ms", percent=True,
                  curves=(trial.curve("dense, 16 x 16"), trial.curve("TensorDash, 16 x 16"))),
        ),
    )  # fmt: skip


def statements(rows: Rows) -> Iterator[Statement]:
    """The published gains on two sizes of array."""
    yield stated("the published speedup on the larger array", [rows[_LARGE]], NEAR)
    yield stated(
        "the published speedup on the smaller array, where products take most of the time", [rows[_SMALL]], NEAR
    )
    yield stated("the published gain in energy on the smaller array, memory included", [rows[_ENERGY]], NEAR)
