"""Products with a user's own arithmetic on a GPU: by tables up to 8 bits, or by kernels translated from the source.

Where both can compute a product, the faster one is found by a measurement and then used for that unit.
"""

import math
from collections.abc import Callable
from functools import lru_cache
from time import perf_counter
from typing import Any

import numpy as np
import torch
from torch import Tensor

from presilicon.formats.families.user import UserFormat
from presilicon.formats.kernels.assembly import define
from presilicon.formats.kernels.translation import Text, Translation, UntranslatableError
from presilicon.formats.kernels.user_functions import (
    TABLE_BITS,
    code_function,
    has_state,
    operation_table,
    warn_of_slow,
)
from presilicon.formats.kernels.user_gpu import EXACT, Flags, Kernel, build, indented
from presilicon.formats.mac.unit import MacUnit
from presilicon.formats.mac.user import Sums, is_fused, tables_of, unit_function

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
    kernel = _translated(mac, sums.slots, states is not None)
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
    """Whether tables compute a product of 1024 x 512 x 1024 random codes sooner than translated functions."""
    fmt = mac.accumulate.arithmetic
    assert fmt is not None
    kernel = _translated(mac, 1, False)
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


def _by_kernel(left: Tensor, right: Tensor, kernel: Kernel, mac: MacUnit, sums: Sums, states: Tensor | None) -> Tensor:
    out, grid, sizes = _outputs(left, right)
    flag = kernel.flags.on(left.device)
    size = mac.unit.lanes if mac.unit is not None and mac.unit.mad is not None else sums.size
    kernel.launch[grid](
        left.mT.contiguous(), right, out, flag if states is None else states, flag, *kernel.tables_on(left.device),
        *sizes, size, ROWS=TILE[0], COLUMNS=TILE[1], num_warps=WARPS, **EXACT,
    )  # fmt: skip
    kernel.flags.check(left.device)
    return out


# Translated kernels

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
def _translated(mac: MacUnit, slots: int, stateful: bool) -> Kernel | None:
    """The kernel of a unit; None, with a warning, if a function has no Triton code or there are too many slots."""
    fmt = mac.accumulate.arithmetic
    assert fmt is not None
    writer = _Writer(mac, fmt, slots, stateful)
    try:
        if slots > MOST_SLOTS:
            raise UntranslatableError(f"{slots} running sums are more than {MOST_SLOTS}; set a smaller chunk or width")
        source = writer.vector() if mac.unit is not None and mac.unit.mad is not None else writer.scalar()
    except UntranslatableError as error:
        has_unit = mac.unit is not None and mac.unit.mad is not None
        function = unit_function(mac.unit) if has_unit and mac.unit is not None else code_function(fmt, writer.name)
        assert function is not None
        if fmt.bits > TABLE_BITS or slots > 1 or stateful or has_unit:
            warn_of_slow(fmt, writer.name, function, error, "products on the GPU are computed on the CPU")
        return None
    return build(source, writer.translation, Flags(fmt, writer.name))


@lru_cache(maxsize=64)
def _table_function(fmt: UserFormat, name: str) -> Any:
    """A function that reads its results from a table: many sums side by side would repeat the user's code too often."""
    if name == "mad":
        rows = tables_of(fmt, True)
        scope = {"INDEX": rows.index.astype(np.int64).reshape(-1), "ROWS": rows.rows, "BITS": fmt.bits}
        return define("mad", "def mad(a, b, c):\n    return ROWS[INDEX[(a << BITS) | b] + c]\n", scope)
    scope = {"TABLE": operation_table(fmt, name).reshape(-1), "BITS": fmt.bits}
    return define(name, f"def {name}(a, b):\n    return TABLE[(a << BITS) | b]\n", scope)


class _Writer:
    """Writes the kernel of a unit."""

    def __init__(self, mac: MacUnit, fmt: UserFormat, slots: int, stateful: bool) -> None:
        self.mac, self.fmt, self.slots, self.stateful = mac, fmt, slots, stateful
        self.translation = Translation()
        self.name = "mad" if is_fused(mac) or mac.unit is not None else "mul"
        self._head = _HEAD.replace("ZERO", str(Sums.of(mac, fmt, 1).zero))
        self._tail = _TAIL.replace("TOP", str((1 << fmt.bits) - 1))
        if stateful:
            self._head += "    state = tl.load(states + place, mask=inside, other=0)\n"

    def scalar(self) -> str:
        """The text of a kernel of scalar functions, in any order."""
        text = self._head + "    for begin in range(0, depth, size):\n        end = tl.minimum(begin + size, depth)\n"
        text += "".join(
            f"        part{slot} = total * 0 + {Sums.of(self.mac, self.fmt, 1).zero}\n" for slot in range(self.slots)
        )
        text += f"        for k in range(begin, end, {self.slots}):\n"
        for slot in range(self.slots):
            text += self._load(slot, "end", 0 if self.slots > 1 else None, 3) + indented(self._step(slot), 3)
        text += indented(self._tree(), 2)
        joined = self._apply("add", [Text("total", "i"), Text("part0", "i")], "total", "begin + zeros > 0", "part0")
        return text + indented(joined, 2) + self._tail

    def vector(self) -> str:
        """The text of a kernel of a vector `mad`."""
        unit = self.mac.unit
        assert unit is not None
        text = self._head + f"    for k in range(0, depth, {unit.lanes}):\n"
        zero = Sums.of(self.mac, self.fmt, 1).zero
        for lane in range(unit.lanes):
            text += self._load(lane, "depth", zero, 2)
        lanes = [[Text(f"{side}{lane}", "i") for lane in range(unit.lanes)] for side in "xy"]
        states = [self._state()] * self.stateful
        start = len(self.translation.lines)
        result = self.translation.call(unit_function(unit), [*lanes, Text("total", "i"), *states])
        text += indented(self._store(result, "total", start), 2)
        return text + self._tail

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

    def _state(self) -> Text:
        return Text("state", "f" if isinstance(self.fmt.state, float) else "i")

    def _step(self, slot: int) -> list[str]:
        """A multiply-add, or the product alone in a tree; slots beyond the chunk's end stay as they are."""
        part, operands = Text(f"part{slot}", "i"), [Text(f"x{slot}", "i"), Text(f"y{slot}", "i")]
        guard = f"at{slot} < end" if self.slots > 1 else ""
        if self.mac.order == "pairwise":
            return self._apply("mul", operands, part.name, guard, part.name)
        if is_fused(self.mac):
            return self._apply("mad", [*operands, part], part.name, guard, part.name)
        product = self._apply("mul", operands, "product", guard, "zeros")
        return product + self._apply("add", [part, Text("product", "i")], part.name, guard, part.name)

    def _tree(self) -> list[str]:
        """The slots added as a tree of neighbours; those that the chunk does not reach pass their neighbour."""
        lines: list[str] = []
        width = 1
        while width < self.slots:
            for slot in range(0, self.slots - width, 2 * width):
                terms = [Text(f"part{slot}", "i"), Text(f"part{slot + width}", "i")]
                lines += self._apply(
                    "add", terms, f"part{slot}", f"end - begin + zeros > {slot + width}", f"part{slot}"
                )
            width *= 2
        return lines

    def _apply(self, name: str, operands: list[Text], target: str, guard: str = "", otherwise: str = "") -> list[str]:
        """Lines that assign a function's result to a name, where the guard holds."""
        is_tabled = self.slots > 1 and not self.stateful and self.fmt.bits <= TABLE_BITS
        function = _table_function(self.fmt, name) if is_tabled else code_function(self.fmt, name)
        assert function is not None
        states = [self._state()] * has_state(self.fmt, name)
        start = len(self.translation.lines)
        result: Any = self.translation.call(function, [*operands, *states])
        return self._store(
            result if states or not self.stateful else [result, self._state()], target, start, guard, otherwise
        )

    def _store(self, result: Any, target: str, start: int, guard: str = "", otherwise: str = "") -> list[str]:
        values = result if self.stateful else [result]
        code = self.translation.text(values[0], "i").name
        if self.stateful:
            state = self.translation.text(values[1], self._state().kind).name
        lines = self.translation.lines[start:]
        del self.translation.lines[start:]
        guarded = f"tl.where({guard}, {code}, {otherwise}) + zeros" if guard else f"{code} + zeros"
        lines.append(f"{target} = {guarded}")
        lines.append(f"bits = bits | {target}")
        if self.stateful:
            lines.append(f"state = tl.where({guard}, {state}, state)" if guard else f"state = {state} + zeros")
        return lines
