"""Execution of programs in plain torch: any device, any rounding, one dimension for each index variable."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import _get_current_dispatch_mode

from presilicon.base import ConfigError
from presilicon.programs.functions import MATHEMATICS
from presilicon.programs.program import REDUCTIONS, LoopInstruction, Program, ProgramInstruction, needed_by, needed_for
from presilicon.programs.reference import NOT_WHOLE, beyond, outside
from presilicon.programs.rounding import StepRounding
from presilicon.programs.stages import ProgramStage, extents_of, stages_of, unproven_reads

LARGEST = 1 << 24
"""The most elements of an intermediate tensor; larger ones are computed in parts."""


def run_torch(
    program: Program, operands: Mapping[str, Tensor], sizes: Mapping[str, int], rounding: StepRounding | None = None
) -> list[Tensor]:
    """The results of a program, in the type of the operands: float32 arithmetic, or float64.

    With a rounding, operands, constants and results are each rounded once. No gradient is recorded.

    Raises:
        ConfigError: an index lies outside of its operand.
    """
    with torch.no_grad():
        return _Run(program, operands, sizes, rounding).results()


class _Run:
    def __init__(
        self, program: Program, operands: Mapping[str, Tensor], sizes: Mapping[str, int], rounding: StepRounding | None
    ) -> None:
        self.program, self.sizes, self.rounding = program, sizes, rounding
        first = next(iter(operands.values()))
        self.dtype, self.device = first.dtype, first.device
        self.working = first.dtype
        if rounding is not None:
            self.working = torch.float32 if rounding.is_narrow else torch.float64
        self.operands = {name: tensor.to(self.working) for name, tensor in operands.items()}
        self.extents = extents_of(program, sizes)
        self.unproven = unproven_reads(program, sizes, {name: tuple(t.shape) for name, t in operands.items()})
        self.axes = [position for position, step in enumerate(program.instructions) if step.operation == "axis"]
        self.places = {axis: place for place, axis in enumerate(self.axes)}
        self.parts: dict[int, tuple[int, int]] = {}
        """First and last value of the index variables that run in parts."""
        self.stored: dict[int, Tensor] = {}

    def results(self) -> list[Tensor]:
        results = []
        for stage in stages_of(self.program):
            out = self.stage(stage)
            if stage.result is None:
                self.stored[stage.value] = out
            else:
                results.append(out.to(self.dtype))
        return results

    def stage(self, stage: ProgramStage) -> Tensor:
        """A stored reduction in the dimensions of its variables, or a result in its own."""
        result = stage.result
        is_added = result is not None and result.indices is not None
        if is_added:
            assert result is not None
            total = torch.zeros_like(self.operands[result.target])
        chunks = []
        for values in self.chunks(stage):
            value = values(stage.value)
            if is_added:
                assert result is not None
                self.add(total, result, value, values)
                continue
            shape = [1] * len(self.axes)
            for axis in stage.axes:
                shape[self.places[axis]] = self.span(axis)
            value = value.expand(shape)
            if result is not None:
                order = [self.places[axis] for axis in stage.axes]
                value = value.permute([*order, *(place for place in range(len(shape)) if place not in order)])
                value = value.reshape([self.span(axis) for axis in stage.axes])
            chunks.append(value)
        self.parts = {}
        if is_added:
            return total
        dimension = 0 if result is not None or not stage.axes else self.places[stage.axes[0]]
        whole = chunks[0] if len(chunks) == 1 else torch.cat(chunks, dimension)
        return _fresh(whole, self.operands.values()) if result is not None else whole

    def chunks(self, stage: ProgramStage) -> Any:
        """Functions that compute values, for as many parts of the stage's first axis as are needed."""
        largest = 1
        for position in needed_by(self.program.instructions, [stage.value], self.stored.__contains__):
            size = 1
            free = self.program.free[position]
            step = self.program.instructions[position]
            for axis in free if step.operation not in REDUCTIONS else free | {step.arguments[1]}:
                size *= max(1, self.extents[axis])
            largest = max(largest, size)
        count = min(-(-largest // LARGEST), self.extents[stage.axes[0]]) if stage.axes and largest > LARGEST else 1
        length = self.extents[stage.axes[0]] if stage.axes else 1
        step_length = -(-length // max(count, 1)) if length else 1
        for start in range(0, max(length, 1), step_length):
            if count > 1:
                self.parts = {stage.axes[0]: (start, min(length, start + step_length))}
            known: dict[int, Tensor] = {}
            yield lambda register, known=known: self.value(register, known)

    def span(self, axis: int) -> int:
        start, stop = self.parts.get(axis, (0, self.extents[axis]))
        return stop - start

    def add(self, total: Tensor, result: Any, value: Tensor, values: Callable[[int], Tensor]) -> None:
        """Add values to the elements of a gradient that their indices name."""
        indices = [values(register) for register in result.indices]
        condition = None if result.condition is None else values(result.condition)
        tensors: Any = torch.broadcast_tensors(  # type: ignore[no-untyped-call]
            value, *indices, *(() if condition is None else (condition,))
        )
        flat = torch.zeros_like(tensors[1]) if indices else torch.zeros_like(tensors[0], dtype=torch.int64)
        for index, size in zip(tensors[1 : 1 + len(indices)], total.shape, strict=True):
            flat = flat * size + index
        value = tensors[0]
        if condition is not None:
            value, flat = value.masked_fill(~tensors[-1], 0.0), flat.masked_fill(~tensors[-1], 0)
        total.view(-1).index_put_((flat.reshape(-1),), value.reshape(-1).to(total.dtype), accumulate=True)

    def value(self, register: int, known: dict[int, Tensor]) -> Tensor:
        for position in needed_for(self.program, register):
            if position not in known:
                known[position] = self.compute(position, known)
        return known[register]

    def compute(self, position: int, known: dict[int, Tensor]) -> Tensor:
        instruction = self.program.instructions[position]
        if position in self.stored:
            return self.part_of(self.stored[position])
        result = self.raw(instruction, position, known)
        if instruction.operation == "read" and instruction.value:
            result = result.to(torch.int64)
        is_number = self.program.kinds[position] == "number" and instruction.operation not in ("locate", *REDUCTIONS)
        return self.rounding.tensor(result) if self.rounding is not None and is_number else result

    def part_of(self, tensor: Tensor) -> Tensor:
        for axis, (start, stop) in self.parts.items():
            if tensor.shape[self.places[axis]] > 1:
                tensor = tensor.narrow(self.places[axis], start, stop - start)
        return tensor

    def raw(self, instruction: ProgramInstruction, position: int, known: dict[int, Tensor]) -> Tensor:
        match instruction.operation:
            case "axis":
                start, stop = self.parts.get(position, (0, self.extents[position]))
                shape = [1] * len(self.axes)
                shape[self.places[position]] = stop - start
                return torch.arange(start, stop, device=self.device).view(shape)
            case "size":
                return self.scalar(self.sizes[instruction.name], torch.int64)
            case "integer":
                return self.scalar(int(instruction.value), torch.int64)
            case "truth":
                return self.scalar(bool(instruction.value), torch.bool)
            case "constant":
                # A tensor, because on a GPU torch divides by a Python number through its reciprocal.
                return self.scalar(instruction.value, self.working)
            case "read":
                return self.read(instruction, position, known)
            case "number":
                return known[instruction.arguments[0]].to(self.working)
            case operation if operation in REDUCTIONS:
                return self.reduce(instruction, known)
        result: Tensor = self.operation(instruction, [known[argument] for argument in instruction.arguments])
        return result

    def loop(self, loop: LoopInstruction, arguments: Sequence[Tensor]) -> Any:
        """The values that a loop carries after its last round; elements that have left it wait for the others."""
        going, *values = torch.broadcast_tensors(*arguments)  # type: ignore[no-untyped-call]
        rounds = loop.rounds
        assert rounds is not None
        while bool(going.any()):
            known: list[Any] = []
            for position, step in enumerate(rounds.instructions):
                match step.operation:
                    case "carry":
                        result = values[int(step.name)]
                    case "size" | "axis":
                        result = None
                    case "integer" | "truth" | "constant" | "number":
                        result = self.raw(step, position, dict(enumerate(known)))
                    case _:
                        result = self.operation(step, [known[argument] for argument in step.arguments])
                is_number = rounds.kinds[position] == "number" and step.operation != "locate" and result is not None
                known.append(self.rounding.tensor(result) if self.rounding is not None and is_number else result)
            going = going & known[rounds.outputs[0]]
            carried = [known[output] for output in rounds.outputs[1:]]
            values[: len(carried)] = [torch.where(going, new, old) for new, old in zip(carried, values, strict=False)]
        return values

    def operation(self, step: ProgramInstruction, arguments: Sequence[Any]) -> Any:
        """One operation, or a whole loop, whose result is all that it carries."""
        if isinstance(step, LoopInstruction):
            return self.loop(step, arguments)
        return arguments[0][int(step.name)] if step.operation == "item" else _apply(step, arguments, self.working)

    def scalar(self, value: Any, dtype: torch.dtype) -> Tensor:
        return torch.full([1] * len(self.axes), value, dtype=dtype, device=self.device)

    def read(self, instruction: ProgramInstruction, position: int, known: dict[int, Tensor]) -> Tensor:
        tensor = self.operands[instruction.name]
        condition, *indices = instruction.arguments
        is_plain = self.program.instructions[condition].operation == "truth" and position not in self.unproven
        variables = [self.places.get(index) for index in indices]
        if is_plain and None not in variables and len(set(variables)) == len(variables):
            for place, index in enumerate(indices):
                if index in self.parts:
                    start, stop = self.parts[index]
                    tensor = tensor.narrow(place, start, stop - start)
                else:
                    tensor = tensor.narrow(place, 0, self.extents[index])
            order = sorted(range(len(variables)), key=lambda place: variables[place] or 0)
            shape = [1] * len(self.axes)
            for place in order:
                shape[variables[place] or 0] = tensor.shape[place]
            return tensor.permute(order).reshape(shape)
        test, places = known[condition], [known[index] for index in indices]
        if position in self.unproven:
            inside = self.scalar(True, torch.bool)
            for at, size in zip(places, tensor.shape, strict=True):
                inside = inside & (at >= 0) & (at < size)
            if not tensor.is_meta and bool((test & ~inside).any()):
                raise ConfigError(outside(instruction, tensor.shape))
        flat = self.scalar(0, torch.int64)
        for at, size in zip(places, tensor.shape, strict=True):
            flat = flat * size + at.clamp(0, max(size - 1, 0))
        if tensor.numel() == 0:
            return (flat + test).to(self.working) * 0
        return torch.where(test, tensor.reshape(-1)[flat], torch.zeros((), dtype=self.working, device=self.device))

    def reduce(self, instruction: ProgramInstruction, known: dict[int, Tensor]) -> Tensor:
        body, axis = instruction.arguments
        # Values that do not depend on the variable are those outside; the rest are computed with its dimension.
        values = self.value(body, known)
        place, extent = self.places[axis], self.extents[axis]
        values = values.expand([extent if number == place else size for number, size in enumerate(values.shape)])
        if extent == 0:
            shape = [1 if number == place else size for number, size in enumerate(values.shape)]
            dtype = torch.int64 if instruction.operation.startswith("arg") else values.dtype
            return torch.full(shape, REDUCTIONS[instruction.operation], dtype=dtype, device=self.device)
        match instruction.operation:
            case "sum" | "prod" if self.rounding is not None and values.is_floating_point():
                total = torch.full_like(values.narrow(place, 0, 1), REDUCTIONS[instruction.operation])
                for number in range(extent):
                    term = values.narrow(place, number, 1)
                    total = self.rounding.tensor(total + term if instruction.operation == "sum" else total * term)
                return total
            case "sum":
                return values.sum(place, keepdim=True)
            case "prod":
                return values.prod(place, keepdim=True)
        return _extreme(values, place, instruction)


def _extreme(values: Tensor, place: int, instruction: ProgramInstruction) -> Tensor:
    """The greatest or least value along a dimension, or the index of the first one that is."""
    is_largest = instruction.operation in ("greatest", "argmax")
    numbers = values
    if values.is_floating_point():
        numbers = values.masked_fill(values.isnan(), -torch.inf if is_largest else torch.inf)
    extreme = numbers.amax(place, True) if is_largest else numbers.amin(place, True)
    first = values.narrow(place, 0, 1)
    is_index = instruction.operation.startswith("arg")
    if is_index:
        # The first of equal ones, which torch's own argmax does not promise.
        result = (numbers == extreme).to(torch.uint8).argmax(place, keepdim=True)
    else:
        result = extreme
    if instruction.value or not values.is_floating_point():
        return result
    return torch.where(first.isnan(), torch.zeros_like(result) if is_index else first, result)


def _fresh(value: Tensor, inputs: Any) -> Tensor:
    """A result with memory of its own."""
    value = value.contiguous()
    if value.is_meta or value._is_view() or any(value.data_ptr() == tensor.data_ptr() for tensor in inputs):
        return value.clone()  # autograd lets no view leave an op
    return value


def _apply(instruction: ProgramInstruction, arguments: Sequence[Tensor], dtype: torch.dtype) -> Tensor:
    if instruction.operation in ("lookup", "locate"):
        table = torch.tensor(instruction.table, dtype=torch.float64, device=arguments[0].device).to(dtype)
        if instruction.operation == "locate":
            counted = torch.bucketize(arguments[0].contiguous(), table, right=True).to(dtype)
            return counted.masked_fill(arguments[0].isnan(), 0.0)
        # Clamped before it is truncated, so that a NaN becomes the first entry.
        index = arguments[0].nan_to_num(0.0).clamp(0, len(table) - 1).to(torch.int64)
        return table[index]
    if instruction.operation == "element":
        return _element(instruction, *arguments)
    result: Tensor = _RULES[instruction.operation](*arguments)
    return result


def _element(instruction: ProgramInstruction, condition: Tensor, index: Tensor) -> Tensor:
    """Entries of a table by their index, as Python has it."""
    size = len(instruction.table)
    if bool((condition & ((index < -size) | (index >= size))).any()):
        raise ConfigError(beyond(instruction))
    dtype = torch.int64 if instruction.value else torch.float64
    table = torch.tensor(instruction.table, dtype=dtype, device=index.device)
    return table[torch.where(index < 0, index + size, index).clamp(0, size - 1)]


def _parts(a: Tensor) -> tuple[Tensor, Tensor]:
    fraction, exponent = torch.frexp(a)
    return fraction, exponent.to(torch.int64)


def _scaled(a: Tensor, exponent: Tensor) -> Tensor:
    """In float64, where a product with a power of two is exact unless it leaves the range."""
    n = exponent.double().clamp(-2200, 2200)
    near = n.clamp(-1000, 1000)
    far = (n - near).clamp(-1000, 1000)
    result = a.double() * torch.exp2(near) * torch.exp2(far) * torch.exp2(n - near - far)
    return result.to(a.dtype)


def _whole(a: Tensor) -> Tensor:
    return (
        a
        if not a.is_floating_point()
        else torch.where(a.abs() < -NOT_WHOLE, a, 0.0).to(torch.int64).masked_fill(~(a.abs() < -NOT_WHOLE), NOT_WHOLE)
    )


def _divide_down(a: Tensor, b: Tensor) -> Tensor:
    if a.is_floating_point():
        return torch.div(a, b, rounding_mode="floor")
    return torch.where(b == 0, 0, torch.div(a, torch.where(b == 0, 1, b), rounding_mode="floor"))


def _remainder(a: Tensor, b: Tensor) -> Tensor:
    if a.is_floating_point():
        return torch.remainder(a, b)
    return torch.where(b == 0, 0, torch.remainder(a, torch.where(b == 0, 1, b)))


def _square_root(a: Tensor) -> Tensor:
    """The correctly rounded square root: on the CPU torch's is sometimes off by one ulp, numpy's is not."""
    if a.device.type != "cpu" or _get_current_dispatch_mode() is not None:
        return torch.sqrt(a)
    with np.errstate(invalid="ignore"):
        return torch.from_numpy(np.asarray(np.sqrt(a.numpy())))


_RULES: dict[str, Callable[..., Any]] = {
    **{name: getattr(torch, name) for name in ("add", "sub", "mul", "div", "neg", "abs", "lt", "le", "eq", "ne")},
    **{name: getattr(torch, name) for name in MATHEMATICS},
    "min": lambda a, b: torch.where(b < a, b, a),
    "max": lambda a, b: torch.where(b > a, b, a),
    "floor": lambda a: torch.floor(a) + 0.0,  # -0 becomes 0
    "sqrt": _square_root,
    "select": torch.where,
    "and": torch.logical_and,
    "or": torch.logical_or,
    "not": torch.logical_not,
    "ldexp": _scaled,
    "fraction": lambda a: _parts(a)[0],
    "exponent": lambda a: torch.where(a.isfinite(), _parts(a)[1], 0),
    "copysign": torch.copysign,
    "narrow": lambda a: a.float().to(a.dtype),
    "bitand": torch.bitwise_and,
    "bitor": torch.bitwise_or,
    "bitxor": torch.bitwise_xor,
    "shl": lambda a, b: torch.bitwise_left_shift(a, b & 63),
    "shr": lambda a, b: torch.bitwise_right_shift(a, b & 63),
    "whole": _whole,
    "floordiv": _divide_down,
    "mod": _remainder,
}
