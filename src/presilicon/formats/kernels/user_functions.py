"""A user's functions on codes, over whole tensors.

Up to 8 bits, functions without state are tables. Others are compiled to programs (`presilicon.programs`), which Numba
executes for tensors on the CPU and Triton for those on a GPU. A function that cannot be compiled is called from Python,
one number after another, with a warning that says where it stands.
"""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor

from presilicon.base import ConfigError, FormatError, split_over_threads
from presilicon.formats.codes import code_type
from presilicon.formats.families.user import ARITIES, UserFormat, argument_count
from presilicon.formats.kernels.assembly import define
from presilicon.formats.kernels.passes import has_numba, has_triton
from presilicon.formats.kernels.torch_kernels import random_words
from presilicon.formats.rounding import Key, Stochastic
from presilicon.programs import Argument, Kind, Program, compile_scalars, numba_function, plain_function

TABLE_BITS = 8
"""Width up to which functions of two codes are tables."""


class UserFunctionWarning(UserWarning):
    """A user's function runs on a slower path than a compiled one."""


@contextmanager
def naming(fmt: UserFormat, name: str) -> Iterator[None]:
    """Turns any exception of a user's function into one line with the names of the format and the function."""
    try:
        yield
    except FormatError:
        raise
    except Exception as error:
        line = next((text.strip() for text in str(error).splitlines() if text.strip()), "no message")
        raise FormatError(f"{fmt}: `{name}` fails with {type(error).__name__}: {line}") from error


# Scalar functions on codes


@lru_cache(maxsize=256)
def code_function(fmt: UserFormat, name: str) -> Callable[..., Any] | None:
    """A function on codes as the format defines it, or as it follows from others; None if it follows from none.

    `sub` follows from `add` and `neg`, `mul` from `mad`, `maximum` and `minimum` from `compare`.
    """
    if name in ("as_float", "convert"):
        return fmt.as_float if name == "as_float" else convert_function(fmt)
    if name in ("maximum", "minimum"):
        compare = code_function(fmt, "compare")
        relation = ">=" if name == "maximum" else "<="
        return compare and _assemble(name, "a, b", f"a if compare(a, b) {relation} 0 else b", compare=compare)
    own = getattr(fmt, name)
    if own is not None:
        return own if fmt.on == "codes" else _on_codes(fmt, name)
    if name == "sub" and fmt.add is not None:
        parts: dict[str, Any] = {"add": code_function(fmt, "add"), "neg": code_function(fmt, "neg") or _negation(fmt)}
        arguments, text = _with_state(fmt, "add", "a, b", "add(a, neg(b){})")
        return _assemble("sub", arguments, text, **parts)
    if name == "mul" and fmt.mad is not None:
        parts = {"mad": code_function(fmt, "mad"), "zero": zero_code(fmt)}
        arguments, text = _with_state(fmt, "mad", "a, b", "mad(a, b, zero{})")
        return _assemble("mul", arguments, text, **parts)
    return None


def _with_state(fmt: UserFormat, base: str, arguments: str, text: str) -> tuple[str, str]:
    state = ", state" if fmt.has_state(base) else ""
    return arguments + state, text.format(state)


def has_state(fmt: UserFormat, name: str) -> bool:
    """Whether a function on codes takes and returns a lane's state."""
    function = code_function(fmt, name)
    arity = ARITIES.get(name, 2)
    return fmt.state is not None and function is not None and argument_count(function) == arity + 1


def _assemble(name: str, arguments: str, expression: str, **scope: Any) -> Callable[..., Any]:
    return define(name, f"def {name}({arguments}):\n    return {expression}\n", scope)


def _negation(fmt: UserFormat) -> Callable[..., Any]:
    return _assemble("neg", "a", "convert(-as_float(a))", convert=convert_function(fmt), as_float=fmt.as_float)


def _on_codes(fmt: UserFormat, name: str) -> Callable[..., Any]:
    """A function on values as one on codes."""
    letters = ["a", "b", "c"][: ARITIES[name]]
    values = ", ".join(f"as_float({letter})" for letter in letters)
    scope = {"function": getattr(fmt, name), "as_float": fmt.as_float, "convert": convert_function(fmt)}
    if name == "compare":
        return _assemble(name, "a, b", f"function({values})", **scope)
    if not fmt.has_state(name):
        return _assemble(name, ", ".join(letters), f"convert(function({values}))", **scope)
    source = f"def {name}({', '.join(letters)}, state):\n    value, state = function({values}, state)\n"
    return define(name, f"{source}    return convert(value), state\n", scope)


@lru_cache(maxsize=64)
def convert_function(fmt: UserFormat) -> Callable[..., Any]:
    """The user's `convert` without state, or a search for the nearest value of a listed format."""
    if fmt.convert is not None and not fmt.has_state("convert"):
        return fmt.convert
    if fmt.convert is not None:
        initial = 1 if fmt.state == "random" else fmt.state
        return _assemble("convert", "value", "own(value, initial)[0]", own=fmt.convert, initial=initial)
    from presilicon.formats.kernels.value_lists import value_list

    listed = value_list(fmt)
    scope = {"BOUNDS": listed.bounds.numpy(), "CODES": listed.codes.numpy(), "LAST": len(listed.bounds)}
    nan = listed.nan_code if listed.nan < 0 else int(listed.codes[listed.nan])
    zero, minus = listed.minus_zero + 1, listed.minus_zero
    sign = f"    if value == 0.0:\n        return CODES[{minus}] if math.copysign(1.0, value) < 0 else CODES[{zero}]\n"
    source = (
        "import math\ndef convert(value):\n"
        f"    if value != value:\n        return {nan}\n{sign if minus >= 0 else ''}"
        f"    low, high = 0, LAST\n    for _ in range({len(listed.bounds).bit_length()}):\n"
        "        middle = (low + high) // 2\n        bound = BOUNDS[min(middle, LAST - 1)]\n"
        "        above = value > bound or (value == bound and CODES[min(middle, LAST - 1)] % 2 == 1)\n"
        "        if low < high:\n            if above:\n                low = middle + 1\n"
        "            else:\n                high = middle\n"
        "    return CODES[low]\n"
    )
    return define("convert", source, scope)


@lru_cache(maxsize=64)
def zero_code(fmt: UserFormat) -> int:
    """The code of +0, from which sums start."""
    with naming(fmt, "convert"):
        return int(plain_function(convert_function(fmt))(0.0))


# Compilation


def arguments_of(fmt: UserFormat, name: str) -> list[Argument]:
    """The kinds of a function's arguments."""
    kind: Kind = "number" if name == "convert" else "integer"
    return [*[kind] * ARITIES.get(name, 2), *[state_kind(fmt)] * has_state(fmt, name)]


def state_kind(fmt: UserFormat) -> Kind:
    """The kind of a lane's state."""
    return "number" if isinstance(fmt.state, float) else "integer"


@lru_cache(maxsize=256)
def code_program(fmt: UserFormat, name: str) -> Program:
    """The program of a function on codes; its results are a code, or a value for `as_float`, and the next state.

    Raises `LanguageError` if it has none.
    """
    function = code_function(fmt, name)
    assert function is not None
    kind: Kind = "number" if name == "as_float" else "integer"
    return compile_scalars(function, arguments_of(fmt, name), [kind] + [state_kind(fmt)] * has_state(fmt, name))


@lru_cache(maxsize=256)
def user_function(fmt: UserFormat, name: str) -> Callable[..., Any]:
    """A function on codes, compiled if it can be, so that compiled code can call it.

    Raises `FormatError` if the format has no such function.
    """
    function = code_function(fmt, name)
    if function is None:
        raise FormatError(f"{fmt} has no function `{name}`; give one, as UserFormat(..., {name}=...)")
    if not has_numba():
        return plain_function(function)
    slowly = "it runs in Python, number by number"
    compiled = compiled_or_slow(
        fmt, name, lambda: numba_function(code_program(fmt, name), arguments_of(fmt, name)), slowly
    )
    return plain_function(function) if compiled is None else compiled


def compiled_or_slow(fmt: UserFormat, name: str, build: Callable[[], Any], instead: str) -> Any:
    """A function as `build` compiles it; None if it cannot be compiled, after a warning with file and line."""
    try:
        return build()
    except (ConfigError, NotImplementedError) as error:
        text = " ".join(str(error).partition("\n")[0].split()) or type(error).__name__
        warnings.warn(f"{fmt}: `{name}` cannot be compiled ({text}); {instead}", UserFunctionWarning, stacklevel=3)
        return None


def _loop(fmt: UserFormat, name: str) -> Callable[..., int]:
    """A loop that applies a function to arrays; returns 1 + an index whose code is outside of the fields, or 0."""
    return _loop_of(user_function(fmt, name), name, fmt.bits, has_state(fmt, name))


@lru_cache(maxsize=256)
def _loop_of(function: Callable[..., Any], name: str, bits: int, stateful: bool) -> Callable[..., int]:
    arity = ARITIES.get(name, 2)
    kind = "float" if name == "convert" else "int64" if hasattr(function, "py_func") else "int"
    reads = ", ".join(f"{kind}(x{k}[i])" for k in range(arity))
    call = f"function({reads}, states[i])[0]" if stateful else f"function({reads})"
    check = "" if name in ("as_float", "compare") else "        if code < 0 or code > top:\n            wrong = i + 1\n"
    source = (
        f"def loop({', '.join(f'x{k}' for k in range(arity))}, states, out, start, stop):\n    wrong = 0\n"
        f"    for i in range(start, stop):\n        code = {call}\n{check}        out[i] = code\n    return wrong\n"
    )
    loop = define("loop", source, {"function": function, "top": (1 << bits) - 1, "int64": np.int64})
    if not hasattr(function, "py_func"):
        return loop
    import numba

    return numba.njit(nogil=True, no_cfunc_wrapper=True)(loop)  # type: ignore[no-any-return]


def refuse_code(fmt: UserFormat, name: str, operands: Sequence[Any], *states: Any) -> NoReturn:
    """Raise the `FormatError` for operands that give a code outside the fields."""
    result = user_function(fmt, name)(*operands, *states)
    code, call = int(result[0] if states else result), ", ".join(str(operand) for operand in operands)
    top = (1 << fmt.bits) - 1
    raise FormatError(f"{fmt}: `{name}` must give codes from 0 to {top}, not the code {code} for {name}({call})")


# Whole tensors


def map_codes(fmt: UserFormat, name: str, operands: tuple[Tensor, ...], key: Key | None = None) -> Tensor:
    """A function on tensors of codes of one shape (of numbers for `convert`), element by element."""
    stateful, first = has_state(fmt, name), operands[0]
    is_tabled = fmt.bits <= TABLE_BITS and not stateful and name not in ("convert", "as_float", "mad")
    if is_tabled:
        return _look_up(_table_on(fmt, name, first.device), operands, fmt.bits)
    states = lane_states(fmt, first.numel(), key, first.device) if stateful else None
    if first.device.type == "cuda" and has_triton():
        from presilicon.formats.kernels import user_gpu

        result: Tensor | None = user_gpu.map_codes(fmt, name, operands, states)
        if result is not None:
            return result
    out = torch.empty(first.shape, dtype=_result_type(fmt, name))
    arrays = [x.detach().cpu().contiguous().view(-1).numpy() for x in operands]
    initial = np.zeros(1) if states is None else states.cpu().numpy()
    loop, target = _loop(fmt, name), out.view(-1).numpy()
    wrong: list[int] = []

    def work(start: int, stop: int) -> None:
        wrong.append(loop(*arrays, initial, target, start, stop))

    with naming(fmt, name):
        split_over_threads(work, first.numel())
        if any(wrong):
            at = max(wrong) - 1
            refuse_code(fmt, name, [array[at].item() for array in arrays], *initial[at : at + 1][: states is not None])
    return out.to(first.device)


def _result_type(fmt: UserFormat, name: str) -> torch.dtype:
    if name == "compare":
        return torch.int64
    return torch.float64 if name == "as_float" else code_type(fmt.bits)


@lru_cache(maxsize=64)
def _table_on(fmt: UserFormat, name: str, device: torch.device) -> Tensor:
    return torch.from_numpy(operation_table(fmt, name)).to(device).view(-1)


def _look_up(table: Tensor, operands: tuple[Tensor, ...], bits: int) -> Tensor:
    index = operands[0].to(torch.int32)
    for operand in operands[1:]:
        index = index << bits | operand.to(torch.int32)
    return table.index_select(0, index.view(-1)).view(index.shape)


def lane_states(fmt: UserFormat, count: int, key: Key | None, device: torch.device) -> Tensor:
    """The first state of each lane."""
    if fmt.state == "random":
        return (random_words(key or Key(), Stochastic(bits=24), 0, count, device) >> 8).clamp_(min=1)
    dtype = torch.float64 if isinstance(fmt.state, float) else torch.int64
    return torch.full((count,), fmt.state, dtype=dtype, device=device)  # type: ignore[arg-type]


def user_codes(x: Tensor, fmt: UserFormat, key: Key | None = None) -> Tensor:
    """The codes that the user's `convert` gives for `x`, in the type of codes.

    Raises `FormatError` where a code does not fit the fields.
    """
    if x.device.type == "cpu" and x.dtype is torch.float32 and fmt.bits <= 16 and has_numba():
        codes = _known_codes(x, fmt)
        if codes is not None:
            return codes
    return map_codes(fmt, "convert", (x,), key)


_SHORT_CALLS = 1 << 16


def _known_codes(x: Tensor, fmt: UserFormat) -> Tensor | None:
    """The codes of numbers with 16 zeros at their end, as values of narrow formats have; None if there are others."""
    from presilicon.formats.kernels.numba_kernels import look_up_short

    if fmt.has_state("convert") or x.numel() == 0:
        return None
    _converted[fmt] = _converted.get(fmt, 0) + x.numel()
    if _converted[fmt] < _SHORT_CALLS:
        return None
    out = torch.empty(x.shape, dtype=code_type(fmt.bits))
    words, target, table = x.contiguous().view(-1).numpy().view(np.uint32), out.view(-1).numpy(), _short_codes(fmt)
    if table is None:
        return None
    complete: list[bool] = []
    split_over_threads(lambda start, stop: complete.append(look_up_short(words, table, target, start, stop)), x.numel())
    return out if all(complete) else None


_converted: dict[UserFormat, int] = {}


@lru_cache(maxsize=32)
def _short_codes(fmt: UserFormat) -> Any:
    """The code of each float32 number whose last 16 bits are zeros, by its first 16.

    -1 where `convert` gives no code of the format: the number may be a NaN or too large, and never occur. None if it
    fails on some number.
    """
    numbers = (np.arange(1 << 16, dtype=np.uint32) << 16).view(np.float32)
    codes = np.empty(1 << 16, dtype=np.int64)
    try:
        _loop_of(user_function(fmt, "convert"), "convert", 62, False)(numbers, np.zeros(1), codes, 0, len(numbers))
    except Exception:  # whatever a user's function raises
        return None
    codes[(codes < 0) | (codes >= 1 << fmt.bits)] = -1
    return codes.astype(np.int32)


def user_values(codes: Tensor, fmt: UserFormat) -> Tensor:
    """The values that the user's `as_float` gives for codes, as float32."""
    if fmt.bits <= 16:
        return _values(fmt, codes.device).index_select(0, codes.reshape(-1).to(torch.int32)).view(codes.shape)
    return map_codes(fmt, "as_float", (codes,)).float()


def all_values(fmt: UserFormat) -> Any:
    """The values of all codes of a format of up to 16 bits, as float64 that hold float32 numbers."""
    with naming(fmt, "as_float"), np.errstate(over="ignore"):
        values: list[Any] = [fmt.as_float(code) for code in range(1 << fmt.bits)]
        wrong = next((value for value in values if isinstance(value, str)), None)
        if wrong is not None:
            raise FormatError(f"{fmt}: `as_float` must give numbers, not {wrong!r}")
        return np.array([float(value) for value in values], dtype=np.float64).astype(np.float32).astype(np.float64)


@lru_cache(maxsize=32)
def _values(fmt: UserFormat, device: torch.device) -> Tensor:
    return torch.from_numpy(all_values(fmt)).to(device, torch.float32)


@lru_cache(maxsize=64)
def operation_table(fmt: UserFormat, name: str) -> Any:
    """All results of a function of one or two codes, for up to 8 bits.

    >>> def as_float(code):
    ...     return float(code)
    >>> def mul(a, b):
    ...     return min(a * b, 7)
    >>> fmt = UserFormat("tiny", (("m", 3),), as_float, mul=mul)
    >>> operation_table(fmt, "mul")[2].tolist()
    [0, 2, 4, 6, 7, 7, 7, 7]

    Raises `FormatError` above 8 bits: use `user_function`, which compiles.
    """
    if fmt.bits > TABLE_BITS:
        raise FormatError(f"{fmt}: only formats of at most {TABLE_BITS} bits have tables, not {fmt.bits}")
    size, arity = 1 << fmt.bits, ARITIES.get(name, 2)
    table = np.empty((size,) * arity, dtype=np.int8 if name == "compare" else np.uint8)
    rest = np.indices((size,) * max(arity - 1, 1)).reshape(max(arity - 1, 1), -1)
    with naming(fmt, name):
        for code in range(size if arity > 1 else 1):  # a part at a time, because three operands have 2^24 codes
            codes = np.array([np.full(rest.shape[1], code), *rest])[-arity:]
            _tabulate(fmt, name, codes, (table[code] if arity > 1 else table).reshape(-1))
    return table


def _tabulate(fmt: UserFormat, name: str, codes: Any, out: Any) -> None:
    """Results of a function for rows of codes; by the GPU where there is no Numba, because Python takes minutes."""
    if not has_numba() and has_triton() and torch.cuda.is_available():
        from presilicon.formats.kernels import user_gpu

        result = user_gpu.map_codes(fmt, name, tuple(torch.from_numpy(row).cuda() for row in codes), None)
        if result is not None:
            out[:] = result.cpu().numpy()
            return
    wrong = _loop(fmt, name)(*codes, np.zeros(1), out, 0, codes.shape[1])
    if wrong:
        refuse_code(fmt, name, codes[:, wrong - 1].tolist())
