"""A package's file that adds operators: the exponentially scaled Bessel functions, which `torch.special` has.

Polynomials of Abramowitz and Stegun, Handbook of Mathematical Functions, 9.8.1 to 9.8.4; errors below 2.3e-7.
"""

import math

from presilicon.ops import OpEntry, function


def i0e(x):
    size = abs(x)
    t = size / 3.75
    if size <= 3.75:
        u = t * t
        p = 0.0360768 + u * 0.0045813
        p = 1.0 + u * (3.5156229 + u * (3.0899424 + u * (1.2067492 + u * (0.2659732 + u * p))))
        return math.exp(-size) * p
    v = 3.75 / size
    p = 0.02635537 + v * (-0.01647633 + v * 0.00392377)
    p = 0.39894228 + v * (
        0.01328592 + v * (0.00225319 + v * (-0.00157565 + v * (0.00916281 + v * (-0.02057706 + v * p))))
    )
    return p / math.sqrt(size)


def i1e(x):
    size = abs(x)
    t = size / 3.75
    if size <= 3.75:
        u = t * t
        p = 0.00301532 + u * 0.00032411
        p = 0.5 + u * (0.87890594 + u * (0.51498869 + u * (0.15084934 + u * (0.02658733 + u * p))))
        return math.exp(-size) * x * p
    v = 3.75 / size
    p = -0.02895312 + v * (0.01787654 - v * 0.00420059)
    p = 0.39894228 + v * (
        -0.03988024 + v * (-0.00362018 + v * (0.00163801 + v * (-0.01031555 + v * (0.02282967 + v * p))))
    )
    p = p / math.sqrt(size)
    return p if x > 0 else -p


def sign(x):
    return 1.0 if x > 0 else -1.0 if x < 0 else 0.0


ENTRIES: list[OpEntry] = [
    function("i0e", aten="special_i0e", backward="", formula=i0e),
    function("i1e", aten="special_i1e", backward="", formula=i1e),
    function("sgn", aten="sgn", backward="", formula=sign),
]
