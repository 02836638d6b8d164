"""Products with a user's own arithmetic, against the same functions called one by one in Python."""

import pytest
import torch

from presilicon.base import FormatError
from presilicon.formats import Float, MacUnit, UserFormat, encode, matmul, parse


def as_float(code):
    """Sign and magnitude in quarters: an odd little format whose functions are easy to check."""
    return (code & 127) * 0.25 * (-1.0 if code & 128 else 1.0)


def convert(value):
    steps = int(abs(value) * 4)
    steps = min(steps, 127)
    return steps | 128 if value < 0 else steps


def mul(a, b):
    product = (a & 127) * (b & 127) // 4
    product = min(product, 127)
    return product | ((a ^ b) & 128)


def add(a, b):
    x = -(a & 127) if a & 128 else a & 127
    y = -(b & 127) if b & 128 else b & 127
    total = x + y
    size = min(abs(total), 127)
    return size | 128 if total < 0 else size


def mad(a, b, c):
    exact = (a & 127) * (b & 127)
    exact = -exact if (a ^ b) & 128 else exact
    total = exact + 4 * (-(c & 127) if c & 128 else c & 127)
    size = min(abs(total) // 4, 127)
    return size | 128 if total < 0 else size


FIELDS = (("s", 1), ("m", 7))
TABLES = UserFormat("quarter_tables", FIELDS, as_float, convert, add=add, mul=mul)
FUSED = UserFormat("quarter_fused", FIELDS, as_float, convert, add=add, mad=mad)
WIDE = UserFormat("quarter_wide", (("unused", 2), *FIELDS), as_float, convert, add=add, mul=mul)


def reference(a, b, fmt: UserFormat, size: int) -> torch.Tensor:
    left, right = encode(a, fmt).tolist(), encode(b, fmt).tolist()
    out = torch.empty(len(left), len(right[0]))
    for m in range(len(left)):
        for n in range(len(right[0])):
            total = None
            for begin in range(0, len(right), size):
                part = fmt.convert(0.0)
                for k in range(begin, min(begin + size, len(right))):
                    if fmt.mad is not None:
                        part = fmt.mad(left[m][k], right[k][n], part)
                    else:
                        part = fmt.add(part, fmt.mul(left[m][k], right[k][n]))
                total = part if total is None else fmt.add(total, part)
            out[m, n] = fmt.as_float(total)
    return out


@pytest.mark.parametrize("fmt", [TABLES, FUSED, WIDE], ids=str)
@pytest.mark.parametrize(
    ("mac", "size"),
    [({}, 1000), ({"order": "chunked", "chunk": 4}, 4), ({"order": "systolic", "rows": 3}, 3)],
    ids=["sequential", "chunked", "systolic"],
)
def test_products_equal_the_functions_called_one_by_one(fmt: UserFormat, mac: dict, size: int) -> None:
    torch.manual_seed(0)
    a, b = torch.randn(5, 11) * 2, torch.randn(11, 4) * 2
    found = matmul(a, b, MacUnit(accumulate=fmt, **mac))
    assert torch.equal(found, reference(a, b, fmt, size))
    assert found.any()


def test_a_fused_and_a_split_multiply_add_differ() -> None:
    torch.manual_seed(0)
    a, b = torch.randn(5, 11), torch.randn(11, 4)
    fused, split = (matmul(a, b, MacUnit(accumulate=fmt)) for fmt in (FUSED, TABLES))
    assert not torch.equal(fused, split)


@pytest.mark.parametrize("fmt", [TABLES, WIDE], ids=str)
def test_an_odd_multiplier_before_a_float32_adder(fmt: UserFormat) -> None:
    torch.manual_seed(0)
    a, b = torch.randn(3, 6) * 2, torch.randn(6, 4) * 2
    found = matmul(a, b, MacUnit(multiply=fmt))
    left, right = encode(a, fmt).tolist(), encode(b, fmt).tolist()
    for m in range(3):
        for n in range(4):
            products = [as_float(mul(left[m][k], right[k][n])) for k in range(6)]
            assert float(found[m, n]) == sum(products)


def test_tables_work_without_numba(monkeypatch) -> None:
    from presilicon.formats.mac import user as mac_user

    torch.manual_seed(0)
    a, b = torch.randn(2, 5, 11), torch.randn(2, 11, 4)
    mac = MacUnit(accumulate=TABLES, order="chunked", chunk=4)
    compiled = matmul(a, b, mac)
    monkeypatch.setattr(mac_user, "has_numba", lambda: False)
    assert torch.equal(matmul(a, b, mac), compiled)


BOTH = UserFormat("quarter_both", FIELDS, as_float, convert, add=add, mul=mul, mad=mad)


def test_products_are_rounded_first_where_that_is_asked() -> None:
    torch.manual_seed(0)
    a, b = torch.randn(5, 11), torch.randn(11, 4)
    split, fused = (matmul(a, b, MacUnit(accumulate=fmt)) for fmt in (TABLES, FUSED))
    assert torch.equal(matmul(a, b, MacUnit(accumulate=BOTH)), fused)
    assert torch.equal(matmul(a, b, MacUnit(accumulate=BOTH, fused=True)), fused)
    assert torch.equal(matmul(a, b, MacUnit(accumulate=BOTH, fused=False)), split)
    assert torch.equal(matmul(a, b, MacUnit(accumulate=BOTH, multiply=BOTH)), split)
    with pytest.raises(FormatError, match="`mad`"):
        matmul(a, b, MacUnit(accumulate=TABLES, fused=True))
    with pytest.raises(FormatError, match="`mul`"):
        matmul(a, b, MacUnit(accumulate=FUSED, fused=False))


def too_large(a, b):
    return 5000


def mad_too_large(a, b, c):
    return 400 if c == 0 else 7


def negative(a, b):
    return -1


@pytest.mark.parametrize(
    "mac",
    [
        MacUnit(accumulate=UserFormat("wide_mad", FIELDS, as_float, convert, add=add, mad=mad_too_large)),
        MacUnit(multiply=UserFormat("wide_mul", (("unused", 1), *FIELDS), as_float, convert, mul=too_large)),
        MacUnit(multiply=UserFormat("wide_negative", (("unused", 1), *FIELDS), as_float, convert, mul=negative)),
        MacUnit(accumulate=UserFormat("wide_table", FIELDS, as_float, convert, add=add, mul=too_large)),
    ],
    ids=lambda mac: str(mac.multiply or mac.accumulate),
)
def test_codes_outside_the_fields_are_refused(mac: MacUnit) -> None:
    with pytest.raises(FormatError, match="must give codes from 0 to"):
        matmul(torch.ones(2, 3), torch.ones(3, 2), mac)


def test_zero_size() -> None:
    assert matmul(torch.empty(2, 0), torch.empty(0, 3), MacUnit(accumulate=TABLES)).tolist() == [[0.0] * 3] * 2


@pytest.mark.parametrize(
    ("mac", "word"),
    [
        (MacUnit(accumulate=UserFormat("no_add", FIELDS, as_float, convert, mul=mul)), "`add`"),
        (MacUnit(accumulate=UserFormat("only_add", FIELDS, as_float, convert, add=add)), "`mad` or a `mul`"),
        (MacUnit(multiply=UserFormat("no_mul", FIELDS, as_float, convert)), "`mul`"),
        (MacUnit(accumulate=TABLES, multiply=parse("e5m2")), "must be left out"),
        (MacUnit(multiply=TABLES, accumulate=Float(6, 9)), "float32"),
        (MacUnit(accumulate=TABLES, order="pairwise"), "pairwise"),
        (MacUnit(accumulate=TABLES, rounding="stochastic"), "by its own functions"),
    ],
)
def test_units_that_cannot_be(mac: MacUnit, word: str) -> None:
    with pytest.raises(FormatError, match=word):
        matmul(torch.ones(1, 1), torch.ones(1, 1), mac)
