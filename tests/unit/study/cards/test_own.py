"""Layers of networks, as they are measured: what a step looks up is what was measured."""

import pytest
import torch
from msgspec import json

from presilicon.designs import StepFormats, load_design, load_numerics
from presilicon.records import StepFacts, StepGraph
from presilicon.simulation import executed_ops, launched_kernels
from presilicon.study.cards import characterizing
from presilicon.study.cards.characterizing import CardTimes
from presilicon.study.cards.families import families
from presilicon.study.cards.fitting import layer_graph
from presilicon.study.cards.layers import Layer
from presilicon.study.cards.measuring import LayerTime
from presilicon.study.cards.own import layers_of, left_out
from presilicon.study.cards.suite import measuring_order, suite
from presilicon.workloads import capture_workload, load_workload


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
    monkeypatch.setattr(characterizing, "processor", lambda: "chip")
    monkeypatch.setattr(characterizing, "CpuBench", lambda: None)
    old = CardTimes(device="chip", software="PyTorch 1.0", date="2020-01-01")
    machine = load_design("xeon-8t").machine
    card = characterizing.characterize_processor(machine, before=old, own=[layer])
    assert (card.date, card.times) == ("2020-01-01", (row,))
    assert card.software.startswith("PyTorch 1.0; 1 layers of networks on ")
    assert card.software.endswith(f"with PyTorch {torch.__version__}")
