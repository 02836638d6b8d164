"""Functions on codes: the Python function is the oracle of the reference, of torch and of Numba."""

import math
from random import Random

import pytest
import torch

from presilicon.base import ConfigError
from presilicon.programs import Lanes, LanguageError, compile_scalars, evaluate, numba_function, run_torch

TABLE = [3, 1, 4, 1, 5, 9, 2, 6]
ROWS = [[row * column % 7 for column in range(4)] for row in range(3)]
WEIGHTS = [0.5, -1.25, 3.0]


def bits(a, b):
    return ((a ^ b) & 0xF0 | (~a & 15) << 2) >> (b & 3) ^ -7


def wraps(a, b):
    product = (a + 1) * 0x7FFFFFFFFFFFFFFF * (b + 3)
    return product >> 1 if product & 1 else product // 3


def python_wraps(a, b):
    """The same in Python, which has no widths."""
    product = ((a + 1) * 0x7FFFFFFFFFFFFFFF * (b + 3) + 2**63) % 2**64 - 2**63
    return product >> 1 if product & 1 else product // 3


def breaks(a, b):
    total = 0
    for k in range(8):
        if a >> k == 0:
            break
        if k == b & 7:
            continue
        for j in range(3):
            if j > (a & 3):
                break
            total += j
        total += 2**k % 7
    return total


def returns_early(a, b):
    for k in range(20):
        if k * k > a:
            return k
        if k > b:
            break
    return -1 if a > b else 99


def greatest_divisor(a, b):
    while b:
        a, b = b, a % b
    return a


def open_bounds(a, b):
    total = 0.5
    for k in range(a % 11, b, 3):
        if k == 40:
            return -1
        total += math.tanh(k * 0.25)
    for k in range(b & 7, -1, -1):
        total -= k
    return int(total * 1000)


def nested(a, b):
    count = 0
    while a > 0:
        b = b + a
        while b > 40:
            b -= 7
            count += 1
            if count > 60:
                return b
        a = a // 2
    return count


def long_loop(a, b):
    state = a
    for step in range(1000):
        state = (state * 1103515245 + b) & 0x7FFFFFFF
        if state & 0xFFF == step:
            break
    return state


def tuples(a, b):
    large, small = (a, b) if a > b else (b, a)
    pair = (large - small, (small, 7))
    for k in range(3):
        pair = (pair[0] + k, (pair[1][1], pair[1][0]))
    quotient, rest = divmod(large, small + 1)
    return pair[0] + quotient * pair[1][1] + (4, 5, 6)[rest % 3] + len(pair)


def tables(a, b):
    sign = -1 if a & 1 else 1
    entry = TABLE[a & 7] * ROWS[a % 3][b & 3] + TABLE[-1 - (b & 7)]
    return sign * entry + int(WEIGHTS[b % 3] * 4)


def guarded(a, b):
    """An index outside of the table in the branch that is not taken."""
    return TABLE[a] if a < 8 else TABLE[b] if b < 8 else a & b


def numbers(a, b):
    x = (a - 100) / (b + 1)
    mantissa, exponent = math.frexp(x)
    near = round(x) + math.ceil(x) * 3 + math.floor(x) + math.trunc(x)
    scaled = math.ldexp(mantissa, exponent + 3) + math.copysign(0.25, x) + x // 0.75 + x % 0.75
    flags = math.isnan(x) + math.isfinite(x) * 2 + (x and a) + (not b or a > b)
    return int((near + scaled + flags + min(x, 3) + max(a, 2.5)) * 256)


def sums(a, b):
    total = sum(k * k for k in range(6) if k != (a & 7))
    largest = max((a >> k) & 7 for k in range(1 + (b & 3))) & 6
    halves = min(0.5 * (k ^ b) for k in range(4) for _ in range(2) if k != 2)
    return total + largest + int(math.prod(1.5 for _ in range(b & 3)) + halves)


FUNCTIONS = [bits, breaks, returns_early, greatest_divisor, open_bounds, nested, long_loop, tuples, tables, guarded]
FUNCTIONS += [numbers, sums]


@pytest.mark.parametrize("function", [*FUNCTIONS, wraps], ids=lambda function: function.__name__)
def test_every_execution_has_the_results_of_python(function) -> None:
    program = compile_scalars(function, ["integer", "integer"])
    compiled, oracle, random = numba_function(program, ["integer"] * 2), function, Random(0)
    oracle = python_wraps if function is wraps else function
    pairs = [(random.randrange(256), random.randrange(256)) for _ in range(60)] + [(0, 0), (255, 0), (0, 255), (7, 7)]
    wanted = [oracle(a, b) for a, b in pairs]
    assert len(set(wanted)) > 3
    assert [evaluate(program, {"x0": a, "x1": b})[0] for a, b in pairs] == wanted
    assert [compiled(a, b) for a, b in pairs] == wanted
    a, b = torch.tensor(pairs).double().T
    out = run_torch(program, {"x0": a, "x1": b}, {"_": len(pairs)})[0]
    assert out.tolist() == [float(value) for value in wanted]


def lanes(a, b, c):
    total = c
    for lane in range(0, 4, 2):
        total += (a[lane] * b[lane] + a[lane + 1] * b[3 - lane]) >> 2
    return total, a[c & 3]


def test_lanes_are_tuples_of_an_argument() -> None:
    arguments = [Lanes(4), Lanes(4), "integer"]
    program = compile_scalars(lanes, arguments, ["integer", "integer"])
    compiled, random = numba_function(program, arguments), Random(0)
    for _ in range(20):
        a, b = (tuple(random.randrange(64) for _ in range(4)) for _ in range(2))
        assert compiled(a, b, random.randrange(9)) is not None
        assert compiled(a, b, 6) == lanes(a, b, 6)


@pytest.mark.parametrize(("a", "b"), [(8, 9), (0, 0)])
def test_an_index_outside_of_a_table_is_an_error_where_it_is_needed(a: int, b: int) -> None:
    def beyond(a, b):
        return TABLE[a + b]

    program = compile_scalars(beyond, ["integer", "integer"])
    compiled = numba_function(program, ["integer"] * 2)
    if a + b < 8:
        assert evaluate(program, {"x0": a, "x1": b})[0] == compiled(a, b) == TABLE[a + b]
        return
    with pytest.raises(ConfigError, match="an index of TABLE lies outside of its 8 entries"):
        evaluate(program, {"x0": a, "x1": b})
    with pytest.raises(IndexError):
        compiled(a, b)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e300, -1e19])
def test_what_64_bits_do_not_hold_is_the_smallest_whole_number(value: float) -> None:
    def cut(x):
        return int(x)

    program = compile_scalars(cut, ["number"])
    assert evaluate(program, {"x0": value}) == [-(2**63)]
    assert numba_function(program, ["number"])(value) == -(2**63)
    assert int(run_torch(program, {"x0": torch.tensor([value]).double()}, {"_": 1})[0]) == -(2**63)


def test_powers_of_two_have_an_exact_logarithm() -> None:
    def logarithm(x):
        return math.log2(x)

    program = compile_scalars(logarithm, ["number"], ["number"])
    compiled = numba_function(program, ["number"])
    for k in range(-1074, 1024):
        assert evaluate(program, {"x0": 2.0**k}) == [k]
        assert compiled(2.0**k) == k


def changes_kind(a):
    total = 0
    while a > 0:
        total += 0.5
        a -= 1
    return total


def test_what_a_loop_carries_becomes_a_number_where_it_has_to() -> None:
    program = compile_scalars(changes_kind, ["integer"], ["number"])
    assert evaluate(program, {"x0": 5}) == [2.5] == [numba_function(program, ["integer"])(5)]


def test_results_are_counted() -> None:
    with pytest.raises(LanguageError, match="changes_kind returns 1 values; allowed: 2"):
        compile_scalars(changes_kind, ["integer"], ["integer", "integer"])
    with pytest.raises(LanguageError, match="changes_kind takes 1 arguments; allowed: 2"):
        compile_scalars(changes_kind, ["integer", "integer"])
