"""Table 1 of the GPU-FPGA publication: statements of its text, checked against the table."""

from collections.abc import Iterator

from presilicon.designs import Row, load_system
from presilicon.records import Reproduced, Reproduction
from presilicon.scheduling import judge
from presilicon_evidence.reproductions.hybrid import SOURCE, facts
from presilicon_evidence.reproductions.verdicts import Rows, Statement, conclude, listed, shown, stated

_SYSTEM = load_system("v100-3xs10")
_ROUNDED = 0.1
"""Part of a published figure by which ours may differ: they are printed in whole percents."""
_LEAST_VARIED = 8.0
"""Percent of which the peak of BiasAddGrad varies less on the FPGA, as published."""
_RULES = {"paper": "low bandwidth or low IPC", "and": "low bandwidth and low IPC"}


def reproduce() -> Reproduction:
    """Statements about the table, computed from the table."""
    rows = tuple(_rows())
    return Reproduction(
        name="hybrid-table1",
        title="Table 1 of the GPU-FPGA publication: its own statements, computed from it",
        source=SOURCE,
        rows=rows,
        assumptions=(
            "All figures are those of the table: 7 kinds of ops in 3 sizes, on a V100 and on three Stratix 10 boards.",
            "Thresholds are the largest bandwidth (60.31 GB/s) and the largest IPC (5.549) at which MatMul or Conv2D "
            "is faster on the FPGA; the source does not print its own.",
            "Transpose M on the FPGA (0.080 ms) breaks the order of its sizes; it is taken as printed.",
        ),
        verdict=conclude(statements, rows),
    )


def statements(rows: Rows) -> Iterator[Statement]:
    """Each statement of the text, by the table that it is about."""
    for row in rows:
        if row.published is not None:
            yield stated(row.quantity, [row], _ROUNDED)
    varied = rows["BiasAddGrad peak varies on the GPU", "on the FPGA"]
    yield Statement(
        varied.ours is not None and varied.ours < _LEAST_VARIED,
        f"BiasAddGrad peak varies by less than {_LEAST_VARIED:g}% on the FPGA",
        shown(varied),
    )
    for words in _RULES.values():
        heading = f"rows admitted by {words}"
        wrongly = rows[heading, "of them not faster on the FPGA"]
        yield Statement(
            wrongly.ours == 0,
            f"{words} admits only rows that are faster on the FPGA",
            listed([rows[heading], wrongly]),
        )


def _row(kind: str, size: str, device: str) -> Row:
    row = _SYSTEM.row(kind, size, device)
    assert row is not None
    return row


def _slower(kind: str, size: str) -> float:
    return 100 * (_row(kind, size, "fpga").time_ms / _row(kind, size, "gpu").time_ms - 1)


def _rows() -> Iterator[Reproduced]:
    published = facts()["other"]
    yield Reproduced("MatMul L slower on the FPGA", "%", published["matmul_large_worse_%"], _slower("MatMul", "L"))
    yield Reproduced("MatMul S faster on the FPGA", "%", published["matmul_small_better_%"], -_slower("MatMul", "S"))
    for size in "SML":
        yield Reproduced(
            f"Conv2DBackpropInput {size} slower on the FPGA",
            "%",
            published["conv_bp_input_worse_%"],
            _slower("Conv2DBackpropInput", size),
        )
    gpu, fpga = (
        100 * (_row("BiasAddGrad", "L", device).peak_w / _row("BiasAddGrad", "S", device).peak_w - 1)
        for device in ("gpu", "fpga")
    )
    yield Reproduced("BiasAddGrad peak varies on the GPU", "%", published["biasaddgrad_peak_variation_gpu_%"], gpu)
    yield Reproduced("  on the FPGA", "%", ours=fpga, note=f"published: less than {_LEAST_VARIED:g}")
    gpu, fpga = (
        100 * (1 - _row("Transpose", "L", device).peak_w / _row("MatMul", "L", device).peak_w)
        for device in ("gpu", "fpga")
    )
    yield Reproduced(
        "MatMul and Transpose peaks differ on the GPU", "%", published["matmul_vs_transpose_peak_gpu_%"], gpu
    )
    yield Reproduced(
        "MatMul and Transpose peaks differ on the FPGA", "%", published["matmul_vs_transpose_peak_fpga_%"], fpga
    )
    for rule, words in _RULES.items():
        judged = judge(_SYSTEM, rule)  # type: ignore[arg-type]
        wrong = f"{len(judged.wrongly)} of them not faster on the FPGA, {len(judged.missed)} missed"
        yield Reproduced(f"rows admitted by {words}", "of 21", ours=len(judged.admitted), note=wrong)
        yield Reproduced("  of them not faster on the FPGA", "of 21", ours=len(judged.wrongly))
    for cap, count in facts()["cap_rows"].items():
        above = [row for row in _SYSTEM.rows if row.device == "gpu" and row.peak_w > float(cap)]
        yield Reproduced(
            f"GPU rows with a peak above {cap} W",
            "of 21",
            ours=len(above),
            note="the published rule under a cap can never start them" if len(above) == len(count) else "",
        )
