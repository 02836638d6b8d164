"""The suite that cards are measured with stays what it was: measured times name a layer by its place."""

from hashlib import sha256

import msgspec
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from presilicon.cards.layers import Layer
from presilicon.cards.suite import measuring_order, suite

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


def moved(name: str, shape: tuple[int, ...], **arguments: int) -> torch.Tensor:
    numbers = torch.arange(float(torch.Size(shape).numel())).reshape(shape)
    return Layer(name=name, arguments=arguments, shapes=(shape,)).build()(numbers)


def test_windows_and_shuffles_move_every_number_to_its_place() -> None:
    """Pixel by pixel and channel by channel, on numbers that are their own places."""
    batch, height, width, channels, side = 2, 6, 4, 3, 2
    windows = moved("windows", (batch, height, width, channels), side=side)
    expected = [
        [
            [float(((b * height + row + y) * width + column + x) * channels + c) for c in range(channels)]
            for y in range(side) for x in range(side)
        ]
        for b in range(batch) for row in range(0, height, side) for column in range(0, width, side)
    ]  # fmt: skip
    assert windows.tolist() == expected
    groups, inside = 3, 2
    shuffled = moved("shuffle", (2, groups * inside, 2, 2), groups=groups)
    for place, came in enumerate(group * inside + member for member in range(inside) for group in range(groups)):
        assert torch.equal(shuffled[:, place], torch.arange(48.0).reshape(2, 6, 2, 2)[:, came])
