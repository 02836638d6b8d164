from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import SGD, Adam, AdamW, Optimizer, RMSprop

from presilicon.base import ConfigError
from presilicon.records import Convolution, Gemm, Op, StepGraph
from presilicon.workloads import capture, capture_workload, load_workload


def find(graph: StepGraph, name: str) -> Op:
    return next(op for op in graph.ops if op.name == name)


def test_a_linear_layer_is_three_products() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 5))
    graph = capture(model, torch.empty(6, 3))
    assert find(graph, "1.forward.addmm").gemm == Gemm(6, 4, 5)
    assert find(graph, "1.input_grad.mm").gemm == Gemm(6, 5, 4)
    assert find(graph, "1.weight_grad.mm").gemm == Gemm(4, 6, 5)
    assert find(graph, "0.weight_grad.mm").gemm == Gemm(3, 6, 4)
    assert not any(op.name.startswith("0.input_grad") for op in graph.ops), "nobody needs the batch's gradient"


def test_a_convolution_is_three_products_and_a_bias_sum() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.Conv2d(4, 6, (3, 5), stride=2, padding=(1, 2), dilation=1, groups=2))
    graph = capture(model, torch.empty(5, 3, 8, 10))
    geometry = Convolution(
        batch=5,
        in_channels=4,
        out_channels=6,
        input_size=(8, 10),
        output_size=(4, 5),
        kernel=(3, 5),
        stride=(2, 2),
        padding=(1, 2),
        dilation=(1, 1),
        groups=2,
    )
    forward = find(graph, "1.forward.convolution")
    errors = find(graph, "1.input_grad.convolution_backward")
    weights = find(graph, "1.weight_grad.convolution_backward")
    bias = find(graph, "1.weight_grad.convolution_backward.bias")
    assert (forward.convolution, errors.convolution, weights.convolution) == (geometry,) * 3
    assert forward.gemm == Gemm(m=5 * 20, k=15 * 2, n=3, count=2)
    assert errors.gemm == Gemm(m=5 * 20, k=3, n=15 * 2, count=2)
    assert weights.gemm == Gemm(m=15 * 2, k=5 * 20, n=3, count=2)
    assert [tensor.role for tensor in errors.inputs] == ["error", "weight"]
    assert [tensor.role for tensor in weights.inputs] == ["activation", "error"]
    assert (bias.kind, bias.gemm, bias.flops) == ("reduction", None, 5 * 6 * 20)
    assert errors.outputs[0].shape == (5, 4, 8, 10)
    assert weights.outputs[0].shape == (6, 2, 3, 5)


def test_a_transposed_convolution_multiplies_no_inserted_zeros() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.ConvTranspose2d(4, 6, 3, stride=2))
    graph = capture(model, torch.empty(2, 3, 5, 5))
    forward = find(graph, "1.forward.convolution")
    assert forward.convolution is not None
    assert forward.convolution.transposed
    assert forward.convolution.output_size == (11, 11)
    assert forward.gemm == Gemm(m=2 * 25, k=4, n=9 * 6)
    assert find(graph, "1.input_grad.convolution_backward").gemm == Gemm(m=2 * 25, k=9 * 6, n=4)
    assert find(graph, "1.weight_grad.convolution_backward").gemm == Gemm(m=4, k=2 * 25, n=9 * 6)


def test_the_second_step_is_captured_and_nothing_is_copied() -> None:
    graph = capture(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)), torch.empty(6, 3))
    assert [op.operator for op in graph.ops if op.phase == "update"] == [
        "aten.mul_.Tensor",
        *["aten.add_.Tensor"] * 2,
    ] * 4
    assert not any("clone" in op.operator or "copy" in op.operator for op in graph.ops)


def test_batch_normalization_updates_its_statistics() -> None:
    graph = capture(nn.Sequential(nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2)), torch.empty(3, 1, 4, 4))
    forward = find(graph, "1.forward.native_batch_norm")
    assert [tensor.role for tensor in forward.outputs].count("state") == 2
    backward = find(graph, "1.input_grad.native_batch_norm_backward")
    assert [tensor.role for tensor in backward.outputs] == ["error", "gradient", "gradient"]
    model = nn.Sequential(nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2)).eval()
    forward = find(capture(model, torch.empty(3, 1, 4, 4)), "1.forward.native_batch_norm")
    assert [tensor.role for tensor in forward.outputs].count("state") == 0


def test_attention_shows_its_products() -> None:
    class Attend(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.project = nn.Linear(8, 8, bias=False)

        def forward(self, x: Tensor) -> Tensor:
            heads = self.project(x).unflatten(-1, (2, 4)).transpose(1, 2)
            return functional.scaled_dot_product_attention(heads, heads, heads)

    graph = capture(Attend(), torch.empty(3, 5, 8))
    products = [op.gemm for op in graph.ops if op.gemm and op.phase == "forward"]
    assert products == [Gemm(15, 8, 8), Gemm(5, 4, 5, count=6), Gemm(5, 5, 4, count=6)]
    assert sum(op.gemm is not None and op.gemm.count == 6 for op in graph.ops if op.phase == "input_grad") == 4
    assert Counter(op.kind for op in graph.ops)["softmax"] == 2


def test_an_embedding_reads_its_rows_and_not_its_table() -> None:
    graph = capture(nn.Embedding(1000, 4), torch.zeros(2, 3, dtype=torch.int64))
    forward = find(graph, "forward.embedding")
    assert (forward.kind, forward.flops) == ("gather", 0)
    assert forward.inputs[0].shape == (2, 3, 4)
    assert find(graph, "weight_grad.embedding_dense_backward").flops == 24


def test_dropout_is_one_op_forward_and_one_backward() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.1))
    graph = capture(model, torch.empty(6, 3))
    ops = [op for op in graph.ops if op.layer == "1"]
    assert [op.operator for op in ops] == ["aten.native_dropout.default", "aten.native_dropout_backward.default"]
    assert [tensor.integer_bits for tensor in ops[0].outputs] == [0, 8]  # the result and its mask
    for still in (model.eval(), nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.0))):
        assert not [op for op in capture(still, torch.empty(6, 3)).ops if op.layer == "1"]


def test_an_expanded_tensor_holds_no_more_numbers() -> None:
    graph = capture(nn.Linear(3, 4), torch.empty(6, 3))
    spread = find(graph, "input_grad.div")
    assert (spread.inputs[0].elements, spread.outputs[0].elements) == (1, 24)


def test_vector_work_is_counted_once_per_result() -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Softmax(dim=1))
    graph = capture(model, torch.empty(3, 1, 4, 4))
    assert find(graph, "1.forward.relu").flops == 3 * 2 * 16
    assert find(graph, "2.forward.max_pool2d_with_indices").flops == 3 * 2 * 4 * 4
    assert find(graph, "4.forward.softmax").flops == 5 * 3 * 8
    assert find(graph, "forward.mean").flops == 24


@pytest.mark.parametrize(("make", "states"), [(Adam, 2), (AdamW, 2), (RMSprop, 1), (partial(SGD, lr=0.1), 0)])
def test_optimizers_bring_their_own_state(make: Callable[..., Optimizer], states: int) -> None:
    graph = capture(nn.Linear(3, 4), torch.empty(6, 3), optimizer=make)
    assert len(graph.state) == 2 * states
    assert all(op.layer == "" for op in graph.ops if op.phase == "update")
    roles = {tensor.role for op in graph.ops if op.phase == "update" for tensor in (*op.inputs, *op.outputs)}
    assert roles == {"master", "gradient", "state"} if states else {"master", "gradient"}


def test_an_update_belongs_to_the_layer_of_its_parameter() -> None:
    graph = capture(
        nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)), torch.empty(6, 3), optimizer=partial(Adam, fused=True)
    )
    layers = [op.layer for op in graph.ops if op.phase == "update"]
    assert layers == sorted(layers)
    assert set(layers) == {"0", "1"}


def test_a_model_can_be_called_in_three_ways() -> None:
    class Sum(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(3, 4)

        def forward(self, left: Tensor, right: Tensor) -> dict[str, Tensor]:
            return {"sum": self.linear(left + right), "ids": torch.arange(3)}

    tensor = torch.empty(6, 3, device="meta")
    by_position = capture(Sum(), (tensor, torch.empty(6, 3)))
    by_name = capture(Sum(), {"left": tensor, "right": tensor.clone()})
    assert by_position == by_name
    assert by_position.batch_size == 6
    assert by_position.name == "Sum"


def test_loss_and_targets_are_part_of_the_step() -> None:
    targets = torch.zeros(6, dtype=torch.int64)
    weighted = nn.CrossEntropyLoss(weight=torch.ones(4))
    graph = capture(nn.Linear(3, 4), torch.empty(6, 3), targets=targets, loss=weighted, name="mine")
    assert graph.name == "mine"
    assert [op.kind for op in graph.ops if op.layer == "" and op.phase == "forward"] == ["gemm", "softmax", "loss"]
    scale = torch.ones(4)
    with_constant = capture(nn.Linear(3, 4), torch.empty(6, 3), loss=lambda output: (output * scale).sum())
    assert find(with_constant, "forward.mul").inputs[1].shape == (4,)


def test_plain_tensors_of_a_model_come_along() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(3, 4)
            self.scale = torch.ones(4)
            self.more = [torch.ones(4)]

        def forward(self, x: Tensor) -> Tensor:
            return self.linear(x) * self.scale + self.more[0] + torch.arange(4)

    model = Scaled()
    graph = capture(model, torch.empty(6, 3))
    assert sum(op.kind == "elementwise" and op.phase == "forward" for op in graph.ops) == 3
    assert model.scale.device.type == "cpu"


def test_recomputed_activations_are_forward_work() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))

        def forward(self, x: Tensor) -> Tensor:
            return torch.utils.checkpoint.checkpoint(self.inner, x, use_reentrant=False)

    graph = capture(Twice(), torch.empty(2, 4))
    again = find(graph, "inner.0.forward.addmm.2")
    assert again.index > find(graph, "input_grad.div").index
    assert again.layer == "inner.0"


def test_hooks_of_emulation_are_left_behind_and_others_are_kept() -> None:
    def emulate(module: nn.Module, args: Any) -> None:
        raise AssertionError("emulation must not run on the meta device")

    def double(module: nn.Module, args: tuple[Tensor]) -> tuple[Tensor]:
        return (args[0] * 2,)

    emulate.__module__ = "presilicon.emulation.attach"
    model = nn.Linear(3, 4)
    model.register_forward_pre_hook(emulate)
    model.register_forward_pre_hook(double)
    graph = capture(model, torch.empty(6, 3))
    assert find(graph, "forward.mul").flops == 18
    assert len(model._forward_pre_hooks) == 2


def test_capture_works_inside_no_grad_and_inference_mode() -> None:
    model = nn.Linear(3, 4)
    plain = capture(model, torch.empty(6, 3))
    with torch.no_grad():
        assert capture(model, torch.empty(6, 3)) == plain
    with torch.inference_mode():
        assert capture(model, torch.empty(6, 3)) == plain


def test_without_sequence_numbers_only_layers_are_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    model, batch = load_workload("digits-cnn").model(), torch.empty(4, 1, 8, 8)
    known = capture(model, batch)
    monkeypatch.setattr("presilicon.workloads.capturing.layers._sequence_number", None)
    blind = capture(model, batch)
    assert {op.layer for op in blind.ops if op.phase == "input_grad"} == {""}
    assert [(op.phase, op.gemm, op.inputs, op.outputs) for op in blind.ops] == [
        (op.phase, op.gemm, op.inputs, op.outputs) for op in known.ops
    ]


@pytest.mark.parametrize("name", ["digits-cnn", "digits-mlp"])
def test_workloads_are_captured_with_their_loss_and_optimizer(name: str) -> None:
    workload = load_workload(name)
    graph = capture_workload(workload)
    assert graph.name == name
    assert graph.batch_size == workload.batch_size
    assert {"gemm", "softmax", "loss", "optimizer"} <= set(Counter(op.kind for op in graph.ops))
    assert capture_workload(workload, 7).batch_size == 7
    with pytest.raises(ConfigError, match="batch_size"):
        capture_workload(workload, 0)
    assert capture_workload(replace(workload, optimizer=Adam)).state


class Branch(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 4)

    def forward(self, x: Tensor) -> Tensor:
        if x.sum() > 0:
            return self.linear(x)
        return self.linear(-x)


class Masked(Branch):
    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x)[x[:, 0] > 0]


class Listed(Branch):
    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) * x.mean().item()


class Hosted(Branch):
    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x.cpu())


@pytest.mark.parametrize(
    ("model", "text"),
    [
        (Branch(), "if x.sum() > 0:"),
        (Masked(), "return self.linear(x)[x[:, 0] > 0]"),
        (Listed(), "return self.linear(x) * x.mean().item()"),
        (Hosted(), "return self.linear(x.cpu())"),
    ],
)
def test_data_dependence_names_the_users_line(model: nn.Module, text: str) -> None:
    with open(__file__) as source:
        line = next(number for number, content in enumerate(source, start=1) if content.strip() == text)
    with pytest.raises(ConfigError) as raised:
        capture(model, torch.empty(6, 3))
    message = str(raised.value)
    assert message.startswith(
        f"{__file__}:{line} (`{text}`): the forward pass of {type(model).__name__} needs the values"
    )


class Padded(Branch):
    """Skips the mask where nothing is padded, as transformers does."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        positions = torch.arange(x.shape[1]).expand(len(x), -1)
        if (positions[:, 0] == 0).all() and mask.sum() == mask.numel():
            return self.linear(x)
        return self.linear(x * mask)


def test_a_model_may_branch_on_the_values_of_masks_and_positions() -> None:
    def multiplications(mask: Tensor) -> int:
        graph = capture(Padded(), (torch.empty(6, 3), mask))
        return sum(op.operator.startswith("aten.mul") and op.phase == "forward" for op in graph.ops)

    whole = torch.ones(6, 3, dtype=torch.bool)
    assert multiplications(whole) == 0
    assert multiplications(whole.tril()) == 1
    with pytest.raises(ConfigError, match="give masks and positions in the batch as real tensors"):
        multiplications(whole.to("meta"))


class Overwrites(Branch):
    """Reads a counter after something unknown was added to it."""

    def forward(self, x: Tensor) -> Tensor:
        counter = torch.zeros(2, dtype=torch.int64)
        view = counter[:1]
        counter.add_((x > 0).sum())
        return self.linear(x) if view.item() == 0 else x


def test_an_overwritten_value_is_forgotten_with_its_views() -> None:
    with pytest.raises(ConfigError, match="needs the values"):
        capture(Overwrites(), torch.empty(6, 3))


def test_a_random_value_is_not_known() -> None:
    class Drops(Branch):
        def forward(self, x: Tensor) -> Tensor:
            return self.linear(x) if torch.randint(2, ()).item() else x

    with pytest.raises(ConfigError, match="needs the values"):
        capture(Drops(), torch.empty(6, 3))


def test_inference_is_the_forward_pass_of_a_training_step() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    trained = capture(model, torch.empty(6, 3), loss=lambda output: output.sum())
    forward = [(op.name, op.flops) for op in trained.ops if op.phase == "forward"]
    asked = capture(model, torch.empty(6, 3), loss=lambda output: output.sum(), training=False)
    assert [(op.name, op.flops) for op in asked.ops] == forward
    frozen = capture(model.requires_grad_(False), torch.empty(6, 3))
    assert [(op.name, op.flops) for op in frozen.ops] == forward[:-1]  # without a loss
    assert frozen.batch_size == 6
    assert not frozen.parameters
    assert not frozen.state


def test_a_wrong_shape_is_an_error_at_the_users_line() -> None:
    class Wrong(Branch):
        def forward(self, x: Tensor) -> Tensor:
            return self.linear(x[:, :2])

    with pytest.raises(ConfigError, match=r"test_capture.py:\d+ \(`return self.linear\(x\[:, :2\]\)`\): .* failed"):
        capture(Wrong(), torch.empty(6, 3))


class ArgMax(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.argmax(-1)


outside = nn.Linear(3, 4)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model": "resnet50"}, "takes a torch.nn.Module, not str"),
        ({"model": nn.ReLU(), "training": True}, "no trainable parameter.*training=False captures its forward pass"),
        ({"model": nn.Sequential(nn.Linear(3, 4), ArgMax())}, "trainable output, not a Tensor.*give training=False"),
        ({"model": nn.LazyLinear(3)}, 'parameter "weight" has no shape yet'),
        ({"batch": [torch.empty(6, 3)]}, "not list"),
        ({"loss": lambda output: output}, r"single number, not \(6, 4\)"),
        ({"loss": lambda output: 3.0}, "single number, not float"),
        ({"loss": lambda output: output.detach().sum()}, "does not depend on any trainable parameter"),
        ({"loss": lambda output: output.sum() + outside.weight.sum()}, r"trainable tensor of shape \(4, 3\) outside"),
        ({"optimizer": SGD(outside.parameters())}, "function that creates an optimizer"),
        ({"optimizer": list}, "must return a torch.optim.Optimizer, not list"),
        ({"optimizer": torch.optim.LBFGS}, "the optimizer of Linear failed"),
        ({"optimizer": torch.optim.Adafactor}, "the optimizer of Linear needs the values"),
        ({"model": nn.Embedding(5, 3, sparse=True), "batch": torch.zeros(2, dtype=torch.int64)}, "sparse=False"),
    ],
)
def test_impossible_captures_are_explained(changes: dict[str, Any], words: str) -> None:
    given: dict[str, Any] = {"model": nn.Linear(3, 4), "batch": torch.empty(6, 3)} | changes
    with pytest.raises(ConfigError, match=words):
        capture(given.pop("model"), given.pop("batch"), **given)
    assert outside.weight.grad is None
