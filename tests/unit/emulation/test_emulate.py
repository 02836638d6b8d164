import contextlib
import copy
import io
import os
import signal
import sys
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.overrides import _get_current_function_mode_stack
from torch.utils.checkpoint import checkpoint

from presilicon.base import ConfigError
from presilicon.designs import Change, Numerics, Override, ProductNumerics, RoleFormat, load_design
from presilicon.emulation import (
    UncoveredWarning,
    emulate_,
    emulate_optimizer_,
    emulated,
    emulation_of,
    next_step,
    restore_,
)
from presilicon.formats import MacUnit, parse, quantize

FP8 = Numerics(
    weight=RoleFormat(parse("e4m3")),
    activation=RoleFormat(parse("e5m2")),
    error=RoleFormat(parse("float(exponent=5, mantissa=1)")),
    gradient=RoleFormat(parse("float(exponent=5, mantissa=3)")),
)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 3, stride=2, padding=1)
        self.fc = nn.Linear(16, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(torch.relu(self.conv(x)).flatten(1))


def make(seed: int = 0) -> tuple[Net, torch.Tensor]:
    torch.manual_seed(seed)
    return Net(), torch.randn(3, 2, 4, 4)


def step(model: nn.Module, x: torch.Tensor) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    model.zero_grad()
    output = model(x)
    output.square().mean().backward()
    return output.detach(), {name: p.grad.clone() for name, p in model.named_parameters()}


def rounded(tensor: torch.Tensor, role: str, numerics: Numerics = FP8) -> torch.Tensor:
    return quantize(tensor, numerics.format_of(role).format)


def test_float32_numerics_change_nothing_to_the_last_bit() -> None:
    model, x = make()
    plain_output, plain_grads = step(model, x)
    emulate_(model, load_design("fp32-systolic").numerics)
    output, grads = step(model, x)
    assert torch.equal(output, plain_output)
    assert all(torch.equal(grads[name], plain_grads[name]) for name in grads)


def test_the_three_products_of_each_layer_by_hand() -> None:
    """Every operand of every product, written out with plain torch."""
    model, x = make()
    emulate_(model, FP8)
    output, grads = step(model, x)

    w1, w2 = rounded(model.conv.weight.data, "weight"), rounded(model.fc.weight.data, "weight")
    a1 = rounded(x, "activation")
    y1 = functional.conv2d(a1, w1, model.conv.bias.data, stride=2, padding=1)
    a2 = rounded(torch.relu(y1).flatten(1), "activation")
    y2 = functional.linear(a2, w2, model.fc.bias.data)
    assert torch.equal(output, y2)

    e2 = rounded(2 * y2 / y2.numel(), "error")
    assert torch.equal(grads["fc.weight"], rounded(e2.t() @ a2, "gradient"))
    assert torch.equal(grads["fc.bias"], rounded(e2.sum(0), "gradient"))
    e1 = (e2 @ w2).view_as(y1) * (y1 > 0)
    e1 = rounded(e1, "error")
    weight_grad = torch.nn.grad.conv2d_weight(a1, w1.shape, e1, stride=2, padding=1)
    assert torch.allclose(grads["conv.weight"], rounded(weight_grad, "gradient"), atol=0, rtol=0)
    assert torch.equal(grads["conv.bias"], rounded(e1.sum((0, 2, 3)), "gradient"))


@pytest.mark.parametrize("role", ["weight", "activation", "error", "gradient"])
def test_each_role_alone_has_an_effect(role: str) -> None:
    model, x = make()
    plain_output, plain_grads = step(model, x)
    emulate_(model, Numerics(**{role: RoleFormat(parse("e5m2"))}))
    output, grads = step(model, x)
    assert torch.equal(output, plain_output) == (role in ("error", "gradient"))
    assert not torch.equal(grads["conv.weight"], plain_grads["conv.weight"])


def test_state_dict_keys_saving_copying_and_restoring() -> None:
    model, x = make()
    plain_output, _ = step(model, x)
    keys = list(model.state_dict())
    emulate_(model, FP8)
    emulated_output, _ = step(model, x)
    assert list(model.state_dict()) == keys
    assert torch.equal(step(copy.deepcopy(model), x)[0], emulated_output)
    buffer = io.BytesIO()
    torch.save(model, buffer)
    buffer.seek(0)
    assert torch.equal(step(torch.load(buffer, weights_only=False), x)[0], emulated_output)
    restore_(model)
    assert emulation_of(model) is None
    assert torch.equal(step(model, x)[0], plain_output)


def test_a_submodule_called_directly_is_emulated_too() -> None:
    model, x = make()
    emulate_(model, FP8)
    w = rounded(model.conv.weight.data, "weight")
    expected = functional.conv2d(rounded(x, "activation"), w, model.conv.bias.data, stride=2, padding=1)
    assert torch.equal(model.conv(x), expected)


def test_an_exception_in_forward_leaves_no_mode_behind() -> None:
    model, x = make()
    emulate_(model, FP8)
    with pytest.raises(RuntimeError):
        model(torch.randn(3, 7, 4, 4))
    weight = torch.randn(5, 5)
    assert torch.equal(functional.linear(weight, weight), weight @ weight.t())
    model(x)


@pytest.mark.parametrize("options", [{}, {"chunk": 16}, {"width": 4}])
def test_an_order_that_is_named_is_the_order_of_the_sums(options: dict[str, int]) -> None:
    torch.manual_seed(0)
    model, x = nn.Linear(2000, 3, bias=False), torch.randn(2, 2000)
    unit = MacUnit(order="sequential", **options)
    out = emulate_(model, Numerics(mac=unit))(x)
    products = (x.double()[:, None] * model.weight.detach().double()).numpy()  # exact, rounded in the sums only
    sums = np.zeros((2, 3), np.float32)
    if options.get("width"):
        lanes = np.zeros((4, 2, 3), np.float32)
        for k in range(2000):
            lanes[k % 4] = (lanes[k % 4] + products[:, :, k]).astype(np.float32)
        sums = (lanes[0] + lanes[1]) + (lanes[2] + lanes[3])
    else:
        for start in range(0, 2000, options.get("chunk", 2000)):
            chunk = np.zeros((2, 3), np.float32)
            for k in range(start, min(start + options.get("chunk", 2000), 2000)):
                chunk = (chunk + products[:, :, k]).astype(np.float32)
            sums = chunk if start == 0 else sums + chunk
    assert torch.equal(out.detach(), torch.from_numpy(sums))
    assert not torch.equal(out, x @ model.weight.t())


class Stopping(nn.Module):
    """A layer that stops the forward pass, after one that may catch it."""

    def __init__(self, stop: Callable[[], object]) -> None:
        super().__init__()
        self.stop = stop

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x @ x.t()
        self.stop()
        return x


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)
    for _ in range(1000):  # the handler runs before one of these
        pass


@pytest.mark.parametrize("stop", [interrupt, sys.exit, lambda: iter(()).__next__(), lambda: {}["key"]])
@pytest.mark.parametrize("where", ["layer", "hook", "loss"])
def test_whatever_stops_a_forward_pass_leaves_nothing_emulated(stop: Callable[[], object], where: str) -> None:
    model = emulate_(nn.Sequential(nn.Linear(5, 5), Stopping(stop if where == "layer" else int)), FP8)
    weight = torch.randn(5, 5)
    before = weight @ weight.t()
    if where == "hook":
        model[1].register_forward_hook(lambda *_: stop())
    with pytest.raises((KeyboardInterrupt, SystemExit, StopIteration, KeyError)):
        emulated(Stopping(stop), model)(weight) if where == "loss" else model(weight)
    assert torch.equal(weight @ weight.t(), before)
    assert not _get_current_function_mode_stack()
    if where == "layer":
        model[1].stop = int
    assert where == "hook" or not torch.equal(model(weight), model[0](weight) @ model[0](weight).t())


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@pytest.mark.parametrize("order", ["before", "after"])
@pytest.mark.parametrize("how", ["in place", "wrapped"])
def test_an_interrupt_of_a_compiled_model_leaves_nothing_emulated(how: str, order: str) -> None:
    torch._dynamo.reset()
    stopping = Stopping(int)
    model: nn.Module = nn.Sequential(nn.Linear(5, 5), stopping)
    emulate_(model, FP8) if order == "after" else None
    if how == "in place":
        model.compile(backend="eager")
        compiled = model
    else:
        compiled = torch.compile(model, backend="eager")
    emulate_(compiled, FP8) if order == "before" else None
    weight = torch.randn(5, 5)
    expected = compiled(weight)
    stopping.stop = sys.exit
    with pytest.raises(SystemExit):
        compiled(weight)
    assert not _get_current_function_mode_stack()
    stopping.stop = int
    assert torch.equal(compiled(weight), expected)
    torch._dynamo.reset()
    plain = restore_(compiled)(weight)
    assert not torch.equal(plain, expected)
    assert torch.equal(plain, stopping(model[0](weight)))


def test_a_layer_whose_interrupt_is_caught_in_the_model_is_left() -> None:
    class Retrying(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = Stopping(sys.exit), nn.Linear(5, 5)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with contextlib.suppress(SystemExit):
                self.first(x)
            return self.second(x)

    layers = []
    model = emulate_(Retrying(), FP8, observers=[lambda step, layer, role, tensor: layers.append((layer, role))])
    model(torch.randn(5, 5))
    assert layers[-2:] == [("second", "activation"), ("second", "weight")]
    assert not emulation_of(model).is_inside


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning", "ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize(
    "export",
    [
        lambda model, x: torch.export.export(model, (x,), strict=False),
        lambda model, x: torch.export.export(model, (x,), strict=True),
        lambda model, x: torch.jit.trace(model, x),
    ],
)
def test_an_export_is_refused_by_name_and_the_model_stays_emulated(export) -> None:
    model, x = emulate_(nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 4)), FP8), torch.randn(5, 8)
    before = model(x)
    with pytest.raises(Exception, match="an emulated model cannot be exported"):
        export(model, x)
    assert torch.equal(model(x), before)
    assert not emulation_of(model).is_inside
    export(restore_(copy.deepcopy(model)), x)


def test_matmul_bmm_and_einsum_are_emulated() -> None:
    class Products(nn.Module):
        def forward(self, a: torch.Tensor, b: torch.Tensor) -> list[torch.Tensor]:
            return [a @ b, torch.matmul(a, b), a.bmm(b), torch.bmm(a, mat2=b), torch.einsum("bij,bjk->bik", a, b)]

    a, b = torch.randn(2, 3, 4), torch.randn(2, 4, 5)
    expected = torch.bmm(rounded(a, "activation"), rounded(b, "activation"))
    for found in emulate_(Products(), FP8)(a, b):
        assert torch.allclose(found, expected, rtol=1e-6, atol=1e-6)
        assert not torch.allclose(found, torch.bmm(a, b), rtol=1e-6, atol=1e-6)


def test_stochastic_rounding_depends_on_seed_and_step_only() -> None:
    numerics = Numerics(weight=RoleFormat(parse("e5m2"), "stochastic"))

    def outputs(seed: int) -> list[torch.Tensor]:
        model, x = make()
        emulate_(model, numerics, seed=seed)
        return [step(model, x)[0] for _ in range(3)]

    first, again, other = outputs(1), outputs(1), outputs(2)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first[0], first[1])
    assert not torch.equal(first[0], other[0])


def test_observers_see_every_role_of_every_layer_in_training_only() -> None:
    model, x = make()
    seen = []

    def observe(step: int, layer: str, role: str, tensor: torch.Tensor) -> None:
        if role in ("weight", "activation", "error"):
            assert torch.equal(tensor, rounded(tensor, role))
        seen.append((step, layer, role))

    emulate_(model, FP8, observers=[observe])
    step(model, x)
    next_step(model)
    step(model, x)
    count = len(seen)
    model.eval()
    model(x)
    assert len(seen) == count
    wanted = {
        (s, layer, role) for s in (0, 1) for layer in ("conv", "fc") for role in ("weight", "activation", "error")
    }
    assert wanted <= set(seen)
    assert (0, "fc", "gradient") in seen


def test_emulating_twice_is_refused() -> None:
    model, _ = make()
    emulate_(model, FP8)
    with pytest.raises(ConfigError, match="restore_"):
        emulate_(model, FP8)


def test_master_weights_and_optimizer_state_are_kept_in_their_formats() -> None:
    numerics = Numerics(master=RoleFormat(parse("bfloat16")), state=RoleFormat(parse("e5m2")))
    model, x = make()
    emulate_(model, numerics)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    emulate_optimizer_(optimizer, numerics, model=model)
    for _ in range(3):
        step(model, x)
        optimizer.step()
    for parameter in model.parameters():
        assert torch.equal(parameter.data, parameter.data.bfloat16().float())
        momentum = optimizer.state[parameter]["momentum_buffer"]
        assert torch.equal(momentum, momentum.to(torch.float8_e5m2).float())
        assert momentum.any()


def test_a_model_that_is_not_float32_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"model\.float\(\)"):
        emulate_(nn.Linear(2, 2).bfloat16(), FP8)
    with pytest.raises(ConfigError, match=r"design\.numerics"):
        emulate_(nn.Linear(2, 2), load_design("fp8-systolic"))


def test_products_out_of_reach_are_named_once() -> None:
    class Distances(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.cdist(x, x)

    model, x = emulate_(Distances(), FP8), torch.randn(2, 4)
    with pytest.warns(UncoveredWarning, match="cdist") as caught:
        model(x)
    assert len(caught) == 1
    model(x)
    restore_(model)
    model(x)


def test_checkpointing_recomputes_the_same_step() -> None:
    numerics = Numerics(weight=RoleFormat(parse("e5m2"), "stochastic"), error=RoleFormat(parse("e5m2"), "stochastic"))

    def gradients(checkpointed: bool) -> list[torch.Tensor]:
        model, x = make()
        emulate_(model, numerics)
        for _ in range(2):
            model.zero_grad()
            hidden = checkpoint(model.conv, x, use_reentrant=False) if checkpointed else model.conv(x)
            model.fc(torch.relu(hidden).flatten(1)).square().mean().backward()
        assert emulation_of(model).stream == "pass3/"
        return [parameter.grad for parameter in model.parameters()]

    for plain, again in zip(gradients(False), gradients(True), strict=True):
        assert torch.equal(plain, again)


def test_weights_made_of_parameters_are_weights() -> None:
    torch.manual_seed(0)
    model, x = nn.utils.parametrizations.weight_norm(nn.Linear(6, 4, bias=False)), torch.randn(3, 6)
    expected = rounded(x, "activation") @ rounded(model.weight.detach(), "weight").t()
    emulate_(model, FP8)
    assert torch.equal(model(x).detach(), expected)


def test_training_in_evaluation_mode_counts_its_steps() -> None:
    """As fine-tuning with frozen norms does; looking at the model in between does not count."""
    schedule = (Change(layers="*", from_step=2, weight=RoleFormat(parse("e5m2"))),)
    for mode in (True, False):
        torch.manual_seed(0)
        plain, x = nn.Linear(8, 8).train(mode), torch.randn(3, 8)
        model = emulate_(copy.deepcopy(plain), Numerics(schedule=schedule))
        changed = []
        for _ in range(4):
            model.eval()(x)
            with torch.no_grad():
                model(x)
            output = model.train(mode)(x)
            changed.append(not torch.equal(output, plain(x)))
            output.sum().backward()
            next_step(model)
        assert changed == [False, False, True, True]


def test_stochastic_rounding_in_evaluation_mode_draws_anew_at_each_step() -> None:
    master = Numerics(master=RoleFormat(parse("bfloat16"), rounding="stochastic"))
    model = nn.Linear(1000, 1, bias=False)
    nn.init.ones_(model.weight)
    emulate_(model, master).eval()
    optimizer = emulate_optimizer_(torch.optim.SGD(model.parameters(), lr=2.0**-11), master, model=model)
    for _ in range(64):
        optimizer.zero_grad()
        (-model(torch.ones(1, 1000))).sum().backward()
        optimizer.step()
    moved = (model.weight.detach() - 1) / 2**-7
    assert moved.mean().item() == pytest.approx(4, abs=0.3)
    assert (moved == 0).sum() < 50


def test_a_users_hook_that_raises_is_heard() -> None:
    def refuse(module: nn.Module, args: object) -> None:
        raise ValueError("not today")

    for inner in (False, True):
        model = nn.Sequential(nn.Linear(2, 2))
        handle = (model[0] if inner else model).register_forward_pre_hook(refuse)
        emulate_(model, FP8)
        with pytest.raises(ValueError, match="not today"):
            model(torch.ones(1, 2))
        handle.remove()
        model(torch.ones(1, 2))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"sums": "tensorcore"}, r'\$\.sums: given .tensorcore.; did you mean "tensor-core"'),
        ({"vector": "round"}, r"\$\.vector: given .round."),
        ({"weight": RoleFormat(parse("e4m3"), amax_history=4)}, "needs one scale per tensor, which e4m3 has not"),
        ({"weight": RoleFormat(parse("scaled(e4m3fn)"), amax_rule="max")}, "set amax_history as well"),
        ({"weight": RoleFormat("e4m3")}, r"\$\.weight\.format: given .e4m3., expected a Format"),
        ({"weight_grad": ProductNumerics(hadamard=12)}, "hadamard: must be a power of two, not 12"),
        ({"weight_grad": {"hadamard": 16}}, "expected a ProductNumerics"),
        ({"overrides": (Override(layers="*", sums="none"),)}, r"\$\.overrides\[0\]\.sums: given .none."),
    ],
)
def test_numerics_that_are_built_in_python_are_checked_like_files(fields: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        emulate_(nn.Linear(4, 4), Numerics(**fields))


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
def test_torchscript_is_refused_and_leaves_no_hooks() -> None:
    model = nn.Sequential(nn.Linear(4, 4), torch.jit.trace(nn.Linear(4, 4), torch.ones(1, 4)))
    with pytest.raises(ConfigError, match='layer "1" is compiled by TorchScript'):
        emulate_(model, Numerics(weight="e4m3"))
    assert not model[0]._forward_pre_hooks


def test_autocast_around_an_emulated_model_is_a_warning() -> None:
    model = emulate_(nn.Linear(4, 4), Numerics(weight="e4m3"))
    with (
        torch.autocast("cpu", torch.bfloat16),
        pytest.warns(UncoveredWarning, match=r"torch\.autocast casts") as warned,
    ):
        model(model(torch.ones(1, 4)))
    assert len(warned) == 1


class Twofold(nn.Module):
    """A weight that is written to between two uses."""

    def __init__(self, write) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.weight, self.write = nn.Parameter(torch.randn(8, 8)), write

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = x @ self.weight
        with torch.no_grad():
            self.write(self.weight)
        return first + x @ self.weight


@pytest.mark.parametrize("write", [lambda w: w.mul_(2), lambda w: w.data.mul_(2), lambda w: setattr(w, "data", w * 2)])
def test_a_weight_that_is_written_to_between_two_uses_is_rounded_anew(write) -> None:
    x, numerics = torch.randn(4, 8), Numerics(weight="e4m3")
    rounded = quantize(Twofold(write).weight.detach(), parse("e4m3"))
    with torch.no_grad():
        out = emulate_(Twofold(write), numerics)(x)
    torch.testing.assert_close(out, x @ rounded + x @ (2 * rounded), rtol=1e-5, atol=1e-5)


def test_the_masters_of_a_lazy_layer_are_rounded_when_they_are_made() -> None:
    coarse = parse("float(exponent=5, mantissa=1)")
    torch.manual_seed(0)
    model = emulate_(nn.Sequential(nn.LazyLinear(8), nn.LazyConv1d(2, 1)), Numerics(master="bfloat16", overrides=(
        Override(layers="1", master="float(exponent=5, mantissa=1)"),
    )))  # fmt: skip
    model(torch.randn(2, 5, 6))
    for layer, fmt in zip(model, (parse("bfloat16"), coarse), strict=True):
        for parameter in layer.parameters():
            assert torch.equal(parameter, quantize(parameter.detach(), fmt))


@pytest.mark.parametrize("inner", [Numerics(), Numerics(weight="bfloat16", activation="bfloat16", error="bfloat16")])
def test_a_module_with_its_own_emulation_is_not_rounded_by_the_model_around_it(inner: Numerics) -> None:
    class Outer(nn.Module):
        def __init__(self, part: nn.Module) -> None:
            super().__init__()
            self.first, self.parts = nn.Linear(8, 8), [part]

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.parts[0](self.first(x))

    torch.manual_seed(0)
    part = nn.Sequential(nn.Linear(8, 8), nn.Tanh())
    outer = emulate_(Outer(part), Numerics(weight="e5m2", activation="e5m2", error="e5m2", vector="round-results"))
    x = torch.randn(4, 8)
    between = outer.first(x).detach()
    expected = emulate_(copy.deepcopy(part), inner)(between)
    outer.parts[0] = emulate_(part, inner)
    assert torch.equal(outer(x), expected)
