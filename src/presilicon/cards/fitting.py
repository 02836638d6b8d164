"""From measured layers to the efficiency of a card: groups of kernels, each fitted to the layers that it is part of."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from msgspec import structs
from numpy.typing import NDArray
from scipy.optimize import nnls
from torch import Tensor, nn

from presilicon.base import MICRO, PICO
from presilicon.cards.benches import Precision
from presilicon.cards.layers import Layer
from presilicon.cards.measuring import LayerTime
from presilicon.designs import ACTIVITIES, ChipEnergy, RooflineMachine, StepFormats, load_numerics
from presilicon.records import StepFacts, StepGraph
from presilicon.simulation import (
    TABLE_SCHEMA,
    Activities,
    Efficiency,
    Features,
    KernelGroup,
    KernelLoad,
    KernelRate,
    MeasuredLayers,
    MeasuredPowers,
    OpKernel,
    activity_of,
    busy_seconds,
    cast_of,
    executed_ops,
    features_of_bias,
    kernel_limit,
    kernel_seconds,
    launched_kernels,
)
from presilicon.workloads import capture

NUMERICS: dict[Precision, str] = {"fp32": "fp32", "tf32": "tf32", "bf16": "bf16-pure"}
ROUNDS = 4
"""Rounds in which the time of a layer is divided among its kernels and these are fitted again."""
LEAST = 6
"""Points of a group that has bells; fewer give a line alone."""
MOST = 1500
"""Points of a group; of more, every second or third is taken."""
_CHOOSE = 400
"""Points on which widths are chosen."""
_WIDTHS, _NOISES = (1.0, 2.0, 4.0, 8.0), (0.03, 0.1, 0.3, 1.0)
_CLIFF = 1.5
"""Logarithm by which a time may differ from what all others say; beyond, a library chose a kernel for that shape alone
(hundreds of times as slow, at worst), which says nothing about its neighbours."""
_TIE = 0.3
"""Weight of the tie between the powers of classes: a difference of the whole power counts as this relative error."""
_POWER_NOISE, _LEAST_WORK = 0.3, 0.02
"""Variance of measured powers beside that between kernels, and the least work over static energy that is told apart."""
_WORKING = 0.2
"""Share of its fixed time that the limit of a kernel must reach to say something about its work."""
_SHORTEST_US = 0.5
"""Less than any kernel takes: nothing was launched."""


class LayerKernels(NamedTuple):
    """Kernels of a measured layer that are alike."""

    features: Features
    is_product: bool
    launches: float
    limit_us: float
    """All of them at the peaks."""


class MeasuredPhase(NamedTuple):
    """A measured phase of a layer, as its kernels."""

    time_us: float
    parts: tuple[LayerKernels, ...]


class Share(NamedTuple):
    """The part of a measured time that is due to some kernels."""

    features: Features
    launches: float
    limit_us: float
    time_us: float


def fit(
    layers: Sequence[Layer], times: Sequence[LayerTime], machine: RooflineMachine, *, device: str, source: str
) -> MeasuredLayers:
    """The efficiency of the card on which layers were measured; `machine` has its peaks."""
    samples = list(samples_of(layers, times, machine))
    table = MeasuredLayers(schema=TABLE_SCHEMA, device=device, source=source, peaks=machine.peaks, groups={})
    for left in reversed(range(ROUNDS)):
        efficiency = Efficiency(table)
        shares: dict[str, list[Share]] = defaultdict(list)
        for sample in samples:
            ours = [_time_us(part, efficiency, machine) for part in sample.parts]
            for part, own in zip(sample.parts, ours, strict=True):
                share = Share(part.features, part.launches, part.limit_us, sample.time_us * own / sum(ours))
                for key in part.features.keys[:1] if part.is_product else part.features.keys:
                    shares[key].append(share)
        groups = {key: fit_group(members, bells=not left or left == 2) for key, members in sorted(shares.items())}
        table = structs.replace(table, groups=groups)
    efficiency = Efficiency(table)
    groups = {key: _remember(key, group, shares[key], efficiency) for key, group in table.groups.items()}
    return structs.replace(table, groups=groups)


def _remember(key: str, group: KernelGroup, shares: Sequence[Share], efficiency: Efficiency) -> KernelGroup:
    """The group with the layers that were measured, where their times differ from the smooth one."""
    residuals: dict[str, dict[float, list[float]]] = defaultdict(lambda: defaultdict(list))
    for share in shares:
        features = share.features
        if not features.layer or features.keys[0] != key:
            continue
        rate = efficiency.rate(features)
        assert rate is not None
        residual = np.log(share.time_us / (share.launches * rate.fixed_us + share.limit_us * rate.stretch))
        residuals[features.layer][round(features.scale, 3)].append(float(residual))
    known = {
        layer: tuple(sorted((scale, round(float(np.mean(values)), 3)) for scale, values in by_scale.items()))
        for layer, by_scale in sorted(residuals.items())
    }
    return structs.replace(group, known=known)


def _time_us(part: LayerKernels, efficiency: Efficiency, machine: RooflineMachine) -> float:
    rate = efficiency.rate(part.features) or KernelRate(machine.latency_us, 1.0)
    return part.launches * rate.fixed_us + part.limit_us * rate.stretch


def measured_kernels(
    layers: Sequence[Layer], times: Sequence[LayerTime], machine: RooflineMachine
) -> Iterator[tuple[LayerTime, list[OpKernel]]]:
    """Every measured phase of a layer with its kernels; without float32 twice, without phases that launch nothing."""
    graphs: dict[int, StepGraph] = {}
    kernels: dict[tuple[int, Precision], list[OpKernel]] = {}
    for row in times:
        if row.time_us < _SHORTEST_US:
            continue
        if row.layer not in graphs:
            graphs[row.layer] = layer_graph(layers[row.layer])
        key = row.layer, row.precision
        if key not in kernels:
            kernels[key] = list(_kernels(layers[row.layer], graphs[row.layer], row.precision, machine))
        chosen = [kernel for kernel in kernels[key] if _belongs(kernel, row)]
        if chosen and (row.precision != "tf32" or any(kernel.op.gemm for kernel in chosen)):
            yield row, chosen


def samples_of(
    layers: Sequence[Layer], times: Sequence[LayerTime], machine: RooflineMachine
) -> Iterator[MeasuredPhase]:
    """Every measured phase as its kernels, those that are alike together."""
    for row, chosen in measured_kernels(layers, times, machine):
        alike: dict[tuple[Features, bool], tuple[float, float]] = {}
        for part in (part for kernel in chosen for part in _parts(kernel, machine)):
            launches, limit_us = alike.get(part[:2], (0.0, 0.0))
            alike[part[:2]] = launches + part.launches, limit_us + part.limit_us
        if alike:
            yield MeasuredPhase(row.time_us, tuple(LayerKernels(*key, *work) for key, work in alike.items()))


class _Source(nn.Module):
    """A layer behind a trainable factor, so that gradients flow through it."""

    def __init__(self, layer: Layer) -> None:
        super().__init__()
        self.source, self.layer = nn.Parameter(torch.ones(())), layer.build()
        self._is_plain = layer.takes_indices

    def forward(self, *inputs: Tensor) -> Any:
        """The layer's output."""
        return self.layer(*(inputs if self._is_plain else (tensor * self.source for tensor in inputs)))


def layer_graph(layer: Layer) -> StepGraph:
    """A step of a layer; ops that belong to it have layers whose names begin with `layer`."""
    with torch.device("meta"):
        model = _Source(layer)
    dtype = torch.long if layer.takes_indices else torch.float32
    inputs = tuple(torch.empty(shape, dtype=dtype, device="meta") for shape in layer.shapes)
    return capture(model, inputs, optimizer=layer.plain_optimizer if layer.updates else None)


def _kernels(layer: Layer, graph: StepGraph, precision: Precision, machine: RooflineMachine) -> Iterator[OpKernel]:
    numerics = load_numerics(NUMERICS[precision])
    formats = StepFormats(numerics, StepFacts())
    # Layers are measured as graphs, whatever the design says.
    chosen = structs.replace(
        machine, launch="graph", fused_attention=True, layout="channels-last" if layer.channels_last else "contiguous",
        optimizer="fused" if layer.arguments.get("fused") else "foreach",
    )  # fmt: skip
    for kernel in launched_kernels(executed_ops(graph, formats, StepFacts()), chosen, formats):
        if not kernel.launches or not kernel.op.layer.startswith("layer"):
            continue
        if layer.name == "channel-bias" and kernel.op.phase != "update":  # stands for the bias of a convolution
            largest = max(kernel.op.inputs + kernel.op.outputs, key=lambda tensor: tensor.elements)
            name, bits = "bias" if kernel.op.phase == "forward" else "bias-gradient", 16 if precision == "bf16" else 32
            kernel = structs.replace(kernel, features=features_of_bias(name, largest, bits, chosen.layout))
        yield kernel


def _belongs(kernel: OpKernel, row: LayerTime) -> bool:
    if row.phase == "backward":
        return kernel.op.phase in ("input_grad", "weight_grad")
    return kernel.op.phase == row.phase


def _parts(kernel: OpKernel, machine: RooflineMachine) -> Iterator[LayerKernels]:
    if kernel.op.operator.startswith("aten._to_copy"):
        extra = cast_of(kernel.op.outputs[0].elements, 48)  # between 32 and 16 bits
        yield LayerKernels(extra.features, False, 1, extra.size_bytes / (machine.memory_gb_s * 1e3))
        return
    launches, compute_s, memory_s = kernel_limit(kernel, machine)
    yield LayerKernels(kernel.features, kernel.op.gemm is not None, launches, max(compute_s, memory_s) / MICRO)
    for extra in kernel.extras:
        yield LayerKernels(extra.features, False, 1, extra.size_bytes / (machine.memory_gb_s * 1e3))


def fit_group(shares: Sequence[Share], *, bells: bool = True) -> KernelGroup:
    """Fixed time and share of the limit, and bells that predict the rest of each time best from all others.

    Times on a cliff have no bells. Where bells do not help, there are none.
    """
    shares = shares[:: -(-len(shares) // MOST)]
    launches, limits, times = (np.array([getattr(share, name) for share in shares]) for name in Share._fields[1:])
    fixed_us, reached = _fit_line(launches, limits, times)
    if (limits < _WORKING * launches * fixed_us).all():
        reached = 1.0  # no sample says how it follows its work
    values = np.log(times / (launches * fixed_us + limits / reached))
    plain = float(np.abs(values).mean())
    best = KernelGroup(fixed_us=round(fixed_us, 3), reached=float(f"{reached:.4g}"), error=round(plain, 4))
    if len(values) < LEAST or not bells:
        return best
    points = np.array([share.features.shape for share in shares])
    fitted = _fit_bells(points, values)
    near = np.abs(fitted.left_out) < _CLIFF
    left_out = fitted.left_out
    if not near.all() and near.sum() >= LEAST:
        far_points, far_values, points, values = points[~near], values[~near], points[near], values[near]
        fitted = _fit_bells(points, values)
        # What is set aside for fitting counts in the error: a new layer may lie on such a cliff as well.
        left_out = np.concatenate([fitted.left_out, far_values - fitted.at(far_points, points)])
    error, scales, weights = float(np.abs(left_out).mean()), fitted.scales, fitted.weights
    if error > 0.95 * plain:
        return best
    return structs.replace(
        best, error=round(error, 4), set_aside=len(left_out) - len(values), scales=tuple(scales.tolist()),
        points=tuple(tuple(round(value, 3) for value in point) for point in points.tolist()),
        weights=tuple(round(weight, 4) for weight in weights.tolist()),
    )  # fmt: skip


def _fit_line(launches: NDArray[Any], limits: NDArray[Any], times: NDArray[Any]) -> tuple[float, float]:
    """Fixed microseconds and share of the limit with the least error; long kernels count more."""
    fixed, reached = np.geomspace(0.4, 100, 45), np.geomspace(0.002, 2.0, 60)
    weights = times**0.3

    def error(fixed: NDArray[Any], reached: NDArray[Any]) -> NDArray[Any]:
        ours = launches * fixed[:, None, None] + limits / reached[None, :, None]
        total: NDArray[Any] = (np.abs(np.log(ours / times)) * weights).sum(-1)
        return total

    for _ in range(2):
        errors = error(fixed, reached)
        row, column = np.unravel_index(int(errors.argmin()), errors.shape)
        best = float(fixed[row]), float(reached[column])
        fixed, reached = best[0] * np.geomspace(0.88, 1.13, 15), best[1] * np.geomspace(0.88, 1.13, 15)
    return best


class _Bells(NamedTuple):
    """Bells around points, as they predict each value from all others."""

    left_out: NDArray[np.float64]
    """Error of each value."""
    scales: NDArray[np.float64]
    noise: float
    weights: NDArray[np.float64]

    @property
    def error(self) -> float:
        """Mean error."""
        return float(np.abs(self.left_out).mean())

    def at(self, places: NDArray[Any], points: NDArray[Any]) -> NDArray[Any]:
        """The value that bells around `points` predict at other places."""
        values: NDArray[Any] = np.exp(-_squares(places / self.scales, points / self.scales) / 2) @ self.weights
        return values


def _fit_bells(points: NDArray[Any], values: NDArray[Any]) -> _Bells:
    """The widths with the least error: one for all axes first, then others along single axes.

    They are chosen on a part of many points.
    """
    every = -(-len(values) // _CHOOSE)
    best = _choose_bells(points[::every], values[::every])
    return best if every == 1 else _bells(points, values, best.scales, best.noise)


def _choose_bells(points: NDArray[Any], values: NDArray[Any]) -> _Bells:
    widths = [np.full(points.shape[1], width) for width in _WIDTHS]
    best = min((_bells(points, values, width, noise) for width in widths for noise in _NOISES), key=lambda b: b.error)
    for axis in range(points.shape[1]):
        for stretch in (0.5, 2.0, 4.0):
            scales = best.scales.copy()
            scales[axis] *= stretch
            tried = _bells(points, values, scales, best.noise)
            if tried.error < 0.99 * best.error:
                best = tried
    return best


def _bells(points: NDArray[Any], values: NDArray[Any], scales: NDArray[Any], noise: float) -> _Bells:
    away = _squares(points / scales, points / scales)
    inverse = np.linalg.inv(np.exp(-away / 2) + noise * np.eye(len(values)))
    weights = inverse @ values
    return _Bells(weights / np.diag(inverse), scales, noise, weights)


def _squares(one: NDArray[Any], other: NDArray[Any]) -> NDArray[Any]:
    """Squares of the distances between two sets of points."""
    apart: NDArray[Any] = (one**2).sum(-1)[:, None] + (other**2).sum(-1)[None] - 2 * one @ other.T
    np.maximum(apart, 0.0, out=apart)
    return apart


class EnergyFit(NamedTuple):
    """Energies of a card."""

    machine: RooflineMachine
    """With its static, busy, traffic and arithmetic figures."""
    powers: MeasuredPowers
    """What single kernels differ from them."""
    error: float
    """Mean relative error of the joules of a layer whose power was left out."""


def fit_energy(
    layers: Sequence[Layer], times: Sequence[LayerTime], machine: RooflineMachine, static_w: float
) -> EnergyFit:
    """Energies from layers whose power was measured.

    Busy watts and energies of a byte and of a FLOP, all at least 0, by least squares of errors in power; `static_w` is
    the power of the waiting card at the clock of a busy one. What remains is smoothed over kernels that are alike.
    """
    units = tuple(machine.matrix)
    rows, waiting, joules, weights, activities = [], [], [], [], []
    for row, kernels in measured_kernels(layers, [row for row in times if row.power_w], machine):
        assert row.power_w is not None
        spans = [kernel_seconds(kernel, machine) for kernel in kernels]
        # Where the predicted times are off, powers still belong to the measured one.
        scale = row.time_us * MICRO / sum(span.time_s for span in spans)
        busy = dict.fromkeys(ACTIVITIES, 0.0)
        flops = dict.fromkeys(units, 0.0)
        for kernel, span in zip(kernels, spans, strict=True):
            busy[kernel.activity] += busy_seconds(kernel, span) * scale
            if kernel.format:
                flops[kernel.format] += kernel.flops
        traffic = sum(kernel.traffic_bytes for kernel in kernels)
        rows.append([0.0, *busy.values(), traffic * PICO, *(count * PICO for count in flops.values())])
        waiting.append(static_w * row.time_us * MICRO)
        joules.append(row.power_w * row.time_us * MICRO)
        weights.append(1 / (machine.power_w * row.time_us * MICRO))
        # The layer has the power of the kind of kernel that takes most of its time: links of recurrences are many.
        totals: dict[tuple[str, ...], float] = defaultdict(float)
        for kernel, span in zip(kernels, spans, strict=True):
            totals[kernel.labels] += span.time_s
        longest = max(zip(kernels, spans, strict=True), key=lambda pair: (totals[pair[0].labels], pair[1].time_s))
        activities.append(activity_of(longest[0], longest[1].time_s * scale, machine))
    measured, static_j = np.array(joules), np.array(waiting)
    # Classes of which little was measured draw what all do: their watts are tied to a common figure, the first one.
    count, watts = len(ACTIVITIES), machine.power_w
    ties = np.zeros((count, len(rows[0])))
    ties[:, 0], ties[:, 1 : count + 1] = -_TIE / watts, np.eye(count) * _TIE / watts
    left = np.concatenate([np.array(rows) * np.array(weights)[:, None], ties])
    found, _ = nnls(left, np.concatenate([(measured - static_j) * np.array(weights), np.zeros(count)]))
    powers, left_out = _fit_powers(activities, measured - static_j, np.array(rows) @ found, static_j)
    error = float(np.abs((left_out + static_j) / measured - 1).mean())
    busy_w, (per_byte, *per_flop) = found[1 : count + 1].tolist(), found[count + 1 :].tolist()
    energy = ChipEnergy(
        static=static_w / watts,
        pj_per_byte=per_byte,
        busy={n: w / watts for n, w in zip(ACTIVITIES, busy_w, strict=True)},
    )
    worked = np.abs(rows)[:, count + 2 :].sum(axis=0) > 0  # units that no layer used keep their figure
    matrix = {
        unit: structs.replace(rate, pj_per_flop=pj) if used else rate
        for (unit, rate), pj, used in zip(machine.matrix.items(), per_flop, worked, strict=True)
    }
    return EnergyFit(structs.replace(machine, energy=energy, matrix=matrix), powers, error)


def _fit_powers(
    activities: Sequence[KernelLoad], measured_j: NDArray[Any], fitted_j: NDArray[Any], static_j: NDArray[Any]
) -> tuple[MeasuredPowers, NDArray[Any]]:
    """Bells around measured powers, and the joules that all other layers give for each."""
    values = np.log(np.maximum(measured_j, _LEAST_WORK * static_j) / np.maximum(fitted_j, _LEAST_WORK * static_j))
    inverse = np.linalg.inv(Activities(activities).likeness(activities) + _POWER_NOISE * np.eye(len(values)))
    weights = inverse @ values
    heights = np.clip(values - weights / np.diag(inverse), values.min(), values.max())
    powers = MeasuredPowers(
        points=tuple(activities), weights=tuple(round(weight, 4) for weight in weights.tolist()),
        lowest=round(float(values.min()), 3), highest=round(float(values.max()), 3),
    )  # fmt: skip
    return powers, fitted_j * np.exp(heights)
