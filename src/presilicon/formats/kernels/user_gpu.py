"""A user's functions on a GPU, element by element: Triton kernels that call their programs."""

import itertools
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from presilicon.base import FormatError
from presilicon.formats.codes import code_type
from presilicon.formats.families.user import ARITIES, UserFormat
from presilicon.formats.kernels.assembly import define
from presilicon.formats.kernels.user_functions import arguments_of, code_program, compiled_or_slow, has_state
from presilicon.programs import ScalarFunction, triton_function

BLOCK = 1024
EXACT = {"enable_fp_fusion": False}
"""A product and a sum are rounded separately, as on the CPU."""
ALWAYS_CHECKED, CHECK_EVERY = 8, 64
"""Launches whose codes are checked at once, because reading the flag waits for the GPU; later ones now and then."""


class UserKernel(NamedTuple):
    """A kernel, the constant tables of its functions, and the copies of these on devices."""

    launch: Any
    tables: tuple[Tensor, ...]
    flags: "Flags"
    copies: dict[torch.device, list[Tensor]]

    def tables_on(self, device: torch.device) -> list[Tensor]:
        """The tables on a device."""
        if device not in self.copies:
            self.copies[device] = [table.to(device) for table in self.tables]
        return self.copies[device]


class Flags:
    """Whether a kernel has given codes outside of the fields."""

    def __init__(self, fmt: UserFormat, name: str) -> None:
        self._fmt, self._name = fmt, name
        self._flags: dict[torch.device, Tensor] = {}
        self._launches = itertools.count()

    def on(self, device: torch.device) -> Tensor:
        """The flag that kernels on a device set."""
        if device not in self._flags:
            self._flags[device] = torch.zeros(1, dtype=torch.int32, device=device)
        return self._flags[device]

    def check(self, device: torch.device) -> None:
        """Raise `FormatError` if the flag is set, at the first launches and at some later ones."""
        number = next(self._launches)
        is_due = number < ALWAYS_CHECKED or number % CHECK_EVERY == 0
        if device.type == "cuda" and (not is_due or torch.cuda.is_current_stream_capturing()):
            return
        if int(self.on(device)):
            self.on(device).zero_()
            top = (1 << self._fmt.bits) - 1
            raise FormatError(f"{self._fmt}: `{self._name}` must give codes from 0 to {top} on the GPU too")


def call(name: str, function: ScalarFunction, *arguments: str) -> str:
    """A call of a function in a kernel, with its tables."""
    return f"{name}({', '.join([*arguments, *(f'{name}_{table}' for table in function.tables)])})"


def build(source: str, functions: Mapping[str, ScalarFunction], flags: Flags) -> UserKernel:
    """A kernel from its text, which calls functions and names their tables in `{tables}`."""
    from presilicon.programs import triton_scope

    scope = triton_scope()
    for name, function in functions.items():
        define(name, f"@triton.jit\n{function.text.replace('{name}', name)}", scope)
    tables = {f"{name}_{table}": values for name, own in functions.items() for table, values in own.tables.items()}
    text = f"@triton.jit\n{source.replace('{tables}', ''.join(f'{name}, ' for name in tables))}"
    return UserKernel(define("kernel", text, scope), tuple(tables.values()), flags, {})


def indented(lines: list[str], depth: int) -> str:
    """Lines of a kernel at a depth of its text."""
    return "".join(f"{'    ' * depth}{line}\n" for line in lines)


@lru_cache(maxsize=256)
def _kernel(fmt: UserFormat, name: str) -> UserKernel | None:
    instead = "on the GPU it runs on the CPU, with copies of the tensors"
    function = compiled_or_slow(
        fmt, name, lambda: triton_function(code_program(fmt, name), arguments_of(fmt, name)), instead
    )
    if function is None:
        return None
    return build(_text(fmt, name, function), {"function": function}, Flags(fmt, name))


def _text(fmt: UserFormat, name: str, function: ScalarFunction) -> str:
    arity, stateful = ARITIES.get(name, 2), has_state(fmt, name)
    wide = "tl.float64" if name == "convert" else "tl.int64"
    sources = "".join(f"x{k}, " for k in range(arity))
    loads = [f"a{k} = tl.load(x{k} + place, mask=inside, other=0).to({wide})" for k in range(arity)]
    loads += ["state = tl.load(states + place, mask=inside, other=0)"] * stateful
    arguments = [f"a{k}" for k in range(arity)] + ["state"] * stateful
    ends = [f"{'code, state' if stateful else 'code'} = {call('function', function, *arguments)}"]
    ends += ["code = code + place * 0"]  # a constant too has one result per element
    if name not in ("as_float", "compare"):
        top = (1 << fmt.bits) - 1
        ends += [f"bad = inside & ((code & ~{top}) != 0)", "tl.store(wrong + place * 0, 1, mask=bad)"]
        ends += [f"code = code & {top}"]
    ends += ["tl.store(out + place, code.to(out.dtype.element_ty), mask=inside)"]
    return (
        f"def kernel({sources}states, out, wrong, {{tables}}count, BLOCK: tl.constexpr):\n"
        "    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)\n    inside = place < count\n"
        f"{indented([*loads, *ends], 1)}"
    )


def map_codes(fmt: UserFormat, name: str, operands: tuple[Tensor, ...], states: Tensor | None) -> Tensor | None:
    """A function on tensors of codes of one shape, element by element; None if it has no Triton code."""
    kernel = _kernel(fmt, name)
    if kernel is None:
        return None
    first = operands[0]
    dtype = torch.float64 if name == "as_float" else torch.int64 if name == "compare" else code_type(fmt.bits)
    out = torch.empty(first.shape, dtype=dtype, device=first.device)
    if out.numel():
        flat = [x.detach().contiguous().view(-1) for x in operands]
        flag = kernel.flags.on(first.device)
        arguments = (*flat, flag if states is None else states, out.view(-1), flag)
        kernel.launch[(-(-out.numel() // BLOCK),)](
            *arguments, *kernel.tables_on(first.device), out.numel(), BLOCK=BLOCK, **EXACT
        )
        kernel.flags.check(first.device)
    return out
