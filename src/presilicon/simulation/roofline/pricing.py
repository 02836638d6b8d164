"""A training step on a roofline machine: kernels one after another, launched by a graph or by the host."""

from collections.abc import Sequence
from math import ceil, log2
from typing import NamedTuple

from presilicon.base import MICRO, PICO, ConfigError
from presilicon.designs import MachineStep, StepPrice, op_cost
from presilicon.formats import parse
from presilicon.records import MeasuredBasis, OpCost, TensorRef
from presilicon.simulation.execution import updated
from presilicon.simulation.roofline.efficiency import KernelLoad, KernelRate, load_efficiency
from presilicon.simulation.roofline.features import Features
from presilicon.simulation.roofline.kernels import OpKernel
from presilicon.simulation.roofline.machine import GUESSED_LINK_GB_S, RooflineMachine
from presilicon.simulation.roofline.merging import launched_kernels

_SLOWEST = 1e-3
"""Share of a peak below which power depends on it no more."""
LOWEST_CLOCK = 0.3
"""Share of the clock below which a power cap lowers it no further."""


def price_roofline(step: MachineStep, machine: RooflineMachine) -> StepPrice:
    """Kernels one after another, each its fixed time and its share of the limits of arithmetic and memory.

    Every op is a kernel (no fusion), except attention, which is one where the machine says so, and an optimizer,
    which updates many tensors in one launch. A step that would draw more than the machine's power runs at a lower
    clock: arithmetic takes longer, and its energy falls with the square of the clock. The graph is the work of one
    chip: with several, each has a share of that size, and a step ends with the sum of the gradients around a ring.
    """
    if step.convention != "exact":
        raise ConfigError(
            'SCALE-Sim counts cycles of systolic arrays; this machine is a roofline: use the convention "exact"'
        )
    kernels = launched_kernels(step.executed, machine, step.formats)
    reduce_s, reduce_bytes = _all_reduce(step, machine)
    clock = capped_clock(kernels, machine, reduce_s, reduce_bytes)
    spans = [_slowed(kernel_seconds(kernel, machine), clock) for kernel in kernels]
    starts, time_s = _timeline(kernels, spans, machine)
    components = dict.fromkeys(("matrix", "vector", "memory", "static"), 0.0)
    ops = []
    for kernel, span, start_s in zip(kernels, spans, starts, strict=True):
        parts = _energy_j(kernel, span, machine, clock)
        for name, joules in parts.items():
            components[name] += joules * machine.chips
        ops.append(_op_cost(kernel, span, start_s, sum(parts.values()) * machine.chips, machine))
    total_s = time_s + reduce_s
    idle_s = total_s - sum(span.time_s for span in spans)
    components["static"] += idle_s * _static_w(machine) * machine.chips
    if machine.energy is not None:
        components["memory"] += reduce_bytes * machine.energy.pj_per_byte * PICO * machine.chips
    measured = _basis(kernels, spans, machine)
    return StepPrice(
        ops=tuple(ops),
        time_s=total_s,
        energy_by_component_j=components,
        measured=measured,
        link_gb_s=_link_gb_s(machine) if machine.chips > 1 else None,
        host_s=sum(_host_times(kernels, machine)) + _host_step_s(machine),
    )


class KernelSpan(NamedTuple):
    """Seconds of a kernel with its extras."""

    time_s: float
    fixed_s: float
    """Part of `time_s` that does not depend on the work."""
    compute_s: float
    memory_s: float
    least_s: float = 0.0
    """Time that its multiplications need at least, at the peak."""
    algorithm: str = ""
    """The algorithm that needs fewer multiplications than the product has, where it runs at a rate above the peak."""


def capped_clock(
    kernels: Sequence[OpKernel], machine: RooflineMachine, reduce_s: float = 0.0, reduce_bytes: float = 0.0
) -> float:
    """The share of the clock at which the mean power of a step and its sum of gradients stays within the machine's.

    Raises:
        ConfigError: not even the lowest clock does.
    """
    if machine.energy is None:
        return 1.0
    spans = [kernel_seconds(kernel, machine) for kernel in kernels]
    reduce_j = reduce_bytes * machine.energy.pj_per_byte * PICO

    def power_w(clock: float) -> float:
        slowed = [_slowed(span, clock) for span in spans]
        joules = sum(sum(_energy_j(*pair, machine, clock).values()) for pair in zip(kernels, slowed, strict=True))
        step_s = max(_timeline(kernels, slowed, machine)[1] + reduce_s, 1e-12)
        waiting_s = step_s - sum(span.time_s for span in slowed)
        return (joules + reduce_j + waiting_s * _static_w(machine)) / step_s

    low, high, cap_w = LOWEST_CLOCK, 1.0, machine.cap_w or machine.power_w
    if power_w(high) <= cap_w:
        return high
    if power_w(low) > cap_w:
        raise ConfigError(
            f"cap_w must be at least {ceil(power_w(low))} W for this step, not {cap_w:g} W: "
            f"it draws that at {low:.0%} of the clock"
        )
    while high - low > 1e-3:
        middle = (low + high) / 2
        low, high = (middle, high) if power_w(middle) <= cap_w else (low, middle)
    return low


def _slowed(span: KernelSpan, clock: float) -> KernelSpan:
    """A kernel at a lower clock; traffic takes as long as before, until arithmetic takes longer."""
    if clock == 1.0:
        return span
    compute_s, least_s = span.compute_s / clock, span.least_s / clock
    longer = max(compute_s, span.memory_s) / max(span.compute_s, span.memory_s, 1e-300)
    working_s = max((span.time_s - span.fixed_s) * max(longer, 1.0), least_s)
    return span._replace(time_s=span.fixed_s + working_s, compute_s=compute_s, least_s=least_s)


def kernel_seconds(kernel: OpKernel, machine: RooflineMachine) -> KernelSpan:
    """Time of a kernel and its extras: fixed times and limits, by what was measured of similar ones."""
    if not kernel.launches:
        return KernelSpan(0.0, 0.0, 0.0, 0.0)
    launches, compute_s, memory_s = kernel_limit(kernel, machine)
    unit = kernel.format if compute_s > memory_s else ""
    fixed_s, working_s = _measured(kernel.features, launches, max(compute_s, memory_s), machine, unit)
    # Whatever was measured of smaller kernels: what no cache holds comes from memory.
    working_s = max(working_s, memory_s - machine.cache_mib * 2**20 / _bytes_s(machine))
    for extra in kernel.extras:
        times = _measured(extra.features, 1, extra.size_bytes / _bytes_s(machine), machine, "")
        fixed_s, working_s = fixed_s + times[0], working_s + times[1]
    least_s, algorithm = 0.0, ""
    if kernel.format:
        peak_s = kernel.flops / (machine.matrix[kernel.format].tflops * 1e12)
        saving = multiplications_saved(kernel)
        algorithm = "Winograd" if saving > 1 and working_s < peak_s else ""
        # A layer that was measured on this chip has its measured time; what is carried over must be possible here.
        is_own = load_efficiency(machine.measured).peaks == machine.peaks
        least_s = 0.0 if is_own else peak_s / saving
        working_s = max(working_s, least_s)
    return KernelSpan(fixed_s + working_s, fixed_s, compute_s, memory_s, least_s, algorithm)


def multiplications_saved(kernel: OpKernel) -> float:
    """Multiplications of a product over those that a faster algorithm needs, where libraries have one.

    Winograd's F(2x2, 3x3) multiplies 16 numbers for four results of nine products each (Lavin and Gray, CVPR 2016). It
    is for 3 x 3 kernels that move by single pixels, outside of matrix units.
    """
    convolution = kernel.op.convolution
    if convolution is None or kernel.format != "float32":
        return 1.0
    is_plain = {*convolution.stride, *convolution.dilation} == {1} and not convolution.transposed
    return 36 / 16 if is_plain and convolution.kernel == (3, 3) else 1.0


def _measured(
    features: Features, launches: float, limit_s: float, machine: RooflineMachine, unit: str
) -> tuple[float, float]:
    """Seconds of launches and of work, by the machine's table."""
    efficiency = load_efficiency(machine.measured)
    rate = efficiency.rate(features) or KernelRate(machine.latency_us, 1.0)
    return launches * rate.fixed_us * MICRO, limit_s * efficiency.transferred(rate.stretch, machine.peaks, unit)


def kernel_limit(kernel: OpKernel, machine: RooflineMachine) -> tuple[float, float, float]:
    """Launches of a kernel without its extras, and seconds of its arithmetic and of its traffic at the peaks."""
    compute_s = kernel.product_s if kernel.format else kernel.flops / _peak(machine)
    return kernel.launches, compute_s, kernel.size_bytes / _bytes_s(machine)


def _bytes_s(machine: RooflineMachine) -> float:
    return machine.memory_gb_s * 1e9


def host_seconds(kernel: OpKernel, machine: RooflineMachine) -> float:
    """Time that the host takes to launch a kernel and its conversions."""
    if not kernel.launches:
        return 0.0
    host = machine.host
    casts_us = host.cast_us * sum(extra.is_cast for extra in kernel.extras)
    if kernel.op.operator == "presilicon.round":
        return host.cast_us * kernel.launches * MICRO
    if machine.launch == "compile" and kernel.op.phase != "update":
        return host.compiled_us * (kernel.calls + len(kernel.extras)) * MICRO
    by_phase = {"forward": host.forward_us, "update": host.update_us}
    return (by_phase.get(kernel.op.phase, host.backward_us) * kernel.calls + casts_us) * MICRO


def busy_seconds(kernel: OpKernel, span: KernelSpan) -> float:
    """Working time of a kernel, weighted by the share of the cores that it fills."""
    return (span.time_s - span.fixed_s) * kernel.fill


def _timeline(
    kernels: Sequence[OpKernel], spans: list[KernelSpan], machine: RooflineMachine
) -> tuple[list[float], float]:
    """Start of each kernel, and the time of a step among others like it.

    Steps follow one another without a pause: while the chip works on one, the host already launches the next. So a step
    takes as long as the slower of the two, and kernels that wait for the host have gaps before them.
    """
    device_s = sum(span.time_s for span in spans)
    host_s = _host_times(kernels, machine)
    step_s = max(device_s, sum(host_s) + _host_step_s(machine))
    gap = (step_s - device_s) / sum(host_s) if sum(host_s) else 0.0
    starts, now = [], 0.0
    for span, issue_s in zip(spans, host_s, strict=True):
        now += gap * issue_s
        starts.append(now)
        now += span.time_s
    return starts, step_s


def _host_times(kernels: Sequence[OpKernel], machine: RooflineMachine) -> list[float]:
    """Seconds that the host takes to launch each kernel; none where a captured graph launches them."""
    return [0.0 if machine.launch == "graph" else host_seconds(kernel, machine) for kernel in kernels]


def _host_step_s(machine: RooflineMachine) -> float:
    return 0.0 if machine.launch == "graph" else machine.host.step_us * MICRO


def _basis(kernels: Sequence[OpKernel], spans: Sequence[KernelSpan], machine: RooflineMachine) -> MeasuredBasis | None:
    """The measured basis of the products of a step; None where nothing was measured, or there are none."""
    efficiency = load_efficiency(machine.measured)
    products = [pair for pair in zip(kernels, spans, strict=True) if pair[0].op.gemm is not None]
    total_s = sum(span.time_s for _, span in products)
    if efficiency.layers is None or not total_s:
        return None
    known_s = sum(
        span.time_s for kernel, span in products if not kernel.stands_for and efficiency.knows(kernel.features)
    )
    known, unmeasured = known_s / total_s, tuple(sorted({kernel.stands_for for kernel, _ in products} - {""}))
    is_transferred = efficiency.peaks != machine.peaks
    is_checked = machine.launch == "graph" and not is_transferred and not unmeasured
    checks = efficiency.layers.checks if is_checked else ()
    return MeasuredBasis(
        device=efficiency.layers.device,
        known=known,
        is_transferred=is_transferred,
        unmeasured=unmeasured,
        has_fp8=any(format.significand_bits <= 4 for format in map(parse, unmeasured) if format.exponent_bits),
        checks=next((alike for alike in checks if known >= alike.known), None),
    )


def _all_reduce(step: MachineStep, machine: RooflineMachine) -> tuple[float, float]:
    """Seconds, and bytes that each chip sends, to add up the gradients of all chips around a ring.

    A step that neither computes gradients nor uses them has nothing to add up.
    """
    if not any(op.phase in ("weight_grad", "update") for op in step.executed):
        return 0.0, 0.0
    layers = {tensor.id: op.layer for op in step.graph.ops if op.phase == "update" for tensor in op.outputs}
    total = sum(
        step.formats.bytes_of(TensorRef(0, parameter.shape, "gradient"), layers.get(parameter.id, ""))
        for parameter in updated(step.graph)
    )
    sent = 2 * (machine.chips - 1) / machine.chips * total
    return sent / (_link_gb_s(machine) * 1e9), sent


def _link_gb_s(machine: RooflineMachine) -> float:
    return GUESSED_LINK_GB_S if machine.link_gb_s is None else machine.link_gb_s


def _static_w(machine: RooflineMachine) -> float:
    return machine.power_w * (1.0 if machine.energy is None else machine.energy.static)


def _energy_j(kernel: OpKernel, span: KernelSpan, machine: RooflineMachine, clock: float = 1.0) -> dict[str, float]:
    if machine.energy is None:
        return {"static": span.time_s * machine.power_w}
    # Busy watts follow the clock and the square of the voltage, which follows the clock.
    busy_j = busy_seconds(kernel, span) * _busy_w(kernel, machine) * clock**3
    parts = {"static": busy_j, "memory": kernel.traffic_bytes * machine.energy.pj_per_byte * PICO}
    if kernel.format:
        parts["matrix"] = kernel.flops * machine.matrix[kernel.format].pj_per_flop * PICO * clock**2
    else:
        parts["vector"] = kernel.flops * machine.energy.pj_per_flop * PICO * clock**2
    if kernel.launches:
        factor = load_efficiency(machine.measured).power_factor(activity_of(kernel, span.time_s, machine))
        parts = {name: joules * factor for name, joules in parts.items()}
    parts["static"] += span.time_s * _static_w(machine)
    return parts


def activity_of(kernel: OpKernel, time_s: float, machine: RooflineMachine) -> KernelLoad:
    """The load of a kernel that takes some time, with rates in steps of a tenth of a doubling."""
    peak = machine.matrix[kernel.format].tflops * 1e12 if kernel.format else _peak(machine)
    flops, traffic = kernel.flops / (time_s * peak), kernel.traffic_bytes / (time_s * _bytes_s(machine))
    return KernelLoad(kernel.labels, *(round(log2(max(share, _SLOWEST)), 1) for share in (flops, traffic)))


def _busy_w(kernel: OpKernel, machine: RooflineMachine) -> float:
    assert machine.energy is not None
    return machine.energy.busy.get(kernel.activity, 0.0) * machine.power_w


def _op_cost(kernel: OpKernel, span: KernelSpan, start_s: float, energy_j: float, machine: RooflineMachine) -> OpCost:
    peak = machine.matrix[kernel.format].tflops * 1e12 if kernel.format else max(_peak(machine), 1.0)
    busy = kernel.format and span.compute_s
    saved = multiplications_saved(kernel) if span.algorithm else 1.0
    return op_cost(
        kernel.op,
        unit="matrix" if kernel.format else "vector",
        start_s=start_s,
        time_s=span.time_s,
        energy_j=energy_j,
        compute_s=min(span.compute_s, span.time_s),
        memory_s=span.memory_s,
        bytes_dram=min(kernel.traffic_bytes, span.time_s * _bytes_s(machine)),  # the rest comes from the cache
        dram_gb_s=machine.memory_gb_s,
        kernel_flops=kernel.flops,
        peak_flops_s=peak,
        utilization=min(1.0, kernel.flops / saved / ((span.time_s - span.fixed_s) * peak)) if busy else 0.0,
        algorithm=span.algorithm,
    )


def _peak(machine: RooflineMachine) -> float:
    """FLOPs per second outside the matrix units: those of float32, where the machine lists it."""
    rate = machine.matrix.get("float32")
    return ceil(rate.tflops * 1e12) if rate else min(rate.tflops for rate in machine.matrix.values()) * 1e12
