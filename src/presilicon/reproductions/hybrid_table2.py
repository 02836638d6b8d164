"""Which share of ops and of time goes to FPGAs: Table 2 of the GPU-FPGA publication."""

from collections.abc import Iterator

from presilicon.records import Reproduced, Reproduction
from presilicon.reproductions.hybrid import MODELS, NAMES, SETS, SOURCE, Assumptions, facts, run

_CHOSEN: tuple[Assumptions, ...] = (SETS[0], SETS[3], SETS[7])


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
            *(f"Set {each.name}." for each in _CHOSEN),
        ),
        verdict=(
            "As shares of time, what moves under A is of the published order for the five convolutional networks, in "
            "another order among them, and far more for BERT-Large. It hangs on what BatchNorm, Relu and their like "
            "take, which the source does not print: by memory bandwidth (D) it is much less. Over real links with real "
            "tensors (K), mostly small ops may move. As shares of ops, ours are larger throughout: a captured step has "
            "many small ops, updates among them."
        ),
    )


def _rows() -> Iterator[Reproduced]:
    published = facts()["table2"]
    for model in MODELS:
        ops, time = published[NAMES[model]]
        for chosen in _CHOSEN:
            found = run(model, chosen)
            moved = found.moved
            share = 100 * sum(found.gpu_time_s[task] for task in moved) / sum(found.gpu_time_s)
            yield Reproduced(
                quantity=f"{NAMES[model]}, ops ({chosen.name[0]})",
                unit="%",
                published=ops,
                ours=100 * len(moved) / len(found.problem.tasks),
            )
            yield Reproduced(quantity="  time", unit="%", published=time, ours=share)
