"""Five kernels of three ops, ranked by the latency indicator: Table 4 of the GPU-FPGA publication."""

from collections.abc import Iterator

from presilicon.records import Reproduced, Reproduction
from presilicon.scheduling import KernelConfig, explore, latency_indicator, make_input, synthetic_fmax
from presilicon_evidence.reproductions.hybrid import SOURCE, facts
from presilicon_evidence.reproductions.verdicts import Rows, Statement, conclude, listed, stated

_WORK = 2048 * 1024 * 1024
_DIGITS, _NEAR = 0.0, 0.1
"""Parts of published figures by which ours may differ: not in any digit, and in what is measured."""
_ROUNDED = 1e-3
"""What whole MHz leave open."""


def reproduce() -> Reproduction:
    """Indicators from the clocks that the table implies, their ranks, and the size of the search."""
    rows = tuple(_rows())
    return Reproduction(
        name="hybrid-table4",
        title="Table 4 of the GPU-FPGA publication: kernels by their latency indicator",
        source=SOURCE,
        rows=rows,
        assumptions=(
            "LI = work * 1024 / (work group size * Fmax in MHz * 1e6): the published equation lacks the factor 1024, "
            "and gives 79.89 and 139.23 for the worked examples.",
            "Clocks of MatMul are the whole MHz that its rows imply; two of them are printed as worked examples. Those "
            "of Conv2D are the nearest whole MHz; no whole ones meet all five rows to two decimals.",
            "Rows 4 and 5 of MaxPool are lost in the text, and so are three numbers of compute units.",
        ),
        verdict=conclude(statements, rows),
    )


def statements(rows: Rows) -> Iterator[Statement]:
    """Indicators, ranks, the work that a kernel's time needs, and the size of the search."""
    yield stated("the worked examples of the indicator", rows.like("MHz"), _DIGITS)
    yield stated("indicators of MatMul", rows.like("MatMul, rank"), _DIGITS)
    yield stated("indicators of Conv2D, by the nearest whole MHz", rows.like("Conv2D, rank"), _ROUNDED)
    yield stated("the rank by indicator is the rank by time", rows.like("rank by LI"), _DIGITS)
    lanes = rows.like("multiply-adds per clock")
    yield Statement(
        all((row.ours or 0.0) >= (1 - _NEAR) * (row.published or 0.0) for row in lanes),
        "every kernel can start the multiply-adds that its time needs",
        f"{listed(lanes)}; needed: {', '.join(f'{row.published or 0.0:.4g}' for row in lanes)}",
    )
    yield stated("the number of configurations", [rows["configurations"]], _DIGITS)


def _rows() -> Iterator[Reproduced]:
    table = facts()["table4"]
    for worked in facts()["LI"]["worked"]:
        ours = latency_indicator(_WORK, worked["cfg"][2], worked["Fmax_MHz"])
        yield Reproduced(f"MatMul {worked['cfg']} at {worked['Fmax_MHz']} MHz", "", worked["LI"], round(ours, 2))
    implied = table["implied_fmax_MHz"]
    conv_work = implied["Conv2D"]["numerator_x1.024e-3"] / 1.024e-3
    for kind, work, clocks in (
        ("MatMul", _WORK, implied["MatMul(2048x1024x1024)"]),
        ("Conv2D", conv_work, implied["Conv2D"]["values"]),
    ):
        for rank, (row, mhz) in enumerate(zip(table[kind], clocks, strict=True), start=1):
            ours = round(latency_indicator(work, row[2], mhz), 2)
            note = f"work group {row[2]}, {mhz} MHz, {row[4]} ms"
            yield Reproduced(f"{kind}, rank {rank}", "", row[5], ours, note=note)
    for row, mhz in zip(table["MatMul"], implied["MatMul(2048x1024x1024)"], strict=True):
        if row[0] is not None:
            config = KernelConfig(*row[:4])
            needed = _WORK / (row[4] * 1e-3 * mhz * 1e6)
            name = ",".join(map(str, config))
            yield Reproduced(f"multiply-adds per clock of {name}", "", needed, config.lanes, note="needed by its time")
    for kind in ("MatMul", "Conv2D", "MaxPool"):
        times, indicators = ([row[column] for row in table[kind]] for column in (4, 5))
        ranks = zip(*(sorted(range(5), key=column.__getitem__) for column in (times, indicators)), strict=True)
        yield Reproduced(f"{kind}: rank by LI is rank by time", "of 5", 5, sum(one == other for one, other in ranks))
    space = facts()["LI"]["design_space"]["total"]
    exploration = explore(make_input("MatMul", (2048, 1024, 1024)), synthetic_fmax())
    queries = exploration.queries
    yield Reproduced("configurations", "", space, exploration.space)
    yield Reproduced(
        "  clocks asked for, after both prunings",
        ours=queries,
        note=f"at 1 to 5 s each, {queries / 60:.0f} to {queries / 12:.0f} min; with a synthetic law",
    )
