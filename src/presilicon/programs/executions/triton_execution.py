"""Execution of programs on a GPU: a Triton kernel for each stage.

A kernel's program computes a block of elements. Reductions of the elements run over chunks of their variable, so that
neighbouring threads read neighbouring numbers; reductions inside of these run round by round.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import prod
from typing import Any

import torch
from torch import Tensor

from presilicon.base import ConfigError
from presilicon.programs.executions.files import module_of
from presilicon.programs.executions.numba_execution import CodeBlock, LoopWriter
from presilicon.programs.functions import MATH_FUNCTIONS
from presilicon.programs.program import REDUCTIONS, LoopInstruction, Program, ProgramInstruction
from presilicon.programs.reference import outside
from presilicon.programs.stages import ProgramStage, extents_of, stages_of, unproven_reads

MOST_INSTRUCTIONS = 600
"""Programs that are longer than this take Triton minutes to compile."""
ELEMENTS, ROWS, CHUNK = 1024, 8, 128
"""Elements of a program without reductions; elements and chunk of one with them."""


def run_triton(program: Program, operands: Mapping[str, Tensor], sizes: Mapping[str, int]) -> list[Tensor]:
    """The results of a program on float32 or float64 tensors on a GPU, in their own type.

    Raises:
        ConfigError: an index lies outside of its operand.
    """
    import triton

    if len(program.instructions) > MOST_INSTRUCTIONS:
        raise NotImplementedError(f"{len(program.instructions)} instructions")
    tensors = {name: tensor.detach().contiguous() for name, tensor in operands.items()}
    first = next(iter(tensors.values()))
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    extents, unproven = extents_of(program, sizes), unproven_reads(program, sizes, shapes)
    flags = torch.zeros(1, dtype=torch.int32, device=first.device) if unproven else first
    stored: dict[int, Tensor] = {}
    results = []
    for stage, kernel, writer in _kernels(program, unproven, first.dtype):
        shape = [extents[axis] for axis in stage.axes]
        dtype = torch.int64 if program.kinds[stage.value] == "integer" else first.dtype
        if stage.result is None or stage.result.indices is None:
            out = torch.empty(shape, dtype=dtype, device=first.device)
        else:
            out = torch.zeros_like(tensors[stage.result.target])
        total = prod(shape)
        if total:
            block = ROWS if writer.reduces else ELEMENTS
            arguments: list[Any] = [
                *(tensors[name] for name in writer.operands),
                *(stored[value] for value in writer.stored),
            ]
            arguments += [
                _table(step.table, type_of_table(step, first.dtype), first.device) for step in writer.tables.values()
            ]
            arguments += [out, flags, total, *(extents[axis] for axis in writer.extents)]
            arguments += [sizes[name] for name in writer.sizes]
            arguments += [shapes[name][axis] for name, axis in writer.lengths]
            # Products and sums stay apart, so that results are those of the reference.
            kernel[(triton.cdiv(total, block),)](*arguments, BLOCK=block, CHUNK=CHUNK, enable_fp_fusion=False)
        if stage.result is None:
            stored[stage.value] = out
        else:
            results.append(out)
    if unproven and int(flags):
        read = program.instructions[int(flags) - 1]
        raise ConfigError(outside(read, shapes[read.name]))
    return results


@lru_cache(maxsize=512)
def _kernels(
    program: Program, unproven: frozenset[int], dtype: torch.dtype
) -> tuple[tuple[ProgramStage, Any, "KernelWriter"], ...]:
    stages = stages_of(program)
    stored = {stage.value for stage in stages if stage.result is None}
    kernels = []
    for stage in stages:
        writer = KernelWriter(program, stage, stored - {stage.value}, unproven, str(dtype).removeprefix("torch."))
        kernels.append((stage, module_of(writer.text(), "kernel").kernel, writer))
    return tuple(kernels)


def type_of_table(table: ProgramInstruction, dtype: torch.dtype) -> torch.dtype:
    return torch.int64 if table.operation == "element" and table.value else dtype


@lru_cache(maxsize=256)
def _table(table: tuple[float, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    wide = torch.int64 if dtype == torch.int64 else torch.float64
    return torch.tensor(table, dtype=wide).to(device=device, dtype=dtype)


class KernelWriter(LoopWriter):
    """Writes the kernel of a stage."""

    def __init__(
        self, program: Program, stage: ProgramStage, stored: set[int], unproven: frozenset[int], number: str
    ) -> None:
        super().__init__(program, stage, stored, unproven, number)
        self.tables: dict[str, ProgramInstruction] = {}
        self.lengths: dict[tuple[str, int], None] = {}
        self.reduces = False
        self.shape = "nothing"
        """A whole number 0 for each element of a block, as text."""
        self._round_shape = self.shape
        self._flat: set[int] = set(stage.axes)
        """Values of the outermost block that have a number for each element."""

    def text(self) -> str:
        """A Python file with the kernel."""
        top, stage = self._top, self._stage
        top.lines += [
            "element = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)",
            "inside = element < total",
        ]
        top.lines += ["nothing = element * 0", "rest = element"]
        for axis in reversed(stage.axes):
            self.extents[axis] = None
            if axis == stage.axes[0]:
                top.lines.append(f"i{axis} = rest")
            else:
                top.lines += [f"i{axis} = rest % n{axis}", f"rest = rest // n{axis}"]
        result = stage.result
        value = self._value(stage.value, [top])
        where = "inside"
        if result is None or result.indices is None:
            top.lines.append(f"tl.store(out + element, {value}, mask=inside)")
        else:
            indices = [self._value(index, [top]) for index in result.indices]
            if result.condition is not None:
                where = f"inside & {self._value(result.condition, [top])}"
            place = self._offset(result.target, indices) if indices else "0"
            top.lines.append(f"tl.atomic_add(out + ({place} + nothing), {value}, mask={where})")
        names = [*(f"a_{name}" for name in self.operands), *(f"t{value}" for value in self.stored)]
        names += [*self.tables, "out", "flags", "total"]
        names += [*(f"n{axis}" for axis in self.extents), *(f"s_{name}" for name in self.sizes)]
        names += [*(f"d_{name}_{axis}" for name, axis in self.lengths), "BLOCK: tl.constexpr", "CHUNK: tl.constexpr"]
        head = ["import triton", "import triton.language as tl"]
        head += ["from presilicon.programs.executions.triton_functions import *", "", ""]
        constants = [f"    T: tl.constexpr = tl.{self._number}"]
        constants += [f"    {name} = tl.full((), {number}, T)" for name, number in self._globals.items()]
        return "\n".join([*head, "@triton.jit", f"def kernel({', '.join(names)}):", *constants, *top.text(1), ""])

    def _define(self, register: int, stack: Sequence[CodeBlock]) -> None:
        super()._define(register, stack)
        if register not in self._flat and self._is_flat(register):
            self._flat.add(register)

    def _is_flat(self, register: int) -> bool:
        instruction = self._program.instructions[register]
        if instruction.operation in ("read", *REDUCTIONS) or register in self._all_stored:
            return True
        return instruction.operation != "axis" and any(at in self._flat for at in instruction.arguments)

    def _name(self, register: int) -> str:
        instruction = self._program.instructions[register]
        match instruction.operation:
            case "truth":
                return f"tl.full((), {int(instruction.value)}, tl.int1)"
            case "constant":
                value = repr(float(instruction.value))
                is_plain = value not in ("inf", "-inf", "nan")
                self._globals[f"{self._prefix}c{register}"] = value if is_plain else f'float("{value}")'
                return f"{self._prefix}c{register}"
        name = super()._name(register)
        is_outer = register in self._flat and (instruction.operation == "axis" or register in self._top.defined)
        return f"{name}[:, None]" if self._wide and is_outer else name

    @property
    def _wide(self) -> bool:
        return bool(self._here and len(self._here) > 1)

    _here: Sequence[CodeBlock] = ()

    def _expression(self, register: int, instruction: ProgramInstruction, here: Sequence[CodeBlock]) -> str:
        self._here = here
        arguments = [self._name(argument) for argument in instruction.arguments]
        match instruction.operation:
            case "read":
                return self._read_element(register, instruction, arguments, here)
            case "lookup":
                return f"look_up({self._table(register, instruction)}, {arguments[0]}, {len(instruction.table) - 1})"
            case "locate":
                return f"locate({self._table(register, instruction)}, {arguments[0]}, {len(instruction.table)})"
            case "element":
                kind = "tl.int64" if instruction.value else "T"
                table = self._table(register, instruction)
                return f"element({table}, {arguments[1]}, {arguments[0]}, {len(instruction.table)}, {kind})"
            case "item":
                return f"{self._prefix}l{instruction.arguments[0]}_{instruction.name}"
            case "floordiv" | "mod" if self._program.kinds[register] == "number":
                name = "divide_down" if instruction.operation == "floordiv" else "remainder"
                return f"{name}({arguments[0]}, {arguments[1]}, T)"
            case name if name in MATH_FUNCTIONS:
                return MATH_FUNCTIONS[name].triton.format(*arguments)
        return _TEXTS[instruction.operation].format(*arguments)

    def _table(self, register: int, instruction: ProgramInstruction) -> str:
        name = f"{self._prefix}table{register}"
        self.tables[name] = instruction
        return name

    def _inner(self, rounds: Program) -> LoopWriter:
        writer = KernelWriter(rounds, ProgramStage((), rounds.outputs[0]), set(), frozenset(), self._number)
        writer.tables, writer.shape = self.tables, self._round_shape
        return writer

    def _repeat(self, register: int, loop: LoopInstruction, here: Sequence[CodeBlock]) -> None:
        """A loop of the program, which ends when it has ended for every element of the block."""
        self._here = here
        condition, *arguments = [self._name(argument) for argument in loop.arguments]
        shape = f"({self.shape}[:, None] + {' + '.join(f'i{block.axis} * 0' for block in here[1:2])})"
        shape = shape if self._wide else self.shape
        going = f"{self._prefix}g{register}"
        names = [f"{self._prefix}l{register}_{place}" for place in range(loop.carried)]
        block, repeat = here[-1], CodeBlock(None, f"while tl.max({going}.to(tl.int32)) > 0:")
        block.lines.append(f"{going} = {condition} & ({shape} == 0)")
        block.lines += [
            f"{name} = tl.where({shape} == 0, {start}, {start})" for name, start in zip(names, arguments, strict=False)
        ]
        self._round_shape = shape
        goes_on, carried = self._round(register, loop, [*names, *arguments[len(names) :]], repeat)
        values = carried()
        repeat.lines.append(f"{going} = {going} & {goes_on}")
        repeat.lines += [
            f"{name}n = tl.where({going}, {value}, {name})" for name, value in zip(names, values, strict=True)
        ]
        repeat.lines += [f"{name} = {name}n" for name in names]
        block.lines.append(repeat)

    def _offset(self, name: str, indices: Sequence[str]) -> str:
        offset = indices[0]
        for axis, index in enumerate(indices[1:], 1):
            self.lengths[name, axis] = None
            offset = f"({offset}) * d_{name}_{axis} + {index}"
        return offset

    def _read_element(
        self, register: int, instruction: ProgramInstruction, arguments: list[str], here: Sequence[CodeBlock]
    ) -> str:
        name = instruction.name
        self.operands[name] = None
        condition, *indices = arguments
        suffix = "[:, None]" if self._wide else ""
        masks = [f"inside{suffix}", condition]
        for block in here[1:2]:
            masks.append(f"m{block.axis}")
        if register in self._unproven:
            tests = []
            for axis, index in enumerate(indices):
                self.lengths[name, axis] = None
                tests.append(f"({index} >= 0) & ({index} < d_{name}_{axis})")
            valid = " & ".join(tests) or "True"
            here[-1].lines += [
                f"ok{register} = ({valid}) & (nothing{suffix} == 0)",
                f"tl.store(flags + nothing{suffix} + tl.zeros_like(ok{register}).to(tl.int32), {register + 1}, "
                f"mask={' & '.join(masks)} & (ok{register} == 0))",
            ]
            masks.append(f"ok{register}")
        offset = self._offset(name, indices) if indices else "0"
        cast = ".to(tl.int64)" if instruction.value else ""
        return f"tl.load(a_{name} + (({offset}) + nothing{suffix}), mask={' & '.join(masks)}, other=0.0){cast}"

    def _load(self, register: int, here: Sequence[CodeBlock]) -> str:
        self._here = here
        axes = sorted(self._program.free[register])
        offset = "0"
        for axis in axes:
            self.extents[axis] = None
            offset = f"({offset}) * n{axis} + {self._name(axis)}"
        suffix = "[:, None]" if self._wide else ""
        masks = [f"inside{suffix}", *(f"m{block.axis}" for block in here[1:2])]
        return f"tl.load(t{register} + (({offset}) + nothing{suffix}), mask={' & '.join(masks)}, other=0)"

    def _reduce(self, register: int, instruction: ProgramInstruction, here: Sequence[CodeBlock]) -> None:
        body, axis = instruction.arguments
        self.extents[axis] = None
        block = here[-1]
        is_chunked = len(here) == 1
        self.reduces = True
        operation = instruction.operation
        shape = "(BLOCK,)" if is_chunked else "(BLOCK, CHUNK)"
        kind = "tl.int64" if self._program.kinds[body] == "integer" else "T"
        neutral = {"sum": "0", "prod": "1", "greatest": 'float("-inf")', "argmax": 'float("-inf")'}.get(
            operation, 'float("inf")'
        )
        name = f"v{register}" if not operation.startswith("arg") else f"b{register}"
        block.lines.append(f"{name} = tl.full({shape}, {neutral}, {kind})")
        if operation.startswith("arg"):
            block.lines.append(f"v{register} = tl.full({shape}, 0, tl.int64)")
        if is_chunked:
            loop = CodeBlock(axis, f"for k{axis} in range(0, n{axis}, CHUNK):")
            loop.lines.append(f"i{axis} = (k{axis} + tl.arange(0, CHUNK))[None, :]")
            loop.lines.append(f"m{axis} = (i{axis} < n{axis}) & inside[:, None]")
        else:
            loop = CodeBlock(axis, f"for i{axis} in range(n{axis}):")
        value = self._value(body, [*here, loop])
        self._here = [*here, loop]
        value = self._name(body)
        sign = ">" if operation in ("greatest", "argmax") else "<"
        counts_first = not instruction.value and kind == "T" and operation not in ("sum", "prod")
        if is_chunked:
            valid = f"m{axis}" if operation in ("sum", "prod") else f"m{axis} & ({value} == {value})"
            loop.lines.append(f"w{register} = tl.where({valid}, {value}, tl.full((), {neutral}, {kind}))")
            self._chunk(loop, operation, register, axis, sign)
            if counts_first:
                block.lines.append(f"f{register} = tl.full((BLOCK,), 0, tl.int32)")
                is_nan = f"(i{axis} == 0) & m{axis} & ({value} != {value})"
                loop.lines.append(f"f{register} = f{register} | tl.max(({is_nan}).to(tl.int32), 1)")
        elif operation in ("sum", "prod"):
            loop.lines.append(f"{name} = {name} {'+' if operation == 'sum' else '*'} {value}")
        else:
            is_first = "" if instruction.value else f" | (i{axis} == 0)"
            loop.lines.append(f"better{register} = ({value} {sign} {name}){is_first}")
            if operation.startswith("arg"):
                loop.lines.append(f"v{register} = tl.where(better{register}, i{axis}, v{register})")
            loop.lines.append(f"{name} = tl.where(better{register}, {value}, {name})")
        block.lines.append(loop)
        if is_chunked and counts_first:
            first = "0" if operation.startswith("arg") else 'float("nan")'
            block.lines.append(f"v{register} = tl.where(f{register} > 0, {first}, v{register})")
        self._here = here

    def _chunk(self, loop: CodeBlock, operation: str, register: int, axis: int, sign: str) -> None:
        """Add a chunk to a reduction."""
        if operation == "sum":
            loop.lines.append(f"v{register} = v{register} + tl.sum(w{register}, 1)")
        elif operation == "prod":
            loop.lines.append(f"v{register} = v{register} * tl.reduce(w{register}, 1, multiply)")
        elif operation in ("greatest", "least"):
            both = "max" if operation == "greatest" else "min"
            loop.lines.append(f"x{register} = tl.{both}(w{register}, 1)")
            loop.lines.append(f"v{register} = tl.where(x{register} {sign} v{register}, x{register}, v{register})")
        else:
            both = "max" if operation == "argmax" else "min"
            loop.lines.append(f"x{register} = tl.{both}(w{register}, 1)")
            loop.lines.append(f"p{register} = tl.arg{both}(w{register}, 1) + k{axis}")
            loop.lines.append(f"better{register} = (x{register} {sign} b{register}) | (k{axis} == 0)")
            loop.lines.append(f"v{register} = tl.where(better{register}, p{register}.to(tl.int64), v{register})")
            loop.lines.append(f"b{register} = tl.where(better{register}, x{register}, b{register})")


_TEXTS: dict[str, str] = {
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "div": "divide({0}, {1}, T)",
    "neg": "-({0})",
    "abs": "tl.abs({0})",
    "min": "tl.where({1} < {0}, {1}, {0})",
    "max": "tl.where({1} > {0}, {1}, {0})",
    "floor": "tl.floor({0}) + 0.0",
    "sqrt": "root({0}, T)",
    "ldexp": "scale({0}, {1}, T)",
    "fraction": "fraction({0}, T)",
    "exponent": "exponent({0})",
    "copysign": "copysign({0}, {1})",
    "narrow": "({0}).to(tl.float32).to(T)",
    "bitand": "({0} & {1})",
    "bitor": "({0} | {1})",
    "bitxor": "({0} ^ {1})",
    "shl": "({0} << {1})",
    "shr": "({0} >> {1})",
    "select": "tl.where({0}, {1}, {2})",
    "lt": "({0} < {1})",
    "le": "({0} <= {1})",
    "eq": "({0} == {1})",
    "ne": "({0} != {1})",
    "and": "({0} & {1})",
    "or": "({0} | {1})",
    "not": "({0} == 0)",
    "number": "({0} + tl.zeros((), tl.int32)).to(T)",
    "whole": "whole({0})",
    "floordiv": "floordiv({0}, {1})",
    "mod": "modulo({0}, {1})",
}
