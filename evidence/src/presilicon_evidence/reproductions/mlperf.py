"""Published training speeds of chips that were never measured here: MLPerf, vendors and frameworks, beside ours.

The figures were divided before anything was fitted to them: the fitted ones may be used to choose parameters of chips,
the others only to judge them.
"""

from collections.abc import Iterator
from contextlib import nullcontext
from functools import cache
from statistics import mean
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

from presilicon.designs import load_design
from presilicon.records import Cost, Reproduced, Reproduction, StepGraph
from presilicon.simulation import simulate
from presilicon.workloads import capture_workload, load_workload
from presilicon_evidence.reproductions.verdicts import Rows, Statement, conclude, is_near, shown, spread

if TYPE_CHECKING:
    from torch import Tensor

IMAGES = 1_281_167
"""Images in the training split of ImageNet."""
NEAR = 0.15
"""Part of a published speed by which ours may differ."""
EPOCHS = 60
"""Epochs of the MLPerf v0.6 run on a DGX-1; also used for the P100, whose source gives none."""
_HOUR_S = 3600.0

Part = Literal["fitted", "kept out"]

_LAST = ("layout=channels-last",)
_COMPILED = (
    *("layout=channels-last", "launch=compile", "optimizer=fused"),
    *("host.step_us=0", "host.compiled_us=0", "host.update_us=0"),
)
"""A framework that compiles the whole step, and whose host never holds the chip up."""
_BY_HAND = "attention by hand"
"""A setting of the network: products, mask and softmax as ops of their own, as in the source's first versions."""


class Published(NamedTuple):
    """A published training speed, and the design that it is compared with."""

    part: Part
    workload: str
    design: str
    numerics: str
    batch: int
    """Per chip."""
    per_second: float
    """Images or sequences, of all chips."""
    settings: tuple[str, ...] = ()
    """Of the machine, or `attention by hand`."""
    source: str = ""
    label: Literal["verified", "recalled"] = "verified"
    """Whether the figure was read in its source; batches and layouts that it does not state are recalled."""


_TENSORFLOW = "TensorFlow benchmarks, May 2017, cuDNN 5.1, synthetic data"
_NVIDIA = "NVIDIA DeepLearningExamples, PyTorch 21.03; batch and layout recalled"
_BERT = "NVIDIA DeepLearningExamples, PyTorch 20.06, sequences of 128"
_PLAIN = "sandeepkumar-skb/pytorch_experiments, torchvision, batch 128"
_LECTURE = "A. Karpathy, Let's reproduce GPT-2, chapter titles; 16 sequences of 1024 on an A100 recalled"
PUBLISHED = (
    Published("fitted", "resnet50", "p100", "fp32", 64, 219, source=_TENSORFLOW),
    Published("fitted", "vgg16", "p100", "fp32", 64, 154, source=_TENSORFLOW),
    Published("fitted", "resnet50", "v100", "fp32", 128, 367, source=_NVIDIA),
    Published("fitted", "resnet50", "v100", "fp16-mixed", 256, 1200, _LAST, _NVIDIA),
    Published("fitted", "resnet50", "a100", "tf32", 256, 938, source=_NVIDIA),
    Published("fitted", "resnet50", "a100", "fp16-mixed", 256, 2470, _LAST, _NVIDIA),
    Published("kept out", "resnet50", "p100", "fp32", 32, 195, source=_TENSORFLOW),
    Published("kept out", "vgg16", "p100", "fp32", 32, 144, source=_TENSORFLOW),
    Published("kept out", "inception-v3", "p100", "fp32", 64, 142, source=_TENSORFLOW),
    Published("kept out", "inception-v3", "p100", "fp32", 32, 128, source=_TENSORFLOW),
    Published("kept out", "alexnet", "p100", "fp32", 512, 2987, source=_TENSORFLOW),
    Published("kept out", "resnet50", "v100", "fp32", 128, 128 / 0.34237, source=_PLAIN),
    Published("kept out", "resnet50", "v100", "fp32", 128, 128 / 0.41284, _LAST, _PLAIN),
    Published("kept out", "resnet50", "v100", "fp16-mixed", 128, 128 / 0.15220, source=_PLAIN),
    Published("kept out", "resnet50", "v100", "fp16-mixed", 128, 128 / 0.11093, _LAST, _PLAIN),
    Published("kept out", "bert-large", "v100", "fp32", 8, 40, source=_BERT),
    Published("kept out", "bert-large", "v100", "fp16-mixed", 16, 164, source=_BERT),
    Published("kept out", "bert-large", "a100", "tf32", 54, 234, source=_BERT),
    Published("kept out", "bert-large", "a100", "fp16-mixed", 64, 415, source=_BERT),
    Published("kept out", "gpt2", "a100", "fp32", 16, 16 / 1.000, (_BY_HAND,), _LECTURE),
    Published("kept out", "gpt2", "a100", "tf32", 16, 16 / 0.333, (_BY_HAND,), _LECTURE),
    Published("kept out", "gpt2", "a100", "bf16", 16, 16 / 0.300, (_BY_HAND,), _LECTURE),
    Published("kept out", "gpt2", "a100", "bf16", 16, 16 / 0.130, ("launch=compile", _BY_HAND), _LECTURE),
    Published("kept out", "gpt2", "a100", "bf16", 16, 16 / 0.096, ("launch=compile",), _LECTURE),
    Published("kept out", "resnet50", "dgx-1", "fp16-mixed", 208, 11_217, _COMPILED, "MLPerf v0.6, log of a DGX-1"),
    Published("kept out", "resnet50", "gaudi-hls-1", "bf16", 256, 12_900, _COMPILED, "Habana, TensorFlow 2.5"),
    Published(
        "kept out", "resnet50", "gaudi-hls-1", "bf16", 256, 1690, ("chips=1", *_COMPILED), "Habana, TensorFlow 2.5"
    ),
    Published(
        "kept out", "resnet50", "tpu-v2", "bf16", 256, 3186, ("chips=4", *_COMPILED), "RiseML, April 2018, as quoted"
    ),
    Published(
        *("kept out", "resnet50", "tpu-v3", "bf16", 64, 90 * IMAGES / (130 * 60), ("chips=16", *_COMPILED)),
        source="dm-haiku: 90 epochs in 130 minutes, evaluation included",
        label="recalled",
    ),
)


def reproduce() -> Reproduction:
    """Speeds of networks on the chips for which somebody has published them."""
    rows = (*_rows(), *_hours())
    return Reproduction(
        name="mlperf",
        title="Training speed on chips that were not measured: published, and ours",
        source="MLPerf v0.6, NVIDIA, Google, Habana and others; the note of each row names its own",
        rows=rows,
        assumptions=(
            'Rows were divided before any fit: "fitted" ones may be used to choose parameters of chips, others not.',
            "Only training steps are counted: no evaluation, no input pipeline, no start-up.",
            "P100, V100, A100, TPUs and Gaudi have the peaks of their data sheets. How far kernels stay behind their "
            "limits was measured on an H200 in plain PyTorch 2.11; where a GPU has less of a limit per core and clock, "
            "kernels come closer to it, by an exponent that was chosen on the fitted rows.",
            "MLPerf's containers, TPUs and Gaudi compile the whole step: ops that are no products are merged.",
            "Compiled products have padded rows, as torch.compile makes them; added after GPT-2's rows were seen.",
            "Attention by hand has its softmax in float32, as mixed precision leaves it; captured so after these rows "
            "had been seen with the ops of torch's own attention (up to 53% too fast).",
            "BERT's head is computed for every word here, and for the masked ones in NVIDIA's.",
            f"Hours: an epoch has {IMAGES:,} images; the P100 is given the {EPOCHS} epochs of the DGX-1.",
        ),
        verdict=conclude(statements, rows),
    )


def statements(rows: Rows) -> Iterator[Statement]:
    """Speeds on average and one by one, of fitted rows and of those kept out, and the hours of the P100."""
    for part in get_args(Part):
        found = [row for row in rows if row.note.startswith(part)]
        errors = [abs(row.difference) for row in found if row.difference is not None]
        for summary, how in ((mean, "on average"), (max, "one by one")):
            holds = bool(errors) and summary(errors) <= NEAR
            yield Statement(holds, f"speeds that were {part}, {how} within {NEAR:.0%}", spread(found, NEAR))
    hours = rows[f"resnet50 on p100, {EPOCHS} epochs"]
    yield Statement(is_near(hours, NEAR), f"hours of resnet50 on a P100, within {NEAR:.0%}", shown(hours))


@cache
def _graph(workload: str, batch: int, by_hand: bool) -> StepGraph:
    from unittest.mock import patch

    from torch.nn import functional

    with patch.object(functional, "scaled_dot_product_attention", attend_by_hand) if by_hand else nullcontext():
        return capture_workload(load_workload(workload), batch_size=batch)


def attend_by_hand(query: "Tensor", key: "Tensor", value: "Tensor", *, is_causal: bool) -> "Tensor":
    """Attention as products, a mask and a softmax; automatic mixed precision keeps the softmax in float32."""
    scores = query @ key.transpose(-2, -1) * query.shape[-1] ** -0.5
    if is_causal:
        earlier = scores.new_ones(scores.shape[-2:]).tril()
        scores = scores.masked_fill(earlier == 0, float("-inf"))
    mixed: Tensor = scores.softmax(-1) @ value
    return mixed


def price(case: Published) -> Cost:
    """Our cost of a step."""
    settings = [f"machine.{setting}" for setting in case.settings if setting != _BY_HAND]
    design = load_design(case.design, settings, numerics=case.numerics)
    return simulate(_graph(case.workload, case.batch, _BY_HAND in case.settings), design)


def _rows() -> Iterator[Reproduced]:
    for case in PUBLISHED:
        settings = [setting for setting in case.settings if not setting.startswith(("host", "optimizer"))]
        cost = price(case)
        quantity = f"{case.workload} on {case.design}, {case.numerics}, {cost.batch_text}"
        yield Reproduced(
            quantity=", ".join([quantity, *settings]),
            unit="per s",
            published=case.per_second,
            ours=cost.batch_size / cost.time_s,
            note=f"{case.part}, {case.label}; {case.source}",
        )


def _hours() -> Iterator[Reproduced]:
    """Table 1 of the divide-and-conquer paper, and the official time of the DGX-1."""
    p100 = next(case for case in PUBLISHED if case.design == "p100")
    cost = price(p100)
    hours = EPOCHS * IMAGES * cost.time_s / cost.batch_size / _HOUR_S
    yield Reproduced(
        quantity=f"resnet50 on p100, {EPOCHS} epochs", unit="h", published=147, ours=hours, note="MLPerf v0.6"
    )
    for model, published in (("Mask R-CNN", 83), ("Seq2Seq", 18), ("MiniGo", 73)):
        yield Reproduced(quantity=f"{model} on p100", unit="h", published=published, note="not among our networks")
