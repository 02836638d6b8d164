"""`matmul`: matrix products as a MAC unit computes them."""

import math
from functools import cache

from presilicon.base import FormatError, torch
from presilicon.formats.kernels.passes import has_numba, has_triton
from presilicon.formats.mac.factored import Factored, multiply_factored
from presilicon.formats.mac.patches import Patches
from presilicon.formats.mac.plan import MacPlan, plan_of
from presilicon.formats.mac.tensor_core import has_tensor_cores
from presilicon.formats.mac.unit import MacUnit
from presilicon.formats.quantization import quantize
from presilicon.formats.rounding import Key


def matmul(
    a: "torch.Tensor | Patches | Factored",
    b: "torch.Tensor | Patches | Factored",
    mac: MacUnit,
    *,
    key: Key | None = None,
    bias: "torch.Tensor | None" = None,
    out: "torch.Tensor | None" = None,
    library: bool = True,
) -> "torch.Tensor":
    """The matrix product of `a` and `b`, every multiply and add done as `mac` does it.

    The bits are those of exact arithmetic rounded where the unit rounds, for all float32 values: NaN, infinities,
    subnormals and signed zeros too. The operands should already hold values of their formats (`quantize` does that).

    Args:
        a: A float32 tensor (..., M, K) of any strides; float16 and bfloat16 are widened. One-dimensional tensors and
            broadcasting work as in `torch.matmul`. `Patches` stand for the matrices of a convolution's inputs; codes
            of `Factored` numbers are multiplied by the unit, and sums of the codes by the scales.
        b: A float32 tensor (..., K, N), `Patches` or `Factored` numbers.
        mac: The unit.
        key: Seed, step and tensor of stochastic rounding; None is `Key()`. The roundings of an output are numbered in
            the order in which they happen; rounding t of output e (its row-major index) draws the random word of
            index t x outputs + e.
        bias: Numbers added in float32 to each row of the result, which has at least two dimensions then.
        out: Where to write, of the result's shape; it must not overlap `a` or `b`.
        library: A unit that just adds in float32, in no stated order (`mac.is_float32`), is left to `torch.matmul`,
            whose order of additions is its own: results are equal where every partial sum is exact, else they differ in
            the last places. False adds one product after another here too.

    Returns:
        `out`, or a new float32 tensor. It carries no gradient: emulation adds its own.

    Raises:
        FormatError: A unit that cannot exist, shapes that do not fit, a type or a device that cannot be used.

    >>> import torch
    >>> from presilicon.formats import Float
    >>> ones = torch.ones(1, 4096)
    >>> matmul(ones, ones.T, MacUnit(accumulate=Float(5, 10))), matmul(ones, ones.T, MacUnit(accumulate=Float(6, 9)))
    (tensor([[2048.]]), tensor([[1024.]]))
    >>> matmul(ones, ones.T, MacUnit(accumulate=Float(6, 9), order="chunked", chunk=64))
    tensor([[4096.]])
    """
    if mac.left is not None and has_tensor_cores(a.device):
        from presilicon.formats.mac import tensor_core_gpu

        quick = tensor_core_gpu.multiply(a, b, mac, bias)
        if quick is not None:
            return quick if out is None else out.detach().copy_(quick)
    if isinstance(a, Patches) or isinstance(b, Patches):
        left, right = (x.dense() if isinstance(x, Patches) else x for x in (a, b))
        return matmul(left, right, mac, key=key, bias=bias, out=out, library=library)
    if isinstance(a, Factored) or isinstance(b, Factored):
        scaled = multiply_factored(a, b, mac, key, bias, matmul)
        return scaled if out is None else out.detach().copy_(scaled)
    plan = None if mac.is_user_defined else plan_of(mac)
    a, b = _check_operand("a", a, mac), _check_operand("b", b, mac)
    if a.device != b.device:
        raise FormatError(f"{mac}: a is on {a.device} and b on {b.device}; both must be on the same device")
    shape = result_shape(a, b, mac)
    if out is not None and (out.shape, out.dtype, out.device) != (shape, torch.float32, a.device):
        raise FormatError(
            f"{mac}: out is {tuple(out.shape)} {out.dtype} on {out.device}; "
            f"needed: {tuple(shape)} torch.float32 on {a.device}"
        )
    bias = None if bias is None else bias.detach()
    if bias is not None and (bias.shape != shape[-1:] or len(shape) < 2):
        raise FormatError(f"{mac}: bias of shape {tuple(bias.shape)} must have the {shape[-1]} columns of the result")
    if library and mac.is_float32:
        result = torch.matmul(a, b)
    else:
        result = _emulated(a, b, mac, plan, key or Key()).reshape(shape)
    result = result if bias is None else result.add_(bias)
    return result if out is None else out.detach().copy_(result)


def _emulated(a: "torch.Tensor", b: "torch.Tensor", mac: MacUnit, plan: "MacPlan | None", key: Key) -> "torch.Tensor":
    """The product by the fastest implementation for the device that computes every sum as the unit does."""
    left, right = as_batches(a, b)
    if plan is not None and mac.left is not None and has_tensor_cores(a.device):
        from presilicon.formats.mac import chunked_gpu

        result = chunked_gpu.multiply(left, right, mac, plan, key)
        if result is not None:
            return result
    if plan is not None and mac.left is not None and mac.right is not None:
        left, right = quantize(left.to(torch.float32), mac.left), quantize(right.to(torch.float32), mac.right)
    if plan is None:
        from presilicon.formats.mac.user import multiply_codes

        mac.check()
        return multiply_codes(left, right, mac, key)
    if a.device.type == "cpu" and has_numba():
        from presilicon.formats.mac import cpu

        return cpu.multiply(left, right, plan, key)
    if a.device.type == "cuda" and has_triton():
        from presilicon.formats.mac import gpu

        return gpu.multiply(left, right, plan, key)
    from presilicon.formats.mac import plain

    return plain.multiply(left, right, plan, key)


def _check_operand(name: str, x: "torch.Tensor", mac: MacUnit) -> "torch.Tensor":
    if not isinstance(x, torch.Tensor):
        raise FormatError(f"{mac}: {name} must be a torch tensor, not {type(x).__name__}; try torch.as_tensor(...)")
    problem = ""
    if x.layout != torch.strided:
        problem = f" of layout {x.layout} cannot be multiplied; allowed: strided tensors"
    elif x.device.type not in ("cpu", "cuda"):
        problem = f" on device {x.device} cannot be multiplied; allowed: cpu, cuda"
    elif x.dtype not in operand_types():
        problem = f" and type {x.dtype} cannot be multiplied; allowed: float32, float16, bfloat16, float8"
    elif x.dim() == 0:
        problem = " has no axis to reduce; allowed: one dimension or more"
    if problem:
        raise FormatError(f"{mac}: {name} of shape {tuple(x.shape)}{problem}")
    is_operand = mac.left is not None and has_tensor_cores(x.device)
    return x.detach() if is_operand else x.detach().to(torch.float32)


@cache
def operand_types() -> "frozenset[torch.dtype]":
    """The types of tensors that are multiplied."""
    return frozenset((torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2))


def result_shape(a: "torch.Tensor", b: "torch.Tensor", mac: MacUnit) -> "tuple[int, ...]":
    """The shape of the product, by the rules of `torch.matmul`."""
    rows = a.shape[-2:-1]
    depth, columns = (b.shape[0], b.shape[1:1]) if b.dim() == 1 else (b.shape[-2], b.shape[-1:])
    batches = a.shape[:-2]
    try:
        if a.shape[-1] != depth:
            raise RuntimeError
        if b.shape[:-2] != batches:
            batches = torch.broadcast_shapes(batches, b.shape[:-2])  # type: ignore[no-untyped-call]
    except RuntimeError:
        raise FormatError(
            f"{mac}: shapes {tuple(a.shape)} and {tuple(b.shape)} do not fit; needed: (..., M, K) and (..., K, N)"
        ) from None
    return batches + rows + columns


def as_batches(a: "torch.Tensor", b: "torch.Tensor") -> "tuple[torch.Tensor, torch.Tensor]":
    """The operands as (batches, M, K) and (batches, K, N), or one batch where `b` is shared."""
    a = a.unsqueeze(0) if a.dim() == 1 else a
    b = b.unsqueeze(1) if b.dim() == 1 else b
    if math.prod(b.shape[:-2]) == 1:
        rows = math.prod(a.shape[:-1])
        return a.reshape(1, rows, a.shape[-1]), b.reshape(1, b.shape[-2], b.shape[-1])
    batches = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])  # type: ignore[no-untyped-call]
    count = math.prod(batches)
    left = a.expand(*batches, *a.shape[-2:]).reshape(count, *a.shape[-2:])
    right = b.expand(*batches, *b.shape[-2:]).reshape(count, *b.shape[-2:])
    return left, right
