"""Torch's functions in the operator language, each beside torch's own, and random operands for both."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from math import erf, exp, log, sqrt
from random import Random
from statistics import mean
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from presilicon.ops import Operator, operator


@operator("relu")
def relu(x):
    return x if x > 0 else 0.0


@operator("gelu")
def gelu(x):
    return 0.5 * x * (1 + erf(x / sqrt(2)))


@operator("add")
def add(a, b):
    return a + b


@operator("mul")
def mul(a, b):
    return a * b


@operator("div")
def div(a, b):
    return a / b


@operator("softmax")
def softmax(x: "... n") -> "... n":
    top = max(x[..., j] for j in range(N))
    total = sum(exp(x[..., j] - top) for j in range(N))
    return exp(x[..., n] - top) / total


@operator("log_softmax")
def log_softmax(x: "... n") -> "... n":
    top = max(x[..., j] for j in range(N))
    return x[..., n] - top - log(sum(exp(x[..., j] - top) for j in range(N)))


@operator("layer_norm")
def layer_norm(x: "... n", weight: "n", bias: "n", eps=1e-5) -> "... n":
    centre = mean(x[..., j] for j in range(N))
    spread = mean((x[..., j] - centre) ** 2 for j in range(N))
    return (x[..., n] - centre) / sqrt(spread + eps) * weight[n] + bias[n]


@operator("rms_norm")
def rms_norm(x: "... n", weight: "n", eps=1e-6) -> "... n":
    return x[..., n] / sqrt(sum(x[..., j] * x[..., j] for j in range(N)) / N + eps) * weight[n]


@operator("batch_norm")
def batch_norm(x: "b c h w", weight: "c", bias: "c", eps=1e-5) -> "b c h w":
    centre = mean(x[i, c, y, z] for i in range(B) for y in range(H) for z in range(W))
    spread = mean((x[i, c, y, z] - centre) ** 2 for i in range(B) for y in range(H) for z in range(W))
    return (x[b, c, h, w] - centre) / sqrt(spread + eps) * weight[c] + bias[c]


@operator("max_pool2d")
def max_pool2d(
    x: "b c h w", kernel_size=2, stride=2, padding=0
) -> "b c y=(H + 2*padding - kernel_size)//stride + 1 z=(W + 2*padding - kernel_size)//stride + 1":
    top = y * stride - padding
    left = z * stride - padding
    return max(
        x[b, c, top + i, left + j]
        for i in range(kernel_size)
        for j in range(kernel_size)
        if 0 <= top + i < H and 0 <= left + j < W
    )


@operator("avg_pool2d")
def avg_pool2d(
    x: "b c h w", kernel_size=2, stride=2, padding=0
) -> "b c y=(H + 2*padding - kernel_size)//stride + 1 z=(W + 2*padding - kernel_size)//stride + 1":
    total = 0
    for i in range(kernel_size):
        for j in range(kernel_size):
            row = y * stride - padding + i
            column = z * stride - padding + j
            if 0 <= row < H and 0 <= column < W:
                total += x[b, c, row, column]
    return total / kernel_size**2


@operator("conv1d")
def conv1d(
    x: "b c n", f: "o k r", stride=1, padding=0, dilation=1, groups=1
) -> "b o y=(N + 2*padding - dilation*(R - 1) - 1)//stride + 1":
    first = o // (O // groups) * K
    return sum(
        x[b, first + i, y * stride + u * dilation - padding] * f[o, i, u]
        for i in range(K)
        for u in range(R)
        if 0 <= y * stride + u * dilation - padding < N
    )


@operator("conv2d")
def conv2d(
    x: "b c h w", f: "o k r s", stride=1, padding=0, dilation=1, groups=1
) -> """b o
        y=(H + 2*padding - dilation*(R - 1) - 1)//stride + 1
        z=(W + 2*padding - dilation*(S - 1) - 1)//stride + 1""":
    first = o // (O // groups) * K
    return sum(
        x[b, first + i, y * stride + u * dilation - padding, z * stride + v * dilation - padding] * f[o, i, u, v]
        for i in range(K)
        for u in range(R)
        for v in range(S)
        if 0 <= y * stride + u * dilation - padding < H and 0 <= z * stride + v * dilation - padding < W
    )


@operator("matmul")
def matmul(a: "... m k", b: "... k n") -> "... m n":
    return sum(a[..., m, i] * b[..., i, n] for i in range(K))


@operator
def contraction(a: "b i j k", w: "i o j") -> "b k o":
    return sum(a[b, p, q, k] * w[p, o, q] for p in range(I) for q in range(J))


@operator("scaled_dot_product_attention")
def attention(query: "... q d", key: "... k d", value: "... k v", is_causal=0) -> "... q v":
    scale = 1 / sqrt(D)
    top = max(
        sum(query[..., q, i] * key[..., j, i] for i in range(D)) * scale
        for j in range(K) if is_causal == 0 or j <= q
    )  # fmt: skip
    weight = sum(
        exp(sum(query[..., q, i] * key[..., j, i] for i in range(D)) * scale - top)
        for j in range(K) if is_causal == 0 or j <= q
    )  # fmt: skip
    return sum(
        exp(sum(query[..., q, i] * key[..., j, i] for i in range(D)) * scale - top) * value[..., j, v]
        for j in range(K) if is_causal == 0 or j <= q
    ) / weight  # fmt: skip


@operator("cross_entropy")
def cross_entropy(x: "b c", target: "b") -> "":
    total = 0
    for i in range(B):
        top = max(x[i, j] for j in range(C))
        total += top + log(sum(exp(x[i, j] - top) for j in range(C))) - x[i, target[i]]
    return total / B


@operator
def embedding(index: "b", table: "v d") -> "b d":
    return table[index[b], d]


@operator
def shuffled(x: "b c h w", factor=2) -> "b o=C//(factor*factor) y=H*factor z=W*factor":
    return x[b, (o * factor + y % factor) * factor + z % factor, y // factor, z // factor]


@operator
def transposed(x: "b c n", f: "c o r", stride=1) -> "b o y=(N - 1)*stride + R":
    return sum(
        x[b, i, (y - u) // stride] * f[i, o, u]
        for i in range(C)
        for u in range(R)
        if (y - u) % stride == 0 and 0 <= (y - u) // stride < N
    )


@operator
def products(x: "r n") -> "r":
    return math.prod(x[r, j] for j in range(N))


@operator
def filtered(x: "r n") -> "r n":
    """A recurrence: each round needs the one before, up to the element's own place."""
    state = 0.0
    for j in range(N):
        if j <= n:
            state = 0.5 * state + x[r, j] * abs(state - 1)
    return state


@dataclass
class Case:
    """An operator, torch's function of the same arguments, and a maker of operands and constants."""

    op: Operator
    function: Callable[..., Tensor]
    make: Callable[[Random], tuple[list[Tensor], dict[str, Any]]]
    without_gradient: tuple[int, ...] = ()
    constants: dict[str, Any] = field(default_factory=dict)


def _tensor(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def _rows(random: Random) -> list[int]:
    return [random.randint(1, 4) for _ in range(random.randint(0, 2))] + [random.randint(1, 7)]


def _broadcast(random: Random) -> tuple[list[Tensor], dict[str, Any]]:
    whole = [random.randint(1, 4) for _ in range(3)]
    other = [random.choice([1, size]) for size in whole[random.randint(0, 2) :]]
    return [_tensor(*whole), _tensor(*other).sign() * (0.5 + _tensor(*other).abs())], {}


def _norm(count: int, random: Random) -> tuple[list[Tensor], dict[str, Any]]:
    rows = _rows(random)
    return [_tensor(*rows), *(_tensor(rows[-1]) for _ in range(count))], {}


def _image(random: Random, least: int = 4) -> list[int]:
    return [random.randint(1, 3), random.randint(1, 3), random.randint(least, 8), random.randint(least, 8)]


def _pool(random: Random) -> tuple[list[Tensor], dict[str, Any]]:
    size = random.randint(1, 3)
    return [_tensor(*_image(random))], {
        "kernel_size": size, "stride": random.randint(1, 3), "padding": random.randint(0, size // 2),
    }  # fmt: skip


def _convolution(dims: int, random: Random) -> tuple[list[Tensor], dict[str, Any]]:
    groups, depth, width = random.randint(1, 2), random.randint(1, 2), random.randint(1, 2)
    sizes = [random.randint(5, 7) for _ in range(dims)]
    kernel = [random.randint(1, 3) for _ in range(dims)]
    constants = {
        "stride": random.randint(1, 2), "padding": random.randint(0, 2), "dilation": random.randint(1, 2),
        "groups": groups,
    }  # fmt: skip
    return [_tensor(random.randint(1, 2), groups * depth, *sizes), _tensor(groups * width, depth, *kernel)], constants


def _matrices(random: Random) -> tuple[list[Tensor], dict[str, Any]]:
    m, k, n = (random.randint(1, 5) for _ in range(3))
    left, right = random.choice([((), ()), ((2,), (2,)), ((3, 1), (2,)), ((2,), ())])
    return [_tensor(*left, m, k), _tensor(*right, k, n)], {}


def _attention(random: Random) -> tuple[list[Tensor], dict[str, Any]]:
    q, d, v = (random.randint(1, 4) for _ in range(3))
    causal = random.randint(0, 1)
    k = q if causal else random.randint(1, 4)
    return [_tensor(2, q, d), _tensor(2, k, d), _tensor(2, k, v)], {"is_causal": causal}


def _classes(random: Random) -> tuple[list[Tensor], dict[str, Any]]:
    b, c = random.randint(1, 5), random.randint(2, 6)
    return [_tensor(b, c), torch.randint(c, (b,))], {}


def _filtered(x: Tensor) -> Tensor:
    state, out = torch.zeros(x.shape[0], dtype=x.dtype, device=x.device), []
    for column in x.unbind(1):
        state = 0.5 * state + column * (state - 1).abs()
        out.append(state)
    return torch.stack(out, 1)


def _attend(q: Tensor, k: Tensor, v: Tensor, is_causal: int) -> Tensor:
    return functional.scaled_dot_product_attention(q, k, v, is_causal=bool(is_causal))


CASES: dict[str, Case] = {
    "relu": Case(relu, torch.relu, lambda r: ([_tensor(*_rows(r))], {})),
    "gelu": Case(gelu, functional.gelu, lambda r: ([_tensor(*_rows(r))], {})),
    "add": Case(add, torch.add, _broadcast),
    "mul": Case(mul, torch.mul, _broadcast),
    "div": Case(div, torch.div, _broadcast),
    "softmax": Case(softmax, lambda x: functional.softmax(x, -1), lambda r: ([_tensor(*_rows(r))], {})),
    "log_softmax": Case(log_softmax, lambda x: functional.log_softmax(x, -1), lambda r: ([_tensor(*_rows(r))], {})),
    "layer_norm": Case(layer_norm, lambda x, w, b: functional.layer_norm(x, w.shape, w, b), lambda r: _norm(2, r)),
    "rms_norm": Case(rms_norm, lambda x, w: functional.rms_norm(x, w.shape, w, 1e-6), lambda r: _norm(1, r)),
    "batch_norm": Case(
        batch_norm,
        lambda x, w, b: functional.batch_norm(x, None, None, w, b, training=True),
        lambda r: ([_tensor(*(image := _image(r))), _tensor(image[1]), _tensor(image[1])], {}),
    ),
    "max_pool2d": Case(max_pool2d, lambda x, **c: functional.max_pool2d(x, **c), _pool),
    "avg_pool2d": Case(avg_pool2d, lambda x, **c: functional.avg_pool2d(x, **c), _pool),
    "conv1d": Case(conv1d, lambda x, f, **c: functional.conv1d(x, f, **c), lambda r: _convolution(1, r)),
    "conv2d": Case(conv2d, lambda x, f, **c: functional.conv2d(x, f, **c), lambda r: _convolution(2, r)),
    "matmul": Case(matmul, torch.matmul, _matrices),
    "contraction": Case(
        contraction,
        lambda a, w: torch.einsum("bijk,ioj->bko", a, w),
        lambda r: (
            [_tensor(2, (s := [r.randint(1, 3) for _ in range(4)])[0], s[1], s[2]), _tensor(s[0], s[3], s[1])],
            {},
        ),
    ),
    "attention": Case(attention, _attend, _attention),
    "cross_entropy": Case(cross_entropy, functional.cross_entropy, _classes, without_gradient=(1,)),
    "embedding": Case(
        embedding,
        lambda i, w: w[i.long()],
        lambda r: ([torch.randint(3, (5,)), _tensor(3, 2)], {}),
        without_gradient=(0,),
    ),
    "shuffled": Case(
        shuffled,
        lambda x: functional.pixel_shuffle(x, 2),
        lambda r: ([_tensor(r.randint(1, 2), 8, 2, r.randint(1, 3))], {}),
    ),
    "transposed": Case(
        transposed,
        lambda x, f, stride: functional.conv_transpose1d(x, f, stride=stride),
        lambda r: ([_tensor(2, 2, r.randint(1, 4)), _tensor(2, 3, r.randint(1, 3))], {"stride": r.randint(1, 2)}),
    ),
    "products": Case(products, lambda x: x.prod(1), lambda r: ([_tensor(r.randint(1, 4), r.randint(1, 4))], {})),
    "filtered": Case(filtered, _filtered, lambda r: ([_tensor(2, r.randint(1, 5))], {})),
}
