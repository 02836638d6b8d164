"""Formats whose functions use every construct that is translated to Triton."""

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


def too_large(a, b):
    return 5000
