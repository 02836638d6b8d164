"""Products with a user's own arithmetic on a GPU: by tables up to 8 bits, or by kernels that call its programs.

Where both can compute a product, the faster one is found by a measurement and then used for that unit.
"""

import math
import warnings
from collections.abc import Callable
from functools import lru_cache
from time import perf_counter

import numpy as np
import torch
from torch import Tensor

from presilicon.formats.families.user import UserFormat
from presilicon.formats.kernels.assembly import define
from presilicon.formats.kernels.user_functions import (
    TABLE_BITS,
    arguments_of,
    code_program,
    compiled_or_slow,
    has_state,
    operation_table,
)
from presilicon.formats.kernels.user_gpu import EXACT, Flags, UserKernel, build, call, indented
from presilicon.formats.mac.unit import MacUnit
from presilicon.formats.mac.user import Sums, is_fused, tables_of, unit_arguments, unit_program
from presilicon.programs import ScalarFunction, compile_scalars, triton_function

TILE, WARPS = (32, 64), 4
MOST_SLOTS = 64
"""Running sums that a program can hold."""
MEASURED = 1 << 28
"""Multiply-adds from which both ways are measured."""


def multiply(left: Tensor, right: Tensor, mac: MacUnit, sums: Sums, states: Tensor | None) -> Tensor | None:
    """The codes of a product of codes (batches, M, K) and (batches, K, N); None if neither way can compute it."""
    fmt = mac.accumulate.arithmetic
    assert fmt is not None
    if left.numel() * right.numel() == 0:
        return torch.full((left.shape[0], left.shape[1], right.shape[2]), sums.zero, dtype=left.dtype).to(left.device)
    is_plain = states is None and sums.slots == 1 and not sums.is_tree and (mac.unit is None or mac.unit.mad is None)
    tabled = is_plain and fmt.bits <= TABLE_BITS
    is_small = left.numel() * right.shape[2] < MEASURED
    if tabled and (is_small or _tables_are_faster(mac, left.device)):
        return _by_tables(left, right, mac, fmt, sums)
    kernel = _compiled(mac, sums.slots, states is not None)
    if kernel is None:
        return _by_tables(left, right, mac, fmt, sums) if tabled else None
    return _by_kernel(left, right, kernel, mac, sums, states)


def _by_tables(left: Tensor, right: Tensor, mac: MacUnit, fmt: UserFormat, sums: Sums) -> Tensor:
    from presilicon.formats.mac.triton_kernels import table_kernel

    out, grid, sizes = _outputs(left, right)
    tables = _tables_on(fmt, is_fused(mac), left.device)
    table_kernel[grid](
        left.mT.contiguous(), right, out, *tables, *sizes, sums.size, ZERO=sums.zero, BITS=fmt.bits,
        ROWS=TILE[0], COLUMNS=TILE[1], num_warps=WARPS,
    )  # fmt: skip
    return out


@lru_cache(maxsize=32)
def _tables_on(fmt: UserFormat, fused: bool, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    step = tables_of(fmt, fused)
    numbers = step.index >> np.uint32(fmt.bits)
    narrow = np.int16 if int(numbers.max()) < 1 << 15 else np.int32  # half the bytes in the first-level cache
    arrays = (numbers.astype(narrow), step.rows, operation_table(fmt, "add"))
    index, rows, joins = (torch.from_numpy(array).to(device).view(-1) for array in arrays)
    return index, rows, joins


def _outputs(left: Tensor, right: Tensor) -> tuple[Tensor, tuple[int, int, int], tuple[int, int, int]]:
    batches, rows, depth = left.shape
    columns = right.shape[2]
    out = torch.empty(batches, rows, columns, dtype=left.dtype, device=left.device)
    return out, (math.ceil(rows / TILE[0]), math.ceil(columns / TILE[1]), batches), (rows, columns, depth)


@lru_cache(maxsize=32)
def _tables_are_faster(mac: MacUnit, device: torch.device) -> bool:
    """Whether tables compute a product of 1024 x 512 x 1024 random codes sooner than compiled functions."""
    fmt = mac.accumulate.arithmetic
    assert fmt is not None
    kernel = _compiled(mac, 1, False)
    if kernel is None or device.type != "cuda":
        return True
    left, right = (torch.randint(0, 1 << fmt.bits, (1, *s), device=device).byte() for s in ((1024, 512), (512, 1024)))
    sums, times = Sums.of(mac, fmt, 512), []
    ways: list[Callable[[], Tensor]] = [
        lambda: _by_tables(left, right, mac, fmt, sums),
        lambda: _by_kernel(left, right, kernel, mac, sums, None),
    ]
    for compute in ways:
        compute()
        torch.cuda.synchronize(device)
        start = perf_counter()
        compute()
        torch.cuda.synchronize(device)
        times.append(perf_counter() - start)
    return times[0] <= times[1]


def _by_kernel(
    left: Tensor, right: Tensor, kernel: UserKernel, mac: MacUnit, sums: Sums, states: Tensor | None
) -> Tensor:
    out, grid, sizes = _outputs(left, right)
    flag = kernel.flags.on(left.device)
    size = mac.unit.lanes if mac.unit is not None and mac.unit.mad is not None else sums.size
    kernel.launch[grid](
        left.mT.contiguous(), right, out, flag if states is None else states, flag, *kernel.tables_on(left.device),
        *sizes, size, ROWS=TILE[0], COLUMNS=TILE[1], num_warps=WARPS, **EXACT,
    )  # fmt: skip
    kernel.flags.check(left.device)
    return out


# Kernels of functions

_HEAD = """def kernel(left, right, out, states, wrong, {tables}rows, columns, depth, size,
           ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    m = (tl.program_id(0) * ROWS + tl.arange(0, ROWS))[:, None]
    n = (tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS))[None, :]
    batch = tl.program_id(2).to(tl.int64)
    a_at = left + batch * depth * rows + m
    b_at = right + batch * depth * columns + n
    place = (batch * rows + m) * columns + n
    inside = (m < rows) & (n < columns)
    zeros = tl.zeros((ROWS, COLUMNS), tl.int64)
    bits = zeros
    total = zeros + ZERO
"""
_TAIL = """    tl.store(wrong + place * 0, 1, mask=inside & ((bits & ~TOP) != 0))
    tl.store(out + place, (total & TOP).to(out.dtype.element_ty), mask=inside)
"""


@lru_cache(maxsize=64)
def _compiled(mac: MacUnit, slots: int, stateful: bool) -> UserKernel | None:
    """The kernel of a unit; None, with a warning, if a function has no program or there are too many slots."""
    fmt = mac.accumulate.arithmetic
    assert fmt is not None
    has_unit = mac.unit is not None and mac.unit.mad is not None
    writer = _Writer(mac, fmt, slots, stateful)

    def written() -> UserKernel:
        if slots > MOST_SLOTS:
            raise NotImplementedError(f"{slots} running sums are more than {MOST_SLOTS}; set a smaller chunk or width")
        return build(writer.vector() if has_unit else writer.scalar(), writer.functions, Flags(fmt, writer.name))

    with warnings.catch_warnings():
        if fmt.bits <= TABLE_BITS and slots == 1 and not stateful and not has_unit:
            warnings.simplefilter("ignore")  # tables compute the product
        kernel: UserKernel | None = compiled_or_slow(
            fmt, writer.name, written, "products on the GPU are computed on the CPU"
        )
    return kernel


def _tabled(fmt: UserFormat, name: str) -> ScalarFunction:
    """A function that reads its results from a table: many sums side by side would repeat the user's code too often."""
    if name == "mad":
        rows = tables_of(fmt, True)
        scope = {"INDEX": rows.index.astype(np.int64).reshape(-1), "ROWS": rows.rows, "BITS": fmt.bits}
        function = define("mad", "def mad(a, b, c):\n    return ROWS[INDEX[(a << BITS) | b] + c]\n", scope)
    else:
        scope = {"TABLE": operation_table(fmt, name).reshape(-1), "BITS": fmt.bits}
        function = define(name, f"def {name}(a, b):\n    return TABLE[(a << BITS) | b]\n", scope)
    arguments = arguments_of(fmt, name)
    return triton_function(compile_scalars(function, arguments), arguments)


class _Writer:
    """Writes the kernel of a unit, and gathers the functions that it calls."""

    def __init__(self, mac: MacUnit, fmt: UserFormat, slots: int, stateful: bool) -> None:
        self.mac, self.fmt, self.slots, self.stateful = mac, fmt, slots, stateful
        self.functions: dict[str, ScalarFunction] = {}
        self.name = "mad" if is_fused(mac) or mac.unit is not None else "mul"
        self._zero = Sums.of(mac, fmt, 1).zero
        self._head = _HEAD.replace("ZERO", str(self._zero))
        self._tail = _TAIL.replace("TOP", str((1 << fmt.bits) - 1))
        if stateful:
            self._head += "    state = tl.load(states + place, mask=inside, other=0)\n"

    def scalar(self) -> str:
        """The text of a kernel of scalar functions, in any order."""
        text = self._head + "    for begin in range(0, depth, size):\n        end = tl.minimum(begin + size, depth)\n"
        text += "".join(f"        part{slot} = total * 0 + {self._zero}\n" for slot in range(self.slots))
        text += f"        for k in range(begin, end, {self.slots}):\n"
        for slot in range(self.slots):
            text += self._load(slot, "end", 0 if self.slots > 1 else None, 3) + indented(self._step(slot), 3)
        text += indented(self._tree(), 2)
        joined = self._apply("add", ["total", "part0"], "total", "begin + zeros > 0", "part0")
        return text + indented(joined, 2) + self._tail

    def vector(self) -> str:
        """The text of a kernel of a vector `mad`."""
        unit = self.mac.unit
        assert unit is not None
        text = self._head + f"    for k in range(0, depth, {unit.lanes}):\n"
        for lane in range(unit.lanes):
            text += self._load(lane, "depth", self._zero, 2)
        self.functions["mad"] = triton_function(unit_program(unit), unit_arguments(unit))
        lanes = [f"{side}{lane}" for side in "xy" for lane in range(unit.lanes)]
        return text + indented(self._call("mad", [*lanes, "total"], unit.has_state, "total"), 2) + self._tail

    def _load(self, slot: int, end: str, zero: int | None, depth: int) -> str:
        at, guard = f"at{slot}", f" & (at{slot} < {end})" if zero is not None else ""
        other = zero or 0
        return indented(
            [
                f"{at} = k + {slot} + tl.zeros((1, 1), tl.int32)",
                f"x{slot} = tl.load(a_at + {at} * rows, mask=(m < rows){guard}, other={other}).to(tl.int64)",
                f"y{slot} = tl.load(b_at + {at} * columns, mask=(n < columns){guard}, other={other}).to(tl.int64)",
            ],
            depth,
        )

    def _step(self, slot: int) -> list[str]:
        """A multiply-add, or the product alone in a tree; slots beyond the chunk's end stay as they are."""
        part, operands = f"part{slot}", [f"x{slot}", f"y{slot}"]
        guard = f"at{slot} < end" if self.slots > 1 else ""
        if self.mac.order == "pairwise":
            return self._apply("mul", operands, part, guard, part)
        if is_fused(self.mac):
            return self._apply("mad", [*operands, part], part, guard, part)
        product = self._apply("mul", operands, "product", guard, "zeros")
        return product + self._apply("add", [part, "product"], part, guard, part)

    def _tree(self) -> list[str]:
        """The slots added as a tree of neighbours; those that the chunk does not reach pass their neighbour."""
        lines: list[str] = []
        width = 1
        while width < self.slots:
            for slot in range(0, self.slots - width, 2 * width):
                part = f"part{slot}"
                reached = f"end - begin + zeros > {slot + width}"
                lines += self._apply("add", [part, f"part{slot + width}"], part, reached, part)
            width *= 2
        return lines

    def _apply(self, name: str, operands: list[str], target: str, guard: str = "", otherwise: str = "") -> list[str]:
        """Lines that assign a function's result to a name, where the guard holds."""
        if name not in self.functions:
            is_tabled = self.slots > 1 and not self.stateful and self.fmt.bits <= TABLE_BITS
            self.functions[name] = (
                _tabled(self.fmt, name)
                if is_tabled
                else triton_function(code_program(self.fmt, name), arguments_of(self.fmt, name))
            )
        return self._call(name, operands, has_state(self.fmt, name), target, guard, otherwise)

    def _call(
        self, name: str, operands: list[str], has_state: bool, target: str, guard: str = "", otherwise: str = ""
    ) -> list[str]:
        results = "code, next_state" if has_state else "code"
        lines = [f"{results} = {call(name, self.functions[name], *operands, *['state'] * has_state)}"]
        code = f"tl.where({guard}, code, {otherwise})" if guard else "code"
        lines += [f"{target} = {code} + zeros", f"bits = bits | {target}"]
        if has_state:
            lines.append(f"state = tl.where({guard}, next_state, state)" if guard else "state = next_state + zeros")
        return lines
