"""Steps replayed as CUDA graphs, and seeds that take turns: the bits of usual training."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import nn

from presilicon.designs import LossScale, Numerics, RoleFormat, load_design, load_recipe
from presilicon.emulation import Checkpoint, TrainingRecord, train
from presilicon.emulation.training import step
from presilicon.emulation.training.captured import CapturedStep
from presilicon.formats import MacUnit, parse
from presilicon.study.join.seeds import SeedTask
from presilicon.study.pool import LocalPool
from presilicon.study.runner import Runner
from presilicon.workloads import Splits, Workload, adamw, sgd

pytestmark = pytest.mark.gpu


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4))


def net_with_dropout() -> nn.Module:
    return nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 4))


def data() -> Splits:
    generator = torch.Generator().manual_seed(5)
    inputs = torch.randn(512, 20, generator=generator)
    targets = inputs[:, :4].argmax(1)
    return Splits(*((inputs, targets) for _ in range(3)))


BASE = Workload(
    name="small", model=net, data=data, target=1.0, batch_size=32, max_steps=120, evaluate_every=20, sustain=9
)
WORKLOADS = {
    "momentum": BASE,
    "clipped": replace(BASE, clip_norm=0.5),
    "adamw": replace(BASE, optimizer=adamw),
    "cosine": replace(BASE, schedule="cosine(warmup=10)"),
    "dropout": replace(BASE, model=net_with_dropout),
    "diverging": replace(BASE, optimizer=partial(sgd, learning_rate=3.0)),
}
DRAWN = RoleFormat(parse("e4m3fn"), rounding="stochastic")
DRAWN_STATE = RoleFormat(parse("bfloat16"), rounding="stochastic")
BLOCKS = RoleFormat(parse("mxfp8_e4m3"), rounding="stochastic")
NUMERICS = {
    "bf16": load_recipe("bf16").numerics,
    "fp8": load_design("fp8-systolic").numerics,
    "fp32": Numerics(),
    "at random": Numerics(weight=DRAWN, activation=BLOCKS, error=DRAWN, state=DRAWN_STATE),
    "delayed scales": load_recipe("fp8-delayed").numerics,
    "loss scale": Numerics(
        error=RoleFormat(parse("float16")),
        gradient=RoleFormat(parse("float16")),
        loss_scale=LossScale(kind="dynamic", initial=2.0**13, interval=12),
    ),
    "random sums": Numerics(mac=MacUnit(accumulate=parse("float16"), rounding="stochastic")),
}


def usual(workload: Workload, numerics: Numerics, **options):
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(step, "can_capture", lambda *arguments: False)
        return train(workload, numerics, device="cuda", **options)


@pytest.mark.parametrize("numerics", NUMERICS)
@pytest.mark.parametrize("name", WORKLOADS)
def test_a_captured_run_has_the_bits_of_a_usual_one(name, numerics, monkeypatch):
    replays = []
    launch = CapturedStep.launch
    monkeypatch.setattr(CapturedStep, "launch", lambda self, *batch: (replays.append(1), launch(self, *batch))[1])
    captured = train(WORKLOADS[name], NUMERICS[numerics], device="cuda")
    # As text, because a loss that is not a number is not equal to itself.
    assert repr(captured) == repr(usual(WORKLOADS[name], NUMERICS[numerics]))
    if name in ("dropout", "diverging"):
        pass
    elif numerics == "loss scale":
        assert captured.skipped  # steps that overflow are repeated without a graph
        assert len(replays) > 20
    else:
        assert len(replays) == 120 - 3  # three usual steps first
    if name == "dropout":
        assert not replays


def test_random_numbers_of_plain_torch_are_not_captured(monkeypatch):
    monkeypatch.setattr(CapturedStep, "launch", lambda self, *batch: pytest.fail("captured"))
    posit = RoleFormat(parse("posit(8, 1)"), rounding="stochastic")
    assert train(replace(BASE, max_steps=20), Numerics(weight=posit), device="cuda").steps == 20


def test_seeds_that_take_turns_have_the_bits_of_seeds_alone():
    for workload in (BASE, WORKLOADS["dropout"]):
        tasks = [SeedTask("bf16", TrainingRecord(workload, NUMERICS["bf16"], seed, "cuda")) for seed in range(5)]
        alone = [usual(workload, NUMERICS["bf16"], seed=seed) for seed in range(5)]
        assert Runner(LocalPool(3)).train(tasks, device="cuda") == alone


class Interrupt:
    """A hook that stops once; it is passive, so that the run can go on without it."""

    is_passive = True

    def before_step(self, step):
        if step == 75:
            raise KeyboardInterrupt

    def after_step(self, step, facts):
        return facts


def test_a_captured_run_resumes_to_the_same_bits(tmp_path):
    checkpoint = Checkpoint(tmp_path / "run.safetensors", every=1)
    with pytest.raises(KeyboardInterrupt):
        train(BASE, NUMERICS["bf16"], device="cuda", hooks=[Interrupt()], checkpoint=checkpoint)
    assert train(BASE, NUMERICS["bf16"], device="cuda", checkpoint=checkpoint) == usual(BASE, NUMERICS["bf16"])
