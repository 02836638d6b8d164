"""Products with a user's own arithmetic, against the same functions called one by one in Python."""

import math
from dataclasses import replace

import pytest
import torch

from presilicon.base import FormatError
from presilicon.formats import (
    Float,
    Key,
    MacUnit,
    ProcessingUnit,
    UserFormat,
    encode,
    matmul,
    parse,
    quantize,
    random_word,
)
from presilicon.formats.mac import user as mac_user
from user_e4m3 import USER_E4M3, truncated_mad


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


def reference(a, b, fmt: UserFormat, size: int, slots: int = 1, is_tree: bool = False) -> torch.Tensor:
    """The functions called one by one: chunks, running sums side by side, or trees of products."""
    left, right = encode(a, fmt).tolist(), encode(b, fmt).tolist()
    out = torch.empty(len(left), len(right[0]))
    for m in range(len(left)):
        for n in range(len(right[0])):
            total = None
            for begin in range(0, len(right), size):
                pairs = [(left[m][k], right[k][n]) for k in range(begin, min(begin + size, len(right)))]
                part = _add_up(fmt, pairs, slots, is_tree)
                total = part if total is None else fmt.add(total, part)
            out[m, n] = fmt.as_float(total)
    return out


def _add_up(fmt: UserFormat, pairs: list[tuple[int, int]], slots: int, is_tree: bool) -> int:
    if is_tree:
        sums = [fmt.mul(*pair) for pair in pairs]
    else:
        sums = [fmt.convert(0.0)] * min(slots, len(pairs))
        for number, pair in enumerate(pairs):
            lane = number % slots
            is_fused = fmt.mad is not None
            sums[lane] = fmt.mad(*pair, sums[lane]) if is_fused else fmt.add(sums[lane], fmt.mul(*pair))
    while len(sums) > 1:
        rest = sums[-1:] if len(sums) % 2 else []
        sums = [fmt.add(*pair) for pair in zip(sums[::2], sums[1::2], strict=False)] + rest
    return sums[0]


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


def coarse_add(a, b):
    """Without the last bit, so that the order of a sum shows."""
    return add(a, b) & 254


COARSE = replace(TABLES, name="coarse_tables", add=coarse_add)
COARSE_WIDE = replace(WIDE, name="coarse_wide", add=coarse_add)


@pytest.mark.parametrize("fmt", [COARSE, COARSE_WIDE], ids=str)
@pytest.mark.parametrize(
    ("mac", "size", "slots", "is_tree"),
    [
        ({"order": "pairwise"}, 1000, 1, True),
        ({"order": "pairwise", "chunk": 5}, 5, 1, True),
        ({"width": 4}, 1000, 4, False),
        ({"order": "chunked", "chunk": 7, "width": 3}, 7, 3, False),
    ],
    ids=["tree", "trees", "lanes", "chunked lanes"],
)
def test_every_order_equals_the_functions_called_one_by_one(fmt, mac, size: int, slots: int, is_tree: bool) -> None:
    torch.manual_seed(0)
    a, b = torch.randn(4, 11) * 2, torch.randn(11, 3) * 2
    found = matmul(a, b, MacUnit(accumulate=fmt, **mac))
    assert torch.equal(found, reference(a, b, fmt, size, slots, is_tree))
    assert not torch.equal(found, reference(a, b, fmt, 3, 1, False))


@pytest.mark.parametrize("order", [{"order": "pairwise", "chunk": 16}, {"width": 4}], ids=["trees", "lanes"])
def test_a_users_e4m3_equals_the_built_in_one(order: dict) -> None:
    torch.manual_seed(0)
    a, b = (quantize(torch.randn(9, 40), parse("e4m3")) for _ in range(2))
    fused = {"fused": False} if order.get("order") == "pairwise" else {}
    user, own = (matmul(a, b.T, MacUnit(accumulate=fmt, **order, **fused)) for fmt in (USER_E4M3, parse("e4m3")))
    assert torch.equal(user, own)
    other = replace(USER_E4M3, name="truncated_e4m3", mad=truncated_mad, mul=None if not fused else truncated_mul)
    assert not torch.equal(matmul(a, b.T, MacUnit(accumulate=other, **order, **fused)), own)


def truncated_mul(a, b):
    return a


def test_tables_and_functions_give_the_same_bits(monkeypatch) -> None:
    torch.manual_seed(0)
    a, b = torch.randn(5, 11), torch.randn(11, 4)
    mac = MacUnit(accumulate=FUSED, order="chunked", chunk=4)
    found = []
    for tables in (False, True):
        monkeypatch.setattr(mac_user, "_prefers_tables", lambda *args, tables=tables: tables)
        found.append(matmul(a, b, mac))
    assert torch.equal(*found)


def vector_mad(a, b, c):
    """Pairs of exact products, cut to whole units before they are added."""
    total = (-(c & 127) if c & 128 else c & 127) * 4
    for lane in range(0, 4, 2):
        pair = 0
        for k in range(lane, lane + 2):
            product = (a[k] & 127) * (b[k] & 127)
            pair += -product if (a[k] ^ b[k]) & 128 else product
        total += pair // 4 * 4
    size = min(abs(total) // 4, 127)
    return size | 128 if total < 0 else size


PAIRS4 = ProcessingUnit("pairs4", FUSED, lanes=4, mad=vector_mad, depth=3)


def test_a_vector_unit_equals_its_function_called_group_by_group() -> None:
    torch.manual_seed(0)
    a, b = torch.randn(4, 10) * 2, torch.randn(10, 3) * 2
    left, right = encode(a, FUSED).tolist(), encode(b, FUSED).tolist()
    expected = torch.empty(4, 3)
    for m in range(4):
        for n in range(3):
            code = 0
            for begin in range(0, 10, 4):
                lanes = [k if k < 10 else None for k in range(begin, begin + 4)]
                x = [0 if k is None else left[m][k] for k in lanes]
                y = [0 if k is None else right[k][n] for k in lanes]
                code = vector_mad(x, y, code)
            expected[m, n] = as_float(code)
    found = matmul(a, b, MacUnit(unit=PAIRS4))
    assert torch.equal(found, expected)
    assert not torch.equal(found, matmul(a, b, MacUnit(accumulate=FUSED)))


def lane_products(a, b):
    """Four multipliers side by side, as in `new_fp4 mad(new_fp4 a, new_fp4 b)`."""
    return mul(a[0], b[0]), mul(a[1], b[1]), mul(a[2], b[2]), mul(a[3], b[3])


LANES4 = ProcessingUnit("lanes4", COARSE, lanes=4, mad=lane_products)


def test_the_codes_of_lanes_are_added_in_the_order_of_the_unit() -> None:
    torch.manual_seed(0)
    a, b = torch.randn(4, 12) * 2, torch.randn(12, 3) * 2
    for order, is_tree in (("tree", True), ("sequential", False)):
        left, right = encode(a, COARSE).tolist(), encode(b, COARSE).tolist()
        found = encode(matmul(a, b, MacUnit(unit=replace(LANES4, order=order))), COARSE).tolist()
        for m, n in ((0, 0), (1, 2), (3, 1)):
            code = 0
            for begin in range(0, 12, 4):
                p = [mul(left[m][k], right[k][n]) for k in range(begin, begin + 4)]
                total = coarse_add(coarse_add(p[0], p[1]), coarse_add(p[2], p[3]))
                chain = coarse_add(coarse_add(coarse_add(p[0], p[1]), p[2]), p[3])
                code = coarse_add(code, total if is_tree else chain)
            assert as_float(found[m][n]) == as_float(code)


def test_an_order_of_a_unit_is_that_of_the_mac_unit() -> None:
    torch.manual_seed(0)
    a, b = torch.randn(4, 37), torch.randn(37, 3)
    for order, mac in (
        ("tree", {"order": "pairwise", "chunk": 16}),
        ("sequential", {"order": "chunked", "chunk": 16}),
        ("lanes", {"width": 16}),
    ):
        unit = ProcessingUnit("lanes16", TABLES, lanes=16, order=order)
        assert torch.equal(matmul(a, b, MacUnit(unit=unit)), matmul(a, b, MacUnit(accumulate=TABLES, **mac)))


def shift_register(a, b, c, state):
    """A multiply-add whose last bits are cut off by chance, from a shift register per output."""
    bit = (state ^ (state >> 1) ^ (state >> 3) ^ (state >> 12)) & 1
    state = (state >> 1) | (bit << 15)
    exact = (a & 127) * (b & 127)
    exact = -exact if (a ^ b) & 128 else exact
    total = exact + 4 * (-(c & 127) if c & 128 else c & 127)
    size = min((abs(total) + (state & 3)) // 4, 127)
    return (size | 128 if total < 0 else size), state


def test_the_state_of_an_output_runs_along_its_sum() -> None:
    torch.manual_seed(0)
    a, b = torch.randn(3, 9) * 2, torch.randn(9, 2) * 2
    fmt = UserFormat("shifting", FIELDS, as_float, convert, add=add, mad=shift_register, state="random")
    mac, key = MacUnit(accumulate=fmt), Key(3, 5, "fc/0")
    found = matmul(a, b, mac, key=key)
    left, right = encode(a, fmt).tolist(), encode(b, fmt).tolist()
    for lane in range(6):
        m, n = divmod(lane, 2)
        state, code = max(random_word(key, lane) >> 8, 1), 0
        for k in range(9):
            code, state = shift_register(left[m][k], right[k][n], code, state)
        assert float(found[m, n]) == as_float(code)
    assert torch.equal(matmul(a, b, mac, key=key), found)
    assert not torch.equal(matmul(a, b, mac, key=Key(3, 6, "fc/0")), found)


def carry_error(a, b, c, state):
    """A multiply-add that carries what it cuts off to the next one."""
    exact = (-(a & 127) if a & 128 else a & 127) * (-(b & 127) if b & 128 else b & 127) + state
    steps = math.floor(exact / 4)
    total = max(min(steps + (-(c & 127) if c & 128 else c & 127), 127), -127)
    return (-total | 128 if total < 0 else total), exact - steps * 4


def test_an_error_term_is_a_state_that_starts_at_a_number() -> None:
    fmt = UserFormat("carrying", FIELDS, as_float, convert, add=add, mad=carry_error, state=0)
    a, b = torch.full((1, 8), 0.75), torch.full((8, 1), 0.25)
    assert float(matmul(a, b, MacUnit(accumulate=fmt))) == 1.5
    assert float(matmul(a, b, MacUnit(accumulate=FUSED))) == 0.0


def no_numba(a, b, c):
    return eval("min(a * b // 4 + c, 127)")


def test_a_function_that_cannot_be_compiled_says_which_line() -> None:
    fmt = UserFormat("uncompiled", (("unused", 2), *FIELDS), as_float, convert, add=add, mad=no_numba)
    line = no_numba.__code__.co_firstlineno
    with pytest.warns(UserWarning, match=f"`mad` cannot be compiled .*test_mac_user.py, line ({line}|{line + 1})"):
        found = matmul(torch.ones(1, 2), torch.ones(2, 1), MacUnit(accumulate=fmt))
    assert float(found) == 2.0


def lane_too_many(a, b, c):
    return a[4]


ROM = [1, 2, 3]


def beyond_the_rom(a, b):
    return ROM[a]


def test_an_index_outside_is_an_error_and_not_noise() -> None:
    unit = ProcessingUnit("five", FUSED, lanes=4, mad=lane_too_many)
    with pytest.raises(FormatError, match="`mad of five` fails with IndexError"):
        matmul(torch.ones(1, 4), torch.ones(4, 1), MacUnit(unit=unit))
    with pytest.raises(FormatError, match="`mul` fails with IndexError"):
        matmul(torch.ones(1, 4), torch.ones(4, 1), MacUnit(accumulate=replace(WIDE, name="rom", mul=beyond_the_rom)))


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
        (MacUnit(accumulate=TABLES, order="aligned", align_bits=8), "aligned"),
        (MacUnit(accumulate=FUSED, order="pairwise"), "adds products in pairs needs the `mul`"),
        (MacUnit(multiply=TABLES, order="pairwise"), "pairwise"),
        (MacUnit(accumulate=TABLES, rounding="stochastic"), "by its own functions"),
    ],
)
def test_units_that_cannot_be(mac: MacUnit, word: str) -> None:
    with pytest.raises(FormatError, match=word):
        matmul(torch.ones(1, 1), torch.ones(1, 1), mac)
