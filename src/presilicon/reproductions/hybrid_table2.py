"""Table 2 of the GPU-FPGA publication: share of ops and time that goes to FPGAs."""

from collections.abc import Iterator

from presilicon.records import Reproduced, Reproduction
from presilicon.reproductions.hybrid import MODELS, NAMES, SETS, SOURCE, Assumptions, facts, run

_SETS: tuple[Assumptions, ...] = (SETS[0], SETS[3], SETS[7])


def reproduce() -> Reproduction:
    """Offloaded shares of the six models, published and ours."""
    return Reproduction(
        name="hybrid-table2",
        title="Table 2 of the GPU-FPGA publication: what goes to the FPGAs",
        source=SOURCE,
        rows=tuple(_rows()),
        assumptions=(
            "Ours are ops of the captured step, update included, that the published rules send to a board; their time "
            "is what they take on the GPU alone, of the whole step's.",
            "The source does not say whether its first column counts ops or kinds of ops: its values are simple "
            "fractions (5/18, 5/21, 2/9) that could be either.",
            *(f"Set {assumptions.name}." for assumptions in _SETS),
        ),
        verdict=(
            "As shares of time, what moves under A is of the published order for the five convolutional networks, in "
            "another order among them, and far more for BERT-Large. It depends on the times of BatchNorm, Relu and "
            "similar ops, which the source does not print: by memory bandwidth (D) it is much less. Over real links "
            "with real tensors (K), mostly small ops may move. As shares of ops, ours are larger throughout: a "
            "captured step has many small ops, updates among them."
        ),
    )


def _rows() -> Iterator[Reproduced]:
    published = facts()["table2"]
    for model in MODELS:
        ops, time = published[NAMES[model]]
        for assumptions in _SETS:
            result = run(model, assumptions)
            moved = result.moved
            share = 100 * sum(result.gpu_time_s[task] for task in moved) / sum(result.gpu_time_s)
            yield Reproduced(
                f"{NAMES[model]}, ops ({assumptions.name[0]})", "%", ops, 100 * len(moved) / len(result.problem.tasks)
            )
            yield Reproduced("  time", "%", time, share)
