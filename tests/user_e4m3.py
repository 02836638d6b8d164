"""The built-in format e4m3 written again as a user would: functions on codes, compiled for the CPU and the GPU."""

import math

import torch

from presilicon.designs import Numerics, RoleFormat
from presilicon.emulation import emulate_, emulate_optimizer_, emulated
from presilicon.formats import Format, MacUnit, UserFormat, parse
from presilicon.workloads import load_workload

POWERS = [2.0**k for k in range(-6, 8)]


def as_float(code):
    sign = -1.0 if code & 0x80 else 1.0
    exponent, mantissa = (code >> 3) & 15, code & 7
    if exponent == 15:
        return math.nan if mantissa else sign * math.inf
    if exponent == 0:
        return sign * mantissa * 2.0**-9
    return sign * (8 + mantissa) * 0.125 * POWERS[exponent - 1]


def convert(value):
    """The nearest code, ties to the even one; beyond 248 infinity."""
    if value != value:
        return 0x7C
    sign = 0x80 if math.copysign(1.0, value) < 0 else 0
    size = abs(value)
    if size >= 248.0:
        return sign | 0x78
    exponent = 0
    for k in range(14):
        if size >= POWERS[k]:
            exponent = k
    steps = size / POWERS[exponent] * 8
    whole = math.floor(steps)
    rest = steps - whole
    code = exponent * 8 + int(whole)
    if rest > 0.5 or (rest == 0.5 and code % 2 == 1):
        code += 1
    return sign | code


def add(a, b):
    return convert(as_float(a) + as_float(b))


def sub(a, b):
    return convert(as_float(a) - as_float(b))


def neg(a):
    return a if (a & 0x7F) > 0x78 else a ^ 0x80


def mul(a, b):
    return convert(as_float(a) * as_float(b))


def div(a, b):
    x, y = as_float(a), as_float(b)
    if y == 0.0:
        sign = (a ^ b) & 0x80
        return 0x7C if x == 0.0 or x != x else sign | 0x78
    return convert(x / y)


def mad(a, b, c):
    return convert(as_float(a) * as_float(b) + as_float(c))


def sqrt(a):
    x = as_float(a)
    return 0x7C if x < 0.0 else convert(math.sqrt(x))


def compare(a, b):
    x, y = as_float(a), as_float(b)
    if x != x:
        return 1
    return -1 if x < y or y != y else 1 if x > y else 0


FIELDS = (("s", 1), ("e", 4), ("m", 3))
USER_E4M3 = UserFormat(
    "user_e4m3", FIELDS, as_float, convert, add=add, sub=sub, neg=neg, mul=mul, div=div, mad=mad, sqrt=sqrt,
    compare=compare,
)  # fmt: skip


def truncated_mad(a, b, c):
    """Another multiply-add, which must not pass as the built-in one."""
    exact = as_float(a) * as_float(b) + as_float(c)
    return (
        convert(exact) if exact != exact or abs(exact) >= 240.0 else convert(math.floor(exact * 512.0) / 512.0 * 0.97)
    )


def train_digits(fmt: Format, workload: str, steps: int, device: str = "cpu", in_master: bool = False):
    """Losses and final weights of a training run in which every number has this format."""
    chosen = load_workload(workload)
    role = RoleFormat(fmt)
    master = role if in_master else RoleFormat(parse("float32"))
    numerics = Numerics(
        weight=role, activation=role, error=role, gradient=role, master=master, state=master, vector="round-steps",
        mac=MacUnit(accumulate=fmt, order="chunked", chunk=16),
    )  # fmt: skip
    torch.manual_seed(0)
    model = emulate_(chosen.model().to(device), numerics)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.25, momentum=0.5)
    emulate_optimizer_(optimizer, numerics, model=model)
    loss_of = emulated(torch.nn.functional.cross_entropy, model)
    inputs, labels = (part.to(device) for part in chosen.require_data()[0]().train)
    losses = []
    for step in range(steps):
        rows = slice(step * 32 % 1024, step * 32 % 1024 + 32)
        optimizer.zero_grad()
        loss = loss_of(model(inputs[rows]), labels[rows])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, [parameter.detach().cpu().view(torch.int32) for parameter in model.parameters()]


def same_run(first, second) -> bool:
    """Whether two runs have the same losses and the same bits in every weight."""
    weights = all(torch.equal(one, other) for one, other in zip(first[1], second[1], strict=True))
    return first[0] == second[0] and weights
