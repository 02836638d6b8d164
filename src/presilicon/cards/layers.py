"""Layers that are measured on a card: what each is made of, and how it is built."""

from collections.abc import Callable, Iterable
from math import prod
from typing import Any

import torch
from msgspec import Struct
from torch import Tensor, nn
from torch.nn import functional

from presilicon.records import Convolution

Shape = tuple[int, ...]


class Layer(Struct, frozen=True, kw_only=True):
    """One layer of the suite: a name in `LAYERS`, its arguments, the shapes of its inputs."""

    name: str
    arguments: dict[str, Any] = {}
    shapes: tuple[Shape, ...]
    channels_last: bool = False
    flops: float = 0.0
    """Of its product, forward; 0 for other layers."""

    def build(self) -> nn.Module:
        """The layer as a module."""
        made = LAYERS[self.name](**self.arguments)
        return made if isinstance(made, nn.Module) else Apply(made)

    @property
    def kind(self) -> tuple[str, ...]:
        """Layers of one kind draw similar power: a name, a function, whether it is grouped, and the layout."""
        groups, inputs = self.arguments.get("groups", 1), self.arguments.get("in_channels", 1)
        grouped = "depthwise" if groups == inputs > 1 else "grouped" if groups > 1 else ""
        function = str(self.arguments.get("name", self.arguments.get("kind", self.arguments.get("dims", ""))))
        return self.name, function, grouped, "channels-last" if self.channels_last else ""

    @property
    def elements(self) -> int:
        """Elements of its largest input."""
        return max(torch.Size(shape).numel() for shape in self.shapes)

    @property
    def is_product(self) -> bool:
        """Whether its gradients of input and weight are products of their own."""
        return self.name in _PRODUCTS

    @property
    def updates(self) -> bool:
        """Whether an optimizer's update of its parameters is measured, and nothing else."""
        return self.name == "parameters"

    def optimizer(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        """The optimizer of a layer that `updates`, as it can be captured in a graph on a card."""
        kind, fused, parameters = self.arguments["optimizer"], self.arguments["fused"], list(parameters)
        options: dict[str, Any] = {"lr": 1e-3, "fused": fused, "foreach": not fused}
        options |= {"momentum": 0.9} if kind == "SGD" else {"capturable": parameters[0].is_cuda}
        made: torch.optim.Optimizer = getattr(torch.optim, kind)(parameters, **options)
        return made

    def plain_optimizer(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        """The same optimizer, updating one tensor at a time."""
        kind = self.arguments["optimizer"]
        options = {"momentum": 0.9} if kind == "SGD" else {}
        made: torch.optim.Optimizer = getattr(torch.optim, kind)(parameters, lr=1e-3, foreach=False, **options)
        return made

    @property
    def wants_positive(self) -> bool:
        """Whether its input must be above 0."""
        return self.arguments.get("name") == "rsqrt"

    @property
    def takes_indices(self) -> bool:
        """Whether its input are whole numbers, which have no gradient."""
        return self.name == "embedding"


class Apply(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Tensor) -> Tensor:
        """The function's result."""
        return self.function(*inputs)


class _Recurrent(nn.Module):
    """A recurrent layer without its last state."""

    def __init__(self, kind: str, inputs: int, width: int, layers: int) -> None:
        super().__init__()
        self.cells = getattr(nn, kind)(inputs, width, layers, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        """The outputs of all time steps."""
        return self.cells(x)[0]  # type: ignore[no-any-return]


def _function(name: str, **options: Any) -> Callable[..., Tensor]:
    if hasattr(functional, name):
        return lambda *inputs: getattr(functional, name)(*inputs, **options)
    return lambda *inputs: getattr(torch, name)(*inputs, **options)


def _attention(causal: bool) -> Callable[..., Tensor]:
    return lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, is_causal=causal)


def _loss(classes: int) -> Callable[[Tensor], Tensor]:
    return lambda x: functional.cross_entropy(x, torch.zeros(len(x), dtype=torch.long, device=x.device))


def _transposed(*dims: int) -> Callable[[Tensor], Tensor]:
    return lambda x: x.permute(*dims).contiguous()


def _windows(side: int) -> Callable[[Tensor], Tensor]:
    def cut(x: Tensor) -> Tensor:
        batch, height, width, channels = x.shape
        parts = x.view(batch, height // side, side, width // side, side, channels)
        return parts.permute(0, 1, 3, 2, 4, 5).reshape(-1, side * side, channels)

    return cut


def _shuffle(groups: int) -> Callable[[Tensor], Tensor]:
    def shuffle(x: Tensor) -> Tensor:
        batch, channels, height, width = x.shape
        return x.view(batch, groups, channels // groups, height, width).transpose(1, 2).reshape(x.shape)

    return shuffle


class _Mixing(nn.Module):
    """A linear layer over the second to last axis, as a mixer's over its tokens."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, outputs, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """The transposed product."""
        return self.linear(x.transpose(1, 2)).transpose(1, 2)  # type: ignore[no-any-return]


class _Parameters(nn.Module):
    """Parameters of one size."""

    def __init__(self, count: int, size: int, **_: Any) -> None:
        super().__init__()
        self.tensors = nn.ParameterList([nn.Parameter(torch.zeros(size)) for _ in range(count)])

    def forward(self, x: Tensor) -> Tensor:
        """A number that depends on all of them."""
        return sum((tensor.mean() for tensor in self.tensors), x.mean())


def _cast(x: Tensor) -> Tensor:
    return x.to(torch.bfloat16 if x.dtype == torch.float32 else torch.float32)


class _Scale(nn.Module):
    """A factor for every channel."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.ones(shape))

    def forward(self, x: Tensor) -> Tensor:
        """The scaled input."""
        return x * self.factor


class _ChannelBias(nn.Module):
    """A bias for every channel, as it is added after a convolution."""

    def __init__(self, channels: int, dims: int) -> None:
        super().__init__()
        self.bias, self._dims = nn.Parameter(torch.zeros(channels)), dims

    def forward(self, x: Tensor) -> Tensor:
        """The biased input."""
        return x + self.bias.view(-1, *(1,) * self._dims)


def _gate(dim: int) -> Callable[[Tensor], Tensor]:
    def gate(x: Tensor) -> Tensor:
        signal, control = x.chunk(2, dim)
        return torch.tanh(signal) * torch.sigmoid(control)

    return gate


LAYERS: dict[str, Callable[..., Any]] = {
    "linear": nn.Linear,
    "mixing": _Mixing,
    "matmul": lambda: torch.matmul,
    "convolution": lambda dims, **options: getattr(nn, f"Conv{dims}d")(**options, bias=False),
    "transposed-convolution": lambda dims, **options: getattr(nn, f"ConvTranspose{dims}d")(**options, bias=False),
    "biased-convolution": nn.Conv2d,
    "batch-norm": lambda dims, features: getattr(nn, f"BatchNorm{dims}d")(features),
    "layer-norm": nn.LayerNorm,
    "group-norm": nn.GroupNorm,
    "rms-norm": nn.RMSNorm,
    "function": _function,
    "attention": _attention,
    "loss": _loss,
    "transpose": lambda dims: _transposed(*dims),
    "windows": _windows,
    "shuffle": _shuffle,
    "scale": _Scale,
    "channel-bias": _ChannelBias,
    "gate": _gate,
    "sum": lambda dim: lambda x: x.sum(dim),
    "embedding": nn.Embedding,
    "recurrent": _Recurrent,
    "pool": lambda kind, **options: getattr(nn, kind)(**options),
    "cat": lambda dim: lambda *inputs: torch.cat(inputs, dim),
    "mean": lambda dims: lambda x: x.mean(dims),
    "parameters": _Parameters,
    "cast": lambda: _cast,
    "roll": lambda by: lambda x: torch.roll(x, (by, by), (1, 2)),
}
"""Layers by name: functions that make a module, or a function of tensors."""
_PRODUCTS = frozenset({"linear", "mixing", "convolution", "transposed-convolution", "biased-convolution"})


def convolution_layer(convolution: Convolution, *, channels_last: bool) -> Layer:
    """A convolution of a step as a layer; lines have one layout only."""
    dims = len(convolution.kernel)
    arguments: dict[str, Any] = {
        "dims": dims, "in_channels": convolution.in_channels, "out_channels": convolution.out_channels,
        "kernel_size": convolution.kernel, "stride": convolution.stride, "padding": convolution.padding,
        "dilation": convolution.dilation, "groups": convolution.groups,
    }  # fmt: skip
    if convolution.transposed:
        arguments["output_padding"] = tuple(
            out - ((before - 1) * stride - 2 * padding + dilation * (taps - 1) + 1)
            for out, before, stride, padding, dilation, taps in zip(
                convolution.output_size, convolution.input_size, convolution.stride, convolution.padding,
                convolution.dilation, convolution.kernel, strict=True,
            )
        )  # fmt: skip
    positions = prod(convolution.input_size if convolution.transposed else convolution.output_size)
    macs = convolution.batch * positions * prod(convolution.kernel)
    macs *= convolution.in_channels // convolution.groups * convolution.out_channels
    return Layer(
        name="transposed-convolution" if convolution.transposed else "convolution", arguments=arguments,
        shapes=((convolution.batch, convolution.in_channels, *convolution.input_size),),
        channels_last=channels_last and dims > 1, flops=2.0 * macs,
    )  # fmt: skip
