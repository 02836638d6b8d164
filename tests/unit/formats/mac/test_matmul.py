import subprocess
import sys

import pytest
import torch

from presilicon.base import FormatError
from presilicon.formats import Float, Key, MacUnit, matmul, parse, quantize

FLOAT16 = parse("float16")
IBM = MacUnit(accumulate=Float(6, 9), order="chunked", chunk=64)


def test_import_is_free() -> None:
    code = "import sys, presilicon.formats.mac.matmul; print({'torch', 'numpy', 'numba', 'triton'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_a_long_sum_stalls_unless_it_is_chunked() -> None:
    """16,384 values of U(0, 2) in float16: sequential sums stop at 4096, where half a step is 2."""
    values = quantize(torch.rand(16384, generator=torch.Generator().manual_seed(0)) * 2, FLOAT16)
    ones = torch.ones(16384)
    true = values.double().sum().item()
    assert 16_000 < true < 16_800
    assert matmul(values, ones, MacUnit(accumulate=FLOAT16)).item() == 4096
    chunked = matmul(values, ones, MacUnit(accumulate=FLOAT16, order="chunked", chunk=64)).item()
    assert abs(chunked / true - 1) < 0.005
    stochastic = matmul(values, ones, MacUnit(accumulate=FLOAT16, rounding="stochastic")).item()
    assert abs(stochastic / true - 1) < 0.05


def test_stochastic_sums_are_unbiased() -> None:
    """512 steps of a tenth of a last place: nearest never moves, stochastic moves by 51.2 places on average."""
    a = torch.cat([torch.ones(1), torch.full((512,), 0.1 * 2.0**-10)])
    b = torch.ones(513, 2000)
    nearest = matmul(a, b, MacUnit(accumulate=FLOAT16))
    assert torch.equal(nearest, torch.ones(2000))
    moved = (matmul(a, b, MacUnit(accumulate=FLOAT16, rounding="stochastic"), key=Key(1)) - 1) * 2**10
    assert abs(moved.mean().item() - 51.2) < 1


def test_known_sums_in_each_order() -> None:
    """1024 + 1 + 1 + 1 + 1 with 10 significant bits, steps of 2 above 1024: each order loses something else."""
    a, b = torch.tensor([[1024.0, 1, 1, 1, 1]]), torch.ones(5, 1)
    fmt = Float(6, 9)
    results = {
        "sequential": MacUnit(accumulate=fmt),
        "chunked": MacUnit(accumulate=fmt, order="chunked", chunk=2),
        "pairwise": MacUnit(accumulate=fmt, order="pairwise"),
        "systolic": MacUnit(accumulate=fmt, order="systolic", rows=1),
        "lanes": MacUnit(accumulate=fmt, width=2),
        "aligned": MacUnit(accumulate=fmt, order="aligned", width=5, align_bits=20),
        "cut": MacUnit(accumulate=fmt, order="aligned", width=5, align_bits=9),
    }
    sums = {name: matmul(a, b, unit).item() for name, unit in results.items()}
    # Ties go to multiples of 4. chunked and pairwise: ((1024+1) + (1+1)) + 1 = 1026 + 1; lanes: (1024+1+1) + (1+1).
    assert sums == {
        "sequential": 1024,
        "chunked": 1028,
        "pairwise": 1028,
        "systolic": 1024,
        "lanes": 1026,
        "aligned": 1028,
        "cut": 1024,
    }


def test_a_tensor_core_cuts_toward_zero() -> None:
    a = torch.tensor([[1.0, -(2.0**-24), 2.0**-24, 1.5]])
    b = torch.tensor([[1.0], [1.0], [1.75], [1.5]])
    core = MacUnit(order="aligned", width=4, align_bits=23, rounding="toward-zero")
    assert matmul(a[:, :3], b[:3], core).item() == 1.0
    # The exponent of 1.5 x 1.5 counts as 0, as hardware adds exponents before it multiplies: nothing is cut at 2^-23.
    assert matmul(torch.tensor([[1.5, 2.0**-23]]), torch.tensor([[1.5], [1.0]]), core).item() == 2.25


@pytest.mark.parametrize("mac", [IBM, MacUnit(accumulate=Float(5, 3), rounding="stochastic"), MacUnit()], ids=str)
def test_shapes_are_those_of_torch(mac: MacUnit) -> None:
    shapes = [
        ((3, 5), (5, 4)),
        ((5,), (5,)),
        ((5,), (5, 4)),
        ((3, 5), (5,)),
        ((2, 3, 5), (5, 4)),
        ((3, 5), (2, 5, 4)),
        ((6, 1, 3, 5), (2, 5, 4)),
        ((2, 3, 5), (2, 5, 4)),
        ((0, 5), (5, 4)),
        ((3, 0), (0, 4)),
        ((0, 3, 5), (0, 5, 4)),
        ((2, 3, 5), (1, 5, 4)),
    ]
    for left, right in shapes:
        a, b = torch.randint(-3, 4, left).float(), torch.randint(-3, 4, right).float()
        expected = torch.matmul(a, b)
        result = matmul(a, b, MacUnit(accumulate=Float(8, 12)))
        assert result.shape == expected.shape
        assert torch.equal(result, expected)
        assert matmul(a, b, mac).shape == expected.shape


def test_strides_do_not_matter() -> None:
    a, b = torch.randn(2, 7, 9), torch.randn(2, 9, 5)
    expected = matmul(a, b, IBM)
    assert torch.equal(matmul(a.mT.contiguous().mT, b.mT.contiguous().mT, IBM), expected)
    wide = torch.randn(2, 9, 10)
    wide[..., ::2] = b
    assert torch.equal(matmul(a, wide[..., ::2], IBM), expected)
    out = torch.empty(5, 7, 2).permute(2, 1, 0)
    assert matmul(a, b, IBM, out=out) is not None
    assert torch.equal(out, expected)


def test_gradients_do_not_pass() -> None:
    a = torch.randn(3, 4, requires_grad=True)
    assert not matmul(a, torch.randn(4, 2), IBM).requires_grad


def test_half_precision_operands_are_widened() -> None:
    a, b = torch.randn(3, 4), torch.randn(4, 2)
    assert torch.equal(matmul(a.half(), b.bfloat16(), IBM), matmul(a.half().float(), b.bfloat16().float(), IBM))


@pytest.mark.parametrize(
    ("a", "b", "words"),
    [
        (torch.ones(2, 3), torch.ones(2, 3), ["(2, 3) and (2, 3) do not fit", "(..., M, K)"]),
        (torch.ones(2, 3).int(), torch.ones(3, 2), ["a of shape (2, 3) and type torch.int32", "float32"]),
        (torch.ones(2, 3), torch.ones(3, 2).double(), ["b of shape (3, 2) and type torch.float64"]),
        (torch.ones(2, 3, device="meta"), torch.ones(3, 2), ["device meta", "cpu, cuda"]),
        (torch.tensor(1.0), torch.ones(3, 2), ["no axis to reduce"]),
        ([[1.0]], torch.ones(3, 2), ["a must be a torch tensor, not list"]),
    ],
)
def test_operands_that_cannot_be(a: torch.Tensor, b: torch.Tensor, words: list[str]) -> None:
    with pytest.raises(FormatError) as caught:
        matmul(a, b, IBM)
    assert all(word in str(caught.value) for word in ["chunked(chunk=64)", *words]), str(caught.value)


def test_an_unfit_output() -> None:
    with pytest.raises(FormatError, match=r"out is \(2, 3\).*needed: \(2, 2\)"):
        matmul(torch.ones(2, 3), torch.ones(3, 2), IBM, out=torch.empty(2, 3))


def test_when_the_library_agrees() -> None:
    """A float32 unit goes to the library: equal where all partial sums are exact, close where they are not."""
    whole = (
        quantize(torch.randn(40, 300) * 4, parse("fixed(6, 0)")),
        quantize(torch.randn(300, 50), parse("fixed(6, 2)")),
    )
    assert torch.equal(matmul(*whole, MacUnit()), matmul(*whole, MacUnit(), library=False))
    a, b = torch.randn(40, 3000), torch.randn(3000, 50)
    fast, exact = matmul(a, b, MacUnit()), matmul(a, b, MacUnit(), library=False)
    assert torch.equal(fast, torch.matmul(a, b))
    assert not torch.equal(fast, exact)
    bound = 3000 * 2.0**-24 * (a.abs() @ b.abs())
    assert bool(((fast - exact).abs() <= 2 * bound).all())


def test_special_values() -> None:
    inf, nan = float("inf"), float("nan")
    a = torch.tensor([[inf, 1.0], [inf, 0.0], [nan, 1.0], [3e38, 3e38], [-0.0, -0.0], [2.0**-149, 0.0]])
    b = torch.tensor([[1.0, -1.0, 0.0], [1.0, inf, 1.0]])
    result = matmul(a, b, MacUnit(accumulate=Float(8, 20)))
    expected = [[inf, nan, nan], [inf, nan, nan], [nan] * 3, [inf, inf, 3e38], [0.0, nan, 0.0], [0.0, nan, 0.0]]
    torch.testing.assert_close(result, torch.tensor(expected), equal_nan=True, rtol=1e-6, atol=1e-40)
    saturating = matmul(a, b, MacUnit(accumulate=Float(4, 3, overflow="saturate")))
    assert saturating[0, 0] == 240
    assert torch.signbit(result[4, 0]).item() is False
