"""Small step graphs written by hand, so that costs can be checked with pencil and paper."""

import pytest

from presilicon.records import Gemm, Op, StepGraph, TensorRef


def _linear_step(m: int = 4, k: int = 6, n: int = 3) -> StepGraph:
    """One linear layer: forward, weight gradient, input gradient, update of the weight."""
    x, w = TensorRef(1, (m, k), "activation"), TensorRef(2, (k, n), "weight")
    y, e = TensorRef(3, (m, n), "activation"), TensorRef(4, (m, n), "error")
    dx, dw = TensorRef(5, (m, k), "error"), TensorRef(6, (k, n), "gradient")
    master = TensorRef(2, (k, n), "master")
    common = {"layer": "fc", "operator": "aten.mm.default"}
    ops = (
        Op(index=0, name="fc.forward", kind="gemm", phase="forward", inputs=(x, w), outputs=(y,),
           flops=2 * m * k * n, gemm=Gemm(m, k, n), **common),
        Op(index=1, name="loss", kind="loss", phase="forward", inputs=(y,), outputs=(e,), flops=m * n,
           depends_on=(0,), layer="", operator="aten.loss"),
        Op(index=2, name="fc.weight_grad", kind="gemm", phase="weight_grad", inputs=(x, e), outputs=(dw,),
           flops=2 * m * k * n, gemm=Gemm(k, m, n), depends_on=(1,), **common),
        Op(index=3, name="fc.input_grad", kind="gemm", phase="input_grad", inputs=(e, w), outputs=(dx,),
           flops=2 * m * k * n, gemm=Gemm(m, n, k), depends_on=(1,), **common),
        Op(index=4, name="fc.update", kind="optimizer", phase="update", inputs=(dw, master), outputs=(master,),
           flops=2 * k * n, depends_on=(2,), layer="fc", operator="aten.add_.Tensor"),
    )  # fmt: skip
    return StepGraph(name="linear", batch_size=m, ops=ops, parameters=(w,))


@pytest.fixture
def linear_step():
    return _linear_step
