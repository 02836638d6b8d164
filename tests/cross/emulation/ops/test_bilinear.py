"""A bilinear form is emulated as the two products that are captured and priced."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import presilicon as ps
from presilicon.designs import load_numerics
from presilicon.workloads import DeviceOps


class Form(nn.Module):
    """A bilinear form of two vectors of each example."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.form = nn.Bilinear(24, 16, 8)

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        return self.form(first, second)


class Products(nn.Module):
    """The products themselves."""

    def __init__(self, form: nn.Bilinear) -> None:
        super().__init__()
        self.weight, self.bias = form.weight, form.bias

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        rows = functional.linear(second, self.weight.flatten(0, 1)).unflatten(-1, self.weight.shape[:2])
        return torch.matmul(rows, first.unsqueeze(-1)).squeeze(-1) + self.bias


def results(model: nn.Module) -> list[Tensor]:
    """The output and all gradients."""
    torch.manual_seed(1)
    data = [torch.randn(5, 24, requires_grad=True), torch.randn(5, 16, requires_grad=True)]
    out = model(*data)
    out.backward(torch.randn(out.shape))
    return [out, *(tensor.grad for tensor in (*data, *model.parameters()))]


@pytest.mark.parametrize("numerics", ["bf16", "fp8-mixed", "mxfp8"])
def test_a_bilinear_form_is_emulated_as_its_two_products(numerics: str) -> None:
    form = Form()
    products = Products(form.form)
    plain = results(Form())
    ours, theirs = (results(ps.emulate_(model, load_numerics(numerics))) for model in (form, products))
    for one, other, exact in zip(ours, theirs, plain, strict=True):
        assert torch.equal(one, other)
        assert functional.cosine_similarity(one.flatten(), exact.flatten(), dim=0) > 0.99
    assert not torch.equal(ours[0], plain[0]), "operands were rounded"


def test_the_captured_products_compute_the_form() -> None:
    plain = results(Form())
    with DeviceOps():
        found = results(Form())
    for ours, theirs in zip(found, plain, strict=True):
        torch.testing.assert_close(ours, theirs)
