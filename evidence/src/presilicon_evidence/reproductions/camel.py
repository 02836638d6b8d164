"""CAMEL: lifetimes of reversible networks, and embedded DRAM in place of SRAM of the same area."""

from collections.abc import Iterator
from functools import partial

import torch
from torch.nn import functional

from presilicon.designs import load_design
from presilicon.methods import Camel
from presilicon.records import Curve, Panel, Reproduced, Reproduction, StepGraph
from presilicon.simulation import memory_timeline, simulate
from presilicon.workloads import capture, digits_revnet, sgd
from presilicon_evidence.reproductions.methods import SEEDS, OnEvent, Trial, named
from presilicon_evidence.reproductions.verdicts import Rows, Statement, conclude, stated

WORKLOAD = "digits-revnet"
DEPTHS = (2, 4, 8, 16)
RETENTION_US = 100
NEAR = 0.2
"""Part of a published gain by which ours may differ."""
GROWS, STAYS = 2.0, 1.25
"""A life that grows with the depth of a network is at least so many times as long, and one that stays at most."""
FREE = 0.1
"""Share of refreshes that may be left where data hardly outlive their block."""
_SRAM = ['machine.memories=[{ name = "buffer", kib = 256 }]']
_EDRAM = [f'machine.memories=[{{ name = "buffer", kib = 512, kind = "edram", retention_us = {RETENTION_US} }}]']


def step_graph(depth: int, *, recomputes: bool) -> StepGraph:
    """A step of a reversible network of so many blocks."""
    model = digits_revnet(depth)
    targets = torch.zeros(32, dtype=torch.long)
    return capture(
        Camel().transform(model) if recomputes else model, torch.zeros(32, 1, 8, 8), targets=targets,
        loss=functional.cross_entropy, optimizer=partial(sgd, learning_rate=0.02),
    )  # fmt: skip


def longest_ms(depth: int, *, recomputes: bool) -> float:
    """The longest life of an activation inside the blocks."""
    graph, design = step_graph(depth, recomputes=recomputes), load_design("edge-bf16")
    timeline = memory_timeline(graph, design, simulate(graph, design))
    inside = [data for data in timeline.lifetimes if "couplings" in data.writer and data.part == "activations"]
    return 1e3 * max(data.time_s for data in inside)


def reproduce(on_event: OnEvent | None = None) -> Reproduction:
    """Lifetimes over depth, and time and energy to accuracy with SRAM and with embedded DRAM."""
    kept, flat = ([longest_ms(depth, recomputes=recomputes) for depth in DEPTHS] for recomputes in (False, True))
    flops = [sum(op.flops for op in step_graph(16, recomputes=recomputes).ops) for recomputes in (False, True)]
    trial = Trial(
        [
            named("SRAM", "edge-bf16", _SRAM, numerics="bfp4"),
            named("eDRAM", "edge-bf16", _EDRAM, numerics="bfp4"),
            named("eDRAM, recomputed", "edge-bf16", _EDRAM, numerics="bfp4", method="camel"),
        ],
        WORKLOAD,
        on_event,
    )
    refresh = [
        1e6
        * simulate(step_graph(8, recomputes=word), load_design("edge-bf16", _EDRAM)).energy_by_component_j["refresh"]
        for word in (False, True)
    ]
    rows = (
        trial.row("time to 97% with SRAM over that of CAMEL", "eDRAM, recomputed", "SRAM", 2.5),
        trial.row("the same for energy", "eDRAM, recomputed", "SRAM", 2.8, energy=True),
        trial.row("energy to 97% with SRAM over embedded DRAM without recomputation", "eDRAM", "SRAM", energy=True),
        Reproduced(
            "operations of a step that recomputes over one that keeps",
            "x",
            ours=flops[1] / flops[0],
            note="4/3 in the limit of many blocks",
        ),
        Reproduced("longest life of an activation, 16 blocks over 4, kept", "x", ours=kept[3] / kept[1]),
        Reproduced("longest life of an activation, 16 blocks over 4, recomputed", "x", ours=flat[3] / flat[1]),
        Reproduced(
            "longest life of an activation, 8 blocks, recomputed",
            "us",
            ours=1e3 * flat[2],
            note=f"embedded DRAM keeps it for {RETENTION_US} us",
        ),
        Reproduced("refresh of a step of 8 blocks in bfloat16, kept", "uJ", ours=refresh[0]),
        Reproduced("refresh of a step of 8 blocks in bfloat16, recomputed", "uJ", ours=refresh[1]),
    )
    depths = tuple(float(depth) for depth in DEPTHS)
    return Reproduction(
        name="camel",
        title="CAMEL: activations that live for one block",
        source="Zhang et al., CAMEL: Co-Designing AI Models and eDRAMs for Efficient On-Device Learning, HPCA 2024",
        rows=rows,
        assumptions=(
            f"{WORKLOAD} in block floats of 4 bits, {SEEDS} paired seeds. Embedded DRAM has twice the bits of SRAM in "
            f"the same area (512 against 256 KiB), keeps data for {RETENTION_US} us, and refreshes what stays longer.",
            "The source fine-tunes a frozen network with a reversible branch; here the whole network is trained.",
            "The source moves all data off DRAM; here the network is bound by its products, which recomputation makes "
            "more of.",
        ),
        verdict=conclude(statements, rows),
        panels=(
            Panel(title="(a) Longest life of an activation", x_label="reversible blocks", y_label="ms",
                  curves=tuple(Curve(name=name, x=depths, y=tuple(lives))
                               for name, lives in (("kept", kept), ("recomputed", flat)))),
            Panel(title="(b) Accuracy over modelled time", x_label="ms", percent=True,
                  curves=tuple(trial.curve(name) for name in ("SRAM", "eDRAM", "eDRAM, recomputed"))),
        ),
    )  # fmt: skip


def statements(rows: Rows) -> Iterator[Statement]:
    """What the source says of gains, and of the lives and refreshes behind them."""
    yield stated("as much sooner as published", [rows["time to 97% with SRAM over that of CAMEL"]], NEAR)
    yield stated("as much less energy as published", [rows["the same for energy"]], NEAR)
    kept = rows["longest life of an activation, 16 blocks over 4, kept"].ours or 0.0
    flat = rows["longest life of an activation, 16 blocks over 4, recomputed"].ours or 0.0
    operations = rows["operations of a step that recomputes over one that keeps"].ours or 0.0
    yield Statement(
        kept >= GROWS and 0 < flat <= STAYS,
        "lives grow with the depth of a network where inputs are kept, and stay where they are recomputed",
        f"{kept:.2f} times as long in the deeper network where they are kept, {flat:.2f} where they are recomputed, "
        f"for {operations:.2f} times the operations",
    )
    before, after = (
        rows[f"refresh of a step of 8 blocks in bfloat16, {how}"].ours or 0.0 for how in ("kept", "recomputed")
    )
    life = rows["longest life of an activation, 8 blocks, recomputed"]
    yield Statement(
        after <= FREE * before,
        "data that live for one block need next to no refreshes",
        f"{after:.3g} uJ a step where they are recomputed, {before:.3g} where they are kept; the longest lives for "
        f"{life.ours or 0.0:.0f} us, and {life.note}",
    )
