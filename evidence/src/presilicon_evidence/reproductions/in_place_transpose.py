"""In-place multiplication by transposed weights: the lecture's three products on 2 x 2 cells, and the savings."""

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from presilicon.designs import Reduction, load_design
from presilicon.records import Gemm, Op, OpCost, Phase, Reproduced, Reproduction, StepGraph, TensorRef
from presilicon.simulation import gemm_cycles, run_array, run_in_place, simulate
from presilicon_evidence.reproductions.verdicts import OUR_OWN, Rows, Statement, conclude, stated

X = ((1.0, 4.0), (5.0, 2.0))
W = ((2.0, 3.0), (0.0, 1.0))
DY = ((3.0, 4.0), (1.0, 2.0))
PUBLISHED = {
    "Y = X W": ((2.0, 7.0), (10.0, 17.0)),
    "dX = dY W^T": ((18.0, 4.0), (8.0, 2.0)),
    "dW = X^T dY": ((8.0, 14.0), (14.0, 20.0)),
}
LAYER = Gemm(m=1024, k=512, n=64)
ARRAYS = ((128, 128), (256, 64))
EXACT = 0.0
"""Part of a published value by which ours may differ."""
REDUCTIONS: tuple[Reduction, Reduction] = ("rows", "columns")

_ASSUMPTIONS = (
    "The products run on an array that is stepped cell by cell; sums move left to right in forward products, as the "
    "lecture draws them, so that the reduction lies on columns. SCALE-Sim lays it on rows.",
    "The lecture gives values only. Folds, cycles, traffic and energy have no published figure; they are those of a "
    "layer of 512 inputs and 64 outputs, batch 1024, in bfloat16 on the preset bf16-systolic with two shapes of array.",
    "A transposer has the size of the array, and its copy of W lies in the buffer. In place, the array still holds the "
    "last tile of W when the input gradient comes right after the forward product; with the weight gradient in "
    "between it is loaded again.",
)


def reproduce() -> Reproduction:
    """The values of the three products, and the input gradient of one layer priced in three ways."""
    y, dx, _, back = run_in_place(X, W, DY, 2, 2, "columns")
    again = run_in_place(X, W, DY, 2, 2, "columns", tile_stays=False)[3]
    dw, _ = run_array(tuple(zip(*X, strict=True)), DY, 2, 2, "output-stationary", "columns")
    values = dict(zip(PUBLISHED, (y, dx, dw), strict=True))
    rows = (*_values(values), *_reloads(back, again), *_folds(), *_prices())
    return Reproduction(
        name="in-place-transpose",
        title="In-place transposed matrix multiplication on a systolic array",
        source="lecture 11 on accelerators for DNN training: three worked products on a 2 x 2 array",
        rows=rows,
        assumptions=_ASSUMPTIONS,
        verdict=conclude(statements, rows),
    )


def statements(rows: Rows) -> Iterator[Statement]:
    """The values of the lecture, the load that is saved, and what that is worth on each array."""
    yield stated(
        "the values of the products", [row for row in rows if row.quantity.startswith(tuple(PUBLISHED))], EXACT
    )
    yield stated("weights are loaded once for both of their products", rows.like("loads of W"), EXACT)
    for height, width in ARRAYS:
        for how in ("last tile kept", "W loaded again"):
            changes = {
                row.quantity.rpartition(": ")[2]: (row.ours or 0.0) / (copied.ours or 1.0) - 1
                for row, copied in zip(
                    rows.like(f"dX on {height} x {width} in place, {how}"),
                    rows.like(f"dX on {height} x {width} by a transposer"),
                    strict=True,
                )
            }
            yield Statement(
                max(changes.values()) <= 0,
                f"the input gradient on {height} x {width} cells, {how}, costs no more in place than by a transposer",
                ", ".join(f"{quantity} {change:+.1%}" for quantity, change in changes.items()),
                OUR_OWN,
            )


def _values(values: dict[str, list[list[float]]]) -> Iterator[Reproduced]:
    for name, matrix in PUBLISHED.items():
        for i in range(2):
            for j in range(2):
                yield Reproduced(f"{name}, [{i + 1},{j + 1}]", "", matrix[i][j], values[name][i][j])


def _reloads(kept_cycles: int, loaded_cycles: int) -> Iterator[Reproduced]:
    rows = 2
    yield Reproduced(
        "loads of W between Y and dX, 2 x 2",
        "",
        0.0,
        1.0 - (loaded_cycles - kept_cycles) / rows,
        note=f"dX takes {kept_cycles} cycles, and {loaded_cycles} when W must be loaded again",
    )


def _folds() -> Iterator[Reproduced]:
    shares: tuple[tuple[Reduction, str], ...] = (
        ("columns", "ceil(512/64) x ceil(64/256)"),
        ("rows", "ceil(512/256) x ceil(64/64)"),
    )
    for reduction, how in shares:
        folds = gemm_cycles(LAYER, 256, 64, "weight-stationary", reduction=reduction).folds
        yield Reproduced(f"folds of (1024, 512, 64) on 256 x 64, reduction on {reduction}", ours=float(folds), note=how)


def _prices() -> Iterator[Reproduced]:
    for rows, cols in ARRAYS:
        copied, lies = (
            gemm_cycles(Gemm(LAYER.m, LAYER.n, LAYER.k), rows, cols, "weight-stationary", reduction=reduction).folds
            for reduction in REDUCTIONS
        )
        for transpose, between, label, note in (
            ("transposer", False, "by a transposer", f"{copied} folds of the copy"),
            ("in-place", True, "in place, W loaded again", f"{lies} folds of W as it lies"),
            ("in-place", False, "in place, last tile kept", ""),
        ):
            op = price_input_gradient((rows, cols), transpose, weight_gradient_between=between)
            for quantity, unit, value in (
                ("cycles", "", float(op.cycles)),
                ("DRAM", "KiB", op.bytes_dram / 1024),
                ("buffer", "KiB", op.bytes_sram / 1024),
                ("energy", "uJ", op.energy_j * 1e6),
            ):
                yield Reproduced(
                    f"dX on {rows} x {cols} {label}: {quantity}",
                    unit,
                    ours=value,
                    note=note if quantity == "cycles" else "",
                )


def price_input_gradient(array: tuple[int, int], transpose: str, *, weight_gradient_between: bool) -> OpCost:
    """The input gradient of the layer, in a step where the weight gradient comes before or after it."""
    rows, cols = array
    settings = [f"machine.rows={rows}", f"machine.cols={cols}", f"machine.transpose={transpose}", "machine.fusion=none"]
    graph = layer_step(weight_gradient_between=weight_gradient_between)
    cost = simulate(graph, load_design("bf16-systolic", settings))
    return next(op for op in cost.ops if op.phase == "input_grad")


def layer_step(*, weight_gradient_between: bool) -> StepGraph:
    """Forward product, input gradient and weight gradient of one linear layer, the two gradients in either order."""
    batch, inputs, outputs = LAYER.m, LAYER.k, LAYER.n
    x, w = TensorRef(1, (batch, inputs), "activation"), TensorRef(2, (inputs, outputs), "weight")
    y, e = TensorRef(3, (batch, outputs), "activation"), TensorRef(4, (batch, outputs), "error")
    dx, dw = TensorRef(5, (batch, inputs), "error"), TensorRef(6, (inputs, outputs), "gradient")
    forward = _product("forward", (x, w), y, LAYER)
    gradients = [
        _product("input_grad", (e, w), dx, Gemm(batch, outputs, inputs)),
        _product("weight_grad", (x, e), dw, Gemm(inputs, batch, outputs)),
    ]
    if weight_gradient_between:
        gradients.reverse()
    ops = tuple(_numbered([forward, *gradients]))
    return StepGraph(name="layer", batch_size=batch, ops=ops, parameters=(w,))


def _product(phase: Phase, factors: tuple[TensorRef, TensorRef], result: TensorRef, gemm: Gemm) -> Op:
    return Op(
        index=0,
        name=f"fc.{phase}",
        kind="gemm",
        operator="aten.mm.default",
        phase=phase,
        layer="fc",
        inputs=factors,
        outputs=(result,),
        flops=gemm.flops,
        gemm=gemm,
    )


def _numbered(ops: Sequence[Op]) -> Iterator[Op]:
    for index, op in enumerate(ops):
        yield replace(op, index=index)
