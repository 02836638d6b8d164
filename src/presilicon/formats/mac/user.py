"""Matrix products with a user's own arithmetic on codes.

A unit whose `accumulate` is a `UserFormat` works on that format's codes from end to end: its operands are converted to
codes, each multiply-add is the user's `mad`, or `mul` and then `add`, and the result is the value of the last code. A
unit whose `multiply` alone is one has the user's multiplier and a float32 adder: a product is the value of `mul`.

Up to 8 bits a multiply-add is a table: mad(a, b, .) has 2^bits results, and equal ones are stored once. Wider ones are
compiled.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from presilicon.base import FormatError, split_over_threads
from presilicon.formats.codes import encode
from presilicon.formats.families.user import UserFormat, argument_count
from presilicon.formats.kernels.assembly import define
from presilicon.formats.kernels.passes import has_numba, has_triton
from presilicon.formats.kernels.user_functions import (
    TABLE_BITS,
    code_function,
    compiled_or_slow,
    has_state,
    lane_states,
    map_codes,
    naming,
    operation_table,
    state_kind,
    user_function,
    user_values,
    zero_code,
)
from presilicon.formats.mac.processing import VectorUnit
from presilicon.formats.mac.unit import FLOAT32, MacUnit
from presilicon.formats.rounding import Key
from presilicon.programs import Argument, Lanes, Program, compile_scalars, numba_function, plain_function

ORDERS = ("sequential", "chunked", "systolic", "pairwise")


def check_user(mac: MacUnit) -> None:
    """Raise `FormatError` for a unit that user-defined arithmetic cannot be."""
    adder = mac.accumulate.arithmetic
    multiplier = None if mac.multiply is None else mac.multiply.arithmetic
    if adder is not None:
        _check_adder(mac, adder)
    elif multiplier is None or mac.accumulate != FLOAT32:
        raise FormatError(f"accumulate must be float32 or {mac.multiply} with multiply={mac.multiply}")
    elif code_function(multiplier, "mul") is None:
        raise FormatError(f"multiply={multiplier} must have a `mul`; give one, as UserFormat(..., mul=...)")
    elif has_state(multiplier, "mul"):
        raise FormatError(f"multiply={multiplier}: a `mul` with a state needs accumulate={multiplier} too")
    allowed = ORDERS if adder is not None else ORDERS[:3]
    if mac.order not in allowed or (adder is None and mac.width != 1):
        words = f"order must be one of {', '.join(allowed)}" + ("" if adder is not None else ", with width 1")
        raise FormatError(f"{words}, for the arithmetic of {multiplier or adder}, not {mac.order} with {mac.width}")
    if mac.partial is not None or mac.rounding != "nearest-even":
        raise FormatError(f"partial and rounding must be left out: {multiplier or adder} rounds by its own functions")


def _check_adder(mac: MacUnit, adder: UserFormat) -> None:
    if mac.multiply not in (None, adder):
        raise FormatError(f"multiply must be left out with accumulate={adder}, not {mac.multiply}")
    if mac.unit is not None and mac.unit.mad is not None and argument_count(mac.unit.mad) != 2:
        return
    if adder.add is None:
        raise FormatError(f"accumulate={adder} must have an `add`; give one, as UserFormat(..., add=...)")
    if mac.unit is not None and mac.unit.mad is not None:
        return
    if adder.mad is None and adder.mul is None:
        raise FormatError(f"accumulate={adder} must have a `mad` or a `mul`")
    if mac.fused and adder.mad is None:
        raise FormatError(f"fused=true needs the `mad` of {adder}; give one, as UserFormat(..., mad=...)")
    if not is_fused(mac) and adder.mul is None:
        which = "adds products in pairs" if mac.order == "pairwise" else "rounds its products"
        raise FormatError(f"a unit that {which} needs the `mul` of {adder}")


def is_fused(mac: MacUnit) -> bool:
    """Whether a product enters its sum through `mad`: if there is one, unless products are to be rounded first."""
    adder = mac.accumulate.arithmetic
    has_mad = adder is not None and adder.mad is not None and mac.order != "pairwise"
    return has_mad and mac.multiply is None and mac.fused is not False


class Sums(NamedTuple):
    """How the products of one output are added."""

    size: int
    """Products per chunk."""
    slots: int
    """Running sums of a chunk, which are added as a tree in the end."""
    is_tree: bool
    """Whether each product is a slot of its own."""
    zero: int

    @staticmethod
    def of(mac: MacUnit, fmt: UserFormat, depth: int) -> "Sums":
        """The sums of a unit along a reduction axis of this length."""
        size = min((mac.rows if mac.order == "systolic" else mac.chunk) or max(depth, 1), max(depth, 1))
        is_tree = mac.order == "pairwise"
        return Sums(size, size if is_tree else min(mac.width, size), is_tree, zero_code(fmt))


def multiply_codes(a: Tensor, b: Tensor, mac: MacUnit, key: Key) -> Tensor:
    """The product of (batch, M, K) and (batch, K, N), as float32."""
    adder = mac.accumulate.arithmetic
    fmt = adder if adder is not None or mac.multiply is None else mac.multiply.arithmetic
    assert fmt is not None
    left, right = (encode(x, fmt).contiguous() for x in (a, b))  # type: ignore[union-attr]
    sums = Sums.of(mac, fmt, a.shape[-1])
    if adder is None:
        return _add_values(left, right, fmt, sums.size)
    states = lane_states(fmt, a.shape[0] * a.shape[1] * b.shape[2], key, a.device) if _has_state(mac) else None
    if a.device.type == "cuda" and has_triton():
        from presilicon.formats.mac import user_gpu

        out: Tensor | None = user_gpu.multiply(left, right, mac, sums, states)
        if out is not None:
            return user_values(out, fmt)
    if not has_numba() and fmt.bits <= TABLE_BITS and states is None and sums.slots == 1 and mac.unit is None:
        out = _add_by_tables(left, right, tables_of(fmt, is_fused(mac)), operation_table(fmt, "add"), sums)
    else:
        out = _multiply_compiled(left, right, mac, fmt, sums, states)
    return user_values(out.to(a.device), fmt)


def _has_state(mac: MacUnit) -> bool:
    fmt = mac.accumulate.arithmetic
    assert fmt is not None
    if mac.unit is not None and mac.unit.mad is not None:
        return mac.unit.has_state
    return any(has_state(fmt, name) for name in (("mad",) if is_fused(mac) else ("mul",)) + ("add",))


# Tables


class StepTables(NamedTuple):
    """mad(a, b, c) as rows[index[a, b] + c], with equal rows stored once."""

    index: Any
    """The beginning of a row, by the codes of the factors."""
    rows: Any
    """The rows one after another."""


@lru_cache(maxsize=16)
def tables_of(fmt: UserFormat, fused: bool) -> StepTables:
    """The tables of a format of up to 8 bits: of its `mad`, or of `mul` and then `add`."""
    if not fused:
        starts = operation_table(fmt, "mul").astype(np.uint32) << np.uint32(fmt.bits)
        return StepTables(starts, np.ascontiguousarray(operation_table(fmt, "add").T).reshape(-1))
    whole = operation_table(fmt, "mad").reshape(-1, 1 << fmt.bits)
    numbers: dict[bytes, int] = {}
    index = np.array([numbers.setdefault(row.tobytes(), len(numbers)) for row in whole], dtype=np.uint32)
    rows = np.frombuffer(b"".join(numbers), dtype=np.uint8).copy()
    return StepTables(index.reshape(1 << fmt.bits, -1) << np.uint32(fmt.bits), rows)


_multiplied: dict[tuple[UserFormat, bool], int] = {}


def _prefers_tables(fmt: UserFormat, fused: bool, count: int) -> bool:
    """Whether tables are worth their computation: a format has then made as many multiply-adds without them."""
    if fmt.bits > TABLE_BITS or any(has_state(fmt, name) for name in ("mad", "mul", "add")):
        return False
    done = _multiplied[fmt, fused] = _multiplied.get((fmt, fused), 0) + count
    return not fused or done >= 1 << 3 * fmt.bits or not hasattr(user_function(fmt, "mad"), "py_func")


def _add_by_tables(a: Tensor, b: Tensor, step: StepTables, add: Any, sums: Sums) -> Tensor:
    """All outputs at once by torch, one step of the reduction after another: slow, and works everywhere."""
    index = torch.from_numpy(step.index.astype(np.int64)).to(a.device)
    rows, joins = (torch.from_numpy(table).to(a.device) for table in (step.rows, add))
    left, right = a.long(), b.long()
    out = torch.full((a.shape[0], a.shape[1], b.shape[2]), sums.zero, dtype=torch.int64, device=a.device)
    for begin in range(0, a.shape[-1], sums.size):
        part = torch.full_like(out, sums.zero)
        for k in range(begin, min(begin + sums.size, a.shape[-1])):
            part = rows[index[left[:, :, k, None], right[:, None, k, :]] + part].long()
        out = part if begin == 0 else joins[out, part].long()
    return out.to(torch.uint8)


# A float32 adder


def _add_values(a: Tensor, b: Tensor, fmt: UserFormat, size: int) -> Tensor:
    """Products by the user's `mul`, added in float32, chunk by chunk."""
    total = torch.zeros((a.shape[0], a.shape[1], b.shape[2]), device=a.device)
    for number, begin in enumerate(range(0, a.shape[-1], size)):
        part = torch.zeros_like(total)
        for k in range(begin, min(begin + size, a.shape[-1])):
            left, right = torch.broadcast_tensors(a[:, :, k, None], b[:, None, k, :])  # type: ignore[no-untyped-call]
            part += user_values(map_codes(fmt, "mul", (left, right)), fmt)
        total = part if number == 0 else total + part
    return total


# Compiled kernels

_KERNEL = """
def kernel(a, b, out, states, start, stop, group, size, slots, zero):
    depth, columns = a.shape[1], out.shape[1]
    part = np.empty((slots, columns), CODE)
    wrong = 0
    for m in range(start, stop):
        base = m // group * depth
        for begin in range(0, depth, size):
            end = min(begin + size, depth)
            used = min(slots, end - begin)
            part[:used] = zero
            for k in range(base + begin, base + end):
                x = a[m, k - base]
                lane = part[(k - base - begin) % slots]
                row = b[k]
                for n in range(columns):
                    {step}
            while used > 1:
                half = used // 2
                for j in range(half):
                    for n in range(columns):
                        {join_slots}
                if used % 2:
                    part[half] = part[used - 1]
                used = half + used % 2
            for n in range(columns):
                if begin == 0:
                    out[m, n] = part[0, n]
                else:
                    {join_chunks}
    return wrong
"""
_VECTOR_KERNEL = """
def kernel(a, b, out, states, start, stop, group, size, slots, zero):
    depth, columns = a.shape[1], out.shape[1]
    wrong = 0
    for m in range(start, stop):
        base = m // group * columns
        for n in range(columns):
            left, right, code = a[m], b[base + n], zero
            for begin in range(0, depth, size):
                {step}
            out[m, n] = code
    return wrong
"""


def _call(target: str, function: str, arguments: str, stateful: bool) -> str:
    """A statement that assigns the result of a function to a code, and notes a code outside the fields."""
    check = f"wrong |= code & ~TOP; {target} = code"
    if stateful:
        return f"code, states[m, n] = {function}({arguments}, states[m, n]); {check}"
    return f"code = {function}({arguments}); {check}"


@lru_cache(maxsize=64)
def _kernel(unit: VectorUnit | None, fused: bool, is_tree: bool, fmt: UserFormat, stateful: bool) -> Callable[..., int]:
    """The kernel of a unit; it returns 0, or bits outside of the fields that a function gave."""
    scope: dict[str, Any] = {"np": np, "TOP": (1 << fmt.bits) - 1}
    scope["CODE"] = np.uint8 if fmt.bits <= TABLE_BITS else np.int64
    if unit is not None:
        scope["mad"] = _compiled_unit(unit)
        lanes = "left[begin : begin + size], right[begin : begin + size]"
        text = _VECTOR_KERNEL.format(step=_call("code", "mad", f"{lanes}, code", stateful))
        return _compile(define("kernel", text, scope), scope)
    names = ("mad", "add") if fused else ("mul", "add")
    for name in names:
        scope[name] = _uniform(fmt, name, stateful)
    read = "np.int64(x), np.int64(row[n])"
    if fused:
        step = _call("lane[n]", "mad", f"{read}, np.int64(lane[n])", stateful)
    elif is_tree:
        step = _call("lane[n]", "mul", read, stateful)
    else:
        first = _call("product", "mul", read, stateful)
        step = f"{first}; {_call('lane[n]', 'add', 'np.int64(lane[n]), product', stateful)}"
    text = _KERNEL.format(
        step=step,
        join_slots=_call("part[j, n]", "add", "np.int64(part[2 * j, n]), np.int64(part[2 * j + 1, n])", stateful),
        join_chunks=_call("out[m, n]", "add", "np.int64(out[m, n]), np.int64(part[0, n])", stateful),
    )
    return _compile(define("kernel", text, scope), scope)


def _uniform(fmt: UserFormat, name: str, stateful: bool) -> Callable[..., Any]:
    """A compiled function, with the state as its last argument and result if any function of the unit has one."""
    function = user_function(fmt, name)
    if not stateful or has_state(fmt, name):
        return function
    letters = ", ".join("abc"[: 3 if name == "mad" else 2])
    source = f"def passing({letters}, state):\n    return function({letters}), state\n"
    passing = define("passing", source, {"function": function})
    if not hasattr(function, "py_func"):
        return passing
    import numba

    return numba.njit(nogil=True, no_cfunc_wrapper=True)(passing)  # type: ignore[no-any-return]


@lru_cache(maxsize=64)
def unit_function(unit: VectorUnit) -> Callable[..., Any]:
    """The whole unit as a function of the lanes' codes and the running sum."""
    assert unit.mad is not None
    if argument_count(unit.mad) != 2:
        return unit.mad
    terms = [f"lanes[{lane}]" for lane in range(unit.lanes)]
    if unit.order == "sequential":
        while len(terms) > 1:
            terms = [f"add({terms[0]}, {terms[1]})", *terms[2:]]
    while len(terms) > 1:
        rest = terms[-1:] if len(terms) % 2 else []
        terms = [f"add({x}, {y})" for x, y in zip(terms[::2], terms[1::2], strict=False)] + rest
    source = f"def mad(a, b, c):\n    lanes = multiply(a, b)\n    return add(c, {terms[0]})\n"
    return define("mad", source, {"multiply": unit.mad, "add": code_function(unit.format, "add")})


def _compiled_unit(unit: VectorUnit) -> Callable[..., Any]:
    mad = unit_function(unit)
    nothing = [0] * unit.lanes
    with naming(unit.format, f"mad of {unit.name}"):  # compiled code does not notice a lane that is not there
        plain_function(mad)(nothing, nothing, 0, *[0] * unit.has_state)
    if not has_numba():
        return mad
    slowly = "it runs in Python, number by number"
    compiled = compiled_or_slow(
        unit.format, f"mad of {unit.name}", lambda: numba_function(unit_program(unit), unit_arguments(unit)), slowly
    )
    return plain_function(mad) if compiled is None else compiled


def unit_arguments(unit: VectorUnit) -> list[Argument]:
    """The arguments of a whole unit: lanes, the running sum and the state."""
    lanes = Lanes(unit.lanes)
    return [lanes, lanes, "integer", *[state_kind(unit.format)] * unit.has_state]


@lru_cache(maxsize=64)
def unit_program(unit: VectorUnit) -> Program:
    """The program of a whole unit.

    Raises `LanguageError` if it has none.
    """
    return compile_scalars(
        unit_function(unit), unit_arguments(unit), ["integer", *[state_kind(unit.format)] * unit.has_state]
    )


def _compile(kernel: Callable[..., int], scope: dict[str, Any]) -> Callable[..., int]:
    """The kernel compiled, unless it calls a function that cannot be."""
    functions = [scope[name] for name in ("mad", "mul", "add") if name in scope]
    if not has_numba() or any(not hasattr(function, "py_func") for function in functions):
        return kernel
    import numba

    return numba.njit(nogil=True, no_cfunc_wrapper=True)(kernel)  # type: ignore[no-any-return]


def _multiply_compiled(
    a: Tensor, b: Tensor, mac: MacUnit, fmt: UserFormat, sums: Sums, states: Tensor | None
) -> Tensor:
    batches, rows, depth = a.shape
    columns = b.shape[2]
    fused, unit = is_fused(mac), mac.unit if mac.unit is not None and mac.unit.mad is not None else None
    out = torch.full((batches * rows, columns), sums.zero, dtype=a.dtype)
    left, right = a.cpu().view(batches * rows, depth).numpy(), b.cpu().view(batches * depth, columns).numpy()
    target = out.numpy()
    wrong: list[int] = []
    if unit is None and _prefers_tables(fmt, fused, batches * rows * depth * columns):
        from presilicon.formats.mac.numba_kernels import table_kernel

        step, joins = tables_of(fmt, fused), operation_table(fmt, "add")
        tables = (step.index, step.rows, np.uint32(fmt.bits), joins)

        def work(start: int, stop: int) -> None:
            table_kernel(left, right, target, start, stop, rows, *sums, *tables)
    else:
        kernel, size = _kernel(unit, fused, sums.is_tree, fmt, states is not None), sums.size
        if unit is not None:
            size = unit.lanes
            left, right = (_lanes(x, size, sums.zero) for x in (a.cpu(), b.cpu().mT))
        lanes = np.zeros((1, 1), np.int64) if states is None else states.cpu().view(-1, columns).clone().numpy()

        def work(start: int, stop: int) -> None:
            wrong.append(kernel(left, right, target, lanes, start, stop, rows, size, sums.slots, sums.zero))

    with naming(fmt, "mul" if unit is None and not fused else "mad"):
        split_over_threads(work, batches * rows if depth else 0, multiple=1, weight=columns * depth)
        if any(wrong):
            raise FormatError(f"{fmt}: its functions must give codes from 0 to {(1 << fmt.bits) - 1}")
    return out.view(batches, rows, columns)


def _lanes(x: Tensor, lanes: int, zero: int) -> Any:
    """Rows of codes (batches x rows, depth) as a vector unit takes them: whole groups of lanes, of 64 bits."""
    padded = torch.nn.functional.pad(x.long(), (0, -x.shape[2] % lanes), value=zero)
    return padded.flatten(0, 1).contiguous().numpy()
