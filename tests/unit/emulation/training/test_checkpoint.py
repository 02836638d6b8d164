"""A run that was broken off goes on to the same bits."""

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import presilicon as ps
from presilicon.base import ConfigError
from presilicon.designs.numerics import Change, Numerics, RoleFormat
from presilicon.emulation import train
from presilicon.emulation.training.checkpoint import Checkpoint, ModelState, Progress, SavedRun
from presilicon.formats import parse
from presilicon.records import Evaluation, StepFacts, Trace

WORKLOAD = replace(ps.load_workload("digits-mlp"), target=1.0, max_steps=110, evaluate_every=10)
OF = {"seed": 0}


class BrokenOffError(Exception):
    pass


class Noisy(nn.Module):
    """Draws random numbers in its forward pass, normalizes with buffers, and has a buffer that is not saved."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(64, 32), nn.BatchNorm1d(32), nn.Linear(32, 10)
        self.register_buffer("mean", torch.zeros(32), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.first(x))
        if self.training:
            self.mean.mul_(0.9).add_(0.1 * x.detach().mean(0))
        return self.last(nn.functional.dropout(x - self.mean, 0.2, self.training).relu())


class Counting:
    """A hook with state of its own, such as a loss scaler's."""

    def __init__(self) -> None:
        self.total, self.scale = torch.zeros(2), float("inf")

    def before_step(self, step: int) -> None:
        self.total += step

    def after_step(self, step: int, facts: StepFacts) -> StepFacts:
        return facts

    def state_dict(self) -> dict[str, Any]:
        return {"total": self.total, "scale": self.scale, "history": [(1, None), "a"]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        assert state["history"] == [(1, None), "a"]
        self.total, self.scale = state["total"], state["scale"]


def _broken_off(path: Path, design: str, after: int, workload: Any, hooks: Any = ()) -> Trace:
    """Trained with a break after an evaluation, and then again from the checkpoint."""
    numerics = ps.load_design(design).numerics

    def stop(point: Evaluation) -> None:
        if point.step == after:
            raise BrokenOffError

    kept = Checkpoint(path / "seed.safetensors", every=2)
    with pytest.raises(BrokenOffError):
        train(workload, numerics, seed=3, on_evaluation=stop, checkpoint=kept, hooks=[each() for each in hooks])
    seen: list[int] = []
    trace = train(
        workload,
        numerics,
        seed=3,
        on_evaluation=lambda point: seen.append(point.step),
        checkpoint=kept,
        hooks=[each() for each in hooks],
    )
    # It went on from the last checkpoint before the break, and not from the beginning.
    assert seen[0] == (after - 1) // 20 * 20 + 10
    return trace


@pytest.mark.parametrize("design", ["fp32-systolic", "fp8-systolic"])
@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_a_run_goes_on_to_the_same_bits(tmp_path: Path, design: str, optimizer: str) -> None:
    chosen = getattr(ps.workloads.workload, optimizer)
    workload = replace(WORKLOAD, model=Noisy, optimizer=chosen)
    unbroken = train(workload, ps.load_design(design).numerics, seed=3)
    assert unbroken.steps == 110
    # The epoch has 33 batches: the break at 50 lies in the second, that at 100 in the fourth.
    for after in (50, 100):
        folder = tmp_path / str(after)
        assert _broken_off(folder, design, after, workload) == unbroken


def test_a_schedule_of_formats_goes_on_where_it_was(tmp_path: Path) -> None:
    numerics = Numerics(
        weight=RoleFormat(format=parse("e5m2")), schedule=(_change(30, "e4m3"), _change(70, "bfloat16"))
    )
    kept = Checkpoint(tmp_path / "seed.safetensors", every=2)

    def stop(point: Evaluation) -> None:
        if point.step == 90:
            raise BrokenOffError

    with pytest.raises(BrokenOffError):
        train(WORKLOAD, numerics, on_evaluation=stop, checkpoint=kept)
    unbroken = train(WORKLOAD, numerics)
    assert len(unbroken.runs) == 3
    assert train(WORKLOAD, numerics, checkpoint=kept) == unbroken


def _change(step: int, name: str) -> Change:
    return Change(layers="*", from_step=step, weight=RoleFormat(format=parse(name)))


def test_hooks_keep_their_state(tmp_path: Path) -> None:
    hook = Counting()
    unbroken = train(WORKLOAD, ps.load_design("fp32-systolic").numerics, seed=3, hooks=[hook])
    made: list[Counting] = []

    def make() -> Counting:
        made.append(Counting())
        return made[-1]

    assert _broken_off(tmp_path, "fp32-systolic", 70, WORKLOAD, [make]) == unbroken
    assert torch.equal(made[-1].total, hook.total)
    assert made[-1].scale == float("inf")


def test_a_hook_whose_state_was_not_kept_is_named(tmp_path: Path) -> None:
    path = tmp_path / "kept"
    SavedRun(Checkpoint(path), OF).write_progress(Progress.none(), {})
    with pytest.raises(ConfigError, match="kept: this checkpoint has no state of hook0; use the same hooks as before"):
        SavedRun(Checkpoint(path), OF).read_progress({"hook0": Counting()})


def test_a_run_that_ended_is_not_trained_again(tmp_path: Path) -> None:
    numerics = ps.load_design("fp32-systolic").numerics
    kept = Checkpoint(tmp_path / "seed.safetensors")
    workload = replace(WORKLOAD, max_steps=20)
    first = train(workload, numerics, checkpoint=kept)
    assert train(workload, numerics, checkpoint=kept, on_evaluation=lambda point: pytest.fail("trained")) == first
    with pytest.raises(ps.ConfigError, match=r"seed\.safetensors: .* belongs to a run with a different seed"):
        train(workload, numerics, checkpoint=kept, seed=1)
    with pytest.raises(ps.ConfigError, match=r"belongs to a run with a different workload\.max_steps, numerics"):
        train(WORKLOAD, ps.load_design("fp8-systolic").numerics, checkpoint=kept)


def test_a_loss_that_is_no_number_is_kept(tmp_path: Path) -> None:
    kept = Checkpoint(tmp_path / "seed.safetensors")
    wild = replace(WORKLOAD, optimizer=_wild)
    traces = [train(wild, ps.load_design("fp32-systolic").numerics, checkpoint=kept) for _ in range(2)]
    assert traces[0].ending == traces[1].ending == "diverged"
    assert repr(traces[0]) == repr(traces[1])


def _wild(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=1e30)


def test_a_file_that_is_damaged_or_no_checkpoint_is_explained(tmp_path: Path) -> None:
    file = tmp_path / "seed.safetensors"
    for content in (b"", b"nonsense", b"\x10\0\0\0\0\0\0\0{}              "):
        file.write_bytes(content)
        with pytest.raises(ps.ConfigError, match=r"seed\.safetensors: this checkpoint is damaged"):
            SavedRun(Checkpoint(file), OF).read_progress({})


def test_state_that_cannot_be_kept_is_named(tmp_path: Path) -> None:
    class Odd(Counting):
        def state_dict(self) -> dict[str, Any]:
            return {"made": object()}

    with pytest.raises(ps.ConfigError, match="cannot save /states/scaler/made, a object"):
        SavedRun(Checkpoint(tmp_path / "x"), OF).write_progress(Progress.none(), {"scaler": Odd()})


def test_tied_weights_are_kept(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model[1].weight = model[0].weight
    SavedRun(Checkpoint(tmp_path / "x"), OF).write_progress(Progress([1.0], [], [], []), {"model": ModelState(model)})
    other = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    assert SavedRun(Checkpoint(tmp_path / "x"), OF).read_progress({"model": ModelState(other)}).losses == [1.0]
    assert torch.equal(other[1].weight, model[0].weight)


def test_no_flipped_bit_is_accepted(tmp_path: Path) -> None:
    file = tmp_path / "seed.safetensors"
    torch.manual_seed(0)
    model = nn.Linear(8, 8)
    progress = Progress([1.0, 2.0], [], [Evaluation(step=2, samples=4, updates=2, value=0.5, loss=1.0)], [])
    SavedRun(Checkpoint(file), OF).write_progress(progress, {"model": ModelState(model), "hook0": Counting()})
    draw = random.Random(0)
    for path in (file, *tmp_path.glob("*.history")):
        whole = path.read_bytes()
        for _ in range(300):
            damaged = bytearray(whole)
            damaged[draw.randrange(len(whole))] ^= 1 << draw.randrange(8)
            path.write_bytes(damaged)
            with pytest.raises(ConfigError, match=r"seed\.safetensors: this checkpoint is damaged"):
                SavedRun(Checkpoint(file), OF).read_progress({"model": ModelState(model), "hook0": Counting()})
        path.write_bytes(whole)
    assert SavedRun(Checkpoint(file), OF).read_progress({"model": ModelState(model), "hook0": Counting()}) == progress


class Doubling:
    """A hook with a parameter of its own that changes training."""

    def __init__(self, factor: float) -> None:
        self.factor = factor

    def describe(self) -> dict[str, float]:
        return {"factor": self.factor}

    def before_step(self, step: int) -> None:
        pass

    def after_step(self, step: int, facts: StepFacts) -> StepFacts:
        return facts


def test_a_finished_checkpoint_belongs_to_its_hooks(tmp_path: Path) -> None:
    numerics = ps.load_design("fp32-systolic").numerics
    checkpoint = Checkpoint(tmp_path / "seed.safetensors")
    workload = replace(WORKLOAD, max_steps=10)
    train(workload, numerics, checkpoint=checkpoint, hooks=[Doubling(2.0)])
    assert train(workload, numerics, checkpoint=checkpoint, hooks=[Doubling(2.0)]).steps == 10
    for hooks in ([], [Doubling(4.0)], [Counting()], [Doubling(2.0), Counting()]):
        with pytest.raises(ConfigError, match="belongs to a run with a different hooks"):
            train(workload, numerics, checkpoint=checkpoint, hooks=hooks)
