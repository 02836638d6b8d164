"""CATERPILLAR's published efficiency, utilization and area, and the network size from which batches pay."""

from collections.abc import Iterator
from functools import cache, partial
from typing import Literal, NamedTuple, cast

from presilicon.designs import Design, curve_pj, load_design
from presilicon.records import Reproduced, Reproduction, StepGraph
from presilicon.simulation import CaterpillarMachine, area, simulate, sustained_utilization
from presilicon_evidence.reproductions.verdicts import OUR_OWN, Rows, Statement, conclude, listed, stated, tolerance

Hidden = tuple[int, ...]
"""Widths of the hidden layers of a perceptron."""

INPUTS, CLASSES, BATCH = 784, 10, 128
WIDTHS = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
SMALL_GFLOPS_W, LARGE_GFLOPS_W = 177.0, 211.0
SMALL, LARGE = (1024,) * 3, (2048,) * 4
OVER = {"small": 80.0, "large": 90.0}
"""Percent that the published utilizations are over."""
NEAR = 0.2
"""Part of a published efficiency or area by which ours may differ."""


class Sample(NamedTuple):
    """Cost of one sample of a network."""

    time_s: float
    energy_j: float
    sram_j: float
    flops: float
    """FLOPs of matrix products."""
    utilization: float

    @property
    def gflops_w(self) -> float:
        """Useful matrix FLOPs per joule."""
        return self.flops / self.energy_j / 1e9

    def excess_j(self, gflops_w: float) -> float:
        """Additional energy per sample at another efficiency."""
        return self.flops / (gflops_w * 1e9) - self.energy_j


class Contest(NamedTuple):
    """Single samples against batches."""

    measure: Literal["time_s", "energy_j"]
    title: str = ""
    single: tuple[str, ...] = ("sgd", "pipelined")
    batch_over: tuple[str, ...] = ("outputs",)
    samples: float = 1.0
    """Samples that batches need for each sample that training on single samples needs."""

    def batches_win(self, width: int) -> bool:
        """Whether batches win for three hidden layers of that width."""
        hidden = (width,) * 3
        alone = min(getattr(price(hidden, "small", schedule), self.measure) for schedule in self.single)
        batched = (price(hidden, "small", "minibatch", f"batch_over={over}") for over in self.batch_over)
        return bool(self.samples * min(getattr(sample, self.measure) for sample in batched) < alone)

    def crossover(self) -> tuple[int | None, tuple[int, ...]]:
        """Smallest of WIDTHS from which batches win up to the largest, and the widths at which they lose."""
        lost = tuple(width for width in WIDTHS if not self.batches_win(width))
        after = [width for width in WIDTHS if width > max(lost, default=0)]
        return (after[0] if after else None), lost


def reproduce() -> Reproduction:
    """The two published points, other networks and machines, and the widths from which batches win."""
    favours = "published: smaller networks favour single samples, larger ones batches"
    rows = (
        *_point("small", SMALL, "sgd", SMALL_GFLOPS_W, 103.2),
        *_point("large", LARGE, "pipelined", LARGE_GFLOPS_W, 178.9),
        *_gaps(),
        _beside("small", (256, 128), "sgd"),
        _beside("small", SMALL, "sgd", "nr=8", "cores=16"),
        _beside("small", SMALL, "sgd", "nr=16", "cores=4"),
        _beside("small", SMALL, "pipelined"),
        _beside("small", SMALL, "minibatch"),
        _beside("large", LARGE, "pipelined", "mem_a_banks=2"),
        _beside("large", (4096,) * 4, "pipelined", note="weights come from DRAM for every sample"),
        _contest(Contest("time_s", "less time"), favours),
        _contest(Contest("energy_j", "less energy"), favours),
        _contest(Contest("time_s", "less time than without pipeline", single=("sgd",))),
        _contest(Contest("time_s", "less time, or samples spread", batch_over=("outputs", "samples"))),
        _contest(Contest("energy_j", "less energy, or samples spread", batch_over=("outputs", "samples"))),
        _contest(Contest("time_s", "half the time", samples=2.0), "where weights no longer fit on chip"),
    )
    return Reproduction(
        name="caterpillar",
        title="CATERPILLAR: efficiency, utilization and area of training perceptrons at 45 nm",
        source="Y. Li and A. Pedram, ASAP 2017, arXiv:1706.00517; from the abstract, we have not seen its tables",
        rows=rows,
        assumptions=ASSUMPTIONS,
        verdict=conclude(statements, rows),
    )


def _point(size: str, hidden: Hidden, schedule: str, gflops_w: float, mm2: float) -> tuple[Reproduced, ...]:
    sample = price(hidden, size, schedule)
    return (
        Reproduced(f"{size}: {_name(hidden)}, {_MEANS[schedule]}", "GFLOPS/W", gflops_w, sample.gflops_w),
        Reproduced(
            f"{size}: its utilization", "%", ours=100 * sample.utilization, note=f"published: over {OVER[size]:g}%"
        ),
        Reproduced(
            f"{size}: area",
            "mm2",
            mm2,
            area(_design(size, schedule)).mm2,
            note="no check: the sizes of the machine were chosen by it",
        ),
    )


def _beside(size: str, hidden: Hidden, schedule: str, *settings: str, note: str = "") -> Reproduced:
    """An efficiency without a published figure."""
    sample = price(hidden, size, schedule, *settings)
    return Reproduced(
        ", ".join((f"{size}: {_name(hidden)}", _MEANS[schedule], *settings)),
        "GFLOPS/W",
        ours=sample.gflops_w,
        note=f"at {sample.utilization:.0%} utilization" + (f"; {note}" if note else ""),
    )


def _contest(contest: Contest, note: str = "") -> Reproduced:
    width, lost = contest.crossover()
    if not note:
        note = f"of those that we try, they lose at {', '.join(map(str, lost))}" if lost else "the smallest that we try"
    return Reproduced(f"small: width from which batches take {contest.title}", ours=width, note=note)


def _gaps() -> Iterator[Reproduced]:
    """What would close the gap to the published efficiencies."""
    small, large = price(SMALL, "small", "sgd"), price(LARGE, "large", "pipelined")
    table = _design("small", "sgd").technology
    assert table is not None
    access = curve_pj(table.sram_64bit, 16)
    for size, sample, gflops_w in (("small", small, SMALL_GFLOPS_W), ("large", large, LARGE_GFLOPS_W)):
        factor = 1 + sample.excess_j(gflops_w) / sample.sram_j
        yield Reproduced(
            f"{size}: energy of SRAM accesses that would give the published efficiency",
            "x",
            ours=factor,
            note=f"of our table's: {factor * access:.1f} pJ for 64 bits of 16 KiB, not {access:.1f}",
        )
    yield Reproduced(
        "small: energy for clock and control that would give it",
        "pJ",
        ours=small.excess_j(SMALL_GFLOPS_W) / small.flops * 2e12,
        note="per multiply-add; we count none",
    )


def statements(rows: Rows) -> Iterator[Statement]:
    """The abstract's figures, and its sentence on the size of networks."""
    for size in OVER:
        efficiency = next(row for row in rows.like(f"{size}: ") if row.unit == "GFLOPS/W")
        yield stated(f"the efficiency of the {size} machine, on a network of our choice", [efficiency], NEAR)
        gap = rows[f"{size}: energy of SRAM accesses that would give the published efficiency"].ours or 0.0
        yield Statement(
            abs(gap - 1) <= NEAR,
            f"our SRAM accesses take the energy that would give the published efficiency, {tolerance(NEAR)}",
            f"{gap:.2f} times our table's would",
            OUR_OWN,
        )
        used = rows[f"{size}: its utilization"].ours or 0.0
        yield Statement(used > OVER[size], f"utilization of the {size} machine over {OVER[size]:g}%", f"{used:.1f}%")
        yield stated(f"area of the {size} machine, by which we chose its size", [rows[f"{size}: area"]], NEAR)
    usual, others = "small: width from which batches take {}", ("time than without pipeline", "time, or samples spread")
    published = [rows[usual.format(f"less {measure}")] for measure in ("time", "energy")]
    yield Statement(
        all(map(_favours_single, published)),
        "small networks favour single samples, larger ones batches",
        listed(published),
    )
    variants = [rows[usual.format(f"less {what}")] for what in (*others, "energy, or samples spread")]
    yield Statement(
        all(map(_favours_single, variants)),
        "the same without a pipeline, and with batches that may be spread by samples",
        listed(variants),
        OUR_OWN,
    )


def _favours_single(row: Reproduced) -> bool:
    """Whether batches win, but not from the smallest network on."""
    return row.ours is not None and row.ours > WIDTHS[0]


@cache
def price(hidden: Hidden, size: str, schedule: str, *settings: str) -> Sample:
    """Cost per sample of a training step, on single samples or in batches."""
    batch = BATCH if schedule == "minibatch" else 1
    design, graph = _design(size, schedule, *settings), _graph(hidden, batch)
    cost, flops = simulate(graph, design), graph.flops(matrix_only=True)
    return Sample(
        time_s=cost.time_s / batch,
        energy_j=cost.energy_j / batch,
        sram_j=cost.energy_by_component_j["sram"] / batch,
        flops=flops / batch,
        utilization=sustained_utilization(flops // 2, cost.time_s, cast(CaterpillarMachine, design.machine)),
    )


def _design(size: str, schedule: str, *settings: str) -> Design:
    changes = (f"schedule={schedule}", *settings)
    return load_design(f"caterpillar-{size}", [f"machine.{change}" for change in changes])


@cache
def _graph(hidden: Hidden, batch: int) -> StepGraph:
    from torch.nn.functional import cross_entropy

    from presilicon.workloads import capture, classified, from_networks, sgd

    images, targets = classified(batch, (INPUTS,))
    model = from_networks("perceptron.perceptron", (INPUTS, *hidden, CLASSES))
    optimizer = partial(sgd, momentum=0.0)
    return capture(model, images, targets=targets, loss=cross_entropy, optimizer=optimizer, name=_name(hidden))


def _name(hidden: Hidden) -> str:
    """The layers, as in 784-1024x3-10."""
    middle = f"{hidden[0]}x{len(hidden)}" if len(set(hidden)) == 1 else "-".join(map(str, hidden))
    return f"{INPUTS}-{middle}-{CLASSES}"


_MEANS = {"sgd": "single samples", "pipelined": "pipelined", "minibatch": f"batches of {BATCH}"}

ASSUMPTIONS = (
    "The abstract gives no sizes. We take cores of 4x4 PEs with 16 KiB of MEM A and 1 KiB of MEM B each (the usual "
    "form of a linear algebra core, from memory), and as many cores, a power of two, as come nearest to 103.2 mm2 by "
    "our own table of areas: 64. The large machine has the same cores with MEM A doubled.",
    "1 GHz, MAC units of 4 stages, ring links of 4 words per cycle and 2 cycles more, MEM A ports of 4 words, 100 GB/s "
    "of DRAM: assumed.",
    "Half precision (float16) everywhere, sums too: the paper's format as we remember it.",
    "Energy by horowitz-45nm: float16 multiply 1.1 and add 0.4 pJ, SRAM by size (1 KiB is extrapolated), leakage of "
    "12 mW/mm2 over the whole die (assumed). The table has no wires: 0.05 pJ per bit on the buses of a core and 0.2 pJ "
    "per bit from core to core are assumed. Clock tree and control are not counted.",
    "The networks are ours, as the abstract names none: the largest width 2^n whose weights fit in the PEs, with three "
    "hidden layers on the small machine and four on the large one. FLOPs are those of matrix products; plain SGD.",
    "Utilization is useful multiply-adds over what all PEs could do in the whole time.",
    "Crossovers: 784-w-w-w-10 with w a power of two from 16 to 4096, batches of 128 against the better of single "
    "samples in turn and pipelined. Samples to accuracy are held equal: neither the staleness of the pipeline nor the "
    "fewer updates of batches are weighed. Half the time is what batches need if they need twice the samples.",
    "Batches are spread over the cores by outputs, with panels of activations circulating; by samples, with weights "
    "and gradients circulating, only where a row says so.",
)
