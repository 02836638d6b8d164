"""The state of emulation is part of the model's `state_dict`, so that a resumed run gives the same bits."""

import copy
import io
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from msgspec import structs
from safetensors import safe_open
from torch import Tensor, nn
from torch.nn import functional

from presilicon.base import ConfigError
from presilicon.designs import Change, LossScale, Numerics, RoleFormat, load_numerics
from presilicon.emulation import (
    LossScaler,
    StepWarning,
    emulate_,
    emulate_optimizer_,
    emulated,
    emulation_of,
    restore_,
    train,
)
from presilicon.emulation.state.entry import ENTRY
from presilicon.emulation.training.checkpoint import Checkpoint
from presilicon.formats import parse
from presilicon.workloads import load_workload

RANDOM = RoleFormat(parse("e4m3"), "stochastic")
NUMERICS = Numerics(
    weight=RANDOM, activation=RANDOM, error=RANDOM,
    master=RoleFormat(parse("bfloat16"), "stochastic"), state=RoleFormat(parse("bfloat16"), "stochastic"),
    schedule=(Change(layers="*", from_step=3, weight="e5m2"),),
)  # fmt: skip
DATA = torch.randn(12, 3, 8, generator=torch.Generator().manual_seed(0))


def make(numerics: Numerics = NUMERICS, seed: int = 3) -> nn.Sequential:
    torch.manual_seed(0)
    return emulate_(nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4)), numerics, seed=seed)


class Run:
    """A plain training loop with two micro-batches per step."""

    def __init__(self) -> None:
        self.model = make()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01)
        emulate_optimizer_(self.optimizer, NUMERICS, model=self.model, seed=3)

    def train(self, batches: torch.Tensor) -> list[torch.Tensor]:
        outputs = []
        for number, batch in enumerate(batches):
            out = self.model(batch)
            outputs.append(out.detach())
            out.square().mean().backward()
            if number % 2:
                self.optimizer.step()
                self.optimizer.zero_grad()
        return outputs

    def save(self) -> bytes:
        buffer = io.BytesIO()
        torch.save({"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}, buffer)
        return buffer.getvalue()

    def load(self, saved: bytes, *, without: tuple[str, ...] = ()) -> "Run":
        states = torch.load(io.BytesIO(saved), weights_only=True)
        self.model.load_state_dict({key: value for key, value in states["model"].items() if key not in without})
        self.optimizer.load_state_dict(states["optimizer"])
        return self


def test_a_resumed_loop_gives_the_same_bits() -> None:
    first = Run()
    first.train(DATA[:4])
    saved = first.save()
    expected = first.train(DATA[4:])
    again = Run().load(saved)
    assert all(map(torch.equal, expected, again.train(DATA[4:])))
    assert all(map(torch.equal, first.model.parameters(), again.model.parameters()))
    lost = Run().load(saved, without=(ENTRY,))
    assert not any(map(torch.equal, expected, lost.train(DATA[4:])))


@pytest.mark.parametrize("recipe", ["fp8-delayed", "fp8-hybrid", "nvfp4", "fp8-chunked"])
def test_recipes_with_amax_histories_and_loss_scales_resume_to_the_same_bits(recipe: str) -> None:
    """The scale of the loss changes every second update."""
    numerics = structs.replace(
        load_numerics(recipe), loss_scale=LossScale(kind="dynamic", initial=4.0, interval=2), overrides=()
    )

    def begin() -> tuple[nn.Module, torch.optim.Optimizer, LossScaler]:
        model = make(numerics)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)
        return model, emulate_optimizer_(optimizer, numerics, model=model, seed=3), LossScaler(model)

    def run(model: nn.Module, optimizer: torch.optim.Optimizer, scaler: LossScaler, batches: Tensor) -> list[Tensor]:
        gradients = []
        for number, batch in enumerate(batches):
            optimizer.zero_grad()
            scaler.scale(model(batch * (1 + number)).square().mean()).backward()
            gradients += [parameter.grad.clone() for parameter in model.parameters()]
            scaler.step(optimizer)
            scaler.update()
        return gradients

    first = begin()
    run(*first, DATA[:5])
    saved = copy.deepcopy([part.state_dict() for part in first[:2]])
    expected = run(*first, DATA[5:10])
    for is_whole in (True, False):
        model, optimizer, scaler = begin()
        model.load_state_dict({key: value for key, value in saved[0].items() if is_whole or key != ENTRY})
        optimizer.load_state_dict(copy.deepcopy(saved[1]))
        again = run(model, optimizer, scaler, DATA[5:10])
        assert all(map(torch.equal, again, expected)) == is_whole


def test_evaluation_after_resuming_gives_the_same_bits() -> None:
    first = Run()
    first.train(DATA[:4])
    again = Run().load(first.save())
    with torch.no_grad():
        assert torch.equal(first.model.eval()(DATA[0]), again.model.eval()(DATA[0]))


def test_a_copy_and_its_entry_do_not_follow_the_original() -> None:
    first = Run()
    first.train(DATA[:4])
    state, model = first.model.state_dict(), copy.deepcopy(first.model)
    first.train(DATA[4:])
    assert torch.equal(model.state_dict()[ENTRY], state[ENTRY])
    assert not torch.equal(first.model.state_dict()[ENTRY], state[ENTRY])
    assert first.model.state_dict()[ENTRY].shape == state[ENTRY].shape


@pytest.mark.parametrize(
    ("numerics", "has_entry"),
    [
        (Numerics(weight="e4m3"), False),
        (Numerics(weight=RANDOM), True),
        (Numerics(master=RANDOM), True),
        (Numerics(schedule=(Change(layers="*", from_step=3, weight="e5m2"),)), True),
    ],
)
def test_only_numerics_that_depend_on_the_step_have_a_state(numerics: Numerics, has_entry: bool) -> None:
    assert (ENTRY in make(numerics).state_dict()) == has_entry


def test_the_entry_has_the_prefix_of_the_emulated_module() -> None:
    for wrap in (lambda model: nn.ModuleDict({"net": model}), nn.DataParallel):
        whole = wrap(make())
        prefix = "net." if isinstance(whole, nn.ModuleDict) else "module."
        state = whole.state_dict()
        assert [key for key in state if ENTRY in key] == [prefix + ENTRY]
        emulation_of(whole).count.restart(7)
        state = whole.state_dict()
        other = wrap(make())
        other.load_state_dict(state)
        assert emulation_of(other).count.step == 7


def test_a_wrapper_that_is_emulated_saves_with_the_model_inside() -> None:
    """Loops save `ddp.module.state_dict()`."""
    torch.manual_seed(0)
    wrapper = emulate_(nn.DataParallel(nn.Linear(8, 4)), NUMERICS)
    assert ENTRY in wrapper.module.state_dict()


def test_checkpoints_of_plain_models_can_be_loaded() -> None:
    plain = restore_(make())
    state = plain.state_dict()
    assert ENTRY not in state
    make().load_state_dict(state)
    assert not plain._state_dict_hooks
    assert not plain._load_state_dict_pre_hooks
    assert not hasattr(plain, ENTRY)
    with pytest.raises(RuntimeError, match=ENTRY):
        plain.load_state_dict(make().state_dict())
    plain.load_state_dict(make().state_dict(), strict=False)


def test_another_seed_is_named() -> None:
    with pytest.warns(StepWarning, match=r"seed=3"):
        make(seed=4).load_state_dict(make().state_dict())


def test_a_damaged_entry_is_named() -> None:
    state = make().state_dict()
    state[ENTRY] = state[ENTRY].flip(0)
    with pytest.raises(ConfigError, match=ENTRY):
        make().load_state_dict(state)


class Part:
    def __init__(self) -> None:
        self.values = {"history": torch.zeros(3), "scale": 1.0, "names": ["a", None]}

    def state_dict(self) -> dict:
        return self.values

    def load_state_dict(self, state: dict) -> None:
        self.values = state


@pytest.mark.parametrize("late", [False, True])
def test_parts_of_others_are_saved_too(late: bool) -> None:
    first, again = make(Numerics(weight="e4m3")), make(Numerics(weight="e4m3"))
    part, loaded = Part(), Part()
    emulation_of(first).add_state("scales", part)
    part.values = {"history": torch.tensor([1.0, float("inf"), 3.0]), "scale": float("nan"), "names": ["b", None]}
    if not late:
        emulation_of(again).add_state("scales", loaded)
    again.load_state_dict(first.state_dict())
    assert torch.equal(again.state_dict()[ENTRY], first.state_dict()[ENTRY])
    if late:
        emulation_of(again).add_state("scales", loaded)
    assert torch.equal(loaded.values["history"], part.values["history"])
    assert loaded.values["scale"] != loaded.values["scale"]
    assert loaded.values["names"] == ["b", None]
    assert torch.equal(again.state_dict()[ENTRY], first.state_dict()[ENTRY])


def test_a_loss_of_its_own_is_resumed_too() -> None:
    numerics = Numerics(activation=RANDOM)
    loss = emulated(functional.mse_loss, numerics)
    output = torch.randn(3, 4, requires_grad=True)
    loss(output, torch.zeros(3, 4))
    again = emulated(functional.mse_loss, numerics)
    again.load_state_dict(loss.state_dict())
    values = [float(one(output, torch.zeros(3, 4)).detach()) for one in (loss, again)]
    fresh = emulated(functional.mse_loss, numerics)(output, torch.zeros(3, 4))
    assert values[0] == values[1] != float(fresh.detach())


def test_an_optimizer_without_an_emulated_model_is_resumed_too() -> None:
    numerics = Numerics(master=RoleFormat(parse("bfloat16"), "stochastic"))

    def make_optimizer() -> torch.optim.SGD:
        parameter = nn.Parameter(torch.ones(64))
        return emulate_optimizer_(torch.optim.SGD([parameter], lr=2.0**-11), numerics)

    def step(optimizer: torch.optim.SGD) -> torch.Tensor:
        [parameter] = optimizer.param_groups[0]["params"]
        parameter.data.fill_(1.0)
        parameter.grad = torch.ones(64)
        optimizer.step()
        return parameter.detach().clone()

    first = make_optimizer()
    before = step(first)
    again = make_optimizer()
    again.load_state_dict(copy.deepcopy(first.state_dict()))
    expected = step(first)
    assert torch.equal(step(again), expected)
    assert not torch.equal(before, expected)
    exact = emulate_optimizer_(torch.optim.SGD([nn.Parameter(torch.ones(1))]), Numerics(master="bfloat16"))
    assert ENTRY not in exact.state_dict()


def test_checkpoints_of_train_number_their_steps_once(tmp_path: Path) -> None:
    workload = replace(load_workload("digits-mlp"), max_steps=4, evaluate_every=2)
    seen = []

    def look(evaluation: object) -> None:
        file = tmp_path / "run.safetensors"
        if file.exists():
            with safe_open(str(file), framework="pt") as opened:
                seen.append(any(ENTRY in name for name in opened.keys()))  # noqa: SIM118

    train(workload, NUMERICS, checkpoint=Checkpoint(tmp_path / "run.safetensors", every=1), on_evaluation=look)
    assert seen == [False]
