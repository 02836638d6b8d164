"""ADA-GP: predicted gradients against backpropagation, and against no gradients at all."""

from collections.abc import Iterator

from presilicon.methods import speedup
from presilicon.records import Panel, Reproduced, Reproduction
from presilicon_evidence.reproductions.methods import SEEDS, OnEvent, Trial, gain_of, named
from presilicon_evidence.reproductions.verdicts import OUR_OWN, Rows, Statement, conclude, listed, stated

WORKLOAD = "digits-cnn"
_PLAIN, _PREDICTED = "backpropagation", "ADA-GP"
NEAR = 0.2
"""Part of a published gain by which ours may differ."""
_CONTROLS = {"zeros": "zeros", "random": "random gradients"}


def reproduce(on_event: OnEvent | None = None) -> Reproduction:
    """Time and energy to accuracy of ADA-GP, with controls."""
    designs = [
        named(_PLAIN, "edge-bf16"),
        named(_PREDICTED, "edge-bf16", method="ada-gp"),
        *(named(name, "edge-bf16", method=f"ada-gp ada-gp.source={source}") for source, name in _CONTROLS.items()),
    ]
    trial = Trial(designs, WORKLOAD, on_event)
    rows = (
        trial.row("time to accuracy of backpropagation over ADA-GP's", _PREDICTED, _PLAIN, 1.47),
        trial.row(
            "the same for energy", _PREDICTED, _PLAIN, 1 / 0.66, energy=True, note="34% less energy, in the source"
        ),
        trial.row(
            "time of backpropagation over that of steps with zeros in place of predictions",
            "zeros",
            _PLAIN,
            note="a control: what the usual steps reach alone",
        ),
        trial.row("the same with random gradients", "random gradients", _PLAIN),
        Reproduced(
            "speedup of four predicted steps for each usual one, by counting passes",
            "x",
            ours=speedup(4, 1),
            note="without a predictor's cost and at equal steps",
        ),
        Reproduced("steps to 97% of backpropagation", ours=trial[_PLAIN].steps_to_accuracy.median),
        Reproduced("steps to 97% of ADA-GP", ours=trial[_PREDICTED].steps_to_accuracy.median),
    )
    return Reproduction(
        name="ada-gp",
        title="ADA-GP: most steps without a backward pass",
        source="Janfaza et al., ADA-GP: Accelerating DNN Training By Adaptive Gradient Prediction, MICRO 2023",
        rows=rows,
        assumptions=(
            f"{WORKLOAD} on edge-bf16, {SEEDS} paired seeds; 100 steps of warm-up, then 4, 3, 2 and 1 predicted steps "
            "for each usual one, 100 steps each. The source warms up for 10 epochs of large data sets.",
            f"Seeds that reached 97%: {trial.reached(_PLAIN, _PREDICTED, 'zeros', 'random gradients')}.",
            "Predictions point along true gradients after the warm-up, more so than a running mean of gradients does "
            "(tests/unit/methods/test_ada_gp.py).",
        ),
        verdict=conclude(statements, rows),
        panels=(
            Panel(title="(a) Accuracy over steps", percent=True,
                  curves=tuple(trial.curve(name, over_time=False) for name in (_PLAIN, _PREDICTED, "zeros"))),
            Panel(title="(b) Accuracy over modelled time", x_label="ms", percent=True,
                  curves=tuple(trial.curve(name) for name in (_PLAIN, _PREDICTED, "zeros"))),
        ),
    )  # fmt: skip


def statements(rows: Rows) -> Iterator[Statement]:
    """What the source says of gains, and whether the predictions make them."""
    gain = rows["time to accuracy of backpropagation over ADA-GP's"]
    yield stated("ADA-GP reaches the target as much sooner as published", [gain], NEAR)
    yield stated("it takes as much less energy as published", [rows["the same for energy"]], NEAR)
    controls = [
        rows["time of backpropagation over that of steps with zeros in place of predictions"],
        rows["the same with random gradients"],
    ]
    helps = all(gain_of(gain) > gain_of(row) for row in controls)
    yield Statement(
        helps,
        "predictions help beyond what zeros and random gradients in their place do",
        f"ADA-GP {listed([gain], lambda row: 'has')}, {listed(controls)}",
        OUR_OWN,
    )
