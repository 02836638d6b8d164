"""An entry of the op table: all that is known of an operator, in one place.

Capture, coverage, emulation, fusion, the cost models and the runtimes ask entries; none has a table of its own. An
entry imports neither torch nor numpy: its program is called with tensors by whoever executes it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from presilicon.records import Gemm, OpKind

Shapes = list[tuple[int, ...]]
FlopRule = Callable[[Shapes, Shapes, Sequence[Any]], int]
"""Arithmetic results from the shapes of the tensors read and written, and the arguments of the call."""
ProductShape = Callable[..., tuple[Gemm, tuple[Any, ...]]]
"""The product in a call and its operands, from the arguments."""
Streaming = Literal["map", "rows", "samples", "reduction", "norm", "product", "alone"]
"""How an op takes the tiles of other ops. `map`: a piece of the result needs the same piece of the inputs. `rows` and
`samples`: the same with whole rows or samples. `reduction`: rows, or a sum that is there at the end, by its sizes.
`norm`: a sum over the batch and then a map. `alone`: not known to stream."""
Statistics = Literal["", "batch", "rows", "sample"]
"""What a normalization's mean and deviation are taken over: a channel of the batch, a row, or a sample."""
Width = Literal["", "float32", "float32-result", "narrow"]
"""What mixed precision does with an op: it keeps the width of its operands, computes it in float32, makes it return
float32, or computes it in the narrow format as it does products (torch.autocast on a GPU, ATen/autocast_mode.h)."""
Handling = Literal["vector", "spreads", "accumulates"]
"""What emulation does with the functions: round their results; or, as they only move numbers, round the gradient of a
parameter that they repeat, or round where they are asked to add up."""
AttentionPart = Literal["", "scores", "move", "mask"]


class KindFacts(NamedTuple):
    """Facts about the operators of a kind, unless their entries say otherwise."""

    style: Streaming
    is_loop: bool
    """Whether a compiler writes it as a loop over elements."""
    table_kind: tuple[str, str]
    """Kind in the tables of hybrid systems, forward and backward."""
    has_statistics: bool = False
    """Whether each result needs a statistic of a whole row, sample or channel."""


KINDS: dict[OpKind, KindFacts] = {
    "gemm": KindFacts("product", False, ("MatMul", "MatMul")),
    "convolution": KindFacts("product", False, ("Conv2D", "Conv2D")),
    "elementwise": KindFacts("map", True, ("Mul", "Mul")),
    "reduction": KindFacts("reduction", True, ("Sum", "Sum")),
    "normalization": KindFacts("rows", True, ("LayerNorm", "LayerNormGrad"), True),
    "softmax": KindFacts("rows", True, ("Softmax", "SoftmaxGrad"), True),
    "pooling": KindFacts("samples", True, ("AvgPool", "AvgPoolGrad")),
    "loss": KindFacts("reduction", True, ("Loss", "LossGrad")),
    "gather": KindFacts("alone", True, ("Gather", "GatherGrad")),
    "copy": KindFacts("map", True, ("Copy", "Copy")),
    "optimizer": KindFacts("map", False, ("Mul", "Mul")),
    "random": KindFacts("map", True, ("Dropout", "Dropout")),
    "other": KindFacts("alone", False, ("Copy", "Copy")),
}


class Captured(Struct, frozen=True, kw_only=True):
    """The operators of ATen that capture meets for one pass of an op."""

    names: tuple[str, ...]
    """Without namespace and overload. A name without underscores at its ends stands for all of its spellings: `add` for
    `add_`, `softmax` for `_softmax`; one that has them for itself alone."""
    kind: OpKind
    results: int = 1
    """Arithmetic results per element, in all of its passes over the data."""
    flops: FlopRule | None = None
    """Arithmetic results where elements do not give them."""
    product: ProductShape | None = None
    formula: Callable[..., Any] | Mapping[str, Callable[..., Any]] | None = None
    """What one element of its result is: a function of numbers in the language, of its tensors and numbers in their
    order; or several, by the value of its text option."""
    computes: bool | None = None
    """Whether it does arithmetic; None: copies, lookups, views and random numbers do not, all others do."""
    multiplies: bool | None = None
    """Whether it multiplies matrices inside without being a product; None: not if its kind is known, else it may if it
    reads two tensors."""
    allocates: bool = False
    """Whether it only allocates memory or changes a shape."""
    is_alias: bool = False
    """Whether its result is its argument in another shape, whatever its schema says."""
    resizes: bool = False
    """Whether it gives its argument another storage or another size of it."""
    at_once: bool = False
    """Whether its results' shapes depend on more than those of its arguments, as a whole LSTM layer's do."""
    overwrites: bool = False
    """Whether its in-place form does not read the values that it overwrites."""
    style: Streaming | None = None
    """None: that of its kind."""
    reads_table: bool = False
    """Whether it reads as many elements of its first input as it writes, in any order."""
    scatters: bool = False
    """Whether it adds to some elements of a tensor of zeros."""
    picks: bool = False
    """Whether it reads one element of each row."""
    statistics: Statistics = ""
    last_axis: bool = False
    """Whether its kernels need the last dimension innermost, whatever the order of their results."""
    width: Width = ""
    inner: str = ""
    """The function inside it that a custom operator can replace."""
    ends_model: bool = False
    """Whether it is part of a loss where it lies outside the model, so that no operator of the model replaces it."""
    adds_bias: bool = False
    """Whether it is how a linear layer adds its bias where its input is not contiguous."""
    reads_once: bool = False
    """Whether a gradient uses each of its inputs once."""
    reads_signs: bool = False
    """Whether a gradient needs the signs of a result alone."""
    is_library: bool = False
    """Whether it stays a kernel of a library where a compiler writes loops."""
    attention: AttentionPart = ""
    """Its part in scaled dot-product attention, as capture records that."""
    is_triangle: bool = False
    """Whether it keeps a triangle of a matrix, as a causal mask does."""
    copies: bool = False
    """Whether its result is its input in memory of its own."""
    scales: bool = False
    """Whether it multiplies each element by a factor."""
    measured_as: str = ""
    """Group in the tables of measured cards; empty: its name."""
    table_kind: str = ""
    """Kind in the tables of hybrid systems; empty: that of its kind."""


class OpEntry(Struct, frozen=True, kw_only=True):
    """All that is known of an operator."""

    name: str
    """As users know it: the function of torch, or the operator of ATen that no function computes alone."""
    functions: tuple[str, ...] = ()
    """Names of the functions of torch and its tensors that compute it, by which emulation finds it."""
    forward: Captured | None = None
    backward: Captured | None = None
    signature: str = ""
    """Arguments of its function in order, with their defaults: `input dim=-1`."""
    signature_of_torch: str = ""
    """The same of the function in `torch` itself, where that has another order."""
    program: Callable[..., Any] | None = None
    """Its meaning, as primitive steps: called with the steps and then with torch's arguments. It returns NotImplemented
    for arguments that it does not cover."""
    inner: str = ""
    """The function inside the program that a custom operator can replace."""
    exact: Callable[[float], float] | None = None
    """The function of a number that it is, in plain Python: what the error of an operator that replaces it is measured
    against."""
    swaps: str = ""
    """The entry that it is with its two arguments exchanged."""
    updates: bool = False
    """Whether optimizers use it on single tensors."""
    is_product: bool = False
    """Whether it multiplies matrices, or contains a product or a whole loss, so that emulation has a way of its own."""
    parts: tuple[str, ...] = ()
    """Functions inside a composite one that custom operators can replace, which emulation takes apart."""
    module: type | None = None
    """The kind of module that it is: capture records one op of a module of this kind, whatever its Python calls."""
    by_channel: bool = False
    """Whether its bias, or gain, has a number for each channel of an image."""
    handling: Handling = "vector"
    is_lookup: bool = False
    """Whether its results are rows that the data chose from a table, and so activations."""
    is_rectifier: bool = False
    """Whether a unit that it leaves at zero for every sample is dead."""


def plain(kind: OpKind, names: str, **facts: Any) -> list[OpEntry]:
    """An entry for each of several operators of ATen about which nothing else is known."""
    return [OpEntry(name=name, forward=Captured(names=(name,), kind=kind, **facts)) for name in names.split()]


def function(
    name: str,
    kind: OpKind = "elementwise",
    *,
    aten: str | None = None,
    backward: str | None = None,
    also: str = "",
    gradient: Mapping[str, Any] = {},
    program: Callable[..., Any] | None = None,
    signature: str = "",
    signature_of_torch: str = "",
    swaps: str = "",
    exact: Callable[[float], float] | None = None,
    inside: str = "",
    updates: bool = False,
    is_rectifier: bool = False,
    by_channel: bool = False,
    **facts: Any,
) -> OpEntry:
    """A function of torch: by default an operator of ATen of the same name, and `NAME_backward` for its gradient.

    Args:
        name: the function, by which users and messages know it.
        aten: the operators of ATen, in words; empty if capture sees only its parts.
        backward: those of its gradient; empty if autograd has none of its own.
        also: further names of the function.
        gradient: facts about the gradient, other than those that it has in common with the function.
        inside: the function inside the program that a custom operator can replace.
        facts: facts about the operators, for `Captured`.
    """
    names = (name if aten is None else aten).split()
    gradient_names = (f"{name}_backward" if backward is None else backward).split()
    shared = {key: facts[key] for key in ("statistics", "last_axis", "style") if key in facts} | dict(gradient)
    return OpEntry(
        name=name,
        functions=(name, *also.split()),
        forward=Captured(names=tuple(names), kind=kind, **facts) if names else None,
        backward=Captured(names=tuple(gradient_names), kind=kind, **shared) if gradient_names else None,
        signature=signature,
        signature_of_torch=signature_of_torch,
        program=program,
        inner=inside,
        swaps=swaps,
        exact=exact,
        updates=updates,
        is_rectifier=is_rectifier,
        by_channel=by_channel,
    )


def module_op(name: str, module: type, kind: OpKind, *, gradient: Mapping[str, Any] = {}, **facts: Any) -> OpEntry:
    """A module that is one operator with a given cost: its forward pass one op, and its backward pass one.

    Emulation still rounds what its Python computes. `gradient` has the facts of the backward pass that are others.

    >>> from torch import nn
    >>> entry = module_op("swish_norm", nn.Identity, "normalization", results=12, gradient={"results": 20})
    >>> entry.forward.results, entry.backward.results, entry.backward.kind
    (12, 20, 'normalization')
    """
    forward = Captured(names=(), kind=kind, **facts)
    return OpEntry(name=name, module=module, forward=forward, backward=replace(forward, **gradient))
