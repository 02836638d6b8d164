"""Conversions of mixed precision, against torch running the same models by the rules of a GPU."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from msgspec import structs
from tests.oracles.autocast import Conversions, gpu_policies, policies
from torch import Tensor, nn
from torch.nn import functional

from presilicon.designs import Change, Override, RoleFormat, StepFormats, load_design
from presilicon.formats import parse
from presilicon.ops import facts_of_op_named
from presilicon.records import StepFacts
from presilicon.simulation import simulate
from presilicon.simulation.execution import executed_ops
from presilicon.simulation.roofline.widths import lay_out_tensors
from presilicon.workloads import capture, capture_workload, load_workload

Loss = Callable[[Any], Tensor]
pytestmark = pytest.mark.filterwarnings("ignore")  # of transformers: missing optional kernels


def predicted(model: nn.Module, batch: Any, loss: Loss) -> tuple[int, int]:
    """Numbers converted for the forward pass, weights included, and in the backward pass."""
    numerics = load_design("h200", numerics="bf16").numerics
    formats = StepFormats(numerics, StepFacts())
    ops = executed_ops(capture(model, batch, loss=loss), formats, StepFacts())
    forward = backward = 0
    for op, layout in zip(ops, lay_out_tensors(ops, formats), strict=True):
        converted = sum(elements for elements, _ in layout.casts)
        if op.operator == "presilicon.round":
            forward += sum(tensor.elements for tensor, bits in zip(op.outputs, layout.outputs, strict=True) if bits)
        elif op.phase == "forward":
            forward += converted
        else:
            backward += converted
    return forward, backward


def counted(model: nn.Module, batch: Any, loss: Loss) -> tuple[int, int]:
    with Conversions() as forward, torch.autocast("cpu", torch.bfloat16):
        total = loss(model(**batch) if isinstance(batch, dict) else model(batch))
    with Conversions() as backward:
        total.backward()
    return forward.elements, backward.elements


def classify(output: Tensor) -> Tensor:
    return functional.cross_entropy(output, torch.zeros(len(output), dtype=torch.int64))


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 5, 3, padding=1), nn.BatchNorm2d(5)
        self.body, self.last = nn.Conv2d(5, 5, 3, padding=1, bias=False), nn.BatchNorm2d(5)
        self.head = nn.Linear(5, 10)

    def forward(self, images: Tensor) -> Tensor:
        x = functional.relu(self.norm(self.stem(images)))
        x = functional.max_pool2d(x + self.last(self.body(x)), 2)
        return self.head(x.mean((2, 3)))


def perceptron() -> tuple[nn.Module, Any, Loss]:
    model = nn.Sequential(nn.Linear(12, 20), nn.LayerNorm(20), nn.GELU(), nn.Dropout(0.1), nn.Linear(20, 10))
    return model, torch.randn(8, 12), classify


def convolutions() -> tuple[nn.Module, Any, Loss]:
    return Residual(), torch.randn(4, 3, 8, 8), classify


def encoder(norm_first: bool) -> tuple[nn.Module, Any, Loss]:
    layer = nn.TransformerEncoderLayer(16, 2, 24, dropout=0, batch_first=True, norm_first=norm_first)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), torch.randn(3, 7, 16), torch.mean


def language_model(kind: str) -> tuple[nn.Module, Any, Loss]:
    import transformers

    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
    if kind == "GPT2LMHeadModel":
        sizes = {"n_embd": 16, "n_layer": 2, "n_head": 2, "resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0}
    config = getattr(transformers, kind).config_class(vocab_size=50, **sizes)
    words = torch.randint(0, 50, (2, 8))
    batch = {"input_ids": words, "labels": words} | ({} if kind.startswith("Bert") else {"use_cache": False})
    return getattr(transformers, kind)(config).eval(), batch, lambda output: output.loss


MODELS: dict[str, Callable[[], tuple[nn.Module, Any, Loss]]] = {
    "perceptron": perceptron,
    "convolutions": convolutions,
    "encoder, norms last": lambda: encoder(norm_first=False),
    "encoder, norms first": lambda: encoder(norm_first=True),
    "GPT2LMHeadModel": lambda: language_model("GPT2LMHeadModel"),
    "BertForMaskedLM": lambda: language_model("BertForMaskedLM"),
    "LlamaForCausalLM": lambda: language_model("LlamaForCausalLM"),
}


@pytest.mark.parametrize("name", MODELS)
def test_as_many_numbers_are_converted_as_torch_converts(name: str) -> None:
    model, batch, loss = MODELS[name]()
    with gpu_policies():
        theirs = counted(model, batch, loss)
    assert predicted(model, batch, loss) == theirs


class Applies(nn.Module):
    """A function between two linear layers."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.before, self.function, self.after = nn.Linear(6, 6), function, nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.after(self.function(self.before(x).sigmoid()))
        return result


LISTED = ("acos", "asin", "cosh", "erfinv", "exp", "expm1", "log", "log10", "log2", "log1p", "reciprocal", "rsqrt")
FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    **{name: getattr(torch, name) for name in (*LISTED, "sinh", "tan", "square", "sqrt", "tanh", "abs")},
    "pow": lambda x: x**3,
    "scalar_pow": lambda x: 2.0**x,
    "softplus": functional.softplus,
    "softmax": lambda x: x.softmax(-1),
    "log_softmax": lambda x: x.log_softmax(-1),
    "logsumexp": lambda x: x.logsumexp(1, keepdim=True) * x,
    "cumsum": lambda x: x.cumsum(1),
    "sum": lambda x: x.sum(1, keepdim=True) * x,
    "norm": lambda x: x.norm(dim=1, keepdim=True) * x,
    "mean": lambda x: x.mean(1, keepdim=True) * x,
    "group_norm": lambda x: functional.group_norm(x, 2),
    "upsample_nearest": lambda x: functional.interpolate(x[:, None], scale_factor=2)[:, 0, :6],
    "where": lambda x: torch.where(x > 0.5, x, -x),
    "gelu": functional.gelu,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_each_function_is_in_the_width_that_autocast_gives_it(name: str) -> None:
    model, batch = Applies(FUNCTIONS[name]), torch.randn(4, 6)
    with gpu_policies():
        theirs = counted(model, batch, torch.mean)
    assert predicted(model, batch, torch.mean) == theirs


def test_the_rules_of_a_gpu_are_not_those_of_a_cpu() -> None:
    """The comparison can fail: torch's own rules for a CPU convert other numbers."""
    model, batch, loss = language_model("GPT2LMHeadModel")
    assert predicted(model, batch, loss) != counted(model, batch, loss)


PARTS = {
    *("layer_norm", "rms_norm", "group_norm", "frobenius_norm", "nuclear_norm", "cosine_similarity", "l1_loss"),
    *("poisson_nll_loss", "cosine_embedding_loss", "hinge_embedding_loss", "kl_div", "margin_ranking_loss"),
    *("triplet_margin_loss", "nll_loss", "nll_loss2d", "multilabel_margin_loss", "pdist", "cdist"),
    *("softmax", "log_softmax", "linalg_matrix_norm"),
}
"""Operators of torch's lists that capture sees as others, under other names or in parts."""


def test_the_lists_are_those_of_torch() -> None:
    full = {entry.partition(".")[0] for entry in policies("AT_FORALL_FP32")} - PARTS
    told = {entry.partition(".")[0] for entry in policies("AT_FORALL_FP32_SET_OPT_DTYPE")} - PARTS
    assert {name for name in full if facts_of_op_named(f"aten.{name}.default", "other").width != "float32"} == set()
    assert {
        name for name in told if facts_of_op_named(f"aten.{name}.default", "other").width != "float32-result"
    } == set()


def test_float16_softmax_converts_in_its_own_kernel() -> None:
    model, batch = Applies(FUNCTIONS["softmax"]), torch.randn(4, 6)
    graph = capture(model, batch)
    casts = {}
    for name in ("bf16", "fp16-mixed"):
        numerics = load_design("h200", numerics=name).numerics
        formats = StepFormats(numerics, StepFacts())
        ops = executed_ops(graph, formats, StepFacts())
        layouts = zip(ops, lay_out_tensors(ops, formats), strict=True)
        casts[name] = [layout.casts for op, layout in layouts if op.operator.startswith("aten._softmax.")]
    assert casts == {"bf16": [((24, 48.0),)], "fp16-mixed": [()]}


@pytest.mark.parametrize("field", ["schedule", "overrides"])
def test_formats_that_change_for_all_layers_change_what_is_moved(field: str) -> None:
    """From bfloat16 to 8 bits: as if the step had been in 8 bits all along."""
    design = load_design("tpu-v3", numerics="bf16")
    graph = capture_workload(load_workload("digits-mlp"))
    narrow = RoleFormat(parse("e5m2"))
    formats = {"weight": narrow, "activation": narrow, "error": narrow, "gradient": narrow}
    entry = Change(layers="*", from_step=5, **formats) if field == "schedule" else Override(layers="*", **formats)
    later = structs.replace(design, numerics=structs.replace(design.numerics, **{field: (entry,)}))
    always = structs.replace(design, numerics=structs.replace(design.numerics, **formats))
    facts = StepFacts(numerics_step=5) if field == "schedule" else StepFacts()
    changed, expected, before = simulate(graph, later, facts), simulate(graph, always), simulate(graph, design)
    assert changed.time_s == pytest.approx(expected.time_s, rel=1e-12)
    assert changed.energy_j == pytest.approx(expected.energy_j, rel=1e-12)
    assert changed.bytes_dram < before.bytes_dram
