"""Capture of gradient accumulation: the passes of all micro-batches, the additions of gradients, one update."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from presilicon.base import ConfigError
from presilicon.designs import load_design
from presilicon.records import StepGraph
from presilicon.simulation import memory_timeline, simulate
from presilicon.workloads import capture, capture_workload, load_workload

PARTS = 4


def graphs(name: str) -> tuple[StepGraph, StepGraph]:
    workload = load_workload(name)
    return capture_workload(workload), capture_workload(replace(workload, accumulate=PARTS))


@pytest.mark.parametrize("name", ["digits-mlp", "digits-cnn"])
def test_the_products_of_micro_batches_have_the_flops_of_one_batch(name: str) -> None:
    whole, parts = graphs(name)
    for phase in ("forward", "input_grad", "weight_grad"):
        assert parts.flops(phase, matrix_only=True) == whole.flops(phase, matrix_only=True)
    assert parts.batch_size == whole.batch_size
    assert sum(op.gemm is not None for op in parts.ops) == PARTS * sum(op.gemm is not None for op in whole.ops)


@pytest.mark.parametrize("name", ["digits-mlp", "digits-cnn"])
def test_gradients_are_added_up_and_there_is_one_update(name: str) -> None:
    whole, parts = graphs(name)
    assert [op.name for op in parts.ops if op.phase == "update"] == [
        op.name for op in whole.ops if op.phase == "update"
    ]
    additions = [op for op in parts.ops if op.phase == "weight_grad" and op.operator == "aten.add_.Tensor"]
    assert len(additions) == (PARTS - 1) * len(whole.parameters)
    assert sum(op.flops for op in additions) == (PARTS - 1) * whole.parameter_elements
    assert {op.layer for op in additions} == set(whole.weighted_layers)
    assert all(tensor.role == "gradient" for op in additions for tensor in (*op.inputs, *op.outputs))


def test_every_product_has_the_roles_and_the_layer_of_the_single_batch() -> None:
    whole, parts = graphs("digits-cnn")
    expected = [(op.layer, op.phase, [tensor.role for tensor in op.inputs[:2]]) for op in whole.ops if op.gemm]
    seen = [(op.layer, op.phase, [tensor.role for tensor in op.inputs[:2]]) for op in parts.ops if op.gemm]
    assert seen == PARTS * expected


def test_activations_at_the_peak_shrink_with_the_micro_batch() -> None:
    whole, parts = graphs("fashion-resnet")
    design = load_design("h200")
    timelines = [memory_timeline(graph, design, simulate(graph, design)) for graph in (whole, parts)]
    peaks = [max(point.activations_bytes for point in timeline.points) for timeline in timelines]
    assert peaks[1] < 0.3 * peaks[0]


def test_without_accumulation_the_graph_is_what_it_was() -> None:
    workload = load_workload("digits-mlp")
    assert capture_workload(replace(workload, accumulate=1)) == capture_workload(workload)


def test_a_batch_that_does_not_divide_is_split_as_evenly_as_possible() -> None:
    graph = capture(nn.Linear(3, 2), torch.empty(5, 3), accumulate=2)
    assert [op.gemm.m for op in graph.ops if op.gemm and op.phase == "forward"] == [3, 2]


def test_more_micro_batches_than_examples_are_one_clear_error() -> None:
    with pytest.raises(ConfigError, match="a batch of 5 examples cannot be split into 6 micro-batches"):
        capture(nn.Linear(3, 2), torch.empty(5, 3), accumulate=6)
    with pytest.raises(ConfigError, match="batch_size must be divisible by accumulate, not 32 by 3"):
        replace(load_workload("digits-mlp"), accumulate=3)
