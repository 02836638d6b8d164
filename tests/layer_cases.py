"""Layers of torch with inputs, for tests that train each in two ways."""

import torch
from torch import nn
from torch.nn import functional

TURNS = {
    "t_": lambda x: x.t_(),
    "transpose_": lambda x: x.transpose_(0, 1),
    "swapaxes_": lambda x: x.swapaxes_(0, 1),
    "swapdims_": lambda x: x.swapdims_(0, 1),
    "unsqueeze_": lambda x: x.unsqueeze_(1),
    "squeeze_": lambda x: x.unsqueeze_(0).squeeze_(),
    "squeeze_ of a dimension": lambda x: x.unsqueeze_(0).squeeze_(0),
    "as_strided_": lambda x: x.as_strided_((2, 3), (1, 2)),
    "written after": lambda x: x.transpose_(0, 1).mul_(2),
    "written before": lambda x: x.mul_(2).t_().relu_(),
}


class Do(nn.Module):
    """A function of layers and inputs."""

    def __init__(self, function, *layers):
        super().__init__()
        self.function, self.layers = function, nn.ModuleList(layers)

    def forward(self, *inputs):
        return self.function(self.layers, *inputs)


class First(nn.Module):
    """The first output of a layer."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, *inputs):
        return self.layer(*inputs)[0]


_G = torch.Generator().manual_seed(5)
ROWS, SEQUENCES = torch.randn(4, 8, generator=_G), torch.randn(4, 6, 8, generator=_G)
SPACES = {count: torch.randn(2, 4, *[size] * count, generator=_G) for count, size in ((1, 12), (2, 8), (3, 4))}
IDS, CLASSES = torch.randint(0, 10, (4, 6), generator=_G), torch.randint(0, 8, (4,), generator=_G)
TARGETS = torch.randn(4, 8, generator=_G)


def _packed(layer):
    def call(layers, x):
        packed = nn.utils.rnn.pack_padded_sequence(x, [6, 5, 3, 2], batch_first=True)
        return nn.utils.rnn.pad_packed_sequence(layers[0](packed)[0], batch_first=True)[0]

    return Do(call, layer)


def _frozen(norm):
    return nn.Sequential(norm.eval())


def _convolutions():
    for count, x in SPACES.items():
        conv, transposed = getattr(nn, f"Conv{count}d"), getattr(nn, f"ConvTranspose{count}d")
        yield f"Conv{count}d", lambda conv=conv: conv(4, 6, 3), x
        yield f"Conv{count}d groups", lambda conv=conv: conv(4, 6, 3, stride=2, padding=1, groups=2), x
        yield f"Conv{count}d circular", lambda conv=conv: conv(4, 6, 3, padding=1, padding_mode="circular"), x
        yield f"Conv{count}d dilation", lambda conv=conv: conv(4, 6, 2, dilation=2), x
        yield f"ConvTranspose{count}d", lambda transposed=transposed: transposed(4, 6, 3), x
        yield f"ConvTranspose{count}d stride", lambda transposed=transposed: transposed(4, 6, 3, stride=2), x
        for name, options in (("BatchNorm", {"momentum": None}), ("InstanceNorm", {"track_running_stats": True})):
            norm = getattr(nn, f"{name}{count}d")
            yield f"{name}{count}d frozen", lambda norm=norm: _frozen(norm(4, affine=True, track_running_stats=True)), x
            yield f"{name}{count}d first", lambda norm=norm: norm(4, affine=True), x
            yield (
                f"{name}{count}d", lambda conv=conv, norm=norm, options=options: nn.Sequential(
                    conv(4, 4, 3), norm(4, affine=True, **options)), x,
            )  # fmt: skip
        after = {"MaxPool": (2,), "AvgPool": (2,), "AdaptiveAvgPool": (2,), "AdaptiveMaxPool": (2,), "LPPool": (2, 2)}
        after |= {f"{name}Pad": (1,) for name in ("Reflection", "Replication", "Circular", "Zero")} | {
            "Dropout": (0.3,)
        }
        for name, arguments in after.items():
            layer = getattr(nn, f"{name}{count}d")
            yield (
                f"{name}{count}d", lambda conv=conv, layer=layer, arguments=arguments: nn.Sequential(
                    conv(4, 4, 1), layer(*arguments)), x,
            )  # fmt: skip


def _after_a_convolution():
    layers = {
        "GroupNorm": lambda: nn.GroupNorm(2, 4), "LocalResponseNorm": lambda: nn.LocalResponseNorm(3),
        "Softmax2d": nn.Softmax2d, "FractionalMaxPool2d": lambda: nn.FractionalMaxPool2d(2, output_size=4),
        "Upsample": lambda: nn.Upsample(scale_factor=2), "Flatten": nn.Flatten, "Unfold": lambda: nn.Unfold(2),
        "Upsample bilinear": lambda: nn.Upsample(scale_factor=2, mode="bilinear"),
        "Upsample bicubic": lambda: nn.Upsample(size=5, mode="bicubic"), "PixelShuffle": lambda: nn.PixelShuffle(2),
        "PixelUnshuffle": lambda: nn.PixelUnshuffle(2), "ChannelShuffle": lambda: nn.ChannelShuffle(2),
        "Fold": lambda: nn.Sequential(nn.Unfold(2), nn.Fold((8, 8), 2)),
    }  # fmt: skip
    for name, layer in layers.items():
        yield name, lambda layer=layer: nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), layer()), SPACES[2]


def _after_a_product():
    names = "ReLU6 ReLU ELU SELU CELU GELU SiLU Mish Softplus Softsign Softshrink Hardshrink Hardtanh Hardsigmoid "
    names += "Hardswish LeakyReLU LogSigmoid PReLU RReLU Sigmoid Tanh Tanhshrink GLU Dropout AlphaDropout "
    names += "FeatureAlphaDropout"
    layers = {name: getattr(nn, name) for name in names.split()}
    layers |= {"ReLU in place": lambda: nn.ReLU(inplace=True), "Threshold": lambda: nn.Threshold(0.1, 0.2)}
    layers |= {name: lambda name=name: getattr(nn, name)(-1) for name in ("Softmax", "LogSoftmax", "Softmin")}
    layers |= {"Unflatten": lambda: nn.Unflatten(1, (2, 4)), "RMSNorm": lambda: nn.RMSNorm(8)}
    layers |= {"LayerNorm": lambda: nn.LayerNorm(8), "Identity": nn.Identity}
    for name, layer in layers.items():
        yield name, lambda layer=layer: nn.Sequential(nn.Linear(8, 8), layer()), ROWS
    calls = {
        "sort": lambda x: x.sort()[0], "topk": lambda x: x.topk(3)[0], "cumsum": lambda x: x.cumsum(-1),
        "masked_select": lambda x: x[ROWS > 0], "roll": lambda x: x.roll(1, 1),
        "fft": lambda x: torch.fft.rfft(x).abs(),
        "index_put": lambda x: x.index_put((CLASSES % 4,), ROWS),
        "cosine": lambda x: functional.cosine_similarity(x, ROWS),
        "complex": lambda x: torch.view_as_real(torch.view_as_complex(x.unflatten(-1, (4, 2))) * 1j),
        "distance": lambda x: functional.pairwise_distance(x, ROWS), **TURNS,
    }  # fmt: skip
    for name, call in calls.items():
        yield name, lambda call=call: Do(lambda layers, x, call=call: call(layers[0](x)), nn.Linear(8, 8)), ROWS


def _losses():
    rows, signs, shares = TARGETS, TARGETS.sign(), TARGETS.sigmoid()
    calls = {
        "cross_entropy": lambda z: functional.cross_entropy(z, CLASSES, label_smoothing=0.1),
        "nll": lambda z: functional.nll_loss(z.log_softmax(-1), CLASSES), "l1": lambda z: functional.l1_loss(z, rows),
        "mse": lambda z: functional.mse_loss(z, rows), "huber": lambda z: functional.huber_loss(z, rows),
        "smooth_l1": lambda z: functional.smooth_l1_loss(z, rows),
        "bce": lambda z: functional.binary_cross_entropy(z.sigmoid(), shares),
        "bce of logits": lambda z: functional.binary_cross_entropy_with_logits(z, shares),
        "kl": lambda z: functional.kl_div(z.log_softmax(-1), rows.softmax(-1), reduction="batchmean"),
        "poisson": lambda z: functional.poisson_nll_loss(z, rows.abs()),
        "gaussian": lambda z: functional.gaussian_nll_loss(z, rows, rows.abs() + 0.1),
        "hinge": lambda z: functional.hinge_embedding_loss(z, signs),
        "margin": lambda z: functional.multi_margin_loss(z, CLASSES),
        "soft margin": lambda z: functional.soft_margin_loss(z, signs),
        "labels": lambda z: functional.multilabel_soft_margin_loss(z, (rows > 0).float()),
        "triplet": lambda z: functional.triplet_margin_loss(z, rows, rows.flip(0)),
        "cosine embedding": lambda z: functional.cosine_embedding_loss(z, rows, signs[:, 0]),
        "ranking": lambda z: functional.margin_ranking_loss(z, rows, signs),
        "ctc": lambda z: functional.ctc_loss(
            z.log_softmax(-1)[:, None].expand(4, 2, 8), torch.tensor([[1, 2], [3, 4]]), torch.tensor([4, 4]),
            torch.tensor([2, 2])),
    }  # fmt: skip
    for name, call in calls.items():
        yield (
            f"loss {name}",
            lambda call=call: Do(lambda layers, x, call=call: call(layers[0](x)), nn.Linear(8, 8)),
            ROWS,
        )


def _recurrent():
    for cls in (nn.RNN, nn.GRU, nn.LSTM):
        for options in (
            {}, {"batch_first": True}, {"bidirectional": True}, {"num_layers": 2, "dropout": 0.3}, {"bias": False},
            {"batch_first": True, "bidirectional": True, "num_layers": 2},
        ):  # fmt: skip
            name = " ".join([cls.__name__, *options])
            yield name, lambda cls=cls, options=options: First(cls(8, 5, **options)), SEQUENCES
        yield f"{cls.__name__} unbatched", lambda cls=cls: First(cls(8, 5)), SEQUENCES[0]
        yield f"{cls.__name__} packed", lambda cls=cls: _packed(cls(8, 5, batch_first=True)), SEQUENCES
    yield "RNN relu", lambda: First(nn.RNN(8, 5, nonlinearity="relu")), SEQUENCES
    yield "LSTM projected", lambda: First(nn.LSTM(8, 5, proj_size=3)), SEQUENCES
    yield "RNNCell", lambda: nn.RNNCell(8, 5), ROWS
    yield "GRUCell", lambda: nn.GRUCell(8, 5), ROWS
    yield "LSTMCell", lambda: First(nn.LSTMCell(8, 5)), ROWS


def _others():
    yield "Linear", lambda: nn.Linear(8, 3), ROWS
    yield "Linear double", lambda: nn.Linear(8, 3).double(), ROWS.double()
    yield "Linear bfloat16", lambda: nn.Linear(8, 3).bfloat16(), ROWS.bfloat16()
    yield "Bilinear", lambda: nn.Bilinear(8, 8, 3), (ROWS, TARGETS)
    yield "weight_norm", lambda: nn.utils.parametrizations.weight_norm(nn.Linear(8, 3)), ROWS
    yield "spectral_norm", lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(8, 3)), ROWS
    images = SPACES[2].to(memory_format=torch.channels_last)
    yield "channels_last", lambda: nn.Conv2d(4, 6, 3).to(memory_format=torch.channels_last), images
    for name, options in {"": {}, " padded": {"padding_idx": 1}, " normed": {"max_norm": 1.0}}.items():
        yield f"Embedding{name}", lambda options=options: nn.Embedding(10, 8, **options), IDS
    yield "Embedding scaled", lambda: nn.Embedding(10, 8, scale_grad_by_freq=True), IDS
    for mode in ("sum", "mean", "max"):
        yield f"EmbeddingBag {mode}", lambda mode=mode: nn.EmbeddingBag(10, 8, mode=mode), IDS
    yield "MultiheadAttention", lambda: Do(_attend, nn.MultiheadAttention(8, 2)), SEQUENCES
    dropped = {"dropout": 0.1, "batch_first": True}
    yield "MultiheadAttention dropout", lambda: Do(_attend, nn.MultiheadAttention(8, 2, **dropped)), SEQUENCES
    yield "TransformerEncoderLayer", lambda: nn.TransformerEncoderLayer(8, 2, 16), SEQUENCES
    yield "TransformerDecoderLayer", lambda: nn.TransformerDecoderLayer(8, 2, 16), (SEQUENCES, SEQUENCES + 1)
    yield "Transformer", lambda: nn.Transformer(8, 2, 1, 1, 16), (SEQUENCES, SEQUENCES + 1)
    yield "MaxUnpool2d", lambda: Do(_unpooled, nn.Conv2d(4, 4, 1)), SPACES[2]
    yield "AdaptiveLogSoftmax", lambda: Do(_adaptive, nn.AdaptiveLogSoftmaxWithLoss(8, 10, [4, 7])), ROWS
    yield "grid_sample", lambda: Do(_sampled, nn.Conv2d(4, 4, 1)), SPACES[2]


def _attend(layers, x):
    return layers[0](x, x, x)[0]


def _unpooled(layers, x):
    return functional.max_unpool2d(*functional.max_pool2d(layers[0](x), 2, return_indices=True), 2)


def _adaptive(layers, x):
    return layers[0](x, CLASSES).loss


def _sampled(layers, x):
    return functional.grid_sample(layers[0](x), x[:, :2].permute(0, 2, 3, 1).tanh(), align_corners=False)


QUICK = (
    "BatchNorm2d frozen",
    *("BatchNorm1d first", "InstanceNorm2d first", "BatchNorm2d", "EmbeddingBag sum", "EmbeddingBag max", "complex"),
    *("RNN batch_first", "GRU batch_first", "LSTM batch_first", "GRU packed", "Conv2d groups", "ConvTranspose2d"),
    *("LayerNorm", "PReLU", "Dropout", "masked_select", "Embedding normed", "MaxUnpool2d", "spectral_norm"),
    *("MultiheadAttention", "Linear bfloat16", "loss cross_entropy", "loss ctc", *TURNS),
)


def layer_cases():
    """Name, function that makes the layer, and inputs, of each case."""
    for group in (_convolutions, _after_a_convolution, _after_a_product, _losses, _recurrent, _others):
        for name, make, inputs in group():
            yield name, make, inputs if isinstance(inputs, tuple) else (inputs,)
