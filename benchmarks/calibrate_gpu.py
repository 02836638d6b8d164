"""Fit a roofline machine to measured steps of some models, and judge it on the others.

    python benchmarks/calibrate_gpu.py [--write]

Reads benchmarks/data/h200_steps.json and h200_operators.json. The models of CALIBRATION are fitted: the fractions of
the peaks on their device times by group of operators, the host's times on their eager steps, the energies on their
joules. The others are predicted. `--write` puts the fitted figures into the h200 preset.
"""

import argparse
import json
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from gpu_steps import find_workload
from msgspec import structs
from scipy.optimize import least_squares, nnls

import presilicon
from presilicon.designs import Design, RooflineMachine, StepFormats, load_design
from presilicon.records import StepFacts, StepGraph
from presilicon.simulation import simulate
from presilicon.simulation.execution import executed_ops
from presilicon.simulation.roofline.kernels import Kernel, make_kernels
from presilicon.simulation.roofline.machine import ChipEnergy, ClassRate, HostTimes, MatrixRate, PhaseFractions
from presilicon.simulation.roofline.pricing import busy_seconds, seconds
from presilicon.workloads import capture_workload

DATA = Path(__file__).parent / "data"
PRESET = Path(presilicon.__file__).parent / "designs/presets/h200.toml"
CALIBRATION = ("mlp-large", "vgg16", "resnet18", "inception-v3", "dcgan-discriminator", "bert-base", "gpt-block")
LAYOUT = ("machine.layout=channels-last",)
"""The layout in which gpu_steps.py runs networks of images."""
UNITS = ("float32", "tf32", "bfloat16")
FP8 = "float(exponent=5, mantissa=3)"
"""What the 8-bit units take: e4m3 and e5m2. Not measured; it and float16 are given bfloat16's fractions."""
PHASES = ("forward", "input_grad", "weight_grad")

GROUPS = {
    "convolution": ("cudnn_convolution", "cudnn_convolution_transpose"),
    "convolution.backward": ("convolution_backward",),
    "addmm": ("addmm", "baddbmm"),
    "mm": ("mm", "bmm"),
    "attention": ("_efficient_attention_forward", "_cudnn_attention_forward", "_flash_attention_forward"),
    "attention.backward": ("_efficient_attention_backward", "_cudnn_attention_backward", "_flash_attention_backward"),
    "normalization": ("native_batch_norm", "cudnn_batch_norm"),
    "normalization.backward": ("native_batch_norm_backward", "cudnn_batch_norm_backward"),
    "layer-normalization": ("native_layer_norm",),
    "layer-normalization.backward": ("native_layer_norm_backward",),
    "pooling": ("max_pool2d_with_indices", "avg_pool2d", "_adaptive_avg_pool2d"),
    "pooling.backward": ("max_pool2d_with_indices_backward", "avg_pool2d_backward", "_adaptive_avg_pool2d_backward"),
    "softmax": ("_log_softmax",),
    "softmax.backward": ("_log_softmax_backward_data",),
    "reduction": ("sum", "mean"),
    "gather.backward": ("embedding_dense_backward",),
    "optimizer": (
        *("_foreach_add_", "_foreach_mul_", "_foreach_addcdiv_", "_foreach_lerp_", "_foreach_addcmul_", "div_"),
        *("_foreach_sqrt", "_foreach_add", "_foreach_div_", "_foreach_mul", "_foreach_pow", "_foreach_sub_"),
    ),
}
REST = "rest"
"""Elementwise ops, copies, conversions, biases, losses: operators that share names."""


def group_of(kernel: Kernel) -> str:
    backward = ".backward" if kernel.op.phase in ("input_grad", "weight_grad") else ""
    if kernel.name == "attention":
        return "attention" + backward
    if kernel.op.kind == "gemm":
        return "addmm" if ".addmm" in kernel.op.operator else "mm"
    name = kernel.name.removesuffix(".backward") + ("" if kernel.op.kind == "reduction" else backward)
    return name if name in GROUPS else REST


class Case:
    """A measured step: its kernels, and what was measured."""

    def __init__(self, row: dict[str, Any], graph: StepGraph, design: Design) -> None:
        self.row, self.graph, self.design = row, graph, design
        formats = StepFormats(design.numerics, StepFacts())
        executed = executed_ops(graph, formats, StepFacts())
        machine = design.machine
        assert isinstance(machine, RooflineMachine)
        self.kernels = [k for k in make_kernels(executed, machine, design.numerics, formats) if k.launches]
        self.operators: dict[str, float] = {}

    @property
    def name(self) -> tuple[str, int, str]:
        return self.row["model"], self.row["batch"], self.row["precision"]

    def group_seconds(self, machine: RooflineMachine) -> dict[str, float]:
        """Of each group of operators; extras belong to the rest."""
        found = dict.fromkeys([*GROUPS, REST], 0.0)
        for kernel in self.kernels:
            bare = structs.replace(kernel, extras=())
            alone = seconds(bare, machine)[0]
            found[group_of(kernel)] += alone
            found[REST] += seconds(kernel, machine)[0] - alone
        return found


class Space:
    """The fitted figures of a machine as a vector of logarithms."""

    SHARES: ClassVar[dict[str, tuple[float, float]]] = {
        "elementwise": (0.9, 0.9),
        "elementwise.backward": (0.9, 0.9),
        "normalization": (0.5, 0.2),
        "normalization.backward": (0.5, 0.3),
        "layer-normalization": (0.45, 0.3),
        "layer-normalization.backward": (0.35, 0.2),
        "softmax": (0.5, 0.5),
        "softmax.backward": (0.4, 0.4),
        "pooling": (0.5, 0.3),
        "pooling.backward": (0.5, 0.3),
        "reduction": (0.6, 0.4),
        "copy": (0.5, 0.3),
        "cast": (0.7, 0.7),
        "bias": (0.55, 0.3),
        "optimizer": (0.85, 0.8),
        "gather": (0.5, 0.5),
    }
    """Where the fit starts, and what it leaves for a reason only: shares of the bandwidth at 32 and at 16 bits."""
    LATENCIES = (
        *("gemm", "gemm.backward", "convolution", "convolution.backward", "normalization", "normalization.backward"),
        *("layer-normalization", "layer-normalization.backward", "reduction", "gather.backward"),
    )

    def __init__(self) -> None:
        self.names: list[tuple[str, ...]] = []
        self.starts: list[float] = []
        for unit in UNITS:
            for kind in ("gemm", "convolution"):
                for phase in PHASES if kind == "gemm" else ("forward", "backward"):
                    self.add((unit, kind, phase), 0.65)
            self.add((unit, "attention"), 0.1 if unit == "tf32" else 0.5)
            self.add((unit, "unaligned_convolution"), 0.6 if unit == "float32" else 0.1)
            if unit == "float32":
                self.add((unit, "winograd"), 1.5)
            else:
                self.add((unit, "unaligned"), 0.3)
        for name, shares in self.SHARES.items():
            self.add(("class", name, "memory"), shares[0])
            self.add(("class", name, "memory_16"), shares[1])
        self.add(("class", "pooling", "tflops"), 0.4)
        self.add(("class", "pooling.backward", "tflops"), 0.2)
        for name in self.LATENCIES:
            self.add(("class", name, "latency_us"), 2.0)
        self.add(("class", "bias-correction", "latency_us"), 6.0)
        self.add(("latency_us",), 2.0)

    def add(self, name: tuple[str, ...], start: float) -> None:
        self.names.append(name)
        self.starts.append(start)

    def start(self) -> np.ndarray:
        return np.log(self.starts)

    def machine(self, base: RooflineMachine, vector: np.ndarray) -> RooflineMachine:
        value = dict(zip(self.names, np.exp(vector), strict=True))

        def fraction(*name: str) -> float:
            return float(min(value[name], 1.0))

        matrix = {}
        for unit in UNITS:
            matrix[unit] = MatrixRate(
                tflops=base.matrix[unit].tflops,
                gemm=PhaseFractions(**{phase: fraction(unit, "gemm", phase) for phase in PHASES}),
                convolution=PhaseFractions(
                    forward=fraction(unit, "convolution", "forward"),
                    input_grad=fraction(unit, "convolution", "backward"),
                    weight_grad=fraction(unit, "convolution", "backward"),
                ),
                attention=fraction(unit, "attention"),
                unaligned=1.0 if unit == "float32" else fraction(unit, "unaligned"),
                unaligned_convolution=fraction(unit, "unaligned_convolution"),
                winograd=float(np.clip(value[unit, "winograd"], 1, 4)) if unit == "float32" else 1.0,
                pj_per_flop=base.matrix[unit].pj_per_flop,
            )
        classes: dict[str, dict[str, float]] = {}
        for name, number in value.items():
            if name[0] == "class":
                classes.setdefault(name[1], {})[name[2]] = float(
                    number if name[2] in ("tflops", "latency_us") else min(number, 1.0)
                )
        for product in ("gemm", "gemm.backward", "convolution", "convolution.backward"):
            classes.setdefault(product, {}).update(memory=0.8, memory_16=0.8)
        rates = {name: ClassRate(**fields) for name, fields in sorted(classes.items())}
        return structs.replace(base, matrix=matrix, classes=rates, latency_us=float(value["latency_us",]))


def fit_rates(cases: list[Case], base: RooflineMachine) -> RooflineMachine:
    """Fractions and latencies, on device times by group (weighted by their share of the step) and on whole steps."""
    space = Space()
    start = space.start()

    def residuals(vector: np.ndarray) -> np.ndarray:
        machine = space.machine(base, vector)
        errors = []
        for case in cases:
            ours = case.group_seconds(machine)
            whole = sum(case.operators.values())
            for group, measured in case.operators.items():
                if measured > 0.002 * whole and ours[group] > 0:
                    errors.append(np.sqrt(measured / whole) * np.log(ours[group] / measured))
            errors.append(2 * np.log(sum(ours.values()) / case.row["time_s"]))
        return np.array([*errors, *(0.3 * (vector - start))])

    found = least_squares(residuals, start, loss="soft_l1", f_scale=0.2, max_nfev=12, verbose=2)
    return space.machine(base, found.x)


def fit_host(cases: list[Case], eager: dict[tuple[str, int, str], dict[str, Any]]) -> HostTimes:
    """The host's times, on steps that it holds up."""
    rows, times = [], []
    for case in cases:
        measured = eager.get(case.name)
        if measured is None or measured["time_s"] < 1.15 * case.row["time_s"]:
            continue
        counts = [1, 0, 0, 0, 0]
        for kernel in case.kernels:
            casts = sum(extra.name == "cast" for extra in kernel.extras)
            if kernel.op.operator == "presilicon.round":
                counts[4] += kernel.launches
                continue
            counts[{"forward": 1, "update": 3}.get(kernel.op.phase, 2)] += kernel.calls
            counts[4] += casts
        rows.append(np.array(counts) / measured["time_s"])
        times.append(1.0)
    # Few steps wait for the host, and their counts go together: what they do not decide stays near a plain guess.
    guess = np.array([300.0, 20.0, 20.0, 3.0, 10.0]) * 1e-6
    rows += list(0.1 * np.diag(1 / guess))
    times += [0.1] * len(guess)
    found, _ = nnls(np.array(rows), np.array(times))
    step, forward, backward, update, cast = (round(float(value) * 1e6, 2) for value in found)
    print(f"steps that wait for the host: {len(rows) - len(guess)}")
    return HostTimes(step_us=step, forward_us=forward, backward_us=backward, update_us=update, cast_us=cast)


BUSY = {
    "product": ("gemm", "gemm.backward", "attention", "convolution", "convolution.backward"),
    "pooling": ("pooling", "pooling.backward"),
    "normalization": (
        *("normalization", "normalization.backward", "layer-normalization", "layer-normalization.backward"),
    ),
}
"""Classes whose kernels draw a power of their own while they work; `unaligned` and `rest` are the others."""


def fit_energy(cases: list[Case], rows: list[dict[str, Any]], machine: RooflineMachine) -> RooflineMachine:
    """Watts and picojoules, by non-negative least squares of relative errors."""
    by_name = {case.name: case for case in cases}
    group_of = {name: group for group, names in BUSY.items() for name in names}
    left = []
    for row in rows:
        case = by_name.get((row["model"], row["batch"], row["precision"]))
        if case is None:
            continue
        busy = dict.fromkeys([*BUSY, "unaligned", "rest"], 0.0)
        for kernel in case.kernels:
            waits = kernel.unaligned and kernel.op.convolution is not None
            group = "unaligned" if waits else group_of.get(kernel.name, "rest")
            busy[group] += busy_seconds(kernel, seconds(kernel, machine))
        products = [sum(k.flops for k in case.kernels if k.format == unit) * 1e-12 for unit in UNITS]
        traffic = sum(k.traffic_bytes for k in case.kernels) * 1e-12
        left.append(np.array([row["time_s"], traffic, *products, *busy.values()]) / row["energy_j"])
    found, _ = nnls(np.array(left), np.ones(len(left)))
    static, byte, *flop = (float(value) for value in found[:5])
    watts = dict(zip([*BUSY, "unaligned", "rest"], (float(value) for value in found[5:]), strict=True))
    matrix = {unit: structs.replace(machine.matrix[unit], pj_per_flop=pj) for unit, pj in zip(UNITS, flop, strict=True)}
    classes = dict(machine.classes)
    for name, group in group_of.items():
        classes[name] = structs.replace(classes.get(name, ClassRate()), busy=watts[group] / machine.power_w)
    energy = ChipEnergy(
        static=static / machine.power_w,
        busy=watts["rest"] / machine.power_w,
        unaligned=watts["unaligned"] / machine.power_w,
        pj_per_byte=byte,
    )
    return structs.replace(machine, matrix=matrix, classes=classes, energy=energy)


Point = tuple[float, float, float, float]
"""Measured and predicted seconds, measured and predicted joules."""


def report(
    title: str, cases: list[Case], rows: list[dict[str, Any]], machine: RooflineMachine, verbose: bool
) -> list[Point]:
    by_name = {case.name: case for case in cases}
    found: list[Any] = []
    points: list[Point] = []
    for row in rows:
        case = by_name.get((row["model"], row["batch"], row["precision"]))
        if case is None:
            continue
        launched = structs.replace(machine, launch=row["mode"])
        cost = simulate(case.graph, structs.replace(case.design, machine=launched))
        time, energy = cost.time_s / row["time_s"] - 1, cost.energy_j / row["energy_j"] - 1
        found.append((abs(time), abs(energy), row, time, energy))
        points.append((row["time_s"], cost.time_s, row["energy_j"], cost.energy_j))
        if verbose:
            print(
                f"  {row['model']:20}{row['batch']:6} {row['precision']:10}{row['mode']:6}"
                f"{row['time_s'] * 1e3:10.3f} ms {time:+7.1%}   {row['energy_j']:9.3f} J {energy:+7.1%}"
            )
    times, energies = np.array([f[0] for f in found]), np.array([f[1] for f in found])
    print(
        f"{title}: {len(found)} steps; time: mean error {times.mean():.1%}, worst {times.max():.1%}, "
        f"beyond 40%: {(times > 0.4).sum()}; energy: mean {energies.mean():.1%}, worst {energies.max():.1%}, "
        f"beyond 40%: {(energies > 0.4).sum()}"
    )
    return points


def plot(parts: dict[str, list[Point]], path: Path) -> None:
    """Predicted against measured, time and energy."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(11, 5.2), constrained_layout=True)
    colours = ("#9aa0a6", "#0072b2", "#d55e00")
    for place, (axis, unit) in enumerate(zip(axes, ("seconds", "joules"), strict=True)):
        for (title, points), colour in zip(parts.items(), colours, strict=False):
            measured = [point[2 * place] for point in points]
            predicted = [point[2 * place + 1] for point in points]
            axis.scatter(measured, predicted, s=22, color=colour, alpha=0.75, linewidths=0, label=title)
        values = [value for points in parts.values() for point in points for value in point[2 * place : 2 * place + 2]]
        ends = np.array([min(values) / 1.5, max(values) * 1.5])
        axis.plot(ends, ends, color="#202124", linewidth=1.2)
        axis.fill_between(ends, ends / 1.4, ends * 1.4, color="#202124", alpha=0.07, linewidth=0)
        axis.set(xscale="log", yscale="log", xlim=ends, ylim=ends)
        axis.set_xlabel(f"measured on an H200 ({unit} per step)")
        axis.set_ylabel(f"predicted ({unit} per step)")
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(color="#e8eaed", linewidth=0.8)
        axis.set_axisbelow(True)
    axes[0].legend(frameon=False, loc="upper left")
    axes[0].set_title("Time of a training step", loc="left", fontweight="bold")
    axes[1].set_title("Energy of a training step; the band is 40%", loc="left", fontweight="bold")
    figure.savefig(path, dpi=160)


def toml_table(machine: RooflineMachine) -> str:
    """The fitted tables of a preset."""

    def number(value: float) -> str:
        return f"{value:.3g}"

    lines = [f"latency_us = {number(machine.latency_us)}"]
    assert machine.energy is not None
    energy, host = machine.energy, machine.host
    fields = ", ".join(f"{name} = {number(getattr(energy, name))}" for name in energy.__struct_fields__)
    lines.append(f"energy = {{ {fields} }}")
    fields = ", ".join(f"{name} = {number(getattr(host, name))}" for name in host.__struct_fields__)
    lines.append(f"host = {{ {fields} }}")
    for unit, rate in machine.matrix.items():
        lines += ["", f'[machine.matrix."{unit}"]', f"tflops = {rate.tflops}"]
        for kind in ("gemm", "convolution"):
            fractions = getattr(rate, kind)
            fields = ", ".join(f"{phase} = {number(getattr(fractions, phase))}" for phase in PHASES)
            lines.append(f"{kind} = {{ {fields} }}")
        for name in ("attention", "unaligned", "unaligned_convolution", "winograd", "pj_per_flop"):
            lines.append(f"{name} = {number(getattr(rate, name))}")
    lines += ["", "[machine.classes]"]
    plain = ClassRate()
    for name, rate in machine.classes.items():
        fields = ", ".join(
            f"{field} = {number(getattr(rate, field))}"
            for field in rate.__struct_fields__
            if getattr(rate, field) != getattr(plain, field)
        )
        lines.append(f'"{name}" = {{ {fields} }}')
    return "\n".join(lines) + "\n"


MARK = "# Fitted by benchmarks/calibrate_gpu.py"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="put the fitted figures into the preset")
    parser.add_argument("--check", action="store_true", help="fit nothing: judge the preset as it is")
    parser.add_argument("--steps", type=Path, default=DATA / "h200_steps.json", help="measured steps to read")
    parser.add_argument("--plot", type=Path, help="draw predicted against measured")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    steps = json.loads(options.steps.read_text())["rows"]
    profiles = json.loads((DATA / "h200_operators.json").read_text())["rows"]
    graphs: dict[tuple[str, int], StepGraph] = {}
    cases: dict[tuple[str, int, str], Case] = {}
    for row in steps:
        key = (row["model"], row["batch"])
        if row["mode"] == "graph":
            if key not in graphs:
                graphs[key] = capture_workload(find_workload(row["model"]), batch_size=row["batch"])
            design = load_design("h200", LAYOUT, numerics=row["precision"])
            cases[(*key, row["precision"])] = Case(row, graphs[key], design)
    for profile in profiles:
        case = cases.get((profile["model"], profile["batch"], profile["precision"]))
        if case is not None:
            left = dict(profile["operators"])
            for group, members in GROUPS.items():
                case.operators[group] = sum(left.pop(name, [0, 0.0])[1] for name in members) * 1e-6
            case.operators[REST] = sum(time for _, time in left.values()) * 1e-6
    fitted = [case for case in cases.values() if case.row["model"] in CALIBRATION]
    others = [case for case in cases.values() if case.row["model"] not in CALIBRATION]
    machine = load_design("h200", LAYOUT).machine
    assert isinstance(machine, RooflineMachine)
    if not options.check:
        machine = fit_rates(fitted, machine)
        eager = {(r["model"], r["batch"], r["precision"]): r for r in steps if r["mode"] == "eager"}
        machine = structs.replace(machine, host=fit_host(fitted, eager))
        machine = fit_energy(fitted, steps, machine)
        like = machine.matrix["bfloat16"]
        machine = structs.replace(
            machine, matrix=machine.matrix | {"float16": like, FP8: structs.replace(like, tflops=1979.0)}
        )
    if options.verbose:
        for case in cases.values():
            ours = case.group_seconds(machine)
            print(*case.name, f"{sum(ours.values()) * 1e3:.2f} ms, measured {case.row['time_s'] * 1e3:.2f}")
            shown = sorted(case.operators, key=lambda group: -case.operators[group])
            print("    " + "  ".join(f"{g} {ours[g] * 1e3:.2f}/{case.operators[g] * 1e3:.2f}" for g in shown[:9]))
    drawn = {}
    for title, part in (("calibrated on", fitted), ("predicted", others)):
        if part:
            drawn[title] = report(title, part, steps, machine, options.verbose)
    if options.plot is not None:
        plot(drawn, options.plot)
    if options.write:
        text = PRESET.read_text()
        PRESET.write_text(text[: text.index(MARK)] + MARK + "\n" + toml_table(machine))


if __name__ == "__main__":
    main()
