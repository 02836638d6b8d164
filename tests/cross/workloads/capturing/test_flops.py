"""Captured FLOPs against torch's own counter, which shares no code with capture."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cross.emulation.published_models import language_model
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from presilicon.records import StepGraph
from presilicon.workloads import capture
from presilicon.workloads.networks.resnet import resnet50


def count(model: nn.Module, batch: Tensor) -> tuple[int, int]:
    """FLOPs of the matrix products of a forward and of a backward pass, by torch."""
    model, batch = model.to("meta"), batch.to("meta")
    with sdpa_kernel(SDPBackend.MATH), torch.device("meta"):
        with FlopCounterMode(display=False) as forward:
            loss = sum(leaf.mean() for leaf in tree_leaves(model(batch)))
        with FlopCounterMode(display=False) as backward:
            loss.backward()
    return forward.get_total_flops(), backward.get_total_flops()


def captured(graph: StepGraph) -> tuple[int, int]:
    forward = graph.flops("forward", matrix_only=True)
    return forward, graph.flops("input_grad", "weight_grad", matrix_only=True)


def test_flops_of_every_model_equal_torchs_count(case: Any) -> None:
    ours = captured(capture(case.make_model(), case.make_batch()))
    theirs = count(case.make_model(), case.make_batch())
    if case.name == "checkpointed":
        # What is computed a second time is forward work to us, and whatever happens in backward() is backward to torch.
        assert sum(ours) == sum(theirs)
        assert ours[0] > theirs[0]
    else:
        assert ours == theirs
    assert min(ours) > 0


@pytest.mark.filterwarnings("ignore")  # of the library: missing optional kernels
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize("family", ["Phi", "Llama", "GPTNeoX"])
def test_causal_language_models_without_a_cache_have_torchs_count(family: str, padded: bool, training: bool) -> None:
    published = language_model(family)
    words = published.batch["input_ids"]
    mask = {"attention_mask": torch.ones_like(words).tril()} if padded else {}
    batch = {"input_ids": words, "labels": words, "use_cache": False} | mask
    ours = captured(capture(published.model, batch, loss=lambda output: output.loss, training=training))
    with sdpa_kernel(SDPBackend.MATH):
        with FlopCounterMode(display=False) as forward:
            loss = published.model(**batch).loss
        with FlopCounterMode(display=False) as backward:
            loss.backward()
    assert ours == (forward.get_total_flops(), backward.get_total_flops() if training else 0)


def test_the_comparison_can_fail() -> None:
    wide = captured(capture(nn.Linear(6, 8), torch.empty(4, 6)))
    narrow = count(nn.Linear(6, 7), torch.empty(4, 6))
    assert wide[0] != narrow[0]
    assert wide[1] != narrow[1]


class Form(nn.Module):
    """A bilinear form of two projections, by torch's layer or by its formula."""

    def __init__(self, by_layer: bool) -> None:
        super().__init__()
        self.first, self.second, self.by_layer = nn.Linear(9, 7), nn.Linear(9, 5), by_layer
        self.form = nn.Bilinear(7, 5, 3)

    def forward(self, x: Tensor) -> Tensor:
        first, second = self.first(x), self.second(x)
        if self.by_layer:
            return self.form(first, second)
        return torch.einsum("...j,oij,...i->...o", second, self.form.weight, first) + self.form.bias


@pytest.mark.parametrize("shape", [(6, 9), (2, 3, 9)])
def test_a_bilinear_form_has_the_flops_of_its_formula(shape: tuple[int, ...]) -> None:
    # torch counts nothing in its own operator.
    assert captured(capture(Form(by_layer=True), torch.empty(shape))) == count(Form(by_layer=False), torch.empty(shape))


class Grouped(nn.Module):
    """A grouped convolution, or the same work as one convolution per group."""

    def __init__(self, kind: Callable[..., nn.Module], groups: int, apart: bool) -> None:
        super().__init__()
        self.groups = groups if apart else 1
        rest = 1 if apart else groups
        self.first = nn.Conv2d(3, 12, 1)
        self.parts = nn.ModuleList(
            kind(12 // self.groups, 24 // self.groups, 3, stride=2, padding=1, groups=rest) for _ in range(self.groups)
        )

    def forward(self, x: Tensor) -> Tensor:
        chunks = self.first(x).chunk(self.groups, dim=1)
        return torch.cat([part(chunk) for part, chunk in zip(self.parts, chunks, strict=True)], dim=1)


@pytest.mark.parametrize("kind", [nn.Conv2d, nn.ConvTranspose2d])
@pytest.mark.parametrize("groups", [2, 4, 12])
def test_a_grouped_convolution_costs_what_its_groups_cost_apart(kind: Callable[..., nn.Module], groups: int) -> None:
    # torch's counter takes a grouped weight gradient for an ungrouped one, so the judge gets the groups one by one.
    batch = torch.empty(2, 3, 9, 9)
    graph = capture(Grouped(kind, groups, apart=False), batch)
    assert captured(graph) == count(Grouped(kind, groups, apart=True), batch)
    counts = {op.gemm.count for op in graph.ops if op.layer == "parts.0" and op.gemm}
    assert counts == {groups}


@settings(max_examples=40, deadline=None)
@given(
    kind=st.sampled_from([nn.Conv2d, nn.ConvTranspose2d]),
    channels=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    size=st.tuples(st.integers(7, 12), st.integers(7, 12)),
    kernel=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    stride=st.integers(1, 3),
    padding=st.integers(0, 1),
    dilation=st.integers(1, 2),
)
def test_convolutions_of_any_geometry(
    kind: Callable[..., nn.Module],
    channels: tuple[int, int],
    size: tuple[int, int],
    kernel: tuple[int, int],
    stride: int,
    padding: int,
    dilation: int,
) -> None:
    def make() -> nn.Module:
        inner = kind(4, channels[1], kernel, stride=stride, padding=padding, dilation=dilation)
        return nn.Sequential(nn.Conv2d(channels[0], 4, 1), inner)

    batch = torch.empty(2, channels[0], *size)
    graph = capture(make(), batch)
    assert captured(graph) == count(make(), batch)
    products = {op.phase: op.gemm for op in graph.ops if op.layer == "1" and op.gemm}
    forward, errors, weights = (products[phase] for phase in ("forward", "input_grad", "weight_grad"))
    assert forward.macs == errors.macs == weights.macs
    assert (errors.m, errors.k, errors.n) == (forward.m, forward.n, forward.k)
    assert (weights.m, weights.k, weights.n) == (forward.k, forward.m, forward.n)


def test_resnet50_matches_the_published_count_and_torchs() -> None:
    images = 2
    graph = capture(resnet50(), torch.empty(images, 3, 224, 224, device="meta"))
    forward = graph.flops("forward", matrix_only=True)
    first = next(op for op in graph.ops if op.gemm)
    assert forward / images == pytest.approx(8.18e9, rel=0.01)
    assert graph.flops("weight_grad", matrix_only=True) == forward
    assert graph.flops("input_grad", matrix_only=True) == forward - first.flops
    assert first.layer == "stem.0"
    assert graph.parameter_elements == 25_557_032
    with torch.device("meta"):
        assert captured(graph) == count(resnet50(), torch.empty(images, 3, 224, 224))
