"""The matrix products of a step as SCALE-Sim's topology file: what its report can then stand in for."""

from pathlib import Path

from presilicon.base.errors import ConfigError
from presilicon.records import StepGraph


def topology_of(graph: StepGraph) -> str:
    """A CSV with a line for each matrix product, in the order of the step: name, M, N, K, as SCALE-Sim has them.

    Several equal products of an op (the heads of attention, groups of a convolution) are one line.

    >>> from presilicon.records import Gemm, Op, TensorRef
    >>> x, w, y = (TensorRef(i, (2, 2), "activation") for i in range(3))
    >>> op = Op(index=0, name="fc.forward", kind="gemm", operator="aten.mm", phase="forward", layer="fc",
    ...         inputs=(x, w), outputs=(y,), flops=48, gemm=Gemm(m=2, k=3, n=4))
    >>> print(topology_of(StepGraph(name="one", batch_size=2, ops=(op,))), end="")
    Layer,M,N,K,
    fc_forward,2,4,3,
    """
    lines = [
        f"{op.name.replace('.', '_')},{op.gemm.m},{op.gemm.n},{op.gemm.k}," for op in graph.ops if op.gemm is not None
    ]
    return "\n".join(["Layer,M,N,K,", *lines]) + "\n"


def write_topology(path: Path | str, graph: StepGraph) -> None:
    """Write `topology_of` to a file.

    Raises:
        ConfigError: the file cannot be written.
    """
    try:
        Path(path).write_text(topology_of(graph))
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}") from None
