import copy
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from presilicon.base import ConfigError
from presilicon.designs import Numerics, Override, RoleFormat
from presilicon.emulation import emulate_, emulate_optimizer_, optimizers
from presilicon.formats import parse, quantize

HALF = RoleFormat(parse("float(exponent=6, mantissa=9)"))
KEPT = Numerics(master=HALF, state=HALF)


def half(tensor: torch.Tensor) -> torch.Tensor:
    return quantize(tensor, HALF.format)


def problem() -> tuple[nn.Linear, torch.Tensor]:
    torch.manual_seed(0)
    return nn.Linear(7, 5), torch.randn(4, 7)


def backward(model: nn.Module, x: torch.Tensor) -> None:
    model.zero_grad()
    model(x).square().mean().backward()


@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("foreach", [False, True])
def test_the_three_axpys_of_momentum_by_hand(foreach: bool, maximize: bool) -> None:
    model, x = problem()
    emulate_(model, KEPT)
    optimizer = torch.optim.SGD(
        model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01, foreach=foreach, maximize=maximize
    )
    emulate_optimizer_(optimizer, KEPT, model=model)
    momentum = None
    for _ in range(4):
        backward(model, x)
        weight, gradient = model.weight.data.clone(), model.weight.grad.clone()
        optimizer.step()
        decayed = (-gradient if maximize else gradient) + 0.01 * weight
        momentum = half(decayed if momentum is None else 0.9 * momentum + decayed)
        assert torch.equal(optimizer.state[model.weight]["momentum_buffer"], momentum)
        assert torch.equal(model.weight.data, half(weight - 0.1 * momentum))
    assert optimizer.param_groups[0]["foreach"] is foreach


@pytest.mark.parametrize("make", [lambda p: torch.optim.SGD(p, lr=0.1), lambda p: torch.optim.SparseAdam(p, lr=0.1)])
def test_sparse_gradients_are_updates_like_others(make) -> None:
    model = emulate_(nn.Embedding(6, 4, sparse=True), KEPT)
    optimizer = emulate_optimizer_(make(model.parameters()), KEPT, model=model)
    for _ in range(3):
        backward(model, torch.tensor([1, 3]))
        optimizer.step()
    tensors = [model.weight.data, *optimizer.state[model.weight].values()]
    assert all(torch.equal(tensor, half(tensor)) for tensor in tensors if isinstance(tensor, torch.Tensor))


@pytest.mark.parametrize("decay", [0.0, 0.01])
def test_the_look_ahead_of_nesterov_is_temporary(decay: float) -> None:
    model, x = problem()
    emulate_(model, KEPT)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=decay, nesterov=True)
    emulate_optimizer_(optimizer, KEPT, model=model)
    momentum = None
    for _ in range(4):
        backward(model, x)
        weight, gradient = model.weight.data.clone(), model.weight.grad.clone()
        optimizer.step()
        gradient = gradient + decay * weight
        momentum = half(gradient if momentum is None else 0.9 * momentum + gradient)
        assert torch.equal(model.weight.data, half(weight - 0.1 * (gradient + 0.9 * momentum)))


def test_state_is_rounded_before_it_is_read() -> None:
    """Adam's weights follow from the rounded moments, not from what they were before."""
    model, x = problem()
    emulate_(model, KEPT)
    optimizer = emulate_optimizer_(torch.optim.Adam(model.parameters(), lr=0.01), KEPT, model=model)
    backward(model, x)
    weight, gradient = model.weight.data.clone(), model.weight.grad.clone()
    optimizer.step()
    first, second = half(0.1 * gradient), half(0.001 * gradient.square())
    state = optimizer.state[model.weight]
    assert torch.equal(state["exp_avg"], first)
    assert torch.equal(state["exp_avg_sq"], second)
    expected = half(weight - 0.01 * (first / 0.1) / ((second / 0.001).sqrt() + 1e-8))
    assert torch.allclose(model.weight.data, expected, rtol=2**-9)
    assert torch.equal(model.weight.data, half(model.weight.data))


@pytest.mark.parametrize(
    "make",
    [
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
        lambda p: torch.optim.AdamW(p, lr=0.01, amsgrad=True),
        lambda p: torch.optim.RMSprop(p, lr=0.01, momentum=0.9, centered=True),
        lambda p: torch.optim.Adagrad(p, lr=0.1),
        lambda p: torch.optim.Rprop(p, lr=0.01),
    ],
)
def test_any_optimizer_and_float32_changes_nothing(make) -> None:
    for numerics in (KEPT, Numerics()):
        model, x = problem()
        plain = copy.deepcopy(model)
        emulate_(model, numerics)
        mine = emulate_optimizer_(make(model.parameters()), numerics, model=model)
        theirs = make(plain.parameters())
        for _ in range(3):
            for each, optimizer in ((model, mine), (plain, theirs)):
                backward(each, x)
                optimizer.step()
        same = torch.equal(model.weight, plain.weight)
        assert same == (numerics == Numerics())
        assert torch.equal(model.weight.data, half(model.weight.data)) == (numerics == KEPT)
        for value in mine.state[model.weight].values():
            if isinstance(value, torch.Tensor) and value.shape == model.weight.shape and numerics == KEPT:
                assert torch.equal(value, half(value))


@pytest.mark.parametrize("before", [True, False])
def test_schedulers_scalers_and_state_dicts_work(before: bool) -> None:
    model, x = problem()
    emulate_(model, KEPT)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0, momentum=0.9)
    make = lambda: torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)  # noqa: E731
    scheduler = make() if before else None
    emulate_optimizer_(optimizer, KEPT, model=model)
    scheduler = scheduler or make()
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    for _ in range(2):
        model.zero_grad()
        scaler.scale(model(x).square().mean()).backward()
        scaler.step(optimizer)
        scaler.update()
        scheduler.step()
    assert optimizer.param_groups[0]["lr"] == 0.25
    other, _ = problem()
    again = emulate_optimizer_(torch.optim.SGD(other.parameters(), lr=1.0, momentum=0.9), KEPT, model=other)
    other.load_state_dict(model.state_dict())
    again.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for each, optimizer_ in ((model, optimizer), (other, again)):
        restore_grad = torch.autograd.grad(each(x).square().mean(), list(each.parameters()))
        for parameter, gradient in zip(each.parameters(), restore_grad, strict=True):
            parameter.grad = gradient
        optimizer_.step()
    assert torch.equal(model.weight, other.weight)


def test_counters_of_scalar_parameters_are_not_rounded() -> None:
    low = Numerics(state=RoleFormat(parse("e4m3")))
    parameter = nn.Parameter(torch.tensor(1.0))
    for make in (torch.optim.Adam, torch.optim.NAdam, torch.optim.ASGD):
        optimizer = emulate_optimizer_(make([parameter], lr=1e-3), low)
        for _ in range(19):  # e4m3 has no 19
            parameter.grad = torch.tensor(0.3)
            optimizer.step()
        state = optimizer.state[parameter]
        assert state["step"] == 19
        if "exp_avg" in state:
            assert torch.equal(state["exp_avg"], quantize(state["exp_avg"], parse("e4m3")))


@pytest.mark.filterwarnings("ignore:LBFGS. the matrix products of aten.dot")
@pytest.mark.parametrize("make", [torch.optim.Adafactor, torch.optim.LBFGS])
def test_state_of_another_shape_has_its_format_too(make) -> None:
    model, x = problem()
    emulate_(model, KEPT)
    optimizer = emulate_optimizer_(make(model.parameters(), lr=0.1), KEPT, model=model)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        return loss

    for _ in range(3):
        optimizer.step(closure)
    seen = 0
    for state in optimizer.state.values():
        for value in state.values():
            for part in value if isinstance(value, list) else [value]:
                if isinstance(part, torch.Tensor) and part.dim():
                    assert torch.equal(part, half(part))
                    seen += 1
    assert seen >= 2


@pytest.mark.parametrize("together", [True, False])
def test_a_deep_copy_is_emulated_too(together: bool) -> None:
    model, x = problem()
    emulate_(model, KEPT)
    optimizer = emulate_optimizer_(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), KEPT, model=model)
    backward(model, x)
    optimizer.step()
    if together:
        other, again = copy.deepcopy((model, optimizer))
    else:
        again = copy.deepcopy(optimizer)
        other = copy.deepcopy(model)
        places = dict(zip(map(id, model.parameters()), again.param_groups[0]["params"], strict=True))
        other.weight, other.bias = (places[id(each)] for each in (model.weight, model.bias))
    before = model.weight.detach().clone()
    backward(other, x)
    again.step()
    assert torch.equal(model.weight, before)
    assert not torch.equal(other.weight, before)
    assert torch.equal(other.weight.data, half(other.weight.data))
    backward(model, x)
    optimizer.step()
    assert torch.equal(model.weight, other.weight)
    third = copy.deepcopy(again)
    assert hasattr(third.step, "emulates")


def test_what_torch_saves_is_emulated_too(tmp_path: Path) -> None:
    model, x = problem()
    emulate_(model, KEPT)
    optimizer = emulate_optimizer_(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), KEPT, model=model)
    backward(model, x)
    optimizer.step()
    torch.save((model, optimizer), tmp_path / "both.pt")
    other, again = torch.load(tmp_path / "both.pt", weights_only=False)
    assert again.param_groups[0]["params"][0] is other.weight
    for net, step in ((other, again.step), (model, optimizer.step)):
        backward(net, x)
        step()
    assert torch.equal(other.weight.data, half(other.weight.data))
    assert torch.equal(model.weight, other.weight)
    torch.save(again, tmp_path / "again.pt")
    assert hasattr(torch.load(tmp_path / "again.pt", weights_only=False).step, "emulates")


@pytest.mark.filterwarnings("ignore:LBFGS. the matrix products of aten.dot")
def test_a_closure_is_not_part_of_the_update() -> None:
    model, x = problem()
    emulate_(model, KEPT)
    optimizer = emulate_optimizer_(torch.optim.LBFGS(model.parameters(), max_iter=3), KEPT, model=model)

    def closure() -> torch.Tensor:
        model.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        return loss

    first = float(optimizer.step(closure).detach())
    assert float(closure().detach()) < first
    assert torch.equal(model.weight.data, half(model.weight.data))


def test_stochastic_rounding_of_the_master_repeats_with_its_seed() -> None:
    numerics = Numerics(master=RoleFormat(parse("bfloat16"), "stochastic"))

    def weights(seed: int) -> torch.Tensor:
        model, x = problem()
        emulate_(model, numerics, seed=seed)
        optimizer = emulate_optimizer_(torch.optim.SGD(model.parameters(), lr=0.01), numerics, model=model, seed=seed)
        for _ in range(3):
            backward(model, x)
            optimizer.step()
        return model.weight.detach()

    assert torch.equal(weights(1), weights(1))
    assert not torch.equal(weights(1), weights(2))


def test_overrides_reach_the_master_weights_of_their_layers() -> None:
    numerics = Numerics(overrides=(Override(layers="1", master=HALF),))
    model = nn.Sequential(nn.Linear(7, 7), nn.Linear(7, 5))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(ConfigError, match="model=model"):
        emulate_optimizer_(optimizer, numerics)
    emulate_(model, numerics)
    emulate_optimizer_(optimizer, numerics, model=model)
    with pytest.raises(ConfigError, match="already"):
        emulate_optimizer_(optimizer, numerics, model=model)
    backward(model, torch.randn(4, 7))
    optimizer.step()
    assert torch.equal(model[1].weight.data, half(model[1].weight.data))
    assert not torch.equal(model[0].weight.data, half(model[0].weight.data))


@pytest.mark.parametrize("make", [torch.optim.Adam, torch.optim.NAdam, torch.optim.RMSprop])
def test_the_first_step_reads_rounded_state(make) -> None:
    seen = []

    class Spy(TorchDispatchMode):
        """Checks every read of a moment after it was first written to."""

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            moments = {t.data_ptr() for state in optimizer.state.values() for t in state.values() if t.dim()}
            writes = func._schema.is_mutable
            for value in args[1:] if writes else args:
                computes = torch.Tag.pointwise in func.tags
                if computes and isinstance(value, torch.Tensor) and value.data_ptr() in moments:
                    seen.append(torch.equal(value, half(value)))
            return func(*args, **(kwargs or {}))

    model, x = problem()
    optimizer = make(model.parameters(), lr=0.1)
    emulate_optimizer_(optimizer, Numerics(state=HALF))
    backward(model, x)
    with Spy():
        optimizer.step()
    assert len(seen) > 1
    assert all(seen)


def test_updates_without_a_forward_pass_draw_anew() -> None:
    numerics = Numerics(master=RoleFormat(parse("bfloat16"), "stochastic"))
    model = emulate_(nn.Linear(64, 64), numerics)
    optimizer = emulate_optimizer_(torch.optim.SGD(model.parameters(), lr=1e-3), numerics, model=model)
    results = []
    for _ in range(3):
        model.weight.data.fill_(1.0)
        model.weight.grad = torch.full_like(model.weight, 3.0)
        optimizer.step()
        results.append(model.weight.detach().clone())
    assert not torch.equal(results[0], results[1])
    assert not torch.equal(results[1], results[2])
    mean = torch.stack(results).mean()
    assert mean == pytest.approx(0.997, abs=1e-4)


class Count(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.updates = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.updates += (
            func.name().split("::")[1].startswith(("add_", "addcdiv_", "_foreach_add_", "_foreach_addcdiv_"))
        )
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    "make",
    [
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
        lambda p: torch.optim.Adam(p, lr=0.01, weight_decay=0.01),
        lambda p: torch.optim.AdamW(p, lr=0.01, amsgrad=True),
        lambda p: torch.optim.RMSprop(p, lr=0.01, momentum=0.9, centered=True),
        lambda p: torch.optim.Adagrad(p, lr=0.1),
    ],
)
def test_parameters_updated_together_have_the_bits_of_those_updated_alone(make, monkeypatch) -> None:
    """As on a GPU, where lists of tensors save launches."""
    rounded = RoleFormat(parse("float(exponent=6, mantissa=9)"), "stochastic")
    weights, updates = [], []
    for in_lists in (False, True):
        monkeypatch.setattr(optimizers, "takes_lists", lambda optimizer, in_lists=in_lists: in_lists)
        torch.manual_seed(0)
        model, x = nn.Sequential(nn.Linear(7, 6), nn.Tanh(), nn.Linear(6, 5)), torch.randn(4, 7)
        numerics = Numerics(master=rounded, state=rounded)
        emulate_(model, numerics)
        optimizer = emulate_optimizer_(make(model.parameters()), numerics, model=model)
        for _ in range(4):
            backward(model, x)
            with Count() as count:
                optimizer.step()
        weights.append([*model.parameters(), *(value for s in optimizer.state.values() for value in s.values())])
        updates.append(count.updates)
    assert all(map(torch.equal, *weights))
    assert updates[1] < updates[0]


def test_patterns_and_the_model_must_fit_the_optimizer() -> None:
    model, other = nn.Sequential(nn.Linear(2, 2)), nn.Linear(2, 2)
    narrow = Numerics(master="bfloat16")
    typo = Numerics(master="bfloat16", overrides=(Override(layers="fc", master="float32"),))
    with pytest.raises(ConfigError, match='the pattern "fc" matches none'):
        emulate_optimizer_(torch.optim.SGD(model.parameters()), typo, model=model)
    with pytest.raises(ConfigError, match="no parameter of this model"):
        emulate_optimizer_(torch.optim.SGD(other.parameters()), narrow, model=model)
