"""All optimizers of torch and its layers in the context of a hybrid run: equal to plain torch, or refused by name.

Every op runs on a device drawn at random, two of three with memory of their own.
"""

import inspect
import itertools
import random

import pytest
import torch
from torch import nn, optim
from torch.nn import functional

from hybrid_devices import REFERENCE, Board, at_random, place
from layer_cases import IDS, QUICK, ROWS, layer_cases
from presilicon.base import ConfigError, RunFailedError
from presilicon.scheduling import Session
from presilicon.study.hybrid_context import Hybrid

pytestmark = pytest.mark.filterwarnings("ignore")  # of torch about options, and of the schedule, which is of no model
PROBLEM, SCHEDULE = place("digits-mlp", 16, at_random(1))


@pytest.fixture(autouse=True)
def scattered(monkeypatch):
    source = random.Random(0)

    def lanes(session, func, facts, placement, args, kwargs, key):
        return (source.choice(list(session.executor.lanes.values())),)

    monkeypatch.setattr(Session, "_lanes", lanes)


def hybrid(model, boards=None):
    devices = {"cpu": ["cpu"], "board": boards or [Board("first"), Board("second")]}
    return Hybrid(model, PROBLEM, SCHEDULE, REFERENCE, devices=devices)


def train(make, inputs, optimizer, in_context, steps=3):
    """Losses, weights and optimizer state after some steps."""
    torch.manual_seed(0)
    model, losses = make(), []
    tuner = optimizer(model.parameters())

    def loss_of():
        tuner.zero_grad()
        outputs = model(*inputs)
        loss = outputs.square().mean()
        loss.backward()
        return loss

    def run():
        torch.manual_seed(1)
        for _ in range(steps):
            if isinstance(tuner, optim.LBFGS):
                losses.append(tuner.step(loss_of))
            else:
                losses.append(loss_of())
                tuner.step()

    if in_context:
        with hybrid(model):
            run()
    else:
        run()
    return [float(loss) for loss in losses], dict(model.state_dict()), tuner.state_dict()["state"]


def assert_equal(make, inputs, optimizer):
    expected, found = (train(make, inputs, optimizer, in_context) for in_context in (False, True))
    torch.testing.assert_close(found[:2], expected[:2], rtol=1e-4, atol=1e-5)
    assert found[2].keys() == expected[2].keys()
    for key, state in expected[2].items():
        for name, value in state.items():
            torch.testing.assert_close(found[2][key][name], value, rtol=1e-4, atol=1e-5)


# Optimizers

_WAYS = ({}, {"foreach": True}, {"foreach": False}, {"fused": True}, {"foreach": True, "maximize": True})
_DECAYED = {"weight_decay": 0.1}
_OPTIONS = {
    "SGD": ({"momentum": 0.9}, {"momentum": 0.9, "nesterov": True}, {"momentum": 0.9, "dampening": 0.1, **_DECAYED}),
    "Adam": ({"amsgrad": True}, {"amsgrad": True, **_DECAYED}, {"decoupled_weight_decay": True, **_DECAYED}),
    "AdamW": ({"amsgrad": True},),
    "NAdam": ({"decoupled_weight_decay": True, **_DECAYED},),
    "RAdam": ({"decoupled_weight_decay": True, **_DECAYED},),
    "Adagrad": ({"lr_decay": 0.1}, {"initial_accumulator_value": 0.1}),
    "RMSprop": ({"momentum": 0.9}, {"centered": True}, {"centered": True, "momentum": 0.9, **_DECAYED}),
    "LBFGS": ({"line_search_fn": "strong_wolfe"},),
}
_QUICK = [{"foreach": True}, {"foreach": True, "amsgrad": True}]


def _optimizers():
    classes = [each for each in vars(optim).values() if inspect.isclass(each) and issubclass(each, optim.Optimizer)]
    for cls in classes:
        if cls in (optim.Optimizer, optim.SparseAdam) or cls.__name__ == "Muon":
            continue
        allowed = set(inspect.signature(cls).parameters)
        for options, way in itertools.product(({}, _DECAYED, *_OPTIONS.get(cls.__name__, ())), _WAYS):
            keywords = {**options, **way}
            if set(keywords) <= allowed:
                name = ", ".join([cls.__name__, *(f"{key}={value}" for key, value in keywords.items())])
                quick = keywords in _QUICK or (not keywords and "foreach" not in allowed)
                yield pytest.param(cls, keywords, id=name, marks=() if quick else pytest.mark.slow)


@pytest.mark.parametrize(("cls", "keywords"), list(_optimizers()))
def test_an_optimizer_does_what_it_does_in_plain_torch(cls, keywords):
    inputs = (torch.randn(4, 8, generator=torch.Generator().manual_seed(2)),)
    assert_equal(
        lambda: nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4)),
        inputs,
        lambda parameters: cls(parameters, **keywords),
    )


def test_an_optimizer_of_matrices_does_what_it_does_in_plain_torch():
    def make():
        return nn.Sequential(nn.Linear(8, 16, bias=False), nn.Linear(16, 4, bias=False))

    assert_equal(make, (torch.ones(4, 8),), optim.Muon)


def _list_calls():
    """Operators on lists of tensors, with arguments."""
    for schema in torch._C._jit_get_all_schemas():
        packet, _, overload = schema.name.removeprefix("aten::"), None, schema.overload_name
        if not packet.startswith("_foreach_") or overload.endswith("out") or packet.endswith(("_zero", "_copy")):
            continue
        factors = packet.startswith("_foreach_addc")
        samples = {
            "List[Tensor]": lambda: [torch.rand(2, 2) + 0.1, torch.rand(2, 2) + 0.1],
            "Tensor": lambda factors=factors: torch.tensor([0.5, 2.0] if factors else 0.5),
            "List[number]": lambda: [0.5, 2.0],
            "number": lambda: 0.5,
        }
        torch.manual_seed(3)
        arguments = [
            samples[str(argument.type)]()
            for argument in schema.arguments
            if str(argument.type) in samples and not argument.kwarg_only
        ]
        yield getattr(getattr(torch.ops.aten, packet), overload or "default"), arguments


def test_operators_on_lists_of_tensors_do_what_they_do_in_plain_torch():
    model = nn.Linear(2, 2)
    calls = list(_list_calls())
    assert len(calls) > 100
    with hybrid(model), torch.no_grad():

        def followed(value):
            """A copy whose values the runtime follows."""
            if isinstance(value, list):
                return [followed(part) for part in value]
            return model.weight.mul(0).flatten()[0].add(value) if isinstance(value, torch.Tensor) else value

        def copied(value):
            if isinstance(value, list):
                return [copied(part) for part in value]
            return value.clone() if isinstance(value, torch.Tensor) else value

        for func, arguments in calls:
            ours, theirs = followed(arguments), copied(arguments)
            results = func(*ours), func(*theirs)
            written = (ours[0], theirs[0]) if results[1] is None else results
            for mine, plain in zip(*written, strict=True):
                torch.testing.assert_close(mine.clone(), plain, msg=lambda text, func=func: f"{func}: {text}")


# Layers


def _layers():
    for name, make, inputs in layer_cases():
        yield pytest.param(make, inputs, id=name, marks=() if name in QUICK else pytest.mark.slow)


@pytest.mark.parametrize(("make", "inputs"), list(_layers()))
def test_a_layer_trains_as_in_plain_torch(make, inputs):
    assert_equal(make, inputs, lambda parameters: optim.SGD(parameters, lr=0.05, momentum=0.9))


# What is refused


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (lambda: nn.LazyLinear(3), "weight has no shape yet"),
        (lambda: nn.Sequential(nn.Embedding(10, 8, sparse=True)), "0 .Embedding with sparse=True"),
        (lambda: nn.EmbeddingBag(10, 8, sparse=True), "EmbeddingBag with sparse=True"),
    ],
)
def test_a_model_that_cannot_be_followed_is_refused_by_name_before_training(model, words):
    with pytest.raises(ConfigError, match=words), hybrid(model()):
        pass


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda weight: functional.embedding(IDS, weight, sparse=True).sum().backward(), "sparse"),
        (lambda weight: weight.mul(2).detach().resize_(3, 4), "resize_"),
        (lambda weight: weight.mul(2).detach().set_(torch.ones(3)), "set_"),
    ],
)
def test_a_call_that_cannot_be_followed_is_refused_by_name(call, words):
    model = nn.Embedding(10, 8)
    with pytest.raises(ConfigError, match=words), hybrid(model):
        call(model.weight)


class Wrong(Board):
    """A board that loses the last dimension of a product."""

    def run(self, func, args, kwargs):
        result = super().run(func, args, kwargs)
        return result.view(result.shape[:-1], result.strides[:-1], 0) if func is torch.ops.aten.mm.default else result


def test_a_device_whose_results_have_another_shape_than_expected_ends_the_run():
    model = nn.Linear(8, 3, bias=False)

    def run():
        with hybrid(model, [Wrong(), Wrong()]):
            for _ in range(9):
                model(ROWS).sum().item()

    with pytest.raises(RunFailedError, match=r"aten.mm.default on board . gave shape \[4\]"):
        run()
