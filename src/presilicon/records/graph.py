"""One training step as a graph of ops with shapes, roles, FLOPs and dependencies.

The graph knows element counts, never bytes: bytes follow from the numerics of the design that runs it.
"""

from math import ceil, prod
from typing import Literal, NamedTuple, get_args

from msgspec import Struct

from presilicon.records.operators import OperatorWork

Phase = Literal["forward", "input_grad", "weight_grad", "update"]
PHASES: tuple[Phase, ...] = get_args(Phase)

ProductPhase = Literal["forward", "input_grad", "weight_grad"]
"""The phases that multiply weights, activations and errors."""
PRODUCT_PHASES: tuple[ProductPhase, ...] = get_args(ProductPhase)

Role = Literal["weight", "activation", "error", "gradient", "master", "state"]
ROLES: tuple[Role, ...] = get_args(Role)

OPERANDS: dict[ProductPhase, tuple[Role, Role]] = {
    "forward": ("activation", "weight"),
    "input_grad": ("error", "weight"),
    "weight_grad": ("activation", "error"),
}
"""The roles of the two factors of each product of a layer."""

OpKind = Literal[
    "gemm",
    "convolution",
    "elementwise",
    "reduction",
    "normalization",
    "softmax",
    "pooling",
    "loss",
    "gather",
    "copy",
    "optimizer",
    "random",
    "other",
]


Access = Literal["dense", "strided", "strided-contiguous", "strided-channels-last"]
"""Order in which an op meets the memory of its tensors: all alike, with unit stride in one dimension (`dense`), or
not: always, only where images are contiguous (channels first), or only where they are channels last."""


class TensorRef(Struct, frozen=True, gc=False):
    """A tensor as an op sees it."""

    id: int
    """The storage: equal ids are the same memory (views and in-place results share one)."""
    shape: tuple[int, ...]
    role: Role
    integer_bits: int = 0
    """Bits of each element of an integer or boolean tensor; 0 for others, whose width the numerics decide."""

    @property
    def elements(self) -> int:
        """Number of elements (1 for a scalar)."""
        return prod(self.shape)


class Gemm(Struct, frozen=True, gc=False):
    """`count` independent products C[m, n] = A[m, k] B[k, n]."""

    m: int
    k: int
    n: int
    count: int = 1

    @property
    def macs(self) -> int:
        """Multiply-adds."""
        return self.count * self.m * self.k * self.n

    @property
    def flops(self) -> int:
        """Two per multiply-add."""
        return 2 * self.macs


class Convolution(Struct, frozen=True):
    """The geometry of a convolution's forward pass, whichever phase the op belongs to.

    Spatial tuples have one entry per spatial dimension. For a transposed convolution, `input_size` and `output_size`
    are those of the op itself, so the output is the larger one.
    """

    batch: int
    in_channels: int
    out_channels: int
    input_size: tuple[int, ...]
    output_size: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int = 1
    transposed: bool = False


class Op(Struct, frozen=True, kw_only=True, gc=False):
    """One operation of a training step."""

    index: int
    """Position in the order in which the step ran it."""
    name: str
    """Layer, phase and operator: `features.0.forward.convolution`. Unique in its graph."""
    kind: OpKind
    operator: str
    """The ATen operator that was captured: `aten.convolution.default`."""
    phase: Phase
    layer: str
    """Qualified name of the module that the op belongs to; empty for what lies outside the model."""
    inputs: tuple[TensorRef, ...]
    outputs: tuple[TensorRef, ...]
    flops: int
    """Two per multiply-add in GEMMs and convolutions; one per arithmetic result elsewhere; zero for moves."""
    depends_on: tuple[int, ...] = ()
    """Indices of earlier ops whose results this one reads."""
    gemm: Gemm | None = None
    """The matrix product that it is; for a convolution, the im2col form of this phase."""
    convolution: Convolution | None = None
    differentiates: str = ""
    """Name of the forward op whose gradient it computes; empty outside the backward pass, or if that is not known."""
    access: Access = "dense"
    work: OperatorWork | None = None
    """The operations of a custom operator; None for torch's own."""
    fixed_statistics: bool = False
    """Whether a batch normalization uses statistics from before the step, as in evaluation, which makes it a scaling
    and an offset per channel."""
    recurrent: bool = False
    """Whether it is part of an nn.LSTM, nn.GRU or nn.RNN, which capture unrolls and a library may run as a whole."""

    @property
    def product_phase(self) -> Phase | None:
        """The phase of a matrix product; None for any other op."""
        return None if self.gemm is None else self.phase

    @property
    def elements_in(self) -> int:
        """Numbers read, each input once."""
        return sum(tensor.elements for tensor in self.inputs)

    @property
    def elements_out(self) -> int:
        """Numbers written."""
        return sum(tensor.elements for tensor in self.outputs)


class Ends(NamedTuple):
    """The layers that the patterns "first" and "last" mean: the first and last that multiply by a matrix of weights.

    Both are empty in a model that is a single layer.
    """

    first: str = ""
    last: str = ""


class StepGraph(Struct, frozen=True, kw_only=True):
    """One training step of a model at one batch size."""

    name: str
    batch_size: int
    micro_batches: int = 1
    """Parts of the batch that each have a forward and a backward pass; ops are those of all parts."""
    ops: tuple[Op, ...]
    parameters: tuple[TensorRef, ...] = ()
    """Trainable weights, role `weight`."""
    state: tuple[TensorRef, ...] = ()
    """Optimizer state that lives from step to step, role `state`."""
    ends: Ends = Ends()
    """First and last layer of the model, as capture found them."""
    added: frozenset[str] = frozenset()
    """Names of the ops that methods have added; they run even if their phase is skipped."""

    @property
    def samples_per_pass(self) -> int:
        """Samples that an op of a forward or backward pass works on: those of the largest micro-batch."""
        return ceil(self.batch_size / self.micro_batches)

    @property
    def parameter_elements(self) -> int:
        """Trainable numbers."""
        return sum(tensor.elements for tensor in self.parameters)

    def flops(self, *phases: Phase, matrix_only: bool = False) -> int:
        """FLOPs of the given phases (all when none is named), optionally of GEMMs and convolutions alone."""
        selected = set(phases or PHASES)
        return sum(op.flops for op in self.ops if op.phase in selected and (op.gemm is not None or not matrix_only))

    @property
    def weighted_layers(self) -> tuple[str, ...]:
        """Layers with a matrix product of weights in the forward pass, in the order in which they run."""
        products = [op for op in self.ops if op.phase == "forward" and op.gemm is not None]
        return tuple(dict.fromkeys(op.layer for op in products if op.inputs[1].role == "weight"))

    @property
    def stages(self) -> dict[str, int]:
        """The position of each layer in a pipeline whose stages are the weighted layers.

        A layer without a matrix of weights belongs to the stage of the layer before it.
        """
        weighted = {layer: stage for stage, layer in enumerate(self.weighted_layers)}
        stages: dict[str, int] = {}
        stage = 0
        for op in self.ops:
            if op.phase == "forward" and op.layer:
                stage = weighted.get(op.layer, stage)
                stages.setdefault(op.layer, stage)
        return stages
