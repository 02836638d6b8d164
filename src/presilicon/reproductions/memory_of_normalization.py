"""Memory for training with batch normalization and with online normalization, which needs one sample at a time."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from presilicon.base import GIBI
from presilicon.designs import Design, StepFormats, load_design
from presilicon.records import Cost, Reproduced, Reproduction, StepFacts, StepGraph
from presilicon.simulation import Course, executed_ops, peak_bytes, simulate
from presilicon.workloads import Workload, capture_workload, from_networks, load_workload, unet

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
    counted = [row for row in rows if row.note == ONE_COPY and "U-Net" in row.quantity and row.published]
    worst = max(abs((row.ours or 0) - (row.published or 0)) / (row.published or 1) for row in counted if _is_large(row))
    held = [row.ours / row.published for row in rows if row.note == ALL_HELD and row.ours and row.published]
    rows += _normalizers()
    return Reproduction(
        name="memory-of-normalization",
        title="Memory for training with batch normalization and with online normalization",
        source="Chiley et al., Online Normalization for Training Neural Networks (arXiv 1905.05894), Table 1",
        rows=tuple(rows),
        assumptions=_ASSUMPTIONS,
        verdict=(
            f"One 16-bit copy of what convolutions make reproduces the U-Nets within {worst:.1%} in every row of 20 GB "
            "and more; below, the table's whole GB are too coarse, and 1024^2 online is a third under its figure. "
            "ResNet-50 by the same count is about one GB below each of its three figures, as if something of that size "
            f"were held besides. Training as autograd does it holds {min(held):.2g} to {max(held):.2g} times the "
            "published figures. PyTorch's row lies above ours by a part that does not grow with the batch (its context "
            "and workspaces) and one that does. That one sample is enough saves what the table says it does."
        ),
    )


ONE_COPY = "one 16-bit copy of convolutions"
ALL_HELD = "all that a step holds"


def _is_large(row: Reproduced) -> bool:
    return (row.published or 0) >= 20


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
