"""Random formats, roundings and MAC units for arithmetic circuits."""

import numpy as np
from arithmetic import Case, convert_case, mac_case, reference_case

from presilicon.base import FormatError
from presilicon.formats import BlockFloat, Fixed, Float, Format, MacUnit, Mx

DETERMINISTIC = ["nearest-even", "nearest-away", "toward-zero", "up", "down"]


def attempt(make) -> Format:
    """The first format that `make` can construct."""
    while True:
        try:
            return make()
        except FormatError:
            continue


def random_float(rng, small: bool = False) -> Format:
    return attempt(
        lambda: Float(
            int(rng.integers(1, 6 if small else 9)),
            int(rng.integers(0, 5 if small else 24)),
            bias=None if rng.random() < 0.7 else int(rng.integers(-3, 40)),
            subnormals=bool(rng.random() < 0.75),
            specials=str(rng.choice(["ieee", "fn", "fnuz", "p3109", "none"])),
            overflow=(None, "saturate", "infinity", "nan")[rng.integers(4)],
            nan=str(rng.choice(["zero", "max"])),
        )
    )


def random_fixed(rng) -> Format:
    return attempt(lambda: Fixed(int(rng.integers(9)), int(rng.integers(9)), signed=bool(rng.random() < 0.8)))


def random_number(rng) -> Format:
    return random_float(rng, bool(rng.random() < 0.6)) if rng.random() < 0.85 else random_fixed(rng)


def random_block(rng, size: int) -> Format:
    kind = rng.integers(3)
    if kind == 0:
        return BlockFloat(int(rng.integers(1, 20)), group=size)
    if kind == 1:
        below = str(rng.choice(["flush", "denormal"]))
        window = {"exponent": int(rng.integers(1, 8)), "top": int(rng.integers(-9, 12)), "below": below}
        return BlockFloat(int(rng.integers(1, 9)), group=size, **window)
    element = random_float(rng, small=True) if rng.random() < 0.7 else Fixed(2, int(rng.integers(1, 8)))
    return Mx(element, block=size)


def random_mode(rng) -> str:
    choice = int(rng.integers(6))
    return DETERMINISTIC[choice] if choice < 5 else f"stochastic(bits={rng.integers(1, 17)}, source=lfsr)"


def random_part(seed: int) -> Case:
    """A multiplier, an adder, a fused multiply-add or a converter."""
    rng = np.random.default_rng(seed)
    kind = str(rng.choice(["multiply", "add", "fma", "convert"]))
    if kind == "convert":
        return convert_case(
            str(random_float(rng)), str(random_block(rng, int(rng.integers(2, 5)))), random_mode(rng), 300
        )
    formats = [random_number(rng) for _ in range(3 if kind == "fma" else 2)] + [random_float(rng)]
    if kind != "multiply" and rng.random() < 0.5:
        formats[-2] = formats[-1]
    if kind == "add" and rng.random() < 0.5:
        formats[0] = formats[-1]
    return reference_case(kind, tuple(map(str, formats)), random_mode(rng), 400, cuts=int(rng.integers(64)))


def random_mac(seed: int) -> Case:
    """A MAC unit in floating or fixed point, one product after another or in groups."""
    rng = np.random.default_rng(seed)
    is_fixed, is_group = rng.random() < 0.25, rng.random() < 0.5
    number = random_fixed if is_fixed else random_float
    left, right = (random_fixed(rng) if is_fixed else random_number(rng) for _ in range(2))
    fields = {"accumulate": number(rng), "rounding": random_mode(rng)}
    if rng.random() < 0.5:
        fields["chunk"] = int(rng.integers(1, 5))
    if rng.random() < 0.4:
        fields |= {"partial": number(rng), "partial_rounding": str(rng.choice(DETERMINISTIC))}
    if is_group and not is_fixed:
        width = int(rng.integers(1, 5))
        fields |= {"order": "aligned", "width": width, "align_bits": int(rng.integers(1, 41))}
        if "chunk" in fields:
            fields["chunk"] = width * int(rng.integers(1, 3))
        if rng.random() < 0.5:
            left, right = (random_block(rng, width * int(rng.integers(1, 3))) for _ in range(2))
    elif rng.random() < 0.4:
        fields["multiply"] = number(rng)
    shape = (20, int(rng.integers(3, 12)), 12)
    return mac_case(str(left), str(right), MacUnit(**fields), shape, int(rng.integers(8)))
