"""Kind and FLOPs of ATen operators, decided here once for capture, coverage and characterization."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor

from presilicon.operators import work_of_call
from presilicon.records import OperatorWork, OpKind
from presilicon.workloads.capturing.products import Product, find_products, product_kind

_KINDS: dict[OpKind, str] = {
    "copy": """
        clone copy to_copy cat stack fill zero zeros ones full zeros_like ones_like full_like new_zeros new_ones
        new_full arange linspace eye scalar_tensor constant_pad_nd reflection_pad1d reflection_pad2d reflection_pad3d
        replication_pad1d replication_pad2d replication_pad3d slice_backward select_backward diagonal_backward
        as_strided_backward unfold_backward slice_scatter select_scatter diagonal_scatter as_strided_scatter repeat roll
        flip tril triu diag_embed pixel_shuffle pixel_unshuffle channel_shuffle im2col repeat_interleave contiguous
        reshape_copy view_copy expand_copy permute_copy""",
    "reduction": """
        sum mean nansum amax amin aminmax max min argmax argmin var var_mean std std_mean prod norm linalg_vector_norm
        any all logsumexp cumsum cumprod logcumsumexp count_nonzero topk sort median kthvalue trace""",
    "normalization": """
        native_batch_norm native_batch_norm_legit native_batch_norm_legit_no_training batch_norm_with_update
        native_layer_norm native_group_norm fused_rms_norm native_batch_norm_backward batch_norm_backward
        native_layer_norm_backward native_group_norm_backward fused_rms_norm_backward weight_norm_interface
        weight_norm_interface_backward renorm""",
    "softmax": "softmax log_softmax safe_softmax softmax_backward_data log_softmax_backward_data",
    "pooling": """
        max_pool2d_with_indices max_pool3d_with_indices avg_pool2d avg_pool3d adaptive_avg_pool2d adaptive_avg_pool3d
        adaptive_max_pool2d adaptive_max_pool3d fractional_max_pool2d fractional_max_pool3d max_unpool2d max_unpool3d
        max_pool2d_with_indices_backward max_pool3d_with_indices_backward avg_pool2d_backward avg_pool3d_backward
        adaptive_avg_pool2d_backward adaptive_avg_pool3d_backward adaptive_max_pool2d_backward
        adaptive_max_pool3d_backward fractional_max_pool2d_backward fractional_max_pool3d_backward""",
    "loss": """
        nll_loss nll_loss_forward nll_loss2d_forward nll_loss_backward nll_loss2d_backward mse_loss mse_loss_backward
        smooth_l1_loss smooth_l1_loss_backward huber_loss huber_loss_backward binary_cross_entropy
        binary_cross_entropy_backward binary_cross_entropy_with_logits soft_margin_loss soft_margin_loss_backward
        multi_margin_loss multi_margin_loss_backward multilabel_margin_loss_forward multilabel_margin_loss_backward
        ctc_loss ctc_loss_backward""",
    "gather": """
        embedding embedding_dense_backward embedding_bag embedding_bag_forward_only embedding_bag_dense_backward index
        index_put index_put_impl index_select index_select_backward gather scatter scatter_add scatter_reduce index_add
        index_copy index_fill take masked_scatter""",
    "random": """
        bernoulli normal uniform rand randn randint randperm rand_like randn_like randint_like native_dropout
        multinomial exponential geometric log_normal cauchy random rrelu_with_noise""",
    "elementwise": """
        glu glu_backward prelu_kernel prelu_kernel_backward elu_backward hardtanh_backward hardswish_backward
        hardsigmoid_backward mish_backward softplus_backward softshrink_backward hardshrink_backward leaky_relu_backward
        native_dropout_backward log_sigmoid_forward log_sigmoid_backward softplus hardswish mish logit_backward""",
}
_KIND_OF = {name: kind for kind, names in _KINDS.items() for name in names.split()}

_ADDITIONS: dict[str, Callable[[list[tuple[int, ...]]], int]] = {
    "embedding_dense_backward": lambda shapes: prod(shapes[0]),
    "index_select_backward": lambda shapes: prod(shapes[0]),
    "embedding_bag": lambda shapes: prod(shapes[1]) * shapes[0][-1],
    "scatter_add": lambda shapes: prod(shapes[-1]),
    "scatter_reduce": lambda shapes: prod(shapes[-1]),
    "index_add": lambda shapes: prod(shapes[-1]),
}
"""Additions, from the input shapes, of the gathers and scatters that add as they go."""

_RESULTS_PER_ELEMENT: dict[tuple[str, bool], int] = {
    # compare, subtract, exponentiate, add, divide
    ("softmax", False): 5,
    # multiply by the output, add, subtract, multiply
    ("softmax", True): 4,
    # add, centre, square, add, scale, gain, offset
    ("normalization", False): 7,
    # offset sum; normalise (2), multiply, gain sum; two subtractions, multiply, scale
    ("normalization", True): 9,
    # square, add, scale, gain
    ("fused_rms_norm", False): 4,
    # normalise, multiply, gain sum; subtract, multiply, scale
    ("fused_rms_norm_backward", True): 6,
}
"""Arithmetic results per element of the ops that make several passes, forward and (True) backward, by their name or
else by their kind."""

_ALLOCATING = """
    empty empty_like empty_strided empty_permuted new_empty new_empty_strided resize_ set_ detach alias lift_fresh lift
    t_ transpose_ squeeze_ unsqueeze_ swapaxes_ swapdims_ as_strided_ detach_ _unsafe_view _reshape_alias"""
"""Operators that allocate a tensor or only change its shape."""

_SELECTIONS = "where masked_fill masked_fill_ copysign heaviside lift_fresh_copy _local_scalar_dense complex"
"""Operators of other kinds that choose or rearrange values and compute none."""

_OVERWRITING = "copy_ fill_ zero_ bernoulli_ normal_ uniform_ random_ exponential_ geometric_ log_normal_ cauchy_"
"""In-place operators that do not read the values they overwrite."""


@dataclass(frozen=True, slots=True)
class Operator:
    """The facts about an ATen operator that do not depend on its arguments."""

    name: str
    """Without namespace and overload: `add_`, `_softmax`."""
    kind: OpKind
    mutable: bool
    written: tuple[int | str, ...]
    """Positions, and names of keyword-only arguments, that it writes to."""
    unread: tuple[int | str, ...]
    """The members of `written` whose old contents it does not read."""
    free: bool
    """Whether it moves no data."""
    shape_only: bool
    """Whether it reads the shape of its input but not its values."""
    gathers: bool
    """Whether it reads only as many elements of its first input as it writes."""
    computes: bool
    """Whether it does arithmetic: it is no copy, view, lookup, selection or random number."""
    hides_products: bool
    """Whether it multiplies matrices inside, or may do so, without being a product itself: distances, FFTs, linear
    algebra, and every operator of two tensors that is not known to do something else."""

    @property
    def multiplies(self) -> bool:
        """Whether it is a matrix product, or hides one."""
        return self.kind in ("gemm", "convolution") or self.hides_products


class OpPart(NamedTuple):
    """One op of an operator call."""

    label: str
    """The operator's name, and the part's if the call has several."""
    kind: OpKind
    flops: int
    product: Product | None = None
    work: OperatorWork | None = None
    fixed_statistics: bool = False
    """See `Op.fixed_statistics`."""


def ops_of_call(
    function: Any, args: Sequence[Any], output: Any, reads: Iterable[Tensor], results: Iterable[Tensor]
) -> list[OpPart]:
    """The ops of one operator call: the products in it, or else the call itself.

    `reads` are the tensors that the call reads and `results` those that it writes.

    >>> x = torch.ones(4, 8)
    >>> [part] = ops_of_call(torch.ops.aten.mm.default, (x, x.t()), x @ x.t(), [x], [x @ x.t()])
    >>> part.label, part.kind, part.flops
    ('mm', 'gemm', 256)
    """
    operator = describe_operator(function)
    if function.namespace == "presilicon" and (work := work_of_call(function, args)) is not None:
        return [OpPart(work.name, operator.kind, work.operations, work=work)]
    products = find_products(operator.name, args, output)
    if products:
        names = [f"{operator.name}.{product.label}" if product.label else operator.name for product in products]
        return [OpPart(name, item.kind, item.flops, item) for name, item in zip(names, products, strict=True)]
    inputs, outputs = ([tuple(tensor.shape) for tensor in tensors] for tensors in (reads, results))
    fixed = has_fixed_statistics(function, args)
    flops = count_flops(operator, inputs, outputs, args, fixed_statistics=fixed)
    return [OpPart(operator.name, operator.kind, flops, fixed_statistics=fixed)]


def has_fixed_statistics(function: Any, args: Sequence[Any]) -> bool:
    """Whether an operator is a batch normalization with statistics from before the step, as in evaluation."""
    name = describe_operator(function).name
    if "batch_norm" not in name:
        return False
    flags = [position for position, argument in enumerate(function._schema.arguments) if argument.name in _TRAINING]
    return "no_training" in name or any(position < len(args) and args[position] is False for position in flags)


_TRAINING = ("training", "train", "use_input_stats")
"""The argument of batch normalizations that says whether they compute their own statistics."""


@cache
def describe_operator(function: Any) -> Operator:
    """Describe a `torch._ops.OpOverload`.

    >>> operator = describe_operator(torch.ops.aten.copy_.default)
    >>> operator.name, operator.kind, operator.written, operator.unread
    ('copy_', 'copy', (0,), (0,))
    """
    schema = function._schema
    name = schema.name.partition("::")[2]
    written: list[int | str] = []
    unread: list[int | str] = []
    for position, argument in enumerate(schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            key = argument.name if argument.kwarg_only else position
            written.append(key)
            if argument.kwarg_only or name in _OVERWRITING.split():
                unread.append(key)
    kind = product_kind(name) or _KIND_OF.get(name.strip("_"))
    if kind is None and "batch_norm" in name:  # cuDNN's and other libraries' own
        kind = "normalization"
    if kind is None:
        kind = "elementwise" if torch.Tag.pointwise in function.tags else "other"
    free = name in _ALLOCATING.split()
    views = any(argument.alias_info and not argument.alias_info.is_write for argument in schema.arguments)
    computes = not free and _computes(name, kind, views)
    return Operator(
        name=name,
        kind=kind,
        mutable=bool(schema.is_mutable),
        written=tuple(written),
        unread=tuple(unread),
        free=free,
        shape_only=name.endswith("_like") or name.startswith("new_"),
        gathers=name in ("embedding", "index", "index_select", "gather", "take"),
        computes=computes,
        hides_products=_hides_products(name.lstrip("_")) or (computes and _may_multiply(function, kind)),
    )


def _computes(name: str, kind: OpKind, views: bool) -> bool:
    if name in _SELECTIONS.split() or name.startswith("is_"):
        return False
    if kind in ("copy", "random"):
        return name == "native_dropout"
    return name.strip("_") in _ADDITIONS if kind == "gather" else not views


def _hides_products(name: str) -> bool:
    return name.startswith(("cdist", "pdist", "fft", "linalg", "addr")) and name != "linalg_vector_norm"


_HARMLESS = """
    grid_sampler_2d grid_sampler_2d_backward grid_sampler_3d grid_sampler_3d_backward reflection_pad1d_backward
    reflection_pad2d_backward reflection_pad3d_backward replication_pad1d_backward replication_pad2d_backward
    replication_pad3d_backward searchsorted bucketize equal isin bincount segment_reduce segment_reduce_backward polar
    cumprod_backward masked_select masked_scale masked_scatter_backward native_dropout_backward index_reduce dist
    unsafe_index unsafe_index_put unsafe_masked_index unsafe_masked_index_put_accumulate embedding_bag_backward
    gelu_backward threshold_backward rrelu_with_noise_backward rrelu_with_noise_functional rsub copysign heaviside
    functional_assert_async resize_as jagged_to_padded_dense_forward padded_dense_to_jagged_forward sparse_mask
    sparse_coo_tensor_with_dims_and_tensors pack_padded_sequence pack_padded_sequence_backward pad_packed_sequence"""
"""Operators of two tensors, of no kind above, that do not multiply one by the other and add up."""


def _may_multiply(function: Any, kind: OpKind) -> bool:
    """Whether an operator of unknown kind reads two tensors, so that it may multiply one by the other and add up."""
    schema = function._schema
    namespace, _, name = schema.name.partition("::")
    plain = name.strip("_")
    if (
        namespace == "presilicon"
        or kind != "other"
        or plain in _HARMLESS.split()
        or plain.startswith(("foreach", "fused_adam", "fused_sgd"))
    ):
        return False
    twin = getattr(torch.ops.aten, name[:-1], None) if namespace == "aten" and name.endswith("_") else None
    if twin is not None and any(torch.Tag.pointwise in getattr(twin, overload).tags for overload in twin.overloads()):
        return False  # the in-place form of a pointwise operator has no such tag
    read = [str(argument.type) for argument in schema.arguments if not argument.kwarg_only]
    return sum("Tensor" in word for word in read) > 1


def count_flops(
    operator: Operator,
    inputs: list[tuple[int, ...]],
    outputs: list[tuple[int, ...]],
    args: Sequence[Any],
    *,
    fixed_statistics: bool = False,
) -> int:
    """FLOPs of an operator that is no matrix product: one per arithmetic result, zero for moves.

    A reduction makes one result per element that it reads, an elementwise operator one per element that it writes;
    softmax and normalization make several passes. A batch normalization with `fixed_statistics` scales and adds; its
    gradients scale the error, and sum it and its product with the input.

    >>> count_flops(describe_operator(torch.ops.aten.sum.default), [(4, 8)], [()], ())
    32
    """
    name = operator.name.strip("_")
    if operator.kind == "copy":
        return 0
    if operator.kind == "gather":
        return _ADDITIONS[name](inputs) if name in _ADDITIONS else 0
    written = max(map(prod, outputs), default=0)
    if operator.kind in ("elementwise", "random"):
        return written
    if name in ("max_pool2d_with_indices", "max_pool3d_with_indices", "avg_pool2d", "avg_pool3d"):
        return written * _window(name, args[1])
    if name in ("avg_pool2d_backward", "avg_pool3d_backward"):
        return prod(inputs[0]) * _window(name, args[2])  # every error is added to the whole window
    backward = name.endswith(("_backward", "_backward_data"))
    if fixed_statistics:
        return max([written, *map(prod, inputs)]) * (4 if backward else 2)
    results = _RESULTS_PER_ELEMENT.get((operator.kind, backward), 1)
    return max([written, *map(prod, inputs)]) * _RESULTS_PER_ELEMENT.get((name, backward), results)


def _window(name: str, kernel: list[int]) -> int:
    """Elements under a pooling kernel, whose sides may be given as one."""
    return prod(kernel if len(kernel) > 1 else kernel * (2 if "2d" in name else 3))
