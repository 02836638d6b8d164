"""FAST against fixed formats on machines of equal area, and its schedule against its reverse."""

from collections.abc import Iterator

from msgspec.structs import replace

from presilicon.designs import Design
from presilicon.records import Panel, Reproduction
from presilicon.simulation import fit_area
from presilicon_evidence.reproductions.methods import SEEDS, OnEvent, Trial, beats, named
from presilicon_evidence.reproductions.verdicts import Rows, Statement, conclude, listed, shown

WORKLOAD = "digits-cnn"
RANGE = (2.0, 6.0)
"""Published speedups over mixed precision and block floats."""
_SYNTHESIZED = ["machine.technology=horowitz-45nm-synthesized"]
_SLICED = [*_SYNTHESIZED, "numerics.mac.slice_bits=2"]
_OTHERS = {"fp32": "fp32", "bf16": "bf16", "MXFP8": "mxfp8", "int8": "int8", "BFP, 4 bits": "bfp4"}
_POLICIES = {
    "FAST": "adaptive",
    "always 2 bits": "low",
    "always 4 bits": "high",
    "4 bits first": "temporal-reversed",
    "4 bits in first layers": "layerwise-reversed",
}


def designs() -> list[Design]:
    """Designs whose arrays are as large as that of bfloat16."""
    like = named("bf16", "edge-bf16", _SYNTHESIZED)
    others = [named(name, "edge-bf16", _SYNTHESIZED, numerics=recipe) for name, recipe in _OTHERS.items()]
    policies = [
        named(name, "edge-bf16", _SLICED, numerics="bfp4", method=f"fast fast.policy={policy}")
        for name, policy in _POLICIES.items()
    ]
    return [replace(fit_area(design, like).design, name=design.name) for design in (*others, *policies)]


def reproduce(on_event: OnEvent | None = None) -> Reproduction:
    """Time to accuracy of FAST over that of the others."""
    trial = Trial(designs(), WORKLOAD, on_event)
    rows = [
        trial.row(
            f"time to 97% of {name} over FAST's",
            "FAST",
            name,
            note=f"{RANGE[0]:g} to {RANGE[1]:g} against mixed precision and block floats, in the source"
            if name == "bf16"
            else "",
        )
        for name in (*_OTHERS, *list(_POLICIES)[1:])
    ]
    rows.append(trial.row("energy to 97% of bf16 over FAST's", "FAST", "bf16", energy=True))
    steps = {name: trial[name].steps_to_accuracy.median for name in (*_OTHERS, *_POLICIES)}
    return Reproduction(
        name="fast",
        title="FAST: mantissas that grow along layers and steps, at equal area",
        source="Zhang, McDanel and Kung, FAST: DNN Training Under Variable Precision Block Floating Point, HPCA 2022",
        rows=tuple(rows),
        assumptions=(
            f"{WORKLOAD}, {SEEDS} paired seeds; arrays sized so that each design has the area of bf16 on 32 x 32 "
            "cells, by the areas of synthesized MAC units (docs/area.md).",
            "The rule's constants (0.6 and 0.3) and the groups of 16 could not be checked against the paper; decisions "
            "are made every 10 steps from the tensors of the step before, with the lowest threshold from step 400 on.",
            "Medians over the seeds: "
            + ", ".join(f"{name} {value:.0f} steps" for name, value in steps.items() if value is not None)
            + f"; reached: {trial.reached(*_OTHERS, *_POLICIES)}.",
            "A small network on a small array is bound by its vector unit and memory, where short mantissas save "
            "little; products are what FAST makes cheaper.",
        ),
        verdict=conclude(statements, rows),
        panels=(
            Panel(title="(a) Against fixed formats of equal area", x_label="modelled time in ms", percent=True,
                  curves=tuple(trial.curve(name) for name in ("FAST", *_OTHERS))),
            Panel(title="(b) Against other schedules", x_label="modelled time in ms", percent=True,
                  curves=tuple(trial.curve(name) for name in _POLICIES)),
        ),
    )  # fmt: skip


def statements(rows: Rows) -> Iterator[Statement]:
    """The published range over mixed precision, and FAST's schedule beside others."""
    speed = rows["time to 97% of bf16 over FAST's"]
    yield Statement(
        speed.ours is not None and RANGE[0] <= speed.ours <= RANGE[1],
        f"{RANGE[0]:g} to {RANGE[1]:g} times as fast as mixed precision at equal area",
        shown(speed),
    )
    for names, what in ((list(_OTHERS), "fixed formats"), (list(_POLICIES)[1:], "other schedules")):
        others = [rows[f"time to 97% of {name} over FAST's"] for name in names]
        yield Statement(
            all(beats(row) for row in others),
            f"FAST is sooner at the target than all {what}",
            listed(others),
        )
