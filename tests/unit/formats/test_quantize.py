import subprocess
import sys

import pytest
import torch

from presilicon.base import FormatError
from presilicon.formats import Key, Stochastic, parse, quantize, quantize_all_

E5M2 = parse("e5m2")


def test_import_is_free() -> None:
    code = "import sys, presilicon.formats as f; f.parse('e5m2'); print({'torch', 'numpy', 'numba'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_out_and_in_place() -> None:
    x = torch.randn(100)
    expected = quantize(x, E5M2)
    out = torch.empty_like(x)
    assert quantize(x, E5M2, out=out) is not None
    assert torch.equal(out, expected)
    quantize(x, E5M2, out=x)
    assert torch.equal(x, expected)


@pytest.mark.parametrize("rounding", ["nearest-even", "stochastic"])
def test_strides_do_not_matter(rounding: str) -> None:
    base = torch.randn(2, 6, 5, 4)
    views = [
        base.transpose(1, 3),
        base[:, ::2],
        base.to(memory_format=torch.channels_last),
        base[:1].expand(3, 6, 5, 4),
        base.flip(0),
        base[0, 0, 0, 0],
        base[:0],
    ]
    for x in views:
        dense = x.clone(memory_format=torch.contiguous_format)
        expected = quantize(dense, E5M2, rounding=rounding)
        assert torch.equal(quantize(x, E5M2, rounding=rounding), expected)
        out = torch.empty(x.shape[::-1]).permute(tuple(reversed(range(x.dim()))))
        quantize(x, E5M2, rounding=rounding, out=out)
        assert torch.equal(out, expected)


def test_a_view_can_be_quantised_in_place() -> None:
    x = torch.randn(6, 8)
    expected = x.clone()
    expected[:, ::2] = quantize(x[:, ::2], E5M2)
    quantize(x[:, ::2], E5M2, out=x[:, ::2])
    assert torch.equal(x, expected)


def test_other_input_types() -> None:
    x = torch.randn(64)
    assert quantize(x.half(), E5M2).dtype == torch.float32
    assert torch.equal(quantize(x.bfloat16(), E5M2), quantize(x.bfloat16().float(), E5M2))
    assert torch.equal(quantize(x.double(), E5M2), quantize(x, E5M2).double())


def test_no_gradient_is_carried() -> None:
    x = torch.randn(4, requires_grad=True)
    assert not quantize(x, E5M2).requires_grad


@pytest.mark.parametrize(
    ("x", "words"),
    [
        (torch.zeros(2, 3, dtype=torch.int32), ["e5m2", "(2, 3)", "torch.int32"]),
        (torch.zeros(2, dtype=torch.complex64), ["complex64"]),
        (torch.zeros(2, 3, device="meta"), ["e5m2", "(2, 3)", "meta"]),
        (torch.eye(3).to_sparse(), ["sparse"]),
        ([1.0], ["list"]),
    ],
)
def test_tensors_that_cannot_be_quantised(x: torch.Tensor, words: list[str]) -> None:
    with pytest.raises(FormatError) as caught:
        quantize(x, E5M2)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("out", [torch.empty(3), torch.empty(2, dtype=torch.float64)])
def test_unfit_outputs(out: torch.Tensor) -> None:
    with pytest.raises(FormatError, match="out must be"):
        quantize(torch.zeros(2), E5M2, out=out)


def test_unknown_rounding() -> None:
    with pytest.raises(FormatError, match='did you mean "nearest-even"'):
        quantize(torch.zeros(2), E5M2, rounding="nearest-evn")  # type: ignore[arg-type]


def test_stochastic_rounding_is_unbiased() -> None:
    x = torch.full((1 << 20,), 1.1)
    assert quantize(x, E5M2, rounding="stochastic").mean().item() == pytest.approx(1.1, abs=6e-4)
    tiny = torch.full((1 << 20,), 1e-6)
    mean = quantize(tiny, E5M2, rounding="stochastic").mean().item()
    assert mean == pytest.approx(1e-6, rel=0.02)


def test_a_thousand_tiny_updates() -> None:
    """Updates of a thousandth of a step are lost to nearest-even and kept on average by stochastic rounding."""
    bfloat16 = parse("bfloat16")
    ulp = 2.0**-7
    nearest = torch.ones(4096)
    stochastic = torch.ones(4096)
    for step in range(1000):
        nearest = quantize(nearest + ulp / 1000, bfloat16)
        stochastic = quantize(stochastic + ulp / 1000, bfloat16, rounding="stochastic", key=Key(seed=1, step=step))
    assert torch.equal(nearest, torch.ones(4096))
    assert (stochastic.mean().item() - 1) / ulp == pytest.approx(1, abs=0.06)


def test_stochastic_bits_depend_on_key_and_index_only() -> None:
    x = torch.rand(1 << 18)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = quantize(x, E5M2, rounding="stochastic", key=Key(1, 2, "w"))
        torch.set_num_threads(3)
        three = quantize(x, E5M2, rounding="stochastic", key=Key(1, 2, "w"))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(one, three)
    for other in (Key(2, 2, "w"), Key(1, 3, "w"), Key(1, 2, "v"), Key(1, 2, 0)):
        assert not torch.equal(one, quantize(x, E5M2, rounding="stochastic", key=other))


def test_few_random_bits_give_few_probabilities() -> None:
    """With one random bit a fraction of 0.3 counts as 0 and one of 0.6 as a half."""
    x = torch.tensor([1.0 + 0.3 * 0.25, 1.0 + 0.6 * 0.25]).repeat(1 << 16, 1)
    ups = (quantize(x, E5M2, rounding=Stochastic(bits=1)) > 1).float().mean(0)
    assert ups[0] == 0
    assert ups[1].item() == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize("name", ["e5m2", "fixed(8, 4)", "bfp(4)", "bfp(4, axis=0)"])
def test_the_shift_register_begins_again_after_its_last_state(name: str) -> None:
    x = torch.randn(300, 512, generator=torch.Generator().manual_seed(2))
    mode = Stochastic(source="lfsr")
    expected = quantize(x.double(), parse(name), rounding=mode, key=Key(3, 5, "w")).float()  # by plain torch operations
    assert torch.equal(quantize(x, parse(name), rounding=mode, key=Key(3, 5, "w")), expected)


def test_lfsr_has_its_full_period() -> None:
    x = torch.full((65535,), 1.125)
    ups = (quantize(x, E5M2, rounding=Stochastic(source="lfsr")) > 1).sum().item()
    assert ups == 32768


def test_many_tensors_have_the_bits_of_each() -> None:
    tensors = [torch.randn(3, 50), torch.randn(40).double(), torch.randn(20, 30).t()]
    keys = [Key(tensor=name) for name in "abc"]
    expected = [quantize(x, E5M2, rounding="stochastic", key=key) for x, key in zip(tensors, keys, strict=True)]
    quantize_all_(tensors, E5M2, rounding="stochastic", keys=keys)
    assert all(map(torch.equal, tensors, expected))
