"""Training over several devices gives the numbers of plain torch, whatever runs where and whatever fails."""

import threading

import pytest
import torch
from torch import nn
from torch.nn import functional

import presilicon as ps
from hybrid_devices import REFERENCE, Board, at_random, place, place_graph
from presilicon.base import ConfigError, RunFailedError
from presilicon.scheduling import HybridTensor, Ran
from presilicon.study import capture_steps
from presilicon.study.execution import PlainTraining, effective_times, fit_link
from presilicon.study.hybrid_context import GpuClocks, Hybrid
from presilicon.study.scheduling import to_graph
from presilicon.workloads import load_workload

STEPS = 4
MLP_CALLS = 44 * STEPS - 12
"""Captured ops of digits-mlp in all steps; in the first, 12 ops of the update make the momentum instead."""
SMALL = (("digits-cnn", 16), ("fashion-resnet", 4), ("shakespeare-gpt", 2))


def train(workload, batch_size, problem=None, schedule=None, boards=None, steps=STEPS, **options):
    training = PlainTraining(load_workload(workload), batch_size)
    if problem is None:
        return list(training.run(steps)), training, None
    devices = {"cpu": ["cpu"], "board": boards or [Board(f"board {unit}") for unit in range(2)]}
    with Hybrid(training.model, problem, schedule, REFERENCE, devices=devices, **options) as run:
        run.losses += training.run(steps)
    return run.losses, training, run.execution


def largest_difference(losses, others):
    return max(abs(one - other) for one, other in zip(losses, others, strict=True))


@pytest.mark.parametrize(("workload", "batch_size"), SMALL)
def test_losses_and_weights_are_those_of_plain_torch(workload, batch_size):
    problem, schedule = place(workload, batch_size, at_random(1))
    plain, trained, _ = train(workload, batch_size)
    losses, hybrid, execution = train(workload, batch_size, problem, schedule)
    assert largest_difference(losses, plain) < 1e-5
    for ours, theirs in zip(hybrid.model.state_dict().values(), trained.model.state_dict().values(), strict=True):
        assert torch.allclose(ours, theirs, rtol=1e-3, atol=1e-3)
    assert execution.steps == STEPS
    assert execution.offloaded > 1 / 3
    # Only the making of the optimizer's state, in the first step, is not part of the captured step.
    assert set(execution.uncaptured) <= {"aten.clone.default", "aten.zeros_like.default"}


def test_the_comparison_of_losses_can_fail():
    problem, schedule = place("digits-mlp", 16, at_random(1))
    plain, _, _ = train("digits-mlp", 16)
    losses, _, _ = train("digits-mlp", 16, problem, schedule, [Board(wrong=True), Board()])
    assert largest_difference(losses, plain) > 1e-5


def test_everything_is_an_ordinary_tensor_afterwards():
    problem, schedule = place("digits-cnn", 16, at_random(2))
    _, training, _ = train("digits-cnn", 16, problem, schedule)
    tensors = [*training.model.parameters(), *(parameter.grad for parameter in training.model.parameters())]
    tensors += [state for states in training.optimizer.state.values() for state in states.values()]
    assert not any(isinstance(tensor, HybridTensor) for tensor in tensors)
    before = [parameter.detach().clone() for parameter in training.model.parameters()]
    next(training.run(1))  # goes on without the runtime
    assert not all(map(torch.equal, before, training.model.parameters()))


@pytest.mark.parametrize("options", [{"forgets": False}, {"forgets": True}])
def test_a_lost_device_costs_no_accuracy(options):
    problem, schedule = place("digits-cnn", 16, at_random(3))
    plain, _, _ = train("digits-cnn", 16)
    boards = [Board("first", fails_at=30, **options), Board("second")]
    losses, _, execution = train("digits-cnn", 16, problem, schedule, boards, mirror=options["forgets"])
    assert largest_difference(losses, plain) < 1e-5
    assert list(execution.lost) == ["board 0"]
    assert "fell off the bus" in execution.lost["board 0"]
    assert execution.ops_by_device["board 0"] == 29
    assert execution.ops_by_device["board 1"] > 29


def test_all_devices_may_be_lost():
    problem, schedule = place("digits-cnn", 16, at_random(3))
    plain, _, _ = train("digits-cnn", 16)
    boards = [Board("first", fails_at=10), Board("second", fails_at=12)]
    losses, _, execution = train("digits-cnn", 16, problem, schedule, boards)
    assert largest_difference(losses, plain) < 1e-5
    assert sorted(execution.lost) == ["board 0", "board 1"]


def test_memory_that_is_lost_without_a_mirror_ends_the_run():
    problem, schedule = place("digits-cnn", 16, lambda index, op: (0,))
    with pytest.raises(RunFailedError, match="mirror=True"):
        train("digits-cnn", 16, problem, schedule, [Board(fails_at=60, forgets=True), Board()], takeover=False)


def test_an_op_without_a_kernel_stays_on_the_reference_device_and_is_reported():
    problem, schedule = place("digits-cnn", 16, lambda index, op: (0,))
    plain, _, _ = train("digits-cnn", 16)
    losses, _, execution = train("digits-cnn", 16, problem, schedule, [Board(without=("aten::relu",)), Board()])
    assert largest_difference(losses, plain) < 1e-5
    assert [(op.operator, op.device, op.calls) for op in execution.uncovered] == [
        ("aten.relu.default", "board 0", 3 * STEPS)
    ]
    assert execution.ops_by_device["cpu 0"] >= 3 * STEPS


def test_big_ops_are_split_over_the_boards():
    problem, schedule = place("digits-cnn", 16, lambda index, op: (0, 1) if op.kind in ("Conv2D", "MatMul") else ())
    plain, _, _ = train("digits-cnn", 16)
    losses, _, execution = train("digits-cnn", 16, problem, schedule)
    assert largest_difference(losses, plain) < 1e-5
    assert execution.ops_by_device["board 1"] == 8 * STEPS  # two convolutions, six products
    assert execution.ops_by_device["board 0"] == 2 * 8 * STEPS  # the parts, and the joins


def test_gradients_of_convolutions_are_split_too():
    kinds = ("Conv2DBackpropInput", "Conv2DBackpropFilter")
    problem, schedule = place("digits-cnn", 16, lambda index, op: (0, 1) if op.kind in kinds else ())
    plain, _, _ = train("digits-cnn", 16)
    losses, _, execution = train("digits-cnn", 16, problem, schedule)
    assert largest_difference(losses, plain) < 1e-5
    assert execution.ops_by_device["board 1"] == 3 * STEPS


def test_the_idle_reference_device_takes_ops_that_wait_for_a_slow_board():
    problem, schedule = place("digits-mlp", 16, lambda index, op: (0,))
    boards = [Board(delay_s=2e-3), Board()]
    plain, _, _ = train("digits-mlp", 16)
    losses, _, execution = train("digits-mlp", 16, problem, schedule, boards)
    assert largest_difference(losses, plain) < 1e-5
    assert execution.takeovers > 0
    _, _, literal = train("digits-mlp", 16, problem, schedule, boards, takeover=False)
    assert literal.takeovers == 0
    assert literal.ops_by_device["board 0"] == MLP_CALLS


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(12, 16), nn.BatchNorm1d(16), nn.Linear(16, 4)

    def forward(self, x):
        x = functional.dropout(functional.gelu(self.norm(self.first(x))), 0.3, self.training)
        return self.last(torch.cat([x[:, :8], x[:, 8:] * 2.0], dim=1))


def net_loop(make_optimizer, run=None, steps=5):
    torch.manual_seed(3)
    model, losses = Net(), []
    optimizer = make_optimizer(model.parameters())
    data = torch.randn(64, 12)

    def loop():
        for step in range(steps):
            x, y = data[4 * step : 4 * step + 24], torch.randint(0, 4, (24,))
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(x), y)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.detach())
            if step == 2:
                with torch.no_grad():
                    model.eval()
                    losses.append(model(x).argmax(1).float().mean())  # an evaluation in between
                    model.train()

    if run is None:
        loop()
        return model, losses, None
    targets = torch.zeros(24, dtype=torch.long)
    step = ps.capture(
        model, torch.empty(24, 12), targets=targets, loss=functional.cross_entropy, optimizer=make_optimizer
    )
    problem, schedule = place_graph(to_graph(step), at_random(run))
    with Hybrid(
        model, problem, schedule, REFERENCE, devices={"cpu": ["cpu"], "board": [Board("a"), Board("b")]}
    ) as hybrid:
        loop()
    return model, losses, hybrid


@pytest.mark.parametrize("foreach", [False, True])
@pytest.mark.parametrize("optimizer", [torch.optim.Adam, torch.optim.AdamW, torch.optim.RMSprop])
def test_optimizers_dropout_statistics_clipping_and_evaluation(optimizer, foreach):
    def make(parameters):
        return optimizer(parameters, lr=1e-2, foreach=foreach)

    plain, expected, _ = net_loop(make)
    model, losses, hybrid = net_loop(make, run=5)
    assert [float(loss) for loss in losses] == pytest.approx([float(loss) for loss in expected], rel=1e-4)
    for name, ours in model.state_dict().items():
        assert torch.allclose(ours, plain.state_dict()[name], atol=1e-4), name
    assert hybrid.execution.steps == 5


def test_a_fused_optimizer_is_one_call_on_the_reference_device():
    def make(parameters):
        return torch.optim.Adam(parameters, lr=1e-2, fused=True)

    _, expected, _ = net_loop(make)
    _, losses, hybrid = net_loop(make, run=5)
    assert [float(loss) for loss in losses] == pytest.approx([float(loss) for loss in expected], rel=1e-4)
    assert any("_fused_adam_" in operator for operator in hybrid.execution.uncaptured)


def test_values_and_results_of_unknown_size_are_waited_for():
    problem, schedule = place("digits-mlp", 16, at_random(1))
    model = load_workload("digits-mlp").model()
    with Hybrid(model, problem, schedule, REFERENCE, devices={"cpu": ["cpu"], "board": [Board(), Board()]}) as run:
        output = model(torch.ones(16, 64))
        assert isinstance(output, HybridTensor)
        assert len(output[output > -1e9]) == 160
        assert output.sum().item() == pytest.approx(float(output.detach().sum()))
        with torch.no_grad():
            model[0].weight.zero_()
        run.session.synchronize()
        assert not model[0].weight.detach().numpy().any()
    assert repr(output).startswith("HybridTensor") or "tensor" in repr(output)


def test_a_reference_device_with_memory_of_its_own():
    problem, schedule = place("digits-cnn", 16, at_random(7))
    training = PlainTraining(load_workload("digits-cnn"), 16)
    devices = {"cpu": [Board("fast")], "board": [Board("first", fails_at=20), Board("second")]}
    with Hybrid(training.model, problem, schedule, REFERENCE, devices=devices) as run:
        losses = list(training.run(STEPS))
    assert largest_difference(losses, train("digits-cnn", 16)[0]) < 1e-5
    assert run.execution.devices["cpu 0"] == "fast"
    assert list(run.execution.lost) == ["board 0"]


def test_plain_memory_is_up_to_date_in_the_middle_of_training():
    problem, schedule = place("digits-cnn", 16, lambda index, op: (index % 2,))
    training = PlainTraining(load_workload("digits-cnn"), 16)
    plain = PlainTraining(load_workload("digits-cnn"), 16)
    list(plain.run(2))
    devices = {"cpu": ["cpu"], "board": [Board(), Board()]}
    with Hybrid(training.model, problem, schedule, REFERENCE, devices=devices) as run:
        losses = list(training.run(2))
        run.session.synchronize()
        for ours, theirs in zip(training.model.parameters(), plain.model.parameters(), strict=True):
            assert ours.detach().numpy() == pytest.approx(theirs.detach().numpy(), abs=1e-5)
        losses += training.run(1)
    assert largest_difference(losses[2:], list(plain.run(1))) < 1e-5


def test_a_mistake_of_the_program_is_raised_in_the_program():
    before = threading.active_count()
    problem, schedule = place("digits-mlp", 16, at_random(1))
    model = load_workload("digits-mlp").model()
    with (
        pytest.raises(IndexError),
        Hybrid(model, problem, schedule, REFERENCE, devices={"cpu": ["cpu"], "board": [Board(), Board()]}),
    ):
        functional.cross_entropy(model(torch.ones(16, 64)), torch.full((16,), 99)).item()
    assert threading.active_count() == before


def test_a_model_elsewhere_than_on_the_host_is_refused():
    problem, schedule = place("digits-mlp", 16, at_random(1))
    model = load_workload("digits-mlp").model().to("meta")
    devices = {"cpu": ["cpu"], "board": [Board(), Board()]}
    with pytest.raises(ConfigError, match="host's memory"), Hybrid(model, problem, schedule, "cpu", devices=devices):
        pass


def test_a_pool_needs_a_real_device_for_each_unit():
    plan = ps.schedule("v100-2xs10", "digits-mlp", solver="heft")
    match = r"devices\.gpu\.runtime must name 1 real devices"
    with (
        pytest.raises(ConfigError, match=match),
        ps.hybrid(nn.Linear(1, 1), plan),
    ):
        pass


def test_a_schedule_of_a_system_trains_a_model():
    plan = ps.schedule("v100-2xs10", "digits-mlp", 16, solver="heft")
    training = PlainTraining(load_workload("digits-mlp"), 16)
    with ps.hybrid(training.model, plan, devices={"gpu": ["cpu"], "fpga": [Board("a"), Board("b")]}) as run:
        losses = list(training.run(2))
    assert largest_difference(losses, train("digits-mlp", 16, steps=2)[0]) < 1e-5
    assert run.execution.predicted_makespan_s == plan.schedule.makespan_s
    assert run.execution.devices["gpu 0"] == "cpu"


def test_no_op_starts_above_the_cap():
    problem, schedule = place("digits-mlp", 16, at_random(1))
    # Idle 12 W; the CPU adds 20 W and a board 3 W: under 34 W the CPU runs alone or beside nothing that adds more.
    plain, _, _ = train("digits-mlp", 16)
    losses, _, execution = train("digits-mlp", 16, problem, schedule, cap_w=34.0)
    assert largest_difference(losses, plain) < 1e-5
    assert execution.highest_w <= 34.0
    assert execution.forced == 0


def test_under_a_tight_cap_ops_move_to_the_device_that_draws_less():
    problem, schedule = place("digits-mlp", 16, lambda index, op: ())
    losses, _, execution = train("digits-mlp", 16, problem, schedule, cap_w=20.0)
    assert largest_difference(losses, train("digits-mlp", 16)[0]) < 1e-5
    assert execution.highest_w <= 20.0
    assert execution.ops_by_device["board 0"] + execution.ops_by_device.get("board 1", 0) == MLP_CALLS


def test_a_cap_below_everything_is_reported_and_training_goes_on():
    problem, schedule = place("digits-mlp", 16, lambda index, op: ())
    losses, _, execution = train("digits-mlp", 16, problem, schedule, cap_w=5.0, steps=1)
    assert len(losses) == 1
    assert execution.forced > 0


def test_clocks_are_set_only_where_the_schedule_changes_them():
    problem, schedule = place("digits-mlp", 16, lambda index, op: (0,) if index in (3, 4) else (), clock=0.7)
    calls = []
    train("digits-mlp", 16, problem, schedule, steps=1, set_clock=lambda unit, clock: calls.append((unit, clock)))
    assert calls == [("board 0", 0.7)]


class FakeNvml:
    """A card that remembers what it was told."""

    def __init__(self):
        self.told = []

    def highest_clock_mhz(self):
        return 2000

    def lock_clock(self, mhz):
        self.told.append(mhz)

    def unlock_clock(self):
        self.told.append("free")


def test_clocks_of_a_gpu_are_locked_for_slow_ops_and_freed_again():
    problem, schedule = place("digits-mlp", 16, lambda index, op: (0,) if index in (3, 4) else (), clock=0.7)
    card = FakeNvml()
    clocks = GpuClocks({"board 0": card})
    train("digits-mlp", 16, problem, schedule, steps=1, set_clock=clocks)
    clocks("board 0", 1.0)
    clocks.reset()
    assert card.told == [1400, "free", "free"]


def test_effective_times_include_the_wait_for_the_program_but_not_for_inputs():
    problem, _ = place("digits-mlp", 16, lambda index, op: ())
    first, second = 0, next(task.id for task in problem.tasks if 0 in task.deps)
    trial = [
        Ran("op", "a", first, 1, "cpu 0", 10.0, 11.0),
        Ran("in", "a", first, 1, "board 0", 11.0, 13.0, 100),
        Ran("op", "b", second, 1, "board 0", 13.5, 15.0),
    ]
    times = effective_times(problem, trial)
    assert times == {(first, "cpu"): [1.0], (second, "board"): [2.0]}


def test_a_link_without_a_slope_has_no_bandwidth_limit():
    assert fit_link([(100, 1e-3), (100000, 1e-3)]) == (1e-3, 1e12)


def test_capture_and_runtime_agree_on_the_ops_of_a_step():
    [step] = capture_steps("shakespeare-gpt", 2)
    problem, schedule = place("shakespeare-gpt", 2, lambda index, op: ())
    _, _, execution = train("shakespeare-gpt", 2, problem, schedule, steps=2)
    captured = [op for op in execution.executed if op.kind == "op" and op.task >= 0]
    assert sorted(op.task for op in captured) == list(range(len(step.ops)))
