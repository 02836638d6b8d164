"""Layers of networks, as they are measured: what a step looks up is what was measured."""

import pytest
import torch
from msgspec import json

from presilicon.cards import characterizing
from presilicon.cards.characterizing import CardTimes
from presilicon.cards.families import families
from presilicon.cards.fitting import layer_graph
from presilicon.cards.layers import Layer
from presilicon.cards.measuring import LayerTime
from presilicon.cards.own import layers_of, left_out
from presilicon.cards.suite import measuring_order, suite
from presilicon.designs import StepFormats, load_design, load_numerics
from presilicon.records import StepFacts, StepGraph
from presilicon.simulation import executed_ops, launched_kernels
from presilicon.workloads import capture, capture_workload, load_workload


def looked_up(graph: StepGraph) -> set[tuple[str, str, float]]:
    """Groups, layers and batch sizes of the products of a step."""
    machine, numerics = load_design("h200").machine, load_numerics("bf16-pure")
    formats = StepFormats(numerics, StepFacts())
    kernels = launched_kernels(executed_ops(graph, formats, StepFacts()), machine, formats)  # type: ignore[arg-type]
    return {
        (kernel.features.keys[0], kernel.features.layer, kernel.features.scale)
        for kernel in kernels
        if kernel.launches and kernel.features.layer
    }


@pytest.mark.parametrize("name", ["resnet18", "dcgan-generator", "gpt-block", "digits-mlp", "unet3d"])
def test_every_product_of_a_network_is_among_its_layers(name: str) -> None:
    graph = capture_workload(load_workload(name), batch_size=4)
    layers = layers_of(graph)
    measured = set().union(*(looked_up(layer_graph(layer)) for layer in layers))
    assert looked_up(graph) <= measured
    assert looked_up(graph) - looked_up(layer_graph(layers[0]))  # one layer alone would not do


def test_layers_are_named_once_and_survive_a_file() -> None:
    layers = layers_of(capture_workload(load_workload("resnet18"), batch_size=4), channels_last=True)
    texts = [json.encode(layer) for layer in layers]
    assert len(set(texts)) == len(texts)
    assert all(layer.channels_last for layer in layers if layer.name == "convolution")
    for layer, text in zip(layers, texts, strict=True):
        again = json.decode(text, type=Layer)
        assert looked_up(layer_graph(again)) == looked_up(layer_graph(layer))


def test_well_known_layers_are_those_of_the_networks() -> None:
    """Families are written by hand; the captured networks say whether they are right."""
    measured: set[tuple[str, str, float]] = set()
    for layer in families():
        if layer.name == "convolution" and not layer.channels_last and layer.shapes[0][0] == 128:
            measured |= looked_up(layer_graph(layer))
    for name in ("resnet50", "vgg16", "inception-v3", "alexnet"):
        graph = capture_workload(load_workload(name), batch_size=128)
        convolutions = {entry for entry in looked_up(graph) if "2d." in entry[0]}
        assert convolutions, name
        # A network needs no gradient of its images; families have all gradients.
        assert convolutions <= measured, name


def test_all_layers_are_measured_and_few_products_first() -> None:
    layers = suite()
    order = measuring_order(layers)
    assert sorted(order) == list(range(len(layers)))
    first = [layers[place] for place in order[: len(order) // 6]]
    assert not any(layer.is_product for layer in first)
    half = [layers[place] for place in order[: len(order) // 2]]
    assert {layer.name for layer in half} == {layer.name for layer in layers}


def test_products_that_cannot_be_measured_are_counted() -> None:
    assert left_out(capture_workload(load_workload("resnet18"), batch_size=2)) == 0
    assert left_out(capture_workload(load_workload("lstm"), batch_size=2)) > 35


def test_times_that_are_added_name_the_software_that_measured_them(monkeypatch) -> None:
    layer = suite()[0]
    row = LayerTime(layer=-1, precision="fp32", phase="forward", time_us=1.0)
    monkeypatch.setattr(characterizing, "measure", lambda *_, **__: [row])
    monkeypatch.setattr(characterizing, "processor_name", lambda: "chip")
    monkeypatch.setattr(characterizing, "CpuBench", lambda: None)
    old = CardTimes(device="chip", software="PyTorch 1.0", date="2020-01-01")
    machine = load_design("xeon-8t").machine
    card = characterizing.characterize_processor(machine, before=old, own=[layer])
    assert (card.date, card.times) == ("2020-01-01", (row,))
    assert card.software.startswith("PyTorch 1.0; 1 layers of networks on ")
    assert card.software.endswith(f"with PyTorch {torch.__version__}")


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize(
    ("norm", "shape", "has_layouts"),
    [
        (torch.nn.BatchNorm1d(8), (16, 8), False),
        (torch.nn.BatchNorm1d(8), (4, 8, 6), False),
        (torch.nn.BatchNorm2d(8), (4, 8, 6, 6), True),
        (torch.nn.BatchNorm3d(8), (2, 8, 3, 4, 4), True),
    ],
)
def test_a_norm_is_measured_in_the_layout_that_its_tensors_can_have(norm, shape, has_layouts, channels_last) -> None:
    [layer] = layers_of(capture(norm, torch.empty(shape)), channels_last=channels_last)
    assert (layer.name, layer.shapes) == ("batch-norm", (shape,))
    assert layer.arguments == {"dims": max(1, len(shape) - 2), "features": 8}
    assert layer.channels_last is (channels_last and has_layouts)


def test_the_step_of_an_update_is_that_of_its_optimizer() -> None:
    updates = sorted((layer for layer in suite() if layer.updates), key=lambda layer: layer.arguments["count"])
    work = {}
    for kind in ("SGD", "Adam"):
        for layer in [layer for layer in updates if layer.arguments["optimizer"] == kind][:2]:
            ops = [op for op in layer_graph(layer).ops if op.phase == "update"]
            assert ops
            elements = layer.arguments["count"] * layer.arguments["size"]
            work.setdefault(kind, set()).add(round(sum(op.flops for op in ops) / elements, 1))
    assert all(len(per_element) == 1 for per_element in work.values())
    assert work["SGD"] != work["Adam"]
