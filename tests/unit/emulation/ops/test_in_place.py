"""In place is as out of place, frozen as trained, and training as evaluation."""

import pytest
import torch
from msgspec.structs import replace
from torch import nn

import presilicon as ps
from presilicon.designs import Numerics, RoleFormat
from presilicon.formats import parse, quantize

BF16 = RoleFormat(parse("bfloat16"))
RESULTS = replace(Numerics(), activation=BF16, error=BF16, vector="round-results")
FORMS = {
    "add": (lambda z, y: z + y, lambda z, y: z.add_(y)),
    "operator": (lambda z, y: z + y, lambda z, y: z.__iadd__(y)),
    "mul": (lambda z, y: z * y, lambda z, y: z.mul_(y)),
    "relu": (lambda z, y: (z + y).relu(), lambda z, y: z.add_(y).relu_()),
}


class Block(nn.Module):
    def __init__(self, form) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second, self.form = nn.Linear(16, 16), nn.Linear(16, 16), form
        self.register_buffer("seen", torch.zeros(16))

    def forward(self, x):
        with torch.no_grad():
            self.seen += 1.2345678
        return self.form(self.first(x), self.second(x))


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("train", [False, True])
def test_results_are_rounded_however_they_are_written(name: str, frozen: bool, train: bool) -> None:
    x, outs = torch.randn(32, 16), []
    for form in FORMS[name]:
        block = ps.emulate_(Block(form), RESULTS).train(train).requires_grad_(not frozen)
        out = block(x).detach()
        assert torch.equal(out, quantize(out, BF16.format))
        outs.append(out)
        assert torch.equal(block.seen, torch.full((16,), 1.2345678)), "a buffer is no activation"
    assert torch.equal(*outs)


@pytest.mark.parametrize("name", FORMS)
def test_results_in_inference_mode_are_those_without_gradients(name: str) -> None:
    x, outs = torch.randn(32, 16), []
    for form in FORMS[name]:
        block = ps.emulate_(Block(form), RESULTS).eval()
        for mode in (torch.no_grad, torch.inference_mode):
            with mode():
                outs.append(block(x).clone())
    assert all(torch.equal(out, outs[0]) for out in outs)


class Function(nn.Module):
    def __init__(self, function) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs):
        return self.function(*inputs)


WRITTEN = {
    "add": lambda a, b, **out: torch.add(a, b, **out),
    "exp": lambda a, b, **out: torch.exp(a, **out),
    "sum": lambda a, b, **out: torch.sum(a, 1, **out),
    "amax": lambda a, b, **out: torch.amax(a * b, 1, **out),
    "matmul": lambda a, b, **out: torch.matmul(a, b.T, **out),
    "mm": lambda a, b, **out: torch.mm(a, b.T, **out),
    "addmm": lambda a, b, **out: torch.addmm(a, a, b.T, **out),
    "tensordot": lambda a, b, **out: torch.tensordot(a, b, 1, **out),
    "inner": lambda a, b, **out: torch.inner(a, b, **out),
    "bmm": lambda a, b, **out: torch.bmm(a[None], b.T[None], **out),
}


@pytest.mark.parametrize("name", WRITTEN)
@pytest.mark.parametrize("size", [0, None])
def test_a_result_that_is_written_to_a_tensor_has_the_same_bits(name: str, size: int | None) -> None:
    function, (a, b) = WRITTEN[name], torch.randn(2, 16, 16)
    numerics = replace(RESULTS, weight=BF16)
    expected = ps.emulate_(Function(function), numerics)(a, b)
    assert not torch.equal(expected, function(a, b))
    out = torch.full_like(expected, 1.2345678) if size is None else torch.empty(0)
    found = ps.emulate_(Function(lambda a, b: function(a, b, out=out)), numerics)(a, b)
    assert found is out
    assert torch.equal(out, expected)
    assert torch.equal(ps.emulate_(Function(lambda a, b: function(a, b, out=None)), numerics)(a, b), expected)


ADDED = {
    "index_put": lambda z, rows, y: z.index_put((rows,), y, accumulate=True),
    "index_put_": lambda z, rows, y: z.clone().index_put_((rows,), y, True),
    "torch": lambda z, rows, y: torch.index_put(z, (rows,), y, accumulate=True),
    "scatter": lambda z, rows, y: z.scatter(0, rows[:, None].expand_as(y), y, reduce="add"),
    "put": lambda z, rows, y: z.put(rows, y[:, 0], accumulate=True),
}


@pytest.mark.filterwarnings("ignore:The reduce argument of torch.scatter")
@pytest.mark.parametrize("name", ADDED)
def test_numbers_that_are_added_where_they_are_put_are_rounded(name: str) -> None:
    z, y, rows = torch.randn(4, 8), torch.randn(6, 8), torch.tensor([0, 1, 1, 2, 3, 3])
    numerics = replace(RESULTS, vector="round-results")
    out = ps.emulate_(Function(ADDED[name]), numerics)(z, rows, y)
    assert torch.equal(out, quantize(ADDED[name](z, rows, y), BF16.format))
    moved = ps.emulate_(Function(lambda z: z.index_put((rows,), y)), numerics)(z)
    assert torch.equal(moved, z.index_put((rows,), y)), "only sums are rounded"


def test_coverage_lists_numbers_that_are_added_where_they_are_put() -> None:
    class Sums(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(8, 8)

        def forward(self, x):
            return torch.zeros(4, 8).index_put((torch.tensor([0, 1, 1, 2, 3, 3]),), self.inner(x), accumulate=True)

    listing = ps.coverage(Sums(), RESULTS, torch.randn(6, 8), strict=True)
    assert "index_put" in str([op.operator for op in listing.ops if op.status == "emulated"])
