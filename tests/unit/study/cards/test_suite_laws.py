"""The suite that cards are measured with stays what it was: measured times name a layer by its place."""

from hashlib import sha256

import msgspec
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from presilicon.study.cards.suite import measuring_order, suite

LAYERS = suite()


@pytest.mark.parametrize(
    ("measured", "digest"),
    [
        (1801, "d8125b3556ca8166"),  # xeon_layers.json
        (5629, "0d6fa2d828583155"),  # h200_layers.json
        (5792, "e2d04742f22b0171"),  # epyc_layers.json and turin_layers.json
    ],
)
def test_layers_that_tables_of_times_refer_to_are_what_was_measured(measured: int, digest: str) -> None:
    """If this fails, recorded times belong to other layers now: put new layers behind the others."""
    layers = [(layer.name, layer.arguments, layer.shapes, layer.channels_last) for layer in LAYERS[:measured]]
    assert sha256(msgspec.json.encode(layers)).hexdigest()[:16] == digest


def counted_flops(place: int) -> int:
    layer = LAYERS[place]
    with torch.device("meta"):
        module = layer.build()
        inputs = [torch.empty(shape) for shape in layer.shapes]
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        module(*inputs)
    return counter.get_total_flops()


@pytest.mark.parametrize("first", range(7))
def test_products_have_the_flops_that_torch_counts(first: int) -> None:
    places = [place for place, layer in enumerate(LAYERS) if layer.flops > 1][first::70]
    for place in places:
        assert counted_flops(place) == LAYERS[place].flops, LAYERS[place]


def test_every_layer_is_measured_once_and_those_of_one_kind_first() -> None:
    order = measuring_order(LAYERS)
    assert sorted(order) == list(range(len(LAYERS)))
    is_product = [LAYERS[place].is_product for place in order]
    assert is_product == sorted(is_product)
