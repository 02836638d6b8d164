"""Networks from the literature, for simulation: with the shapes of their batches, but without data."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import Any

from presilicon.base import torch
from presilicon.workloads.workload import Workload, adamw, sgd


def from_networks(name: str, *args: Any, **kwargs: Any) -> Any:
    """Call a function of `presilicon.workloads.networks`, named `module.function`.

    Those modules import torch and this one must not, so that workloads are listed without loading torch.

    >>> from_networks("perceptron.perceptron", widths=(8, 4, 2))[0]
    Linear(in_features=8, out_features=4, bias=True)
    """
    module, _, function = name.partition(".")
    return getattr(import_module(f"presilicon.workloads.networks.{module}"), function)(*args, **kwargs)


def classified(size: int, shape: tuple[int, ...]) -> tuple[torch.Tensor, torch.Tensor]:
    """A meta batch of floating-point inputs of a shape, each with a class index.

    >>> [tuple(part.shape) for part in classified(2, (3, 224, 224))]
    [(2, 3, 224, 224), (2,)]
    """
    return torch.empty(size, *shape, device="meta"), torch.empty(size, dtype=torch.int64, device="meta")


def paired(size: int, shape: tuple[int, ...], target: tuple[int, ...]) -> tuple[torch.Tensor, torch.Tensor]:
    """A meta batch of floating-point inputs and targets of these shapes."""
    return torch.empty(size, *shape, device="meta"), torch.empty(size, *target, device="meta")


def segmented(size: int, channels: int, sizes: tuple[int, ...]) -> tuple[torch.Tensor, torch.Tensor]:
    """A meta batch of floating-point images or volumes, and a class index at each position."""
    classes = torch.empty(size, *sizes, dtype=torch.int64, device="meta")
    return torch.empty(size, channels, *sizes, device="meta"), classes


def sequences(size: int, tokens: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A meta batch of word indices, and a word index to predict at each position."""
    words = torch.empty(size, tokens, dtype=torch.int64, device="meta")
    return words, words.clone()


_IMAGENET_SGD = partial(sgd, learning_rate=0.1, momentum=0.9, weight_decay=1e-4)
_DCGAN_ADAM = partial(adamw, learning_rate=2e-4, betas=(0.5, 0.999), weight_decay=0.0)
_TOKEN_LOSS = partial(from_networks, "transformer.token_loss")
_GAN_LOSS = partial(from_networks, "dcgan.adversarial_loss")


def _images(name: str, network: str, description: str, batch_size: int, side: int = 224, **rest: Any) -> Workload:
    return Workload(
        name=name,
        description=f"{description}, {side}x{side} images",
        model=partial(from_networks, network),
        example=partial(classified, shape=(3, side, side)),
        optimizer=_IMAGENET_SGD,
        batch_size=batch_size,
        **rest,
    )


def _language(name: str, network: str, description: str, batch_size: int, tokens: int) -> Workload:
    return Workload(
        name=name,
        description=f"{description}, sequences of {tokens} tokens",
        model=partial(from_networks, f"transformer.{network}"),
        example=partial(sequences, tokens=tokens),
        loss=_TOKEN_LOSS,
        optimizer=adamw,
        batch_size=batch_size,
    )


def unet(dimensions: int, side: int, normalization: str = "batch") -> Workload:
    """A U-Net for images (2 dimensions, one channel) or volumes (3 dimensions, three channels) with sides of `side`.

    >>> unet(2, 512).description
    'U-Net for images, 512x512'
    """
    name = f"unet{dimensions}d"
    return Workload(
        name=name,
        description=f"U-Net for {'images' if dimensions == 2 else 'volumes'}, {'x'.join([str(side)] * dimensions)}",
        model=partial(from_networks, f"unet.{name}", normalization=normalization),
        example=partial(segmented, channels=1 if dimensions == 2 else 3, sizes=(side,) * dimensions),
        loss=partial(from_networks, "unet.place_loss"),
        optimizer=partial(sgd, learning_rate=0.01, momentum=0.99),
        batch_size=1,
    )


def _perceptron(size: str, widths: tuple[int, ...]) -> Workload:
    return Workload(
        name=f"mlp-{size}",
        description=f"multilayer perceptron {'-'.join(map(str, widths))}",
        model=partial(from_networks, "perceptron.perceptron", widths),
        example=partial(classified, shape=widths[:1]),
        batch_size=128,
    )


PUBLISHED = (
    _images("alexnet", "alexnet.alexnet", "AlexNet", 256),
    _images("vgg16", "vgg.vgg16", "VGG-16", 64),
    _images("resnet18", "resnet.resnet18", "ResNet-18", 256),
    _images("resnet50", "resnet.resnet50", "ResNet-50", 256),
    _images("resnet152", "resnet.resnet152", "ResNet-152", 64),
    _images("densenet201", "densenet.densenet201", "DenseNet-201", 64),
    _images(
        "inception-v3",
        "inception.inception_v3",
        "Inception v3 with its auxiliary classifier",
        128,
        side=299,
        loss=partial(from_networks, "inception.inception_loss"),
    ),
    _images("reversible-resnet", "reversible.reversible_resnet", "reversible ResNet", 128, side=32),
    Workload(
        name="dcgan-generator",
        description="a step of DCGAN's generator, through the discriminator, 64x64 images",
        model=partial(from_networks, "dcgan.dcgan_generator_step"),
        example=partial(paired, shape=(100, 1, 1), target=(1,)),
        loss=_GAN_LOSS,
        optimizer=_DCGAN_ADAM,
        batch_size=128,
    ),
    Workload(
        name="dcgan-discriminator",
        description="a step of DCGAN's discriminator on one batch, real or made, 64x64 images",
        model=partial(from_networks, "dcgan.dcgan_discriminator"),
        example=partial(paired, shape=(3, 64, 64), target=(1,)),
        loss=_GAN_LOSS,
        optimizer=_DCGAN_ADAM,
        batch_size=128,
    ),
    unet(2, 1024),
    unet(3, 150),
    _language("bert-base", "bert_base", "BERT-Base with its masked-language head", 32, 128),
    _language("bert-large", "bert_large", "BERT-Large with its masked-language head", 32, 128),
    _language("gpt2", "gpt2", "GPT-2 small", 8, 1024),
    Workload(
        name="gpt-block",
        description="one block of GPT-2 small on its own, sequences of 1024 tokens",
        model=partial(from_networks, "transformer.gpt_block"),
        example=partial(paired, shape=(1024, 768), target=(1024, 768)),
        loss=partial(from_networks, "transformer.regression_loss"),
        optimizer=adamw,
        batch_size=8,
    ),
    Workload(
        name="lstm",
        description="a language model of two LSTM layers, sequences of 35 words",
        model=partial(from_networks, "recurrent.lstm_language_model"),
        example=partial(sequences, tokens=35),
        loss=_TOKEN_LOSS,
        optimizer=partial(sgd, learning_rate=1.0, momentum=0.0),
        batch_size=20,
    ),
    _perceptron("small", (784, 256, 128, 10)),
    _perceptron("medium", (784, 1024, 1024, 1024, 10)),
    _perceptron("large", (784, 4096, 4096, 4096, 4096, 10)),
)
"""Networks with optimizers and batch sizes in common use; the batch size can be changed."""
