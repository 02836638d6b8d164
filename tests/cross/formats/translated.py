"""Formats whose functions use every construct of the language."""

import math

import test_mac_user  # noqa: F401
from test_mac_user import FIELDS, add, as_float, convert, shift_register

from presilicon.formats import UserFormat
from user_e4m3 import USER_E4M3  # noqa: F401

SHIFTING = UserFormat("shifting", FIELDS, as_float, convert, add=add, mad=shift_register, state="random")


def value_add(x, y):
    return x + y


def value_mul(x, y):
    return x * y if abs(x) < 8 else math.copysign(min(abs(x * y), 12.5), x * y)


def value_exp(x):
    return math.exp(min(x, 3.0))


ON_VALUES = UserFormat("on_values", FIELDS, as_float, convert, add=value_add, mul=value_mul, exp=value_exp, on="values")
NEAREST = UserFormat("nearest_of_list", FIELDS, as_float, add=add)

COUNTS = [[bin(row ^ column).count("1") for column in range(16)] for row in range(16)]


def odd_add(a, b):
    """Loops with `break` and `continue`, tables of two axes, floor division, remainders, powers, rounding."""
    total = 0
    for k in range(8):
        if a >> k == 0:
            break
        if k == 2:
            continue
        total += 2**k % 7
    quotient, rest = (a - 100) // (b + 1), (a - 100) % 9
    mantissa, exponent = math.frexp(a + 0.5)
    total += quotient * quotient + rest + int(mantissa * 8) + exponent
    if a > b and not (a & 1):
        total = total - round(a / 8)
    elif a == b:
        return 1
    else:
        total += 3 if a < 10 or b < 10 else -3
    return abs(total) & 255


def table_mul(a, b):
    low = FLAT[(a & 15) * 16 + (b & 15)]
    return (low * 16 + FLAT[-1 - (b & 15)]) & 255


FLAT = [count for row in COUNTS for count in row]


def plain_log(a):
    x = as_float(a)
    if x <= 0.0:
        return 128
    scaled = math.ldexp(math.log2(x), 2)
    return convert(math.floor(scaled) * 2.0 ** (a % 3 - 1) + math.fabs(math.log(x)) - math.sqrt(x))


ODDITIES = UserFormat("oddities", FIELDS, as_float, convert, add=odd_add, mul=table_mul, log=plain_log)


def greatest_divisor(a, b):
    """A loop without bounds, a tuple, and a return out of the loop."""
    rounds = 0
    while b:
        a, b = b, a % b
        rounds += 1
        if rounds > 5:
            return 77
    return min(a + 10 * rounds, 255)


def open_bounds(a, b):
    """A loop whose bounds are data, with `break`, and one that falls."""
    total = 0
    for k in range(a % 11):
        if k == b % 7:
            break
        total += (k ^ b) % 5
    for k in range(b & 7, 0, -1):
        total += k if k % 2 else -1
    return total & 255


def long_loop(a, b):
    """More rounds than are written out, each of which needs the one before."""
    state = a + 1
    for _ in range(100):
        state = (state * 6364136223846793005 + b) & 0xFFFFFFFF
        if state % 1000 == 3:
            break
    return state >> 24


def sums(a):
    """Sums in their order, a function of `math` inside of a loop, and a pair from a helper."""
    low, high = halves(a)
    weights = [0.25, 0.5, 1.5]
    total = sum(math.tanh(k * 0.125) * weights[k % 3] for k in range(low) if k != high)
    return convert(total + low - divmod(a, 7)[1])


def halves(a):
    return a & 15, a >> 4


LOOPING = UserFormat(
    "looping", FIELDS, as_float, convert, add=greatest_divisor, mul=open_bounds, div=long_loop, exp=sums
)


def too_large(a, b):
    return 5000
