"""Coverage lists are complete, for models that nobody here wrote."""

import copy
import warnings
from collections import Counter

import pytest
import torch
from msgspec.structs import replace
from torch import nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from presilicon.base import ConfigError
from presilicon.designs import Numerics, Override, RoleFormat, load_numerics
from presilicon.emulation import UncoveredWarning, coverage, coverage_workload, emulate_, emulate_optimizer_, emulated
from presilicon.formats import MacUnit, parse
from presilicon.workloads import load_workload

FP8 = RoleFormat(parse("e5m2"))
LOW = Numerics(weight=FP8, activation=FP8, error=FP8, gradient=FP8, master=FP8, state=FP8)
ALL = replace(LOW, vector="round-results")

NO_ARITHMETIC = """
    view reshape _unsafe_view expand permute transpose t unsqueeze squeeze slice select split split_with_sizes unbind
    clone copy_ _to_copy detach alias empty empty_like empty_strided new_empty new_zeros zeros zeros_like ones ones_like
    new_empty_strided full arange cat stack as_strided unfold diagonal fill_ zero_ lift_fresh scalar_tensor
    _local_scalar_dense tril triu masked_fill where embedding index index_select gather bernoulli_ constant_pad_nd
    slice_backward select_backward eq ne lt le gt ge logical_not logical_and bitwise_and bitwise_or all any is_nonzero
    repeat chunk full_like _unsafe_index expand_as view_as isnan numel new_ones new_full bitwise_not argsort
    masked_fill_ resolve_conj resolve_neg to __and__ __or__ index_put index_put_ contiguous item randint"""


class Everything(TorchDispatchMode):
    """Every operator that runs, and whether it made a floating-point number."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        results = [out] if isinstance(out, torch.Tensor) else list(out) if isinstance(out, (tuple, list)) else [args[0]]
        if any(isinstance(result, torch.Tensor) and result.is_floating_point() for result in results):
            self.counts[str(func).rpartition(".")[0]] += 1
        return out


def independent_listing(model, numerics, batch, targets, loss, make) -> Counter[str]:
    """The second of two steps in a plain loop, watched from outside; what is surely no arithmetic is taken away."""
    model = emulate_(copy.deepcopy(model).train(), numerics)
    optimizer = emulate_optimizer_(make(model.parameters()), numerics, model=model)
    loss = emulated(loss, model) if numerics.vector == "round-results" else loss
    for _ in range(2):
        optimizer.zero_grad()
        with Everything() as seen, torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            output = model(**batch) if isinstance(batch, dict) else model(batch)
            (loss(output) if targets is None else loss(output, targets)).backward()
            optimizer.step()
    return Counter(
        {name: n for name, n in seen.counts.items() if name.removeprefix("aten.") not in NO_ARITHMETIC.split()}
    )


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.lstm = nn.Embedding(20, 8), nn.LSTM(8, 6, bidirectional=True, batch_first=True)
        self.tags = nn.Linear(12, 5)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.tags(self.lstm(self.words(words))[0]).transpose(1, 2)


class Translator(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.core, self.out = nn.Transformer(16, 2, 1, 1, 32, batch_first=True), nn.Linear(16, 7)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        return self.out(self.core(x, x, tgt_mask=mask, tgt_is_causal=True)).transpose(1, 2)


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9, weight_decay=1e-3)


def adam(parameters):
    return torch.optim.AdamW(parameters, lr=1e-2)


def case(name: str):
    torch.manual_seed(0)
    if name == "tagger":
        words = torch.randint(0, 20, (4, 6))
        return Tagger(), words, words % 5, functional.cross_entropy, adam
    if name == "transformer":
        return Translator(), torch.randn(3, 5, 16), torch.randint(0, 7, (3, 5)), functional.cross_entropy, adam
    if name.startswith("digits"):
        workload = load_workload(name)
        inputs, targets = workload.data().train
        return workload.model(), inputs[:8], targets[:8], workload.loss, sgd
    transformers = pytest.importorskip("transformers")
    transformers.logging.set_verbosity_error()
    words = torch.randint(0, 40, (3, 8))
    if name == "gpt2":
        config = transformers.GPT2Config(
            vocab_size=40, n_positions=16, n_embd=16, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0
        )
        model = transformers.GPT2LMHeadModel(config)
    else:
        config = transformers.BertConfig(
            vocab_size=40, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
            max_position_embeddings=16,
        )  # fmt: skip
        model = transformers.BertForMaskedLM(config)
    return model, {"input_ids": words, "labels": words}, None, loss_of, adam


def loss_of(output) -> torch.Tensor:
    return output.loss


MODELS = ["digits-cnn", "digits-mlp", "tagger", "transformer", "gpt2", "bert"]


@pytest.mark.parametrize("numerics", [LOW, ALL], ids=["products", "all"])
@pytest.mark.parametrize("name", MODELS)
def test_the_list_is_complete(name: str, numerics: Numerics) -> None:
    model, batch, targets, loss, make = case(name)
    found = coverage(model, numerics, batch, targets=targets, loss=loss, optimizer=make, strict=True)
    listed: Counter[str] = Counter()
    for op in found.ops:
        listed[op.operator] += op.calls
    assert listed == independent_listing(model, numerics, batch, targets, loss, make)
    assert found.share("uncovered") == 0
    assert found.share("emulated") > (0.85 if numerics is LOW else 0.99)
    assert "FLOPs emulated" in str(found)


@pytest.mark.parametrize("name", MODELS)
def test_models_of_others_train(name: str) -> None:
    """The loss falls under emulation, with the user's own loop, optimizer and scheduler."""
    model, batch, targets, loss, _ = case(name)
    bf16 = RoleFormat(parse("bfloat16"))
    numerics = Numerics(weight=bf16, activation=bf16, error=bf16, gradient=bf16, vector="round-results")
    keys = list(model.state_dict())
    emulate_(model, numerics)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 40)
    losses = []
    for _ in range(25):
        optimizer.zero_grad()
        output = model(**batch) if isinstance(batch, dict) else model(batch)
        value = loss(output) if targets is None else loss(output, targets)
        value.backward()
        optimizer.step()
        scheduler.step()
        losses.append(float(value.detach()))
    assert min(losses[-3:]) < 0.8 * losses[0]
    assert list(model.state_dict()) == keys


class Distant(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cdist(self.fc(x), x).cumsum(0).trace()


def test_what_is_not_reached_is_listed_and_refused_when_strict() -> None:
    found = coverage(Distant(), ALL, torch.randn(3, 4))
    assert {op.operator for op in found.uncovered} >= {"aten._euclidean_dist"} or found.uncovered
    assert "UNCOVERED" in str(found)
    with pytest.raises(ConfigError, match=r"aten\..* is not emulated"):
        coverage(Distant(), ALL, torch.randn(3, 4), strict=True)


class Spectral(nn.Module):
    """Multiplies in the frequency domain, as Fourier neural operators do."""

    def __init__(self, *, einsum: bool) -> None:
        super().__init__()
        self.einsum = einsum
        self.fc = nn.Linear(8, 8)
        self.weight = nn.Parameter(torch.randn(8, 8, dtype=torch.cfloat))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.complex(self.fc(x), x)
        return (torch.einsum("bi,io->bo", x, self.weight) if self.einsum else x @ self.weight).abs()


@pytest.mark.parametrize("numerics", [LOW, ALL], ids=["products", "all"])
@pytest.mark.parametrize("einsum", [True, False])
def test_complex_products_are_uncovered_and_warned_about(numerics: Numerics, einsum: bool) -> None:
    numerics = replace(numerics, master=RoleFormat(parse("float32")), state=RoleFormat(parse("float32")))
    found = coverage(Spectral(einsum=einsum), numerics, torch.randn(4, 8))
    assert {(op.operator, op.stage) for op in found.uncovered} >= {
        (op, stage) for op in (["aten.bmm"] if einsum else ["aten.mm"]) for stage in ("forward", "backward")
    }
    with pytest.warns(UncoveredWarning, match="einsum" if einsum else "matmul"):
        emulate_(Spectral(einsum=einsum), numerics)(torch.randn(4, 8))


BEYOND = {
    "mm": lambda x, w: torch.ops.aten.mm(x, w),
    "mm.default": lambda x, w: torch.ops.aten.mm.default(x, w),
    "convolution": lambda x, w: torch.convolution(x[None], w[..., None], None, [1], [0], [1], False, [0], 1),
    "matrix_power": lambda x, w: torch.matrix_power(w, 3),
    "_sparse_addmm": lambda x, w: torch.sparse.addmm(w, x.to_sparse(), w),
    "matmul": lambda x, w: (x.to_sparse() @ w.to_sparse()).to_dense(),
    "addr": lambda x, w: torch.addr(w, x[0], x[1]),
    "embedding_bag": lambda x, w: nn.functional.embedding_bag(
        torch.zeros(4, 3, dtype=torch.long), w, per_sample_weights=x[:4, :3], mode="sum"
    ),
}


class Applied(nn.Module):
    """A function of the input and a weight."""

    def __init__(self, function) -> None:
        super().__init__()
        self.function = function
        self.weight = nn.Parameter(torch.randn(8, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x, self.weight)


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
@pytest.mark.parametrize("name", BEYOND)
def test_products_by_other_doors_are_uncovered_and_warned_about(name: str) -> None:
    x = torch.randn(8, 8)
    assert coverage(Applied(BEYOND[name]), LOW, x).uncovered
    with pytest.warns(UncoveredWarning, match=f"products of {name} are not"):
        emulate_(Applied(BEYOND[name]), LOW)(x)


def test_operands_of_two_types_are_refused_as_torch_does() -> None:
    with pytest.raises(RuntimeError, match="dtype"):
        emulate_(nn.Linear(4, 4), LOW)(torch.randn(2, 4).half())


def test_a_norm_of_vectors_is_no_product() -> None:
    model = Applied(lambda x, w: torch.linalg.vector_norm(x @ w, dim=-1))
    assert not coverage(model, LOW, torch.randn(8, 8)).uncovered


def test_mac_units_and_overrides_show_in_the_list() -> None:
    mac = MacUnit(accumulate=parse("float(exponent=6, mantissa=9)"), order="chunked", chunk=4)
    plain = RoleFormat(parse("float32"))
    wide = Override(layers="2", weight=plain, activation=plain, error=plain, gradient=plain, mac=MacUnit())
    numerics = replace(LOW, mac=mac, overrides=(wide,))
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    found = coverage(model, numerics, torch.randn(3, 4, requires_grad=True))
    products = {(op.layer, op.stage, op.operator): (op.calls, op.flops, op.status) for op in found.ops}
    assert products["0", "forward", "presilicon.matmul"] == (1, 2 * 3 * 4 * 4, "emulated")
    assert products["0", "backward", "presilicon.matmul"] == (2, 2 * 2 * 3 * 4 * 4, "emulated")
    assert products["2", "forward", "aten.addmm"][2] == "float32"


def test_a_workload_is_covered_before_it_trains() -> None:
    assert coverage_workload(load_workload("digits-mlp"), ALL, strict=True).name == "digits-mlp"


def test_the_model_is_left_alone() -> None:
    model = emulate_(nn.Linear(3, 2), LOW)
    before = copy.deepcopy(model.state_dict())
    coverage(model, ALL, torch.randn(2, 3))
    assert all(torch.equal(model.state_dict()[key], value) for key, value in before.items())
    with pytest.raises(ConfigError, match="no trainable"):
        coverage(nn.ReLU(), ALL, torch.randn(2, 3))


def test_amax_histories_are_no_ops_of_the_model() -> None:
    def listed(recipe: str) -> set[tuple[str, str, str, int]]:
        numerics = replace(load_numerics(recipe), vector="round-results")
        ops = coverage(nn.Linear(8, 4), numerics, torch.randn(5, 8), strict=True).ops
        return {(op.layer, op.stage, op.operator, op.flops) for op in ops}

    assert listed("fp8-delayed") == listed("fp8-current")


class Clip(nn.Module):
    """A model with a method beside its forward pass, as CLIP has."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.projection = nn.Linear(8, 8), nn.Parameter(torch.randn(8, 8))

    def encode(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) @ self.projection

    def inside(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.inner(x))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.encode(x)


class Parts(nn.Module):
    def forward(self, x: torch.Tensor):
        for row in x:
            yield row[None] @ x.T


def test_methods_and_generators_that_multiply_outside_of_the_forward_pass_are_named() -> None:
    x, model = torch.randn(8, 8), emulate_(Clip(), LOW)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model(x)
        model.inside(x)
        model.inner(x)
    with pytest.warns(UncoveredWarning, match='layer "": encode runs outside of the forward pass'):
        model.encode(x)
    with pytest.warns(UncoveredWarning, match='layer "": forward is a generator'):
        list(emulate_(Parts(), LOW)(x))
