"""A training step ends when an optimizer has updated the model."""

import copy
import io
import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from presilicon.base import ConfigError
from presilicon.designs import Change, Numerics, RoleFormat
from presilicon.emulation import StepWarning, emulate_, emulate_optimizer_, emulated, emulation_of, next_step
from presilicon.formats import parse

RANDOM = RoleFormat(parse("e4m3"), "stochastic")
WEIGHTS = Numerics(weight=RANDOM)
LATER = Numerics(schedule=(Change(layers="*", from_step=2, weight=RoleFormat(parse("e5m2"))),))


def make(numerics: Numerics = WEIGHTS) -> nn.Sequential:
    torch.manual_seed(0)
    return emulate_(nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4)), numerics)


def moment(model: nn.Module) -> tuple[int, str]:
    emulation = emulation_of(model)
    return emulation.step, emulation.stream


X = torch.randn(3, 8, generator=torch.Generator().manual_seed(1))


def backward(model: nn.Module) -> torch.Tensor:
    out = model(X)
    out.square().sum().backward()
    return out.detach()


def squares(output: torch.Tensor) -> torch.Tensor:
    return functional.mse_loss(output, torch.zeros_like(output), reduction="none")


def all_differ(tensors: list[torch.Tensor]) -> bool:
    return not any(torch.equal(a, b) for index, a in enumerate(tensors) for b in tensors[:index])


def test_micro_batches_are_passes_of_one_step_with_random_numbers_of_their_own() -> None:
    model = make()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    moments, outputs = [], []
    for _ in range(2):
        for _ in range(3):
            outputs.append(backward(model))
            moments.append(moment(model))
        optimizer.step()
    assert moments == [(step, stream) for step in (0, 1) for stream in ("", "pass1/", "pass2/")]
    assert all_differ(outputs)


def test_several_optimizers_between_two_passes_end_one_step() -> None:
    model = make()
    optimizers = [torch.optim.SGD(layer.parameters(), lr=0.1) for layer in (model[0], model[2])]
    for step in range(3):
        backward(model)
        assert moment(model) == (step, "")
        for optimizer in optimizers:
            optimizer.step()


def test_an_optimizer_of_another_model_ends_no_step() -> None:
    model, other = make(), make()
    optimizer = torch.optim.SGD(other.parameters(), lr=0.1)
    for expected in ("", "pass1/"):
        backward(model)
        optimizer.step()
        assert moment(model) == (0, expected)


def test_parts_of_a_model_that_are_called_on_their_own_share_its_step() -> None:
    """As in Lightning, where the module itself is never called."""
    model = make()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(2):
        model[2](model[0](X)).sum().backward()
        assert moment(model) == (step, "pass1/")
        optimizer.step()


def test_an_update_that_a_scaler_skips_does_not_end_the_step() -> None:
    model = make()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    moments = []
    for factor in (1.0, float("inf"), 1.0, 1.0):
        optimizer.zero_grad()
        scaler.scale(model(X).square().sum() * factor).backward()
        moments.append(moment(model))
        scaler.step(optimizer)
        scaler.update()
    assert moments == [(0, ""), (1, ""), (1, "pass1/"), (2, "")]


def test_updates_before_the_first_pass_do_not_count() -> None:
    """As in torch.distributed.checkpoint, which creates an optimizer's state by a step without gradients."""
    model = make()
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    backward(model)
    assert moment(model) == (0, "")


@pytest.mark.parametrize("make_copy", [copy.deepcopy, lambda both: through_a_file(both)])
def test_a_copy_counts_its_own_steps(make_copy) -> None:
    model = make()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        backward(model)
        optimizer.step()
    other, its_optimizer = make_copy((model, optimizer))
    for step in (2, 3):
        backward(other)
        its_optimizer.step()
        assert moment(other) == (step, "")
    assert moment(model) == (1, "")


def through_a_file(value):
    buffer = io.BytesIO()
    torch.save(value, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=False)


def test_parameters_that_are_moved_are_still_those_of_the_model() -> None:
    model = make()
    model.to(torch.float64).to(torch.float32)
    for parameter in list(model.parameters()):
        parameter.data = parameter.data.clone()
    model[0].weight = nn.Parameter(model[0].weight.detach().clone())
    optimizer = torch.optim.SGD([model[0].weight], lr=0.1)
    for step in range(2):
        backward(model)
        assert moment(model) == (step, "")
        optimizer.step()


def test_the_passes_of_a_closure_belong_to_the_step_of_its_update() -> None:
    """Lightning makes every update with a closure."""
    numerics = Numerics(
        schedule=(
            Change(layers="*", from_step=2, master=RoleFormat(parse("bfloat16")), state=RoleFormat(parse("e5m2"))),
        )
    )
    model = make(numerics)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    emulate_optimizer_(optimizer, numerics, model=model)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(X).square().sum()
        loss.backward()
        return loss

    rounded = []
    for _ in range(4):
        optimizer.step(closure)
        weight = model[0].weight.detach()
        rounded.append(torch.equal(weight, weight.bfloat16().float()))
    assert moment(model) == (3, "")
    assert rounded == [False, True, True, True], "the update of step 1 writes what the passes of step 2 read"


def test_a_schedule_counts_optimizer_steps() -> None:
    model, plain = make(LATER), make(Numerics())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    changed = []
    for _ in range(4):
        for _ in range(2):
            changed.append(not torch.equal(backward(model), plain(X)))
        optimizer.step()
    assert changed == [False] * 4 + [True] * 4


def test_updates_by_hand_are_told_by_next_step() -> None:
    model, plain = make(LATER), make(Numerics())
    changed = []
    for _ in range(4):
        changed.append(not torch.equal(backward(model), plain(X)))
        next_step(model)
    assert changed == [False, False, True, True]
    next_step(model, 0)
    assert torch.equal(model(X), plain(X))
    with pytest.raises(ConfigError, match="at least 0"):
        next_step(model, -1)
    with pytest.raises(ConfigError, match="a whole number"):
        next_step(model, 1.5)
    with pytest.raises(ConfigError, match="emulate_"):
        next_step(nn.Linear(2, 2))


def test_a_schedule_that_sees_no_update_is_named_once() -> None:
    model = make(LATER)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(300):
            model(X).sum().backward()
    assert [entry.category for entry in caught] == [StepWarning]
    assert "next_step" in str(caught[0].message)
    trained = make(LATER)
    optimizer = torch.optim.SGD(trained.parameters(), lr=0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(300):
            trained(X).sum().backward()
            optimizer.step()


def test_an_emulated_loss_draws_anew_in_every_pass_and_call() -> None:
    numerics = Numerics(activation=RANDOM, vector="round-results")
    model = make(numerics)
    loss = emulated(squares, model)
    output = model(X).detach()
    values = [loss(output), loss(output)]
    model(X)
    values.append(loss(output))
    assert all_differ(values)
    with torch.no_grad():
        assert torch.equal(loss(output), loss(output))


def test_a_loss_of_its_own_counts_the_steps_of_any_optimizer() -> None:
    loss = emulated(squares, Numerics(activation=RANDOM))
    parameter = nn.Parameter(torch.randn(3, 4))
    optimizer = torch.optim.SGD([parameter], lr=0.0)
    values = []
    for _ in range(2):
        for _ in range(2):
            values.append(loss(parameter))
            values[-1].sum().backward()
        optimizer.step()
    assert all_differ(values)
    assert loss._emulation.step == 1


def test_recomputation_continues_its_own_pass_of_the_step() -> None:
    results = []
    for checkpointed in (False, True):
        model = make(Numerics(weight=RANDOM, error=RANDOM))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for _ in range(2):
            outputs = [checkpoint(model, X, use_reentrant=False) if checkpointed else model(X) for _ in range(2)]
            sum(out.square().sum() for out in outputs).backward()
            optimizer.step()
        assert moment(model) == (1, "pass1/")
        results.append([parameter.detach() for parameter in model.parameters()])
    assert all(map(torch.equal, *results))


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")  # torch's own, at any graph break
def test_a_compiled_model_counts_the_same_steps() -> None:
    results = []
    for compiled in (False, True):
        model = make()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        run = torch.compile(model, backend="eager") if compiled else model
        for step in range(3):
            for _ in range(2):
                backward(run)
            assert moment(model) == (step, "pass1/")
            optimizer.step()
        results.append([parameter.detach() for parameter in model.parameters()])
    assert all(map(torch.equal, *results))
