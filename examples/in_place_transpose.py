"""What transposing weights in place saves: a layer's three products on arrays of several shapes, priced three ways.

The input gradient E W^T needs transposed weights. A transposer copies them; an array whose sums can move both ways uses
them as they lie. A tile of W that the forward product left in the array is not loaded again if nothing came in between.

    python examples/in_place_transpose.py
"""

import presilicon as ps
from presilicon.records import Gemm, Op, StepGraph, TensorRef

BATCH, INPUTS, OUTPUTS = 1024, 512, 64


def layer_step(*, weight_gradient_first: bool) -> StepGraph:
    """Forward, input gradient and weight gradient of one linear layer; the two gradients in either order."""
    x, w = TensorRef(1, (BATCH, INPUTS), "activation"), TensorRef(2, (INPUTS, OUTPUTS), "weight")
    y, e = TensorRef(3, (BATCH, OUTPUTS), "activation"), TensorRef(4, (BATCH, OUTPUTS), "error")
    dx, dw = TensorRef(5, (BATCH, INPUTS), "error"), TensorRef(6, (INPUTS, OUTPUTS), "gradient")
    products = [
        ("forward", (x, w), y, Gemm(BATCH, INPUTS, OUTPUTS)),
        ("input_grad", (e, w), dx, Gemm(BATCH, OUTPUTS, INPUTS)),
        ("weight_grad", (x, e), dw, Gemm(INPUTS, BATCH, OUTPUTS)),
    ]
    if weight_gradient_first:
        products[1], products[2] = products[2], products[1]
    ops = tuple(
        Op(
            index=index,
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
        for index, (phase, factors, result, gemm) in enumerate(products)
    )
    return StepGraph(name="layer", batch_size=BATCH, ops=ops, parameters=(w,))


def main() -> None:
    print(
        f"input gradient of a {INPUTS} x {OUTPUTS} layer, batch {BATCH}, bfloat16; sums move down in forward products"
    )
    print(f"{'array':>9}  {'transposed weights':<28}{'cycles':>8}{'DRAM KiB':>10}{'buffer KiB':>12}{'uJ':>7}")
    for rows, cols in ((128, 128), (256, 64), (512, 64)):
        for transpose, first, label in (
            ("transposer", False, "copied by a transposer"),
            ("in-place", True, "in place, reloaded"),
            ("in-place", False, "in place, last tile kept"),
        ):
            settings = [f"machine.rows={rows}", f"machine.cols={cols}", f"machine.transpose={transpose}"]
            cost = ps.simulate(layer_step(weight_gradient_first=first), ps.load_design("bf16-systolic", settings))
            op = next(op for op in cost.ops if op.phase == "input_grad")
            print(
                f"{rows:>5}x{cols:<3}  {label:<28}{op.cycles:>8,}{op.bytes_dram / 1024:>10,.0f}"
                f"{op.bytes_sram / 1024:>12,.0f}{op.energy_j * 1e6:>7.0f}"
            )


if __name__ == "__main__":
    main()
