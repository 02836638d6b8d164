"""Time to train ResNet-50, as MLPerf and others measured it: published epochs times our step."""

from collections.abc import Iterator

from presilicon.designs import load_design
from presilicon.records import Reproduced, Reproduction
from presilicon.simulation import simulate
from presilicon.workloads import capture_workload, load_workload

IMAGES = 1_281_167
"""Images in the training split of ImageNet."""
EPOCHS = 60
"""Epochs of the MLPerf v0.6 run on a DGX-1; also used for the P100, whose source gives none."""
_HOUR_S = 3600.0


def reproduce() -> Reproduction:
    """ResNet-50 on the chips whose training time or throughput was published."""
    return Reproduction(
        name="mlperf",
        title="Time to train ResNet-50: published, and published epochs times our step",
        source=(
            "MLPerf Training v0.6, by way of Table 1 of the divide-and-conquer paper (P100 hours); the public log of "
            "its DGX-1 run (epochs, images per second) and the official result; NVIDIA DeepLearningExamples (V100 and "
            "A100)"
        ),
        rows=tuple(_rows()),
        assumptions=(
            f"An epoch has {IMAGES:,} images. The DGX-1 run took {EPOCHS} epochs; the P100 is given as many.",
            "Only training steps are counted: no evaluation, no input pipeline, no start-up. The official time of the "
            "DGX-1 has them: it lies 1% above images divided by images per second.",
            "Batches are 64 on the P100, 208 on each V100 of the DGX-1, 256 elsewhere; the sources do not all say.",
            "P100, V100 and A100 run at the fractions of their peaks that were measured on an H200 in plain PyTorch "
            "2.11, channels last; no figure was fitted to these rows.",
            "Our steps run every op by itself. NVIDIA's containers fuse activations and additions with their "
            'neighbours: the rows "fused" leave those ops out.',
        ),
        verdict=(
            "Hours on a P100 come out near the published ones. In float16 our steps are slower than NVIDIA's "
            "containers; what those fuse explains it on one V100, and half of it on a DGX-1 and an A100. Float32 on a "
            "V100 is faster than ours and TF32 on an A100 slower: fractions of the peak measured on an H200 do not "
            "carry over to every unit of an older chip."
        ),
    )


def _rows() -> Iterator[Reproduced]:
    graphs = {batch: capture_workload(load_workload("resnet50"), batch_size=batch) for batch in (64, 208, 256)}

    def images_s(design: str, numerics: str, batch: int, *, fused: bool = False) -> float:
        loaded = load_design(design, ["machine.layout=channels-last"], numerics=numerics)
        chips = loaded.machine.update_rule.batches
        cost = simulate(graphs[batch], loaded)
        left_out_s = sum(op.time_s for op in cost.ops if fused and op.kind == "elementwise")
        return chips * batch / (cost.time_s - left_out_s)

    def hours(rate: float) -> float:
        return EPOCHS * IMAGES / rate / _HOUR_S

    p100 = images_s("p100", "fp32", 64)
    yield Reproduced("ResNet-50 on a P100, float32", "h", 147, hours(p100), note=f"{p100:.0f} images/s")
    for model, published in (("Mask R-CNN", 83), ("Seq2Seq", 18), ("MiniGo", 73)):
        quantity = f"{model} on a P100"
        yield Reproduced(quantity, "h", published, note="not among our networks")
    dgx = images_s("dgx-1", "fp16-mixed", 208)
    seconds = hours(dgx) * _HOUR_S
    yield Reproduced("ResNet-50 on a DGX-1, float16", "images/s", 11_217, dgx)
    fused = images_s("dgx-1", "fp16-mixed", 208, fused=True)
    yield Reproduced("  fused", "images/s", 11_217, fused)
    logged = EPOCHS * IMAGES / 11_217
    yield Reproduced("  60 epochs, from the log", "s", logged, seconds)
    yield Reproduced("  60 epochs, official", "s", 6_920, seconds, note="evaluation included")
    for quantity, design, numerics, published in (
        ("ResNet-50 on a V100, float32", "v100", "fp32", 367),
        ("ResNet-50 on a V100, float16", "v100", "fp16-mixed", 1_200),
        ("ResNet-50 on an A100, TF32", "a100", "tf32", 938),
        ("ResNet-50 on an A100, float16", "a100", "fp16-mixed", 2_470),
    ):
        rate = images_s(design, numerics, 256)
        yield Reproduced(quantity, "images/s", published, rate)
        if numerics == "fp16-mixed":
            fused = images_s(design, numerics, 256, fused=True)
            yield Reproduced("  fused", "images/s", published, fused)
