"""Loops of compiled training steps, and the bytes that they move: ours against those of torch's own compiler.

    PYTHONPATH=tests python evidence/cards/compiled_loops.py [NAME ...] [--verbose]

Inductor decides without a GPU what it would write for one (tests/oracles/inductor.py). Loops are all kernels of the
forward and the backward pass that are no products; bytes are counted once for each tensor that a loop reads or writes.
The rules of `simulation/roofline` were settled while looking at `CASES`. `OTHERS` were compared once afterwards; then
one mistake was mended that they had shown (batch normalization in one-dimensional convolutions), and a rule that had
been dropped was put back (signs of ReLU).
"""

import argparse
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import NamedTuple
from unittest.mock import patch

import torch
from blind_models import Block, VisionTransformer, inverted, token_loss
from gpu_steps import find_workload
from modern_models import Down, Llama, Mixer, Permute, Residual, Shuffled, Squeeze, Windows, head
from torch import Tensor, nn
from torch.nn import functional

from oracles.inductor import InductorLoop, inductor_loops
from presilicon.designs import StepFormats, load_design
from presilicon.records import StepFacts, StepGraph
from presilicon.simulation import OpKernel, executed_ops, launched_kernels
from presilicon.workloads import Workload, capture_workload, classified, from_networks, load_workload, sequences
from presilicon_evidence.reproductions.mlperf import attend_by_hand


class GptWithDropout(nn.Module):
    def __init__(self, width: int = 256, depth: int = 2, words: int = 1000) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Parameter(torch.zeros(128, width))
        self.drop, self.norm = nn.Dropout(0.1), nn.LayerNorm(width)
        self.blocks = nn.ModuleList(Block(width, 4, True) for _ in range(depth))
        self.head = nn.Linear(width, words, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.drop(self.words(tokens) + self.places)
        for block in self.blocks:
            x = x + self.drop(block.attention(block.norm1(x)))
            x = x + self.drop(block.mlp(block.norm2(x)))
        return self.head(self.norm(x))


def convnext() -> nn.Sequential:
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 4, stride=4)]
    for width in (64, 128):
        layers += [nn.Conv2d(64, 128, 2, stride=2)] if width > 64 else []
        for _ in range(2):
            body = (nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), Permute(0, 3, 1, 2))
            first = nn.Conv2d(width, width, 7, padding=3, groups=width), Permute(0, 2, 3, 1), nn.LayerNorm(width)
            layers.append(Residual(*first, *body))
    return nn.Sequential(*layers, *head(128))


def mobilenet() -> nn.Sequential:
    first = [nn.Conv2d(3, 32, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU6()]
    blocks = [Residual(*inverted(32, 32, 1)), Residual(*inverted(32, 32, 1)), inverted(32, 64, 2)]
    return nn.Sequential(*first, *blocks, Residual(*inverted(64, 64, 1)), *head(64, 100))


class Concatenated(Residual):
    def forward(self, x: Tensor) -> Tensor:
        return torch.cat((x, self.layers(x)), dim=1)


def densenet() -> nn.Sequential:
    layers: list[nn.Module] = [nn.Conv2d(3, 32, 3, padding=1, bias=False)]
    width = 32
    for _ in range(2):
        for _ in range(3):
            narrow = nn.BatchNorm2d(width), nn.ReLU(), nn.Conv2d(width, 64, 1, bias=False)
            layers.append(
                Concatenated(*narrow, nn.BatchNorm2d(64), nn.ReLU(), nn.Conv2d(64, 16, 3, padding=1, bias=False))
            )
            width += 16
        halved = nn.Conv2d(width, width // 2, 1, bias=False)
        layers += [nn.BatchNorm2d(width), nn.ReLU(), halved, nn.AvgPool2d(2)]
        width //= 2
    return nn.Sequential(*layers, nn.BatchNorm2d(width), nn.ReLU(), *head(width, 10))


def efficientnet() -> nn.Sequential:
    layers: list[nn.Module] = [nn.Conv2d(3, 32, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(32), nn.SiLU()]
    width = 32
    for outputs, kernel in ((24, 3), (40, 5)):
        for stride in (2, 1):
            inner = 6 * width
            deep = nn.Conv2d(inner, inner, kernel, stride=stride, padding=kernel // 2, groups=inner, bias=False)
            body = [nn.Conv2d(width, inner, 1, bias=False), nn.BatchNorm2d(inner), nn.SiLU(), deep]
            body += [nn.BatchNorm2d(inner), nn.SiLU(), Squeeze(inner, max(8, width // 4))]
            body += [nn.Conv2d(inner, outputs, 1, bias=False), nn.BatchNorm2d(outputs)]
            layers.append(Residual(*body) if stride == 1 else nn.Sequential(*body))
            width = outputs
    return nn.Sequential(*layers, *head(40, 100))


def shufflenet() -> nn.Sequential:
    first = [nn.Conv2d(3, 24, 3, stride=2, padding=1), nn.BatchNorm2d(24), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    second = [nn.Conv2d(24, 116, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(116), nn.ReLU()]
    return nn.Sequential(*first, *second, Shuffled(116), Shuffled(116), *head(116, 100))


class Swin(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patches, self.merge = nn.Conv2d(3, 96, 4, stride=4), nn.Linear(384, 192)
        self.first = nn.Sequential(Windows(96, 3, 0), Windows(96, 3, 1))
        self.second = nn.Sequential(Windows(192, 6, 0), Windows(192, 6, 1))
        self.norm, self.head = nn.LayerNorm(192), nn.Linear(192, 100)

    def forward(self, images: Tensor) -> Tensor:
        x = self.first(self.patches(images).permute(0, 2, 3, 1))
        x = torch.cat([x[:, i::2, j::2] for i in (0, 1) for j in (0, 1)], dim=-1)
        return self.head(self.norm(self.second(self.merge(x))).mean((1, 2)))


class Case(NamedTuple):
    workload: Workload
    batch: int
    by_hand: bool = False
    """Whether attention is written as products, a mask and a softmax."""

    def attention(self) -> AbstractContextManager[object]:
        return (
            patch.object(functional, "scaled_dot_product_attention", attend_by_hand) if self.by_hand else nullcontext()
        )


def network(name: str, *sizes: int) -> Callable[[], nn.Module]:
    """A packaged transformer."""
    return partial(from_networks, f"transformer.{name}", *sizes)


def images(make: Callable[[], nn.Module], batch: int, side: int) -> Case:
    return Case(Workload(name="images", model=make, example=partial(classified, shape=(3, side, side))), batch)


def words(make: Callable[[], nn.Module], batch: int = 8, tokens: int = 128, by_hand: bool = False) -> Case:
    example = partial(sequences, tokens=tokens)
    return Case(
        Workload(name="words", model=make, example=example, loss=token_loss),
        batch,
        by_hand,
    )


def _block(batch: int) -> tuple[Tensor, Tensor]:
    return torch.empty(batch, 1024, 768, device="meta"), torch.empty(batch, 1024, 768, device="meta")


CASES = {
    "perceptron": Case(load_workload("mlp-medium"), 128),
    "digits-cnn": Case(load_workload("digits-cnn"), 64),
    "resnet18": Case(load_workload("resnet18"), 16),
    "gpt": words(network("Gpt", 2, 256, 4, 1000, 128)),
    "gpt, attention by hand": words(network("Gpt", 2, 256, 4, 1000, 128), by_hand=True),
    "gpt with dropout": words(GptWithDropout),
    "gpt, 16 x 1024 tokens": words(network("Gpt", 2, 768, 12, 8192, 1024), 16, 1024),
    "bert": words(network("Bert", 2, 256, 4, 1000, 128)),
    "convnext": images(convnext, 16, 64),
    "mobilenet": images(mobilenet, 16, 64),
    "gpt-block": Case(
        Workload(
            name="block",
            model=network("gpt_block"),
            example=_block,
            loss=functional.mse_loss,
        ),
        16,
    ),
    "alexnet": Case(load_workload("fashion-alexnet"), 64),
    "densenet": images(densenet, 32, 32),
    "efficientnet": images(efficientnet, 16, 96),
    "shufflenet": images(shufflenet, 16, 64),
    "unet": images(lambda: nn.Sequential(Down(64, Down(128, Down(256, None))), *head(64, 10)), 8, 64),
    "llama": words(partial(Llama, 256, 2, 4, 1000)),
    "mixer": images(partial(Mixer, 256, 2), 8, 224),
    "swin": images(Swin, 8, 112),
    "vision transformer": images(partial(VisionTransformer, 192, 2, 3), 8, 224),
}
OTHERS = {
    name: Case(find_workload(name), batch)
    for name, batch in {
        "points": 32, "tabular": 256, "autoencoder": 16, "gates": 8, "sound": 16, "clips": 4, "hourglass": 8,
        "segments": 8, "inverted": 8, "parallel-gpt": 4, "squeezenet": 16, "xception": 4,
    }.items()
}  # fmt: skip


def fill(tensor: Tensor) -> Tensor:
    """A real tensor like one on the meta device."""
    return torch.zeros(tensor.shape, dtype=tensor.dtype)


def theirs(case: Case) -> list[InductorLoop]:
    model = case.workload.model().train()
    inputs, targets = map(fill, case.workload.batch(case.batch))
    with case.attention():
        return inductor_loops(lambda: case.workload.loss(model(inputs), targets))


def ours(graph: StepGraph, launch: str = "compile") -> list[OpKernel]:
    """Kernels of the forward and the backward pass."""
    design = load_design("h200", [f"machine.launch={launch}"], numerics="fp32")
    formats = StepFormats(design.numerics, StepFacts())
    ops = executed_ops(graph, formats, StepFacts())
    kernels = launched_kernels(ops, design.machine, formats)  # type: ignore[arg-type]
    return [kernel for kernel in kernels if kernel.op.phase != "update"]


def loop_sizes(kernels: list[OpKernel]) -> list[float]:
    """Bytes of each loop: of launched kernels that are no products, and of the extras of all."""
    alone = [kernel.size_bytes for kernel in kernels if kernel.launches and kernel.op.gemm is None]
    return alone + [extra.size_bytes for kernel in kernels for extra in kernel.extras]


def compare(name: str, case: Case, verbose: bool) -> tuple[float, float]:
    """Print the loops of a step and their bytes; returns how far ours are off."""
    with case.attention():
        kernels = ours(capture_workload(case.workload, batch_size=case.batch))
    loops, sizes = theirs(case), loop_sizes(kernels)
    total = sum(loop.size_bytes for loop in loops)
    count_error, size_error = len(sizes) / len(loops) - 1, sum(sizes) / total - 1
    print(
        f"{name:24}{len(loops):8}{len(sizes):6} {count_error:+5.0%}"
        f"{total / 1e6:12.1f}{sum(sizes) / 1e6:10.1f} {size_error:+5.0%}",
        flush=True,
    )
    if verbose:
        for loop in loops:
            print(f"  Inductor {'backward' if loop.is_backward else 'forward':9}{loop.size_bytes:12} {loop.nodes}")
        for kernel in kernels:
            if kernel.launches or kernel.extras:
                extras = [int(extra.size_bytes) for extra in kernel.extras]
                print(f"  ours     {kernel.op.phase:12}{int(kernel.size_bytes):12} {kernel.op.name} {extras or ''}")
    return count_error, size_error


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="networks; by default all")
    parser.add_argument("--verbose", action="store_true", help="list the loops")
    options = parser.parse_args()
    print(f"{'':24}{'loops':>8}{'ours':>6}{'':>6}{'MB':>12}{'ours':>10}")
    for cases in (CASES, OTHERS):
        chosen = {name: case for name, case in cases.items() if not options.names or name in options.names}
        errors = [compare(name, case, options.verbose) for name, case in chosen.items()]
        for what, found in zip(("loops", "bytes"), zip(*errors, strict=True), strict=False):
            print(f"mean error of {what}: {sum(map(abs, found)) / len(found):.1%}")


if __name__ == "__main__":
    main()
