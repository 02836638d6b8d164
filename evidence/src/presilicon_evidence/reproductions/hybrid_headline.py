"""+44.3% samples per joule on a V100 with three FPGA boards: under which assumptions it appears."""

from collections.abc import Iterator
from statistics import mean

from presilicon.records import Reproduced, Reproduction
from presilicon_evidence.reproductions.hybrid import (
    MADE_UP,
    MODELS,
    NAMES,
    SETS,
    SOURCE,
    Assumptions,
    Run,
    facts,
    run,
    under_some,
)
from presilicon_evidence.reproductions.verdicts import Rows, Statement, conclude, is_near, stated, tolerance

_B = SETS[1]
_NEAR = 0.1
_OTHERS = {
    "two V100 with six boards (B)": ("2xv100-6xs10", "headline_2G6F_vs_2G"),
    "one V100 with four boards (B)": ("v100-4xs10", "headline_1G4F"),
}
"""Other systems, their presets, and their published figures."""


def reproduce() -> Reproduction:
    """The published averages beside ours under each set of assumptions, then single models and other systems."""
    rows = tuple(_rows())
    return Reproduction(
        name="hybrid-headline",
        title="Hybrid GPU-FPGA training: throughput, power and samples per joule against the GPU alone",
        source=SOURCE,
        rows=rows,
        assumptions=(
            "Six models from their captured training steps at the published batch sizes (BERT-Large 10, others 256), "
            "scheduled by the published rules; means over the six.",
            "Ops have the times and powers of the published table, by size class: of tensor dimensions where not said "
            "otherwise. Under A to L, ops that the table lacks (BatchNorm, Relu, ...) take as long as a like row; "
            "under D and W, their bytes over the memory's bandwidth.",
            "The GPU idles at 41 W; the GPU alone has no boards beside it; the host's power is left out.",
            "Relief (GPU ops 17.8% faster when others have left) is the source's own measurement. A GPU that runs one "
            "op at a time has no neighbour to be relieved of: it is an input, and 1 unless said otherwise.",
            "44.3% is called an energy reduction in the abstract; section 5.2 defines it as throughput per watt. The "
            "energy reduction that belongs to it is 30.7%.",
        ),
        verdict=conclude(statements, rows),
    )


def statements(rows: Rows) -> Iterator[Statement]:
    """The headline's three averages under each set of assumptions, then single models and other systems."""
    averages = {
        "samples/J": "the mean gain in samples per joule",
        "throughput": "the mean gain in throughput",
        "average power": "the mean change of power",
    }
    for quantity, claim in averages.items():
        yield under_some(claim, {each.name[0]: rows[each.name, quantity] for each in SETS}, _NEAR)
    together = [
        each.name[0] for each in SETS if all(is_near(rows[each.name, quantity], _NEAR) for quantity in averages)
    ]
    yield Statement(
        bool(together),
        f"all of these together under a single set, {tolerance(_NEAR)}",
        f"{len(together)} of {len(SETS)}: {', '.join(together) or 'none'}",
    )
    made_up = {each.name[0]: rows[each.name, _MADE_UP] for each in SETS if _has_made_up(each)}
    yield under_some("the mean gain in samples per joule, of a step of middle-sized ops alone", made_up, _NEAR)
    largest = rows[_B.name, f"{NAMES['resnet50']} samples/J"]
    yield stated(f"the largest gain of a model ({_B.name[0]})", [largest], _NEAR)
    for system in _OTHERS:
        published = [row for row in rows.under(system) if row.published is not None]
        yield stated(system, published, _NEAR)


_MADE_UP = "432 ops, all M: samples/J"


def _has_made_up(assumptions: Assumptions) -> bool:
    return assumptions.sizing == "tensor" and assumptions.like_rows


def _rows() -> Iterator[Reproduced]:
    published = facts()["headline_1G3F"]
    for assumptions in SETS:
        runs = {model: run(model, assumptions) for model in MODELS}
        yield Reproduced(assumptions.name)
        yield from _averages(runs, published)
        if _has_made_up(assumptions):
            synthetic = run(MADE_UP, assumptions)
            yield Reproduced(
                f"    {_MADE_UP}",
                "%",
                published["energy_eff_improvement_avg_%"],
                synthetic.efficiency,
                note=f"throughput {synthetic.throughput:+.1f}, power {synthetic.power:+.1f}",
            )
        if assumptions is _B:
            for model in MODELS:
                name = NAMES[model]
                figure = published["max_%"] if model == "resnet50" else None
                yield Reproduced(f"    {name} samples/J", "%", figure, runs[model].efficiency)
    for label, (system, key) in _OTHERS.items():
        runs = {model: run(model, _B, system) for model in MODELS}
        published = facts()[key]
        yield Reproduced(label)
        rows = (
            ("throughput", published.get("throughput_%"), mean(result.throughput for result in runs.values())),
            ("average power", published.get("power_%"), mean(result.power for result in runs.values())),
            ("samples/J", published.get("energy_%"), mean(result.efficiency for result in runs.values())),
        )
        for quantity, figure, ours in rows:
            yield Reproduced(f"  {quantity}", "%", figure, ours)
    for boards in (1, 2, 3):
        runs = {model: run(model, _B, f"v100-{boards}xs10") for model in MODELS}
        ours = mean(result.efficiency for result in runs.values())
        label = f"one V100 with {boards} board{'s' if boards > 1 else ''} (B), samples/J"
        yield Reproduced(label, "%", ours=ours)


def _averages(runs: dict[str, Run], published: dict[str, float]) -> Iterator[Reproduced]:
    for quantity, figure, values in (
        ("throughput", published["throughput_%"], [result.throughput for result in runs.values()]),
        ("average power", published["avg_power_%"], [result.power for result in runs.values()]),
        ("samples/J", published["energy_eff_improvement_avg_%"], [result.efficiency for result in runs.values()]),
    ):
        ends = f"{min(values):+.1f} to {max(values):+.1f}"
        yield Reproduced(f"  {quantity}", "%", figure, mean(values), note=ends)
