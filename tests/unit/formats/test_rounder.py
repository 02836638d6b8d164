import pytest
import torch

from presilicon.formats import Stochastic, parse, quantize, rounder

FORMATS = [
    "e5m2",
    "e4m3fn",
    "bfloat16",
    "fixed(4, 4)",
    "fixed(4, 4, overflow=wrap)",
    "posit(8, 2)",
    "int(8, scale=tensor)",
]


@pytest.mark.parametrize("spelling", FORMATS)
@pytest.mark.parametrize("rounding", [None, "toward-zero"])
@pytest.mark.parametrize("over", [False, True])
def test_it_gives_what_quantize_gives(spelling: str, rounding: str | None, over: bool) -> None:
    fmt = parse(spelling)
    round_it = rounder(fmt, rounding, over=over)
    base = 4 * torch.randn(3, 6, 10)
    base[0, 0, :4] = torch.tensor([0.0, -0.0, torch.inf, torch.nan])
    layouts = [
        base,
        base.mT,
        base[:, ::2],
        base.permute(2, 0, 1),
        base[0, :, 3],
        base[1, 1, 1],
        base[:0],
        base.double(),
        base.as_strided((3, 6, 10), (60, 1, 1)),
        base[:, :1, :1].expand(3, 1, 1).mT,
        base.view(-1).as_strided((4, 1, 1), (7, 1, 1)),
    ]
    layouts += [base.expand(2, 3, 6, 10), torch.randn(1 << 16), base.clone().requires_grad_()]
    for x in layouts:
        expected = quantize(x, fmt, rounding=rounding)
        found = round_it(x.clone(memory_format=torch.preserve_format) if over else x)
        assert torch.equal(found.nan_to_num(9.0), expected.nan_to_num(9.0))
        assert not found.requires_grad
        assert found.shape == x.shape


def test_what_it_may_not_write_it_leaves_alone() -> None:
    x = torch.randn(4, 4)
    before = x.clone()
    rounder(parse("e5m2"))(x)
    rounder(parse("e5m2"), over=True)(x.mT.clone())
    assert torch.equal(x, before)


def test_random_numbers_are_left_to_quantize() -> None:
    x = torch.randn(100)
    assert torch.equal(rounder(parse("e5m2"), Stochastic())(x), quantize(x, parse("e5m2"), rounding=Stochastic()))
