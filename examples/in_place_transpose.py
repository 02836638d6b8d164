"""Savings of transposing weights in place: a layer's three products on arrays of several shapes, priced three ways.

The input gradient E W^T needs transposed weights. A transposer copies them; an array whose sums can move in both
directions uses them in place. A tile of W that the forward product left in the array is not loaded again if no other
product ran in between.

    python examples/in_place_transpose.py
"""

import presilicon as ps
from presilicon_evidence.reproductions.in_place_transpose import LAYER, layer_step


def main() -> None:
    layer = f"a {LAYER.k} x {LAYER.n} layer, batch {LAYER.m}"
    print(f"input gradient of {layer}, bfloat16; sums move down in forward products")
    print(f"{'array':>9}  {'transposed weights':<28}{'cycles':>8}{'DRAM KiB':>10}{'buffer KiB':>12}{'uJ':>7}")
    for rows, cols in ((128, 128), (256, 64), (512, 64)):
        for transpose, between, label in (
            ("transposer", False, "copied by a transposer"),
            ("in-place", True, "in place, reloaded"),
            ("in-place", False, "in place, last tile kept"),
        ):
            settings = [f"machine.rows={rows}", f"machine.cols={cols}", f"machine.transpose={transpose}"]
            cost = ps.simulate(layer_step(weight_gradient_between=between), ps.load_design("bf16-systolic", settings))
            op = next(op for op in cost.ops if op.phase == "input_grad")
            print(
                f"{rows:>5}x{cols:<3}  {label:<28}{op.cycles:>8,}{op.bytes_dram / 1024:>10,.0f}"
                f"{op.bytes_sram / 1024:>12,.0f}{op.energy_j * 1e6:>7.0f}"
            )


if __name__ == "__main__":
    main()
