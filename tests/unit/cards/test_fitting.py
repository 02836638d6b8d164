"""Fits of layers: known efficiencies come back, and shapes that were not measured are predicted."""

import math
import random

import numpy as np
import pytest

from presilicon.cards.fitting import Share, fit, fit_energy, fit_group, layer_graph, measured_kernels
from presilicon.cards.layers import Layer
from presilicon.cards.measuring import LayerTime
from presilicon.cards.suite import suite
from presilicon.designs import RooflineMachine, load_design
from presilicon.simulation import (
    Activities,
    Efficiency,
    Features,
    KernelLoad,
    KernelRate,
    MeasuredLayers,
    OpKernel,
    Peaks,
    activity_of,
    busy_seconds,
    kernel_seconds,
)

PEAKS = Peaks(memory_gb_s=4800.0, issue=132 * 1.98, tflops={"float32": 67.0})


def chip() -> RooflineMachine:
    machine = load_design("h200", ["machine.measured="]).machine
    assert isinstance(machine, RooflineMachine)
    return machine


def linear(rows: int, inputs: int, outputs: int) -> Layer:
    arguments = {"in_features": inputs, "out_features": outputs, "bias": False}
    return Layer(name="linear", arguments=arguments, shapes=((rows, inputs),), flops=2.0 * rows * inputs * outputs)


def forward(index: int, time_us: float = 9.0, power_w: float | None = None) -> LayerTime:
    return LayerTime(layer=index, precision="bf16", phase="forward", time_us=time_us, power_w=power_w)


def kernels_of(layers: list[Layer], index: int) -> list[OpKernel]:
    [(_, kernels)] = measured_kernels(layers, [forward(index)], chip())
    return kernels


def test_the_suite_is_the_same_every_time() -> None:
    layers = suite()
    assert layers == suite()
    names = {layer.name for layer in layers}
    assert names >= {"linear", "convolution", "batch-norm", "attention", "recurrent", "parameters"}


def test_a_fixed_time_and_a_share_of_the_limit_are_found() -> None:
    draw = random.Random(0)
    limits = [10 ** draw.uniform(-1, 3) for _ in range(60)]
    group = fit_group(
        [Share(Features(("k",), (math.log2(limit), 0.0)), 1, limit, 6.0 + limit / 0.4) for limit in limits]
    )
    assert group.fixed_us == pytest.approx(6.0, rel=0.03)
    assert group.reached == pytest.approx(0.4, rel=0.03)
    assert group.error < 0.02


def test_groups_of_tiny_kernels_reach_their_limit_when_they_grow() -> None:
    """Times that are all launch say nothing about work: the share of the limit is not what their noise makes of it."""
    draw = random.Random(3)
    shares = [
        Share(Features(("k",), (float(size),)), 1, 2.0**size * 1e-5, 2 + draw.random())
        for size in range(8)
        for _ in range(4)
    ]
    assert fit_group(shares).reached == 1
    worked = [share._replace(limit_us=10.0, time_us=22.0) for share in shares]
    assert fit_group([*shares, *worked]).reached == pytest.approx(0.5, rel=0.15)


def test_bells_learn_what_depends_on_the_shape_and_forget_it_far_away() -> None:
    """Kernels with an odd dimension take three times as long."""
    draw = random.Random(1)
    shares = []
    for _ in range(80):
        size, odd = draw.uniform(0, 10), draw.choice((0.0, 3.0))
        shares.append(Share(Features(("k",), (size, odd)), 1, 2.0**size, (5 + 2.0**size) * (3 if odd else 1)))
    group = fit_group(shares)
    assert group.error < 0.1
    assert fit_group(shares, bells=False).error > 0.3  # the line alone cannot know it
    efficiency = Efficiency(MeasuredLayers(schema=2, device="", source="", peaks=PEAKS, groups={"k": group}))

    def rate(*shape: float) -> KernelRate:
        found = efficiency.rate(Features(("unknown", "k"), shape))
        assert found is not None
        return found

    assert rate(5.5, 3.0).stretch / rate(5.5, 0.0).stretch == pytest.approx(3, rel=0.15)
    assert rate(500.0, 0.0) == pytest.approx((group.fixed_us, 1 / group.reached))
    assert rate(5.5) == pytest.approx((group.fixed_us, 1 / group.reached))  # a shape with other axes
    assert efficiency.rate(Features(("unknown",), (5.5, 3.0))) is None


def test_a_card_that_reaches_half_of_its_limits_is_recognized() -> None:
    draw = random.Random(2)
    layers = [linear(*(2 ** draw.randint(7, 12) for _ in range(3))) for _ in range(24)]
    times = []
    for index in range(len(layers)):
        limits = [max(kernel.product_s, kernel.size_bytes / 4.8e12) for kernel in kernels_of(layers, index)]
        times.append(forward(index, 3 + 2e6 * sum(limits)))
    group = fit(layers, times, chip(), device="", source="").groups["gemm.forward.bfloat16"]
    assert group.reached == pytest.approx(0.5, rel=0.05)
    assert group.fixed_us == pytest.approx(3, rel=0.1)


def test_watts_of_classes_are_found() -> None:
    relu = Layer(name="function", arguments={"name": "relu"}, shapes=((1 << 16, 1024),))
    layers, rows = [linear(4096, 1024, 4096), linear(8192, 512, 512), relu], []
    for index in range(3):
        time_s = sum(kernel_seconds(kernel, chip()).time_s for kernel in kernels_of(layers, index))
        rows.append(forward(index, time_s * 1e6, power_w=400.0))
    energies = fit_energy(layers, rows, chip(), static_w=100.0)
    assert energies.error < 0.1
    assert energies.machine.energy is not None
    assert energies.machine.energy.static == pytest.approx(100 / 700)


def test_the_power_of_a_recurrent_layer_is_that_of_its_many_short_links() -> None:
    arguments = {"kind": "LSTM", "inputs": 512, "width": 512, "layers": 1}
    layers = [Layer(name="recurrent", arguments=arguments, shapes=((35, 64, 512),)), linear(2240, 512, 2048)]
    kernels = kernels_of(layers, 0)
    longest = max(kernels, key=lambda kernel: kernel_seconds(kernel, chip()).time_s)
    assert longest.activity != "recurrent", "one product of all inputs is longer than each link"
    energies = fit_energy(layers, [forward(index, 300.0, power_w=300.0) for index in range(2)], chip(), static_w=100.0)
    assert [point.labels[0] for point in energies.powers.points] == ["recurrent", "gemm"]


def test_powers_of_kernels_that_are_alike_are_learned_and_no_others() -> None:
    """Transposed copies draw half of what the class draws: others like them follow, products do not."""
    draw = random.Random(5)
    shapes = [(2 ** draw.randint(10, 14), 2 ** draw.randint(8, 11)) for _ in range(40)]
    layers = [
        Layer(name="transpose", arguments={"dims": (1, 0)}, shapes=(shape,)) if place % 2 else linear(*shape, 1024)
        for place, shape in enumerate(shapes)
    ]
    rows = []
    for index, layer in enumerate(layers):
        time_s = sum(kernel_seconds(kernel, chip()).time_s for kernel in kernels_of(layers, index))
        rows.append(forward(index, time_s * 1e6, power_w=200.0 if layer.name == "transpose" else 500.0))
    energies = fit_energy(layers, rows, chip(), static_w=100.0)
    assert energies.error < 0.1
    table = MeasuredLayers(schema=2, device="", source="", peaks=PEAKS, groups={}, powers=energies.powers)

    def factor(index: int) -> float:
        [kernel] = kernels_of(layers, index)
        time_s = kernel_seconds(kernel, chip()).time_s
        return Efficiency(table).power_factor(activity_of(kernel, time_s, energies.machine))

    def watts(index: int) -> float:
        [kernel] = kernels_of(layers, index)
        span = kernel_seconds(kernel, chip())
        assert energies.machine.energy is not None
        dynamic_j = busy_seconds(kernel, span) * energies.machine.energy.busy[kernel.activity] * 700
        dynamic_j += kernel.traffic_bytes * energies.machine.energy.pj_per_byte * 1e-12
        if kernel.format:
            dynamic_j += kernel.flops * energies.machine.matrix[kernel.format].pj_per_flop * 1e-12
        return 100 + dynamic_j * factor(index) / span.time_s

    assert watts(1) == pytest.approx(200, rel=0.12)
    assert watts(0) == pytest.approx(500, rel=0.12)
    points = energies.powers.points
    plain = float(Activities(points).likeness([points[3]])[0] @ energies.powers.weights)
    assert Efficiency(table).power_factor(points[3]) == pytest.approx(math.exp(plain))
    unknown = KernelLoad(("no class", "no format", "no operator", "no pass", ""), 0.0, 0.0)
    assert Efficiency(table).power_factor(unknown) == pytest.approx(1, abs=0.1)
    assert Efficiency().power_factor(unknown) == 1


def test_a_layer_on_a_cliff_is_remembered_and_its_neighbours_are_not_moved() -> None:
    """One shape takes six times as long; a bit of that is believed at other batch sizes, nothing in other layers."""
    draw = random.Random(6)
    widths = [(2 ** draw.randint(7, 11), 2 ** draw.randint(7, 11)) for _ in range(60)]
    layers = [linear(rows, *width) for rows in (1024, 4096) for width in widths] + [linear(1024, 300, 300)]
    layers += [linear(4096, 300, 300), linear(1024, 304, 300)]
    times = []
    for index in range(len(layers) - 2):
        limits = [max(kernel.product_s, kernel.size_bytes / 4.8e12) for kernel in kernels_of(layers, index)]
        times.append(forward(index, (3 + 2e6 * sum(limits)) * (6 if index == len(layers) - 3 else 1)))
    table = fit(layers, times, chip(), device="", source="")

    def stretched(index: int) -> float:
        [kernel] = kernels_of(layers, index)
        rate = Efficiency(table).rate(kernel.features)
        assert rate is not None
        limit_us = max(kernel.product_s, kernel.size_bytes / 4.8e12) * 1e6
        return (rate.fixed_us + limit_us * rate.stretch) / (3 + 2 * limit_us)

    cliff, other_batch, neighbour = range(len(layers) - 3, len(layers))
    assert stretched(cliff) == pytest.approx(6, rel=0.02)
    assert 2 < stretched(other_batch) < 6
    assert stretched(neighbour) == pytest.approx(1, rel=0.1)


@pytest.mark.parametrize("place", range(0, 1503, 83))
def test_layers_have_kernels_in_every_phase(place: int) -> None:
    layer = suite()[place]
    phases = {op.phase for op in layer_graph(layer).ops if op.layer.startswith("layer")}
    assert "forward" in phases
    if layer.is_product:
        assert phases >= {"forward", "input_grad", "weight_grad"}


@pytest.mark.parametrize("share", [0.0, 0.05, 0.1])
def test_the_stated_error_is_that_of_fresh_layers(share):
    """Some layers take ten times as long as their neighbours, which no fit can know."""

    def drawn(seed: int, count: int) -> list[Share]:
        random = np.random.default_rng(seed)
        shapes = random.uniform(0, 6, (count, 2))
        logs = 0.4 * np.sin(shapes[:, 0]) + 0.1 * shapes[:, 1] + random.normal(0, 0.03, count)
        logs += np.log(10) * (random.random(count) < share)
        limits = np.full(count, 1000.0)
        return [
            Share(Features(("k",), tuple(shape)), 1.0, limit, limit * float(np.exp(log)))
            for shape, limit, log in zip(shapes.tolist(), limits.tolist(), logs, strict=True)
        ]

    group = fit_group(drawn(1, 400))
    fresh = []
    for part in drawn(2, 400):
        away = ((np.array(group.points) - part.features.shape) / group.scales) ** 2
        smooth = float(np.exp(-away.sum(-1) / 2) @ np.array(group.weights))
        line = part.launches * group.fixed_us + part.limit_us / group.reached
        fresh.append(abs(np.log(part.time_us / line) - smooth))
    assert group.error == pytest.approx(np.mean(fresh), rel=0.35)
    assert (group.set_aside > 0) == (share > 0)
