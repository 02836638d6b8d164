"""A user's functions on a GPU, element by element: Triton kernels translated from their source."""

import itertools
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from presilicon.base import FormatError
from presilicon.formats.codes import code_type
from presilicon.formats.families.user import ARITIES, UserFormat
from presilicon.formats.kernels.assembly import define
from presilicon.formats.kernels.translation import Text, Translation, UntranslatableError
from presilicon.formats.kernels.user_functions import code_function, has_state, warn_of_slow

BLOCK = 1024
EXACT = {"enable_fp_fusion": False}
"""A product and a sum are rounded separately, as on the CPU."""
ALWAYS_CHECKED, CHECK_EVERY = 8, 64
"""Launches whose codes are checked at once, because reading the flag waits for the GPU; later ones now and then."""


class Kernel(NamedTuple):
    """A translated kernel, its constant tables, and the copies of these on devices."""

    launch: Any
    tables: tuple[Any, ...]
    flags: "Flags"
    copies: dict[torch.device, list[Tensor]]

    def tables_on(self, device: torch.device) -> list[Tensor]:
        """The tables on a device."""
        if device not in self.copies:
            self.copies[device] = [torch.from_numpy(table).to(device).view(-1) for table in self.tables]
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


def build(source: str, translation: Translation, flags: Flags) -> Kernel:
    """A kernel from its text, which names the tables in `{tables}`."""
    import triton
    import triton.language as tl

    pointers = "".join(f"{name}, " for name in translation.tables)
    scope = {"triton": triton, "tl": tl}
    launch = define("kernel", f"@triton.jit\n{source.replace('{tables}', pointers)}", scope)
    return Kernel(launch, tuple(translation.tables.values()), flags, {})


def indented(lines: list[str], depth: int) -> str:
    """Lines of a kernel at a depth of its text."""
    return "".join(f"{'    ' * depth}{line}\n" for line in lines)


@lru_cache(maxsize=256)
def _kernel(fmt: UserFormat, name: str) -> Kernel | None:
    function = code_function(fmt, name)
    assert function is not None
    arity, translation, stateful = ARITIES.get(name, 2), Translation(), has_state(fmt, name)
    kind = "f" if name == "convert" else "i"
    states = [Text("state", "f" if isinstance(fmt.state, float) else "i")] * stateful
    try:
        result = translation.call(function, [*(Text(f"a{k}", kind) for k in range(arity)), *states])
        code = translation.text(result[0] if stateful else result, "f" if name == "as_float" else "i")
    except UntranslatableError as error:
        instead = "on the GPU it runs on the CPU, with copies of the tensors"
        warn_of_slow(fmt, name, function, error, instead)
        return None
    return build(_text(fmt, name, arity, translation, code.name, stateful), translation, Flags(fmt, name))


def _text(fmt: UserFormat, name: str, arity: int, translation: Translation, code: str, stateful: bool) -> str:
    wide = "tl.float64" if name == "convert" else "tl.int64"
    sources = "".join(f"x{k}, " for k in range(arity))
    loads = [f"a{k} = tl.load(x{k} + place, mask=inside, other=0).to({wide})" for k in range(arity)]
    loads += ["state = tl.load(states + place, mask=inside, other=0)"] * stateful
    ends = [f"code = {code} + place * 0"]  # a constant too has one result per element
    if name not in ("as_float", "compare"):
        top = (1 << fmt.bits) - 1
        ends += [f"bad = inside & ((code & ~{top}) != 0)", "tl.store(wrong + place * 0, 1, mask=bad)"]
        ends += [f"code = code & {top}"]
    ends += ["tl.store(out + place, code.to(out.dtype.element_ty), mask=inside)"]
    return (
        f"def kernel({sources}states, out, wrong, {{tables}}count, BLOCK: tl.constexpr):\n"
        "    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)\n    inside = place < count\n"
        f"{indented([*loads, *translation.lines, *ends], 1)}"
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
