"""Memory for training with batch normalization and with online normalization, which needs one sample at a time."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from presilicon.base import GIBI
from presilicon.designs import Design, StepFormats, load_design
from presilicon.records import Cost, Reproduced, Reproduction, StepFacts, StepGraph
from presilicon.simulation import Course, executed_ops, peak_bytes, simulate
from presilicon.workloads import Workload, capture_workload, from_networks, load_workload, unet
from presilicon_evidence.reproductions.verdicts import Rows, Statement, conclude, stated

BATCHES = (1, 32, 128)
"""Online normalization needs one sample at a time."""

PUBLISHED: dict[str, tuple[float, float, float]] = {
    "ResNet-50, ImageNet": (1, 2, 4),
    "ResNet-50, PyTorch": (2, 5, 15),
    "U-Net, 150^3 voxels": (1, 29, 115),
    "U-Net, 250^3 voxels": (6, 195, 785),
    "U-Net, 1024^2 pixels": (2, 31, 123),
    "U-Net, 2048^2 pixels": (5, 137, 546),
}
"""GB with online normalization, and with batch normalization at 32 and at 128."""

KINDS = ("batch", "group", "instance", "layer", "weight")

_ASSUMPTIONS = (
    "The table's GB are taken for GiB, and it gives whole ones: a figure of 1 or 2 may be off by a half.",
    "One 16-bit copy: two bytes for each result of a convolution or up-convolution of the forward pass, and twelve for "
    "each parameter (weight, gradient and momentum in float32). Nothing else: no normalized or rectified results.",
    "All that a step holds: the peak of what is live in the captured step, in the numerics of bf16-systolic (16-bit "
    "activations and errors, float32 master weights, gradients and momentum as they say), and of fp32-systolic for "
    "the row of PyTorch. Inputs of normalization and of convolutions are both kept, as autograd keeps them; nothing is "
    "recomputed. PyTorch's own context and workspaces are not in it.",
    "U-Nets are the published ones, unpadded: 64 channels and four halvings for images of one channel, 32 to 512 "
    "channels and three halvings for volumes of three. The source does not say which it took.",
    "Online normalization runs on one sample. SGD with momentum in all cases.",
    "The last rows compare normalizers in ResNet-50 at batch 32 on bf16-systolic, against the same network without "
    "any; they have no published figure. Online normalization is written in plain elementwise operations, each of "
    "which goes to DRAM; the others are one operation forward and one backward, priced alike.",
)


def reproduce() -> Reproduction:
    """The table's eighteen figures, counted in two ways, and what each normalizer costs in ResNet-50."""
    rows: list[Reproduced] = []
    for name in PUBLISHED:
        rows += _rows(name)
    rows += _normalizers()
    return Reproduction(
        name="memory-of-normalization",
        title="Memory for training with batch normalization and with online normalization",
        source="Chiley et al., Online Normalization for Training Neural Networks (arXiv 1905.05894), Table 1",
        rows=tuple(rows),
        assumptions=_ASSUMPTIONS,
        verdict=conclude(statements, rows),
    )


ONE_COPY = "one 16-bit copy of convolutions"
ALL_HELD = "all that a step holds"
LARGE, HALF_GIB = 20, 0.5
"""GB from which the table's whole ones are fine enough for parts; below, a figure may be off by their rounding."""
EXACT, NEAR = 0.02, 0.1
"""Parts of published figures by which ours may differ: by a count that is theirs, and by what training holds."""


def statements(rows: Rows) -> Iterator[Statement]:
    """The table by a count of one copy and by all that a step holds, and what one sample at a time saves."""
    counted = [row for row in rows if row.note == ONE_COPY]
    nets, residual = ([row for row in counted if ("U-Net" in row.quantity) == is_net] for is_net in (True, False))
    large, small = ([row for row in nets if ((row.published or 0) >= LARGE) == is_large] for is_large in (True, False))
    yield stated(f"U-Nets of {LARGE} GB and more, by one 16-bit copy of what convolutions make", large, EXACT)
    for name, found in (("smaller U-Nets", small), ("ResNet-50", residual)):
        yield Statement(
            all(abs((row.ours or 0.0) - (row.published or 0.0)) <= HALF_GIB for row in found),
            f"{name} by the same count, within {HALF_GIB:g} GB",
            _beside(found),
        )
    yield stated("all that a step holds", [row for row in rows if _is_held(row, in_torch=False)], NEAR)
    yield stated("all that PyTorch holds", [row for row in rows if _is_held(row, in_torch=True)], NEAR)
    saved: dict[str, list[tuple[float, float]]] = {}
    for row in nets:
        saved.setdefault(row.quantity.rpartition(", ")[0], []).append((row.ours or 0.0, row.published or 1.0))
    pairs = {
        name: [1 - one / (most or 1.0) for one, most in zip(first, last, strict=True)]
        for name, (first, *_, last) in saved.items()
    }
    yield Statement(
        all(abs(ours - published) <= NEAR for ours, published in pairs.values()),
        f"what one sample in place of the largest batch saves of U-Nets, within {NEAR:.0%} of all",
        ", ".join(f"{name}: {ours:.1%}, published {published:.1%}" for name, (ours, published) in pairs.items()),
    )


def _beside(rows: Sequence[Reproduced]) -> str:
    return "; ".join(f"{row.quantity}: {row.ours or 0.0:.2f} GiB, published {row.published or 0.0:g}" for row in rows)


def _is_held(row: Reproduced, *, in_torch: bool) -> bool:
    return row.note == ALL_HELD and ("PyTorch" in row.quantity) == in_torch


def _rows(name: str) -> Iterator[Reproduced]:
    in_torch = name.endswith("PyTorch")
    design = load_design("fp32-systolic" if in_torch else "bf16-systolic")
    for batch, published in zip(BATCHES, PUBLISHED[name], strict=True):
        kind = "online" if batch == 1 else "batch"
        graph = capture_workload(_workload(name, kind), batch)
        quantity = f"{name}, online" if batch == 1 else f"{name}, batch {batch}"
        if not in_torch:
            yield Reproduced(quantity, "GiB", published, one_copy_bytes(graph) / GIBI, note=ONE_COPY)
        held = held_bytes(graph, design) / GIBI
        yield Reproduced(quantity, "GiB", published, held, note=ALL_HELD)


def one_copy_bytes(graph: StepGraph) -> float:
    """Two bytes for each result of a forward convolution, twelve for each parameter."""
    results = sum(op.outputs[0].elements for op in graph.ops if op.kind == "convolution" and op.phase == "forward")
    return 2 * results + 12 * graph.parameter_elements


def held_bytes(graph: StepGraph, design: Design) -> float:
    """Peak of live memory in the step, as `simulate` counts it."""
    formats = StepFormats(design.numerics, StepFacts())
    return peak_bytes(graph, Course(executed_ops(graph, formats, StepFacts())), formats)


def _workload(name: str, kind: str) -> Workload:
    if name.startswith("ResNet"):
        return replace(load_workload("resnet50"), model=partial(from_networks, "resnet.resnet50", normalization=kind))
    side, _, dimensions = name.removeprefix("U-Net, ").partition(" ")[0].partition("^")
    return unet(int(dimensions), int(side), kind)


def _normalizers() -> Iterator[Reproduced]:
    design = load_design("bf16-systolic")
    batch = 32
    without = _step("none", batch, design)
    for kind in (*KINDS, "online"):
        # Online normalization takes the samples of a batch one after another: 32 steps of one, without the update.
        samples = 1 if kind == "online" else batch
        cost = _step(kind, samples, design)
        plain = without if samples == batch else _step("none", samples, design)
        yield Reproduced(
            f"ResNet-50, {kind} norm: memory",
            "GiB",
            ours=cost.memory_bytes / GIBI,
            note="one sample" if samples == 1 else f"batch {batch}",
        )
        more_s = (cost.time_s - plain.time_s) / samples
        yield Reproduced(
            f"ResNet-50, {kind} norm: time it adds",
            "ms/image",
            ours=more_s * 1e3,
            note=f"{more_s * samples / plain.time_s:+.0%} of a step without it",
        )


def _step(kind: str, batch: int, design: Design) -> Cost:
    return simulate(capture_workload(_workload("ResNet-50", kind), batch), design)
