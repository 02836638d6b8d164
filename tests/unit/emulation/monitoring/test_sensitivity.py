"""Sensitivity to formats: the same step computed by hand with ml_dtypes is the judge."""

import copy
import random
from collections.abc import Callable
from typing import Any

import ml_dtypes
import msgspec
import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import LlamaConfig, LlamaForCausalLM

import presilicon as ps
from presilicon.base import ConfigError
from presilicon.designs import LossScale, Numerics, Override, RoleFormat
from presilicon.emulation import emulate_, emulation_of
from presilicon.formats import parse
from presilicon.records import FormatSensitivity, FormatTrial

FORMATS = ["bfloat16", "e5m2", "mxfp4"]


def two_layers() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)).double().float()


def batch_of(model_inputs: int = 6) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(2)
    return torch.randn(16, model_inputs, generator=generator), torch.randn(16, 3, generator=generator)


def trial_of(found: FormatSensitivity, layer: str, fmt: str, role: str | None = None) -> FormatTrial:
    return next(each for each in found.trials if (each.layer, each.format, each.role) == (layer, fmt, role))


def by_hand(model: nn.Sequential, x: Tensor, target: Tensor, round_last: Callable[[np.ndarray], np.ndarray]) -> Any:
    """Loss, output and gradients with the operands of the last layer rounded, in float64 NumPy."""
    w1, b1, w2, b2 = (parameter.detach().numpy().astype(np.float64) for parameter in model.parameters())
    inputs, goal = x.numpy().astype(np.float64), target.numpy().astype(np.float64)
    hidden = np.maximum(inputs @ w1.T + b1, 0)
    a, w = round_last(hidden), round_last(w2)
    output = a @ w.T + b2
    error = round_last(2 * (output - goal) / output.size)
    back = (error @ w) * (hidden > 0)
    gradients = [back.T @ inputs, back.sum(0), error.T @ a, error.sum(0)]
    return np.mean((output - goal) ** 2), output, np.concatenate([gradient.ravel() for gradient in gradients])


def test_a_trial_is_the_step_computed_by_hand() -> None:
    model, (x, target) = two_layers(), batch_of()
    found = ps.format_sensitivity(model, (x, target), ["e5m2"], loss=functional.mse_loss, layers="last")

    def e5m2(values: np.ndarray) -> np.ndarray:
        return values.astype(np.float32).astype(ml_dtypes.float8_e5m2).astype(np.float64)

    loss, output, gradient = by_hand(model, x, target, lambda values: values)
    rounded_loss, rounded_output, rounded_gradient = by_hand(model, x, target, e5m2)
    (trial,) = found.trials
    assert (trial.layer, trial.format, trial.bits) == ("2", "e5m2", 8.0)
    assert found.loss == pytest.approx(loss, rel=1e-6)
    assert trial.loss_change == pytest.approx((rounded_loss - loss) / loss, rel=1e-3)
    noise = np.sum((rounded_output - output) ** 2)
    assert trial.sqnr_db == pytest.approx(10 * np.log10(np.sum(output**2) / noise), abs=1e-3)
    norms = np.linalg.norm(gradient) * np.linalg.norm(rounded_gradient)
    assert trial.gradient_cosine == pytest.approx(gradient @ rounded_gradient / norms, rel=1e-5)
    error = np.linalg.norm(rounded_gradient - gradient) / np.linalg.norm(gradient)
    assert trial.gradient_error == pytest.approx(error, rel=1e-3)
    assert error > 0.01


def test_a_role_on_its_own_changes_only_what_it_touches() -> None:
    found = ps.format_sensitivity(
        two_layers(),
        batch_of(),
        ["e5m2"],
        loss=functional.mse_loss,
        by_role=True,
        roles=["weight", "error", "gradient"],
    )
    assert [(each.layer, each.role) for each in found.trials][:3] == [
        ("0", "weight"),
        ("0", "error"),
        ("0", "gradient"),
    ]
    weight, error = trial_of(found, "2", "e5m2", "weight"), trial_of(found, "2", "e5m2", "error")
    assert weight.loss_change != 0
    assert weight.sqnr_db is not None
    assert (error.loss_change, error.sqnr_db) == (0.0, None)  # errors do not reach the forward pass
    assert error.gradient_error is not None
    assert error.gradient_error > 0


def test_layers_are_ranked_and_the_narrowest_format_that_passes_is_found() -> None:
    model = two_layers()
    with torch.no_grad():
        model[2].weight[:, 0] *= 3e4  # beyond e5m2's neighbours in a block of mxfp4, and beyond e4m3fn
    found = ps.format_sensitivity(
        model, batch_of(), ["e4m3fn", "bfloat16", "mxfp4"], loss=functional.mse_loss, roles=["weight"], threshold=0.02
    )
    assert found.formats == ("bfloat16", "e4m3fn", "mxfp4")
    assert [each.layer for each in found.layers] == ["2", "0"]
    last = found.layers[0]
    assert last.narrowest == "bfloat16"
    assert trial_of(found, "2", "e4m3fn").loss is None  # NaN
    assert last.worst is None
    for each in found.layers:
        passing = [t for t in found.trials if t.layer == each.layer and t.size("gradient_error") <= 0.02]
        assert each.narrowest == min(passing, key=lambda trial: trial.bits).format
    text = str(found)
    assert "not finite" in text
    assert text.splitlines()[1].split() == ["layer", "narrowest", "bfloat16", "e4m3fn", "mxfp4"]


def test_the_loss_can_decide() -> None:
    found = ps.format_sensitivity(
        two_layers(), batch_of(), FORMATS, loss=functional.mse_loss, metric="loss_change", threshold=1e9, layers="first"
    )
    assert [each.narrowest for each in found.layers] == ["mxfp4"]


class Awkward(nn.Module):
    """Batch norm, dropout, a replaced buffer and random numbers of three generators."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.drop, self.last = (
            nn.Linear(6, 8),
            nn.BatchNorm1d(8),
            nn.Dropout(0.5),
            nn.Linear(8, 3),
        )
        self.register_buffer("calls", torch.zeros(()))
        self.fails_at: int | None = None
        self.runs = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls = self.calls + 1
        self.runs += 1
        if self.runs == self.fails_at:
            raise RuntimeError("fails on purpose")
        random.random()
        np.random.rand()
        out: Tensor = self.last(self.drop(self.norm(self.first(x))))
        return out


def state_of(model: nn.Module) -> dict[str, Any]:
    emulation = emulation_of(model)
    return {
        "tensors": {name: tensor.clone() for name, tensor in model.state_dict().items()},
        "versions": [parameter._version for parameter in model.parameters()],
        "gradients": [parameter.grad for parameter in model.parameters()],
        "modes": [module.training for module in model.modules()],
        "random": (torch.get_rng_state().tolist(), random.getstate(), repr(np.random.get_state())),
        "hooks": [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules()],
        "saves": [len(m._state_dict_hooks) + len(m._load_state_dict_pre_hooks) for m in model.modules()],
        "emulation": emulation and (id(emulation), emulation.step, emulation.count.state_dict(), emulation.set_formats),
        "amax": emulation and repr(emulation.amax.state_dict()),
    }


def assert_same(before: dict[str, Any], after: dict[str, Any]) -> None:
    tensors, others = before.pop("tensors"), after.pop("tensors")
    assert tensors.keys() == others.keys()
    assert all(torch.equal(tensors[name], others[name]) for name in tensors)
    gradients, own = before.pop("gradients"), after.pop("gradients")
    assert all(a is b for a, b in zip(gradients, own, strict=True))
    assert before == after


@pytest.mark.parametrize("recipe", [None, "fp8-delayed", "nvfp4"])
@pytest.mark.parametrize("fails_at", [None, 1, 4])
def test_the_model_is_left_as_it_was(recipe: str | None, fails_at: int | None) -> None:
    model = Awkward()
    if recipe is not None:
        emulate_(model, ps.load_numerics(recipe))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, target = batch_of()
    for _ in range(2):
        functional.mse_loss(model(x), target).backward()
        optimizer.step()
    model.norm.eval()
    model.runs, model.fails_at = 0, fails_at
    before = state_of(model)
    call = lambda: ps.format_sensitivity(model, (x, target), FORMATS, loss=functional.mse_loss)  # noqa: E731
    if fails_at is None:
        assert len(call().trials) == 6
    else:
        with pytest.raises(RuntimeError, match="on purpose"):
            call()
    assert_same(before, state_of(model))


def test_every_trial_draws_the_same_random_numbers() -> None:
    """With dropout, float32 in place of float32 changes nothing."""
    found = ps.format_sensitivity(Awkward(), batch_of(), ["float32"], loss=functional.mse_loss)
    assert all((each.loss_change, each.gradient_error) == (0.0, 0.0) for each in found.trials)
    assert all(each.gradient_cosine == pytest.approx(1.0) for each in found.trials)


def test_an_emulated_model_keeps_its_own_formats_elsewhere() -> None:
    model, batch = two_layers(), batch_of()
    plain = ps.format_sensitivity(model, batch, ["bfloat16"], loss=functional.mse_loss)
    emulate_(model, Numerics(weight="mxfp4", activation="mxfp4"))
    rounded = ps.format_sensitivity(model, batch, ["bfloat16"], loss=functional.mse_loss)
    own = functional.mse_loss(model(batch[0]), batch[1]).item()
    assert rounded.loss == own != plain.loss


def test_formats_with_a_rounding_and_evaluation_mode() -> None:
    formats = [RoleFormat(parse("e5m2"), rounding="stochastic"), parse("bfloat16")]
    model = two_layers().eval()
    found = ps.format_sensitivity(model, batch_of(), formats, loss=functional.mse_loss)
    assert [each.format for each in found.trials] == ["bfloat16", "e5m2"] * 2
    again = ps.format_sensitivity(model, batch_of(), formats, loss=functional.mse_loss)
    assert found == again  # random numbers of rounding are those of the step
    assert not model.training


def tiny_llama() -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=32, hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=16,
    )  # fmt: skip
    return LlamaForCausalLM(config)


def test_a_dict_is_the_batch_of_a_model_whose_output_has_a_loss() -> None:
    ids = torch.arange(16).view(2, 8)
    model = tiny_llama()
    found = ps.format_sensitivity(model, {"input_ids": ids, "labels": ids}, ["e4m3fn"])
    layers = {each.layer for each in found.trials}
    assert {"lm_head", "model.layers.0.mlp.down_proj", "model.layers.0.self_attn"} <= layers
    assert found.loss == pytest.approx(model(input_ids=ids, labels=ids).loss.item(), rel=1e-6)
    assert all(each.gradient_error is not None and 0 < each.gradient_error < 0.5 for each in found.trials)


def test_a_result_survives_json() -> None:
    found = ps.format_sensitivity(two_layers(), batch_of(), FORMATS, loss=functional.mse_loss)
    assert msgspec.json.decode(msgspec.json.encode(found), type=FormatSensitivity) == found


def test_a_layer_that_no_trial_reaches_would_show(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mutation: if the format is never set, every trial is exact, and the judge by hand does not agree."""
    monkeypatch.setattr("presilicon.emulation.emulation.Emulation.set_format", lambda *args: None)
    with pytest.raises(AssertionError):
        test_a_trial_is_the_step_computed_by_hand()


def sensitivity(**options: Any) -> FormatSensitivity:
    arguments = {"model": two_layers(), "batch": batch_of(), "formats": ["bfloat16"], "loss": functional.mse_loss}
    arguments |= options
    return ps.format_sensitivity(**arguments)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"loss": None}, "needs a loss"),
        (
            {"batch": torch.randn(3, 6)},
            "batch must be (inputs, target), or a dict of the model's arguments, not",
        ),
        ({"batch": (1, 2, 3)}, "not a tuple of 3"),
        ({"batch": {"input": torch.randn(3, 6)}, "loss": None}, "(Tensor) has no loss: put labels into the batch"),
        ({"loss": lambda output, target: output}, "the loss must be one number with a gradient, not a tensor of shape"),
        ({"loss": lambda output, target: output.detach().sum()}, "without a gradient"),
        ({"loss": lambda output, target: output.sum() * float("nan")}, "not finite before any format is changed"),
        ({"formats": []}, "give at least one"),
        ({"formats": ["e4m4fn"]}, "e4m4fn"),
        ({"layers": "frist"}, '"frist" matches none of the 4 layers; near it: '),
        ({"layers": "1"}, "no layer of those chosen multiplies"),
        ({"roles": ["weights"]}, 'did you mean "weight"'),
        ({"model": "model"}, "model must be a Module"),
    ],
)
def test_mistakes_are_explained_in_one_line(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as error:
        sensitivity(**options)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_a_mistake_leaves_a_plain_model_plain() -> None:
    model = two_layers()
    twin = copy.deepcopy(model)
    with pytest.raises(ConfigError):
        sensitivity(model=model, layers="frist")
    assert emulation_of(model) is None
    assert model.state_dict().keys() == twin.state_dict().keys()


def test_an_unknown_metric_is_refused() -> None:
    with pytest.raises(ConfigError, match='unknown metric "loss": Allowed: gradient_error, loss_change'):
        ps.format_sensitivity(two_layers(), batch_of(), FORMATS, loss=functional.mse_loss, metric="loss")


def gradients_of(model: nn.Module, x: Tensor, target: Tensor) -> Tensor:
    gradients = torch.autograd.grad(functional.mse_loss(model(x), target), list(model.parameters()))
    return torch.cat([gradient.ravel() for gradient in gradients]).double()


@pytest.mark.parametrize("kind", ["static", "dynamic"])
def test_the_loss_scale_of_the_numerics_scales_the_errors_of_every_trial(kind: str) -> None:
    x, target = batch_of()
    small = 2.0**-14
    rule = LossScale(kind=kind, initial=1 / small)
    lifted = emulate_(two_layers(), Numerics(error="e5m2", loss_scale=rule))
    found = ps.format_sensitivity(lifted, (x, target), ["e4m3"], loss=lambda o, t: small * functional.mse_loss(o, t))
    plain = emulate_(two_layers(), Numerics(error="e5m2"))
    wanted = ps.format_sensitivity(plain, (x, target), ["e4m3"], loss=functional.mse_loss)
    assert [trial.gradient_error for trial in found.trials] == [trial.gradient_error for trial in wanted.trials]
    assert [layer.layer for layer in found.layers] == [layer.layer for layer in wanted.layers]


def test_a_dynamic_scale_falls_until_the_gradients_are_finite() -> None:
    numerics = Numerics(error="e5m2", loss_scale=LossScale(kind="dynamic", initial=2.0**15))
    model, (x, target) = emulate_(two_layers(), numerics), batch_of()

    def loss(output: Tensor, target: Tensor) -> Tensor:
        return 64 * functional.mse_loss(output, target)

    found = ps.format_sensitivity(model, (x, target), ["e4m3"], loss=loss)
    assert all(trial.gradient_error is not None for trial in found.trials)
    scaler = ps.LossScaler(model)
    assert scaler.get_scale() == 2.0**15
    static = msgspec.structs.replace(numerics, loss_scale=LossScale(kind="static", initial=2.0**15))
    with pytest.raises(ConfigError, match="are not finite before any format is changed"):
        ps.format_sensitivity(emulate_(two_layers(), static), (x, target), ["e4m3"], loss=loss)


def test_a_lifted_layer_is_compared_with_the_model_in_float32() -> None:
    x, target = batch_of()
    narrow = Numerics(weight="mxfp4", activation="mxfp4", error="mxfp4")
    found = ps.format_sensitivity(
        emulate_(two_layers(), narrow), (x, target), ["bfloat16", "e4m3"], loss=functional.mse_loss, lift=True
    )
    exact = gradients_of(two_layers(), x, target)

    def error_of(numerics: Numerics) -> float:
        return float((gradients_of(emulate_(two_layers(), numerics), x, target) - exact).norm() / exact.norm())

    assert found.unlifted == pytest.approx(error_of(narrow))
    for trial in found.trials:
        wide = Override(layers=trial.layer, weight=trial.format, activation=trial.format, error=trial.format)
        assert trial.gradient_error == pytest.approx(error_of(msgspec.structs.replace(narrow, overrides=(wide,))))
    errors = [trial_of(found, layer.layer, "bfloat16").gradient_error for layer in found.layers]
    assert errors == sorted(errors)
    assert "as it is)" in str(found)
    with pytest.raises(ConfigError, match="lift asks which layer of an emulated model"):
        ps.format_sensitivity(two_layers(), (x, target), ["bfloat16"], loss=functional.mse_loss, lift=True)
