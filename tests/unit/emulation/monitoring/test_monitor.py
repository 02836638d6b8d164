"""Statistics of a monitored model: NumPy and ml_dtypes judge, on tensors that torch hooks captured."""

import copy
import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import msgspec
import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import presilicon as ps
from presilicon.base import ConfigError
from presilicon.designs import Numerics, Override, RoleFormat
from presilicon.emulation import emulate_, emulation_of
from presilicon.emulation.monitoring.monitor import Monitor
from presilicon.emulation.monitoring.statistics import (
    Measurement,
    PendingMeasurement,
    _measure_any,
    _measure_finite,
    measure,
)
from presilicon.emulation.training.probe import Probe
from presilicon.formats import parse, quantize
from presilicon.records import Limits, MonitorReport, RoleStatistics

FP8 = Numerics(weight="bfloat16", activation="e4m3fn", error="e5m2", gradient="bfloat16")
TYPES = {
    "weight": ml_dtypes.bfloat16,
    "activation": ml_dtypes.float8_e4m3fn,
    "error": ml_dtypes.float8_e5m2,
    "gradient": ml_dtypes.bfloat16,
}


def small_model(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))


def entry(report: MonitorReport, layer: str, role: str, product: str | None = None) -> RoleStatistics:
    return next(each for each in report.roles if (each.layer, each.role, each.product) == (layer, role, product))


def judge(x: np.ndarray, kind: Any) -> dict[str, float]:
    """Statistics of a tensor and of its rounding to an ml_dtypes type, in float64."""
    with np.errstate(over="ignore", invalid="ignore"):
        y = x.astype(kind).astype(np.float64)
    x = x.astype(np.float64)
    both = np.isfinite(x) & np.isfinite(y)
    finite = x[np.isfinite(x)]
    nonzero = np.abs(finite[finite != 0])
    error = np.sum((x[both] - y[both]) ** 2)
    return {
        "sqnr_db": 10 * np.log10(np.sum(x[both] ** 2) / error),
        "mse": error / finite.size,
        "underflow": np.mean(y[x != 0] == 0),
        "overflow": np.mean(~np.isfinite(y[np.isfinite(x)])),
        "largest": np.abs(finite).max(),
        "smallest": nonzero.min(),
        "minimum": finite.min(),
        "maximum": finite.max(),
        "mean": finite.mean(),
        "std": finite.std(ddof=1),
        "l1_norm": np.abs(finite).sum(),
        "l2_norm": np.sqrt(np.sum(finite**2)),
        "dynamic_range": np.log2(nonzero.max()) - np.log2(nonzero.min()),
    }


def assert_equal_statistics(statistics: Any, expected: dict[str, float]) -> None:
    for name, value in expected.items():
        assert getattr(statistics, name) == pytest.approx(value, rel=1e-9, abs=1e-12), name


def test_statistics_are_those_of_the_tensors_that_hooks_capture() -> None:
    model = small_model()
    last = model[2]
    captured: dict[str, Tensor] = {}
    last.register_forward_pre_hook(lambda module, args: captured.update(activation=args[0].detach().clone()))
    last.register_full_backward_hook(lambda module, ins, outs: captured.update(error=outs[0].detach().clone()))
    captured["weight"] = last.weight.detach().clone()
    emulate_(model, FP8)
    x = torch.randn(64, 6) * torch.logspace(-6, 2.5, 64).unsqueeze(1)
    with ps.monitor(model) as monitor:
        (model(x) * torch.randn(64, 3) * torch.logspace(-8, 5, 64).unsqueeze(1)).sum().backward()
    report = monitor.report()
    assert report.steps == (0,)
    for role in ("weight", "activation", "error"):
        statistics = entry(report, "2", role).statistics
        assert statistics.numbers == captured[role].numel()
        assert_equal_statistics(statistics, judge(captured[role].numpy(), TYPES[role]))
    assert entry(report, "2", "error").statistics.underflow > 0.05  # the comparison is not of zeros
    assert entry(report, "2", "activation").statistics.overflow == 0.0


def test_overflow_and_numbers_that_are_not_finite_are_counted() -> None:
    model = emulate_(small_model(), FP8)
    x = torch.randn(8, 6)
    x[0, 0], x[1, 1], x[2, 2] = 1000.0, float("inf"), float("nan")
    with ps.monitor(model, layers="0", roles=["activation"]) as monitor:
        model(x)
    (only,) = monitor.report().roles
    assert (only.layer, only.role, only.format, only.tensors) == ("0", "activation", "e4m3fn", 1)
    assert_equal_statistics(only.statistics, judge(x.numpy(), ml_dtypes.float8_e4m3fn))
    assert (only.statistics.nans, only.statistics.infinities) == (1, 1)
    assert only.statistics.overflow == pytest.approx(1 / 46)


@pytest.mark.parametrize(
    "spelling", ["float32", "e4m3fn(overflow=saturate)", "bfloat16", "mxfp4", "int8", "posit(8, 1)"]
)
def test_the_fast_measurement_of_finite_numbers_is_that_of_any(spelling: str) -> None:
    fmt = parse(spelling)
    x = torch.randn(64, 32) * torch.logspace(-8, 4, 64).unsqueeze(1)
    x[3, :5] = 0.0
    y = quantize(x, fmt)
    fast, slow = (Measurement(*measured(x, y, fmt)) for measured in (_rows(_measure_finite), _rows(_measure_any)))
    assert fast == pytest.approx(slow, rel=1e-12)
    assert fast.nonzero == x.numel() - 5


def _rows(function: Callable[..., dict[str, Any]]) -> Callable[..., Any]:
    return lambda *args: (Measurement()._asdict() | {k: float(v) for k, v in function(*args).items()}).values()


def test_a_mutated_count_does_not_pass_the_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(*args: Any, **kwargs: Any) -> PendingMeasurement:
        row = measure(*args, **kwargs)
        row.values[row.names.index("error")] *= 1.001
        return row

    monkeypatch.setattr("presilicon.emulation.monitoring.recorder.measure", wrong)
    with pytest.raises(AssertionError, match="sqnr_db"):
        test_statistics_are_those_of_the_tensors_that_hooks_capture()


def test_several_steps_add_up_and_scalars_are_those_of_the_last() -> None:
    model = emulate_(small_model(), FP8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batches = [torch.randn(16, 6) * 10.0**-step for step in range(5)]
    with ps.monitor(model, every=2, layers="0", roles=["activation"]) as monitor:
        for x in batches:
            model(x).square().mean().backward()
            optimizer.step()
    assert monitor.report().steps == (0, 2, 4)
    seen = torch.cat(batches[::2]).numpy()
    assert_equal_statistics(entry(monitor.report(), "0", "activation").statistics, judge(seen, TYPES["activation"]))
    last = judge(batches[4].numpy(), TYPES["activation"])
    scalars = monitor.scalars("train/")
    for name, value in last.items():
        assert scalars[f"train/0/activation/{name}"] == pytest.approx(value, rel=1e-9, abs=1e-12)


def test_steps_before_start_and_from_stop_on_are_not_monitored() -> None:
    model = emulate_(small_model(), FP8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with ps.monitor(model, start=1, stop=3) as monitor:
        for _ in range(5):
            model(torch.randn(2, 6)).sum().backward()
            optimizer.step()
        with torch.no_grad():
            model(torch.randn(2, 6))
        model.eval()(torch.randn(2, 6))
    assert monitor.report().steps == (1, 2)


def test_clipped_blocks_and_scales_follow_the_definition_of_mx() -> None:
    """The floor rule: the scale is 2^(floor(log2 amax) - 8), and 448 times it is the end."""
    model = emulate_(nn.Sequential(nn.Linear(64, 4)), Numerics(activation="mxfp8_e4m3"))
    x = torch.randn(32, 64) * torch.logspace(-3, 3, 32).unsqueeze(1)
    with ps.monitor(model, roles=["activation"]) as monitor:
        model(x)
    blocks = np.abs(x.numpy().astype(np.float64)).reshape(-1, 32)
    largest = blocks.max(1)
    scales = 2.0 ** (np.floor(np.log2(largest)) - 8)
    statistics = entry(monitor.report(), "0", "activation").statistics
    clipped = np.mean(largest > 448 * scales)
    assert 0.05 < clipped < 0.95
    assert statistics.clipped_blocks == clipped
    assert (statistics.scale_min, statistics.scale_max) == (scales.min(), scales.max())
    assert statistics.block_dynamic_range == pytest.approx(np.log2(largest / blocks.min(1)).max())


@pytest.mark.parametrize(
    "spelling",
    [
        "int(8, scale=tensor)",
        "int(8, scale=channel)",
        "nvfp4",
        "nvfp4(square=true, apply=divide)",
        "bfp(4)",
        "scaled(e4m3fn)",
        "scaled(e4m3fn, per=row)",
        "scaled(e5m2, per=block, block=8, apply=divide)",
    ],
)
def test_the_scales_of_every_family_explain_its_rounding(spelling: str) -> None:
    fmt = parse(spelling)
    x = torch.randn(16, 32) * torch.logspace(-2, 2, 16).unsqueeze(1)
    scaled = fmt.scaled_groups(x)
    assert scaled is not None
    groups, scales, limit = scaled
    rounded = fmt.scaled_groups(quantize(x, fmt))
    assert rounded is not None
    units = rounded[0].abs() / scales.unsqueeze(-1)
    assert groups.numel() == x.numel()
    assert float(units.max()) <= limit * (1 + 1e-6)
    assert float(units.amax(-1).min()) > limit / 2.1  # each group uses its range


def test_a_delayed_scale_is_that_of_earlier_passes() -> None:
    model = emulate_(nn.Sequential(nn.Linear(8, 2)), ps.load_numerics("fp8-delayed"))
    first, second = torch.randn(4, 8), torch.randn(4, 8)
    second[0, :3] = 100.0
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    with ps.monitor(model, roles=["activation"]) as monitor:
        for x in (first, second):
            model(x).sum().backward()
            optimizer.step()
    scale = float(first.abs().max()) / 448
    scalars = monitor.scalars()
    assert scalars["0/activation/scale_max"] == pytest.approx(scale, rel=1e-6)
    beyond = float((second.abs() > first.abs().max()).float().mean())
    assert scalars["0/activation/saturation"] == pytest.approx(beyond)
    assert beyond >= 3 / 32


def test_asking_about_delayed_scaling_leaves_the_histories_of_the_model_alone() -> None:
    models = [emulate_(small_model(), ps.load_numerics("fp8-delayed")) for _ in range(2)]
    with ps.monitor(models[0], what_if="fp8-delayed") as monitor:
        outputs = [[model(x * 10.0**i) for i, x in enumerate(torch.ones(3, 4, 6))] for model in models]
    assert all(torch.equal(*pair) for pair in zip(*outputs, strict=True))
    assert entry(monitor.report(), "0", "activation").statistics.saturation == 0.0


def test_a_transformed_operand_is_measured_as_it_is_rounded() -> None:
    model = emulate_(nn.Sequential(*[nn.Linear(16, 16) for _ in range(3)]), ps.load_numerics("nvfp4"))
    with ps.monitor(model, layers="1") as monitor:
        x = torch.randn(16, 16)
        x[:, 0] = 50.0
        model(x).square().mean().backward()
    plain, transformed = (
        entry(monitor.report(), "1", "activation", product).statistics for product in (None, "weight_grad")
    )
    assert plain.l2_norm == pytest.approx(transformed.l2_norm, rel=1e-5)  # a Hadamard transform is orthogonal
    assert plain.largest != transformed.largest


def test_a_tensor_rounded_again_for_a_backward_product_has_an_entry_of_its_own() -> None:
    model = emulate_(small_model(), ps.load_numerics("mxfp8"))
    with ps.monitor(model, layers="2") as monitor:
        model(torch.randn(32, 6)).square().mean().backward()
    keys = {each.key for each in monitor.report().roles}
    assert {"2/weight", "2/weight/input_grad", "2/activation/weight_grad", "2/error/weight_grad"} <= keys


def test_an_operand_that_three_products_share_is_seen_in_each_layer() -> None:
    class Projections(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.query, self.key = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.query(x) * self.key(x)
            return out

    model = emulate_(Projections(), FP8)
    with ps.monitor(model, roles=["activation"]) as monitor:
        model(torch.randn(3, 4)).sum().backward()
    query, key = monitor.report().roles
    assert (query.layer, key.layer) == ("query", "key")
    assert query.statistics == key.statistics


def test_the_first_failure_is_named_in_words() -> None:
    model = emulate_(small_model(), FP8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    with ps.monitor(model) as monitor:
        for step in range(4):
            x = torch.full((125, 6), 0.5)
            if step == 2:
                x[:1] = 5100.0
            model(x).sum().backward()
            optimizer.step()
    failure = monitor.first_failure
    assert failure is not None
    assert failure.message == "step 2: activations of 0 overflow e4m3fn: 0.8% above 448, largest 5.1e+03"
    assert (failure.step, failure.layer, failure.role, failure.symptom) == (2, "0", "activation", "overflow")
    assert failure.statistics is not None
    assert failure.statistics.overflow == pytest.approx(0.008)
    assert f"first failure at {failure.message}" in str(monitor.report())
    order = [(each.step, each.layer, each.symptom) for each in monitor.report().failures]
    assert order[0] == (2, "0", "overflow")
    assert (2, "0", "non-finite") not in order[:1]


class Branches(nn.Module):
    """Two layers, of which the error of the first is smaller by a factor."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.small, self.large, self.factor = nn.Linear(4, 3), nn.Linear(4, 3), factor

    def forward(self, x: Tensor) -> Tensor:
        return self.large(x).sum() + self.factor * self.small(x).sum()


@pytest.mark.parametrize(("factor", "fails"), [(5e-15, False), (2.0**-30, False), (2.0**-20, True), (1.0, False)])
def test_a_tensor_that_is_negligible_among_its_kind_is_no_failure(factor: float, fails: bool) -> None:
    model = emulate_(Branches(factor), FP8)
    probe = Probe(0)
    with ps.monitor(model) as monitor:
        emulation_of(model).recorders += (probe,)
        model(torch.ones(2, 4)).backward()
    assert (monitor.first_failure is not None) == fails
    assert [(each.layer, each.role) for each in probe.findings()] == [("small", "error")] * fails
    everything = Limits(negligible=0.0)
    with ps.monitor(model, limits=everything) as strict:
        model(torch.ones(2, 4)).backward()
    assert (strict.first_failure is not None) == (factor < 1)


def test_a_module_that_makes_infinities_is_the_first_failure_and_underflow_has_a_limit() -> None:
    class Divides(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x / 0

    model = emulate_(nn.Sequential(nn.Linear(2, 2), Divides(), nn.Linear(2, 2)), FP8)
    with ps.monitor(model) as monitor:
        model(torch.ones(1, 2))
    assert monitor.first_failure is not None
    assert monitor.first_failure.message == "step 0: Divides 1 makes 2 infinities or NaN of finite numbers"

    model = emulate_(nn.Sequential(nn.Linear(2, 2)), FP8)
    x = torch.tensor([[1e-9, 1.0], [1e-9, 1e-9]])
    with ps.monitor(model) as strict, ps.monitor(model, limits=Limits(underflow=0.8)) as lenient:
        model(x)
    assert strict.first_failure is not None
    assert strict.first_failure.message.startswith("step 0: activations of 0 underflow e4m3fn: 75% of the nonzero")
    assert lenient.first_failure is None


@pytest.mark.parametrize("functional", [False, True])
def test_dead_units_are_those_that_were_zero_in_every_monitored_step(functional: bool) -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.hidden = nn.Linear(4, 8)
            self.act = nn.Identity() if functional else nn.ReLU()

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.act(self.hidden(x))
            return nn.functional.relu(out) if functional else out

    block = Block()
    with torch.no_grad():
        block.hidden.weight.zero_()
        block.hidden.bias.fill_(1.0)
        block.hidden.bias[:3] = -1.0
    model = emulate_(nn.Sequential(block), FP8)
    with ps.monitor(model) as monitor:
        model(torch.randn(5, 4))
        with torch.no_grad():
            block.hidden.bias[0] = 1.0  # alive from now on
        model(torch.randn(5, 4))
    dead = {each.layer: (each.dead, each.units) for each in monitor.report().dead_units}
    assert dead["0" if functional else "0.act"] == (2, 8)
    assert dead["0.hidden"] == (0, 8)
    assert monitor.scalars()["0/dead_units" if functional else "0.act/dead_units"] == 0.25


def test_channels_are_the_units_of_a_convolution() -> None:
    model = emulate_(nn.Sequential(nn.Conv2d(1, 5, 3), nn.ReLU()), FP8)
    with torch.no_grad():
        model[0].bias[:2] = -100.0
    with ps.monitor(model) as monitor:
        model(torch.randn(2, 1, 6, 6))
    assert [(each.layer, each.dead, each.units) for each in monitor.report().dead_units] == [("0", 0, 5), ("1", 2, 5)]


def train(watch: Callable[[nn.Module], Any]) -> dict[str, Tensor]:
    model = emulate_(small_model(), ps.load_numerics("nvfp4"), seed=3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watch(model)
    generator = torch.Generator().manual_seed(1)
    for x, target in DataLoader(
        TensorDataset(torch.randn(32, 6, generator=generator), torch.arange(32) % 3), batch_size=8
    ):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), target).backward()
        optimizer.step()
    return model.state_dict()


def test_monitoring_changes_no_bit() -> None:
    plain = train(lambda model: None)
    watched = train(lambda model: (ps.monitor(model), ps.monitor(model, what_if="mxfp8", roles=["output", "weight"])))
    assert all(torch.equal(plain[name], watched[name]) for name in plain)


def test_what_if_sees_a_float32_model() -> None:
    model = emulate_(small_model(), Numerics())
    x = torch.randn(16, 6) * 200
    expected = copy.deepcopy(model)(x)
    with ps.monitor(model, what_if=FP8) as monitor, ps.monitor(model) as own:
        output = model(x)
        output.sum().backward()
    assert torch.equal(output, expected)
    statistics = entry(monitor.report(), "0", "activation").statistics
    assert_equal_statistics(statistics, judge(x.numpy(), ml_dtypes.float8_e4m3fn))
    assert {each.role for each in monitor.report().roles} == {"weight", "activation", "error", "gradient"}
    assert all(each.statistics.sqnr_db is None for each in own.report().roles)


def test_what_if_follows_its_own_overrides() -> None:
    model = emulate_(small_model(), Numerics())
    numerics = Numerics(weight="e4m3fn", overrides=(Override(layers="last", weight="bfloat16"),))
    with ps.monitor(model, what_if=numerics, roles=["weight"]) as monitor:
        model(torch.randn(2, 6)).sum().backward()
    assert [(each.layer, each.format) for each in monitor.report().roles] == [("0", "e4m3fn"), ("2", "bfloat16")]


def test_outputs_are_monitored_on_request() -> None:
    model = emulate_(small_model(), FP8)
    with ps.monitor(model, layers="last", roles=["output"]) as monitor:
        output = model(torch.randn(7, 6))
    (only,) = monitor.report().roles
    assert only.statistics.mean == pytest.approx(float(output.detach().double().mean()))


def test_an_emulated_loss_is_monitored() -> None:
    model = emulate_(small_model(), FP8)
    loss = ps.emulated(nn.functional.mse_loss, model)
    with ps.monitor(model) as monitor:
        loss(model(torch.randn(4, 6)), torch.zeros(4, 3)).backward()
    assert "loss" in {each.layer for each in monitor.report().roles}


def test_nothing_waits_for_the_device_until_it_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    model = emulate_(small_model(), ps.load_numerics("mxfp8"))

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("reads a number from the device")

    # Without the shortcut that the CPU takes, since it has nothing to wait for.
    for module in ("statistics", "recorder"):
        monkeypatch.setattr(f"presilicon.emulation.monitoring.{module}.is_surely_finite", lambda tensor: False)
    with ps.monitor(model) as monitor:
        for name in ("item", "tolist", "__bool__", "__int__", "__float__"):
            monkeypatch.setattr(Tensor, name, refuse)
        model(torch.randn(4, 6)).sum().backward()
        monkeypatch.undo()
    assert monitor.report().roles


def test_a_closed_monitor_sees_nothing_and_copies_have_none() -> None:
    model = emulate_(small_model(), FP8)
    with ps.monitor(model) as monitor:
        model(torch.randn(2, 6))
        twin = copy.deepcopy(model)
    tensors = monitor.report().roles
    model(torch.randn(2, 6))
    twin(torch.randn(2, 6))
    assert monitor.report().roles == tensors
    for each in (model, twin):
        emulation = emulation_of(each)
        assert emulation is not None
        assert emulation.recorders == ()


def test_a_report_survives_json() -> None:
    model = emulate_(small_model(), ps.load_numerics("mxfp8"))
    with ps.monitor(model) as monitor:
        model(torch.randn(4, 6) * 1e5).sum().backward()
    report = monitor.report()
    assert msgspec.json.decode(msgspec.json.encode(report), type=MonitorReport) == report


def test_a_monitor_that_nobody_asks_does_not_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("presilicon.emulation.monitoring.monitor._MOST_PENDING", 10)
    model = emulate_(small_model(), FP8)
    with ps.monitor(model, roles=["weight"]) as monitor:
        for _ in range(20):
            model(torch.randn(2, 6))
        assert len(monitor._pending) <= 12
    assert entry(monitor.report(), "0", "weight").tensors == 20


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: ps.monitor(small_model()), "this Sequential is not: call emulate_"),
        (lambda: ps.monitor(emulate_(small_model(), FP8), layers="hiden"), '"hiden" matches none of the 4 layers'),
        (lambda: ps.monitor(emulate_(small_model(), FP8), roles=["activations"]), 'did you mean "activation"'),
        (lambda: ps.monitor(emulate_(small_model(), FP8), every=0), "every must be at least 1"),
        (lambda: ps.monitor(emulate_(small_model(), FP8), what_if="mxfp9"), 'did you mean "mxfp8"'),
        (lambda: ps.monitor(emulate_(small_model(), FP8), every=1.5), "every must be a whole number, not 1.5"),  # type: ignore[arg-type]
        (lambda: ps.monitor(emulate_(small_model(), FP8), start=5, stop=3), "stop must be above start = 5, not 3"),
        (lambda: ps.monitor(emulate_(small_model(), FP8), layers=[]), "nothing would be monitored"),
        (lambda: ps.monitor(emulate_(small_model(), FP8), roles=[]), "nothing would be monitored"),
        (lambda: ps.monitor("model"), "model must be a Module, not 'model'"),
    ],
)
def test_mistakes_are_explained_in_one_line(call: Callable[[], Monitor], words: str) -> None:
    with pytest.raises(ConfigError) as error:
        call()
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_a_single_role_needs_no_list() -> None:
    model = emulate_(small_model(), FP8)
    with ps.monitor(model, roles="weight") as watch:
        model(torch.randn(4, 6)).sum().backward()
    assert {entry.role for entry in watch.report().roles} == {"weight"}


@pytest.mark.parametrize("options", [{"what_if": parse("e4m3")}, {"limits": 0.1}])
def test_options_of_a_wrong_type_are_refused(options: dict) -> None:
    with pytest.raises(ConfigError, match=f"{next(iter(options))} must be"):
        ps.monitor(emulate_(nn.Linear(4, 4), Numerics()), **options)


class Twice(nn.Module):
    """A block that calls one ReLU twice, as torchvision's, or two of them; the units of the first call are dead."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 8)
        self.act, self.kind = nn.ReLU(inplace=True), kind
        self.again = nn.ReLU() if kind == "two modules" else self.act
        with torch.no_grad():
            self.first.bias.fill_(-100.0)
            self.second.bias.fill_(1.0)

    def forward(self, x: Tensor) -> Tensor:
        if self.kind == "functions":
            return nn.functional.relu(self.second(nn.functional.relu(self.first(x))))
        return self.again(self.second(self.act(self.first(x))))


@pytest.mark.parametrize("kind", ["one module", "two modules", "functions"])
def test_two_calls_of_a_module_are_counted_as_two_modules(kind: str) -> None:
    model = emulate_(nn.Sequential(Twice(kind)), FP8)
    with ps.monitor(model) as monitor:
        for _ in range(2):
            model(torch.randn(5, 4))
    units = [each for each in monitor.report().dead_units if each.layer in ("0", "0.act", "0.again")]
    assert (sum(each.dead for each in units), sum(each.units for each in units)) == (8, 16)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("fmt", ["fixed(4, 4)", "e4m3fn(overflow=saturate)"])
def test_saturation_is_counted_at_both_ends(fmt: str, sign: int) -> None:
    numerics = Numerics(activation=RoleFormat(parse(fmt)))
    model = emulate_(nn.Sequential(nn.Linear(4, 2)), numerics)
    with ps.monitor(model, roles="activation") as monitor:
        model(sign * torch.tensor([[1.0, 5.0, 5000.0, 6000.0], [2.0, 7000.0, 1.5, math.inf]]))
    assert monitor.report().roles[0].statistics.saturation == pytest.approx(3 / 7)
