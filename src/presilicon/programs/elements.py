"""Elements of operands, entries of tables and of tuples."""

import ast
from collections.abc import Sequence
from typing import Any

from presilicon.programs.expressions import Expressions, LocalTuple, OperandTensor, Scope, Value
from presilicon.programs.program import ProgramInstruction


class Elements(Expressions):
    """Compiles what a function reads by index."""

    def read(self, node: ast.AST, tensor: OperandTensor, indices: Sequence[ast.expr], scope: Scope) -> int:
        """An element of an operand."""
        leading = [axis for axis in tensor.axes if axis.name == "_"]
        given = list(indices)
        if leading and (not given or (isinstance(given[0], ast.Constant) and given[0].value is ...)):
            given = given[1:]
        elif leading:
            raise self.source.error(node, f"{tensor.name} without its leading axes", f"{tensor.name}[..., i]")
        if len(given) != len(tensor.axes) - len(leading):
            what = f"{tensor.name} has {len(tensor.axes)} axes, but {len(indices)} indices"
            raise self.source.error(node, what, tensor.spelled)
        builder = self.builder
        registers = [self.index(index, scope) for index in given]
        if leading:
            registers.insert(0, builder.axis("_", builder.size("_")))
        for path in (*builder.paths, builder.path):  # a read that has been made on the way here is not made again
            read = ProgramInstruction("read", (path, *registers), name=tensor.name)
            if path == builder.path or builder.has(read):
                line = getattr(node, "lineno", self.source.tree.lineno)
                return builder.emit("read", path, *registers, name=tensor.name, line=line)
        raise AssertionError("the present path is the last one")

    def subscript(self, node: ast.Subscript, scope: Scope) -> Value:
        """An element of an operand, an entry of a table, or of a tuple."""
        indices = list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]
        target: ast.expr = node.value
        while isinstance(target, ast.Subscript):
            indices = [*(target.slice.elts if isinstance(target.slice, ast.Tuple) else [target.slice]), *indices]
            target = target.value
        match target:
            case ast.Name(name):
                owner = self.known(node, name, scope)
            case ast.Attribute():
                owner = self.static(target, scope)
            case _:
                owner = self.value(target, scope)
        name = ast.unparse(target)
        if isinstance(owner, OperandTensor):
            return self.read(node, owner, indices, scope)
        if isinstance(owner, int | float):
            raise self.source.error(node, f'an index of "{name}", which is a number', "operands, tables and tuples")
        registers = [self.plain(index, scope) for index in indices]
        while isinstance(owner, LocalTuple) and registers:
            owner = self.item(node, name, owner, registers.pop(0))
        if isinstance(owner, LocalTuple) or (isinstance(owner, int) and not registers):
            return owner
        if isinstance(owner, int):
            raise self.source.error(node, f'too many indices of "{name}"', "one index for each tuple")
        return self.look_up(node, name, owner, registers)

    def item(self, node: ast.AST, name: str, items: LocalTuple, index: int) -> Value:
        """An entry of a tuple."""
        builder, known = self.builder, self.builder.instructions[index]
        if known.operation == "integer":
            if not -len(items) <= known.value < len(items):
                what = f'"{name}" has no entry {int(known.value)}'
                raise self.source.error(node, what, f"0 to {len(items) - 1}")
            entry: Value = items[int(known.value)]
            return entry
        steps = [builder.instructions[item] for item in items if isinstance(item, int)]
        if len(steps) == len(items) > 0 and all(step.operation in ("integer", "constant") for step in steps):
            is_whole = all(step.operation == "integer" for step in steps)
            values = [int(step.value) if is_whole else step.value for step in steps]
            return self.look_up(node, name, values, [index])
        place = self.bits(node, index, "an index")
        result: Value = items[0]
        for position, entry in enumerate(items[1:], 1):
            is_here = builder.emit("eq", place, builder.integer(position))
            from_end = builder.emit("eq", place, builder.integer(position - len(items)))
            result = self.either(node, builder.emit("or", is_here, from_end), entry, result)
        return result

    def look_up(self, node: ast.AST, name: str, values: Any, indices: Sequence[int]) -> int:
        """An entry of a table of numbers.

        In a function on codes an index is Python's. In an operator it is cut off to a whole number and kept inside.
        """
        values = values.tolist() if hasattr(values, "tolist") else values
        lengths, flat = [], [values]
        while flat and isinstance(flat[0], list | tuple):
            lengths.append(len(flat[0]))
            if any(not isinstance(row, list | tuple) or len(row) != lengths[-1] for row in flat):
                break
            flat = [entry for row in flat for entry in row]
        if not flat or any(isinstance(entry, bool) or not isinstance(entry, int | float) for entry in flat):
            raise self.source.error(
                node, f'"{name}" is no table', "lists, tuples and arrays of numbers, rows of equal length"
            )
        if len(indices) != len(lengths):
            what = f'"{name}" is a table with {len(lengths)} axes, but has {len(indices)} indices'
            raise self.source.error(node, what, "one index for each axis")
        builder, emit = self.builder, self.builder.emit
        known = [builder.instructions[index] for index in indices]
        if all(step.operation == "integer" for step in known):
            offset = 0
            for step, length in zip(known, lengths, strict=True):
                first = -length if builder.is_exact else 0
                if not first <= step.value < length:
                    if builder.is_exact and not self.is_known(builder.path):  # perhaps it is never needed
                        return self.element(node, name, flat, lengths, indices)
                    raise self.source.error(node, f'"{name}" has no entry {int(step.value)}', f"0 to {length - 1}")
                offset = offset * length + int(step.value) % length
            return self.constant(flat[offset], node, f'an entry of "{name}"')
        if builder.is_exact:
            return self.element(node, name, flat, lengths, [self.bits(node, index, "an index") for index in indices])
        position = builder.constant(0.0)
        for index, length in zip(indices, lengths, strict=True):
            place = builder.number(index)
            if len(indices) > 1:
                place = emit("max", emit("min", place, builder.constant(length - 1)), builder.constant(0.0))
                position = emit("add", emit("mul", position, builder.constant(length)), emit("floor", place))
            else:
                position = place
        return emit("lookup", position, table=tuple(map(float, flat)))

    def element(
        self, node: ast.AST, name: str, flat: Sequence[float], lengths: Sequence[int], indices: Sequence[int]
    ) -> int:
        """An entry of a table by whole numbers; outside of a row is outside of the table."""
        builder, emit = self.builder, self.builder.emit
        place = indices[0]
        if len(indices) > 1:
            place, is_inside = builder.integer(0), builder.truth(True)
            for index, length in zip(indices, lengths, strict=True):
                size = builder.integer(length)
                below = emit("lt", index, builder.integer(0))
                index = emit("select", below, emit("add", index, size), index)
                inside = emit("and", emit("le", builder.integer(0), index), emit("lt", index, size))
                is_inside = emit("and", is_inside, inside)
                place = emit("add", emit("mul", place, size), index)
            place = emit("select", is_inside, place, builder.integer(len(flat)))
        is_whole = all(isinstance(entry, int) for entry in flat)
        table = tuple(flat) if is_whole else tuple(map(float, flat))
        line = getattr(node, "lineno", self.source.tree.lineno)
        return emit("element", builder.path, place, value=float(is_whole), table=table, name=name, line=line)
