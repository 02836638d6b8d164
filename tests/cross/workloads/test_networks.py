"""The networks of the literature: parameters against the published counts, FLOPs against torch's own counter."""

from collections import Counter
from functools import cache
from typing import NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from presilicon.designs import load_design
from presilicon.records import StepGraph
from presilicon.simulation import simulate
from presilicon.workloads import Reversible, capture_workload, load_workload, workload_names
from presilicon.workloads.networks.dcgan import dcgan_generator

BATCH = 2


class Published(NamedTuple):
    parameters: int
    output: tuple[int, ...]
    """Shape of the output for a batch of two."""
    state: int
    """Numbers that the optimizer keeps for each parameter."""


PUBLISHED = {
    "alexnet": Published(61_100_840, (2, 1000), 1),
    "vgg16": Published(138_357_544, (2, 1000), 1),
    "resnet18": Published(11_689_512, (2, 1000), 1),
    "resnet50": Published(25_557_032, (2, 1000), 1),
    "resnet152": Published(60_192_808, (2, 1000), 1),
    "densenet201": Published(20_013_928, (2, 1000), 1),
    # The paper counts neither batch normalization (two for each of 2336 channels) nor biases of up-convolutions.
    "unet3d": Published(19_069_955 + 2 * 2336 + 896, (2, 3, 60, 60, 60), 1),
    # The usual count for two classes is without batch normalization (two for each of 5888 channels).
    "unet2d": Published(31_030_658 + 2 * 5888, (2, 2, 836, 836), 1),
    "inception-v3": Published(27_161_264, (2, 1000), 1),
    "dcgan-generator": Published(3_576_704, (2, 1), 2),
    "dcgan-discriminator": Published(2_765_568, (2, 1), 2),
    "bert-base": Published(109_514_298, (2, 128, 30522), 2),
    "bert-large": Published(335_174_458, (2, 128, 30522), 2),
    "gpt2": Published(124_439_808, (2, 1024, 50257), 2),
    # 12 width^2 of weights, 9 width of their biases and 4 width of two normalizations.
    "gpt-block": Published(12 * 768**2 + 13 * 768, (2, 1024, 768), 2),
    # An embedding, an output layer, and per layer four gates of two matrices and two biases.
    "lstm": Published(2 * 10_000 * 650 + 10_000 + 2 * 4 * (2 * 650**2 + 2 * 650), (2, 35, 10_000), 0),
    "mlp-small": Published(785 * 256 + 257 * 128 + 129 * 10, (2, 10), 1),
    "mlp-medium": Published(785 * 1024 + 2 * 1025 * 1024 + 1025 * 10, (2, 10), 1),
    "mlp-large": Published(785 * 4096 + 3 * 4097 * 4096 + 4097 * 10, (2, 10), 1),
    # A stem, two convolutions between stages, nine blocks of four half-wide convolutions and norms, a classifier.
    "reversible-resnet": Published(
        9 * (3 * 64 + 64 * 128 + 128 * 256)
        + sum(3 * 4 * (9 * half**2 + 2 * half) for half in (32, 64, 128))
        + 257 * 10,
        (2, 10),
        1,
    ),
}

every_network = pytest.mark.parametrize("name", PUBLISHED)


@cache
def model_of(name: str) -> nn.Module:
    with torch.device("meta"):
        model: nn.Module = load_workload(name).model()
    return model


class Plain(nn.Module):
    """A reversible chain that stores what any network stores: torch's counter cannot look into the other one."""

    def __init__(self, chain: Reversible) -> None:
        super().__init__()
        self.blocks = chain.couplings

    def forward(self, x: Tensor) -> Tensor:
        x1, x2 = x.chunk(2, dim=1)
        for block in self.blocks:
            x1, x2 = block(x1, x2)
        return torch.cat([x1, x2], dim=1)


def _without_recomputation(model: nn.Module) -> nn.Module:
    if not any(isinstance(layer, Reversible) for layer in model.children()):
        return model
    return nn.Sequential(*(Plain(each) if isinstance(each, Reversible) else each for each in model.children()))


@cache
def graph_of(name: str) -> StepGraph:
    return capture_workload(load_workload(name), BATCH)


def test_no_network_is_left_out() -> None:
    assert {name for name in workload_names() if not load_workload(name).can_evaluate} == set(PUBLISHED)


@every_network
def test_parameters_are_the_published_ones(name: str) -> None:
    trainable = [parameter for parameter in model_of(name).parameters() if parameter.requires_grad]
    assert sum(parameter.numel() for parameter in trainable) == PUBLISHED[name].parameters
    assert graph_of(name).parameter_elements == PUBLISHED[name].parameters
    state = sum(tensor.elements for tensor in graph_of(name).state)
    assert state == PUBLISHED[name].state * PUBLISHED[name].parameters


@every_network
def test_outputs_have_their_shape(name: str) -> None:
    inputs, _ = load_workload(name).batch(BATCH)
    model = model_of(name).eval()
    with torch.device("meta"), torch.no_grad():
        assert tuple(model(inputs).shape) == PUBLISHED[name].output
    model.train()


@every_network
def test_matrix_flops_are_torchs(name: str) -> None:
    workload, model, graph = load_workload(name), _without_recomputation(model_of(name)), graph_of(name)
    inputs, targets = workload.batch(BATCH)
    with sdpa_kernel(SDPBackend.MATH), torch.device("meta"):
        with FlopCounterMode(display=False) as forward:
            loss = workload.loss(model(inputs), targets)
        with FlopCounterMode(display=False) as backward:
            loss.backward()
    ours = graph.flops("forward", matrix_only=True), graph.flops("input_grad", "weight_grad", matrix_only=True)
    theirs = forward.get_total_flops(), backward.get_total_flops()
    if name == "reversible-resnet":
        forward_ops = [op for op in graph.ops if op.gemm and op.phase == "forward"]
        again = sum(op.flops for op in forward_ops if ".couplings." in op.layer) // 2
        theirs = theirs[0] + again, theirs[1]
        assert 0 < again < theirs[0] / 2
    assert ours == theirs
    assert min(ours) > 0


@every_network
def test_every_op_costs_something(name: str) -> None:
    graph = graph_of(name)
    cost = simulate(graph, load_design("bf16-systolic"))
    assert [op.name for op in cost.ops if not (op.time_s > 0 and op.energy_j > 0 and op.cycles > 0)] == []
    assert "other" not in Counter(op.kind for op in graph.ops)
    assert {op.phase for op in cost.ops} == {"forward", "input_grad", "weight_grad", "update"}


def test_known_ops_are_there() -> None:
    kinds = {name: set(Counter(op.kind for op in graph_of(name).ops)) for name in PUBLISHED}
    assert {"convolution", "normalization", "pooling", "loss", "softmax", "optimizer"} <= kinds["inception-v3"]
    assert {"gather", "softmax", "normalization", "elementwise", "loss", "gemm"} <= kinds["bert-large"]
    assert {"gather", "elementwise", "gemm", "loss"} <= kinds["lstm"]
    assert "random" in kinds["alexnet"]


def test_the_generator_alone_makes_pictures_and_its_step_leaves_the_discriminator_alone() -> None:
    with torch.device("meta"):
        generator = dcgan_generator()
        assert generator(torch.empty(2, 100, 1, 1)).shape == (2, 3, 64, 64)
    graph = graph_of("dcgan-generator")
    layers = {op.layer.partition(".")[0] for op in graph.ops if op.phase == "weight_grad"}
    assert layers == {"generator"}
    assert any(op.layer.startswith("discriminator") for op in graph.ops if op.phase == "input_grad")
