"""The derivative of a program, instruction by instruction.

Each piece is differentiated as it stands: at a breakpoint the derivative is that of the branch which the source takes
there. Steps (`floor`, tables) have derivative 0, `abs` at 0 has that of the side above, `min` and `max` that of the
argument which they return.
"""

from presilicon.operators.program import CONDITIONS, Builder, Program


def differentiate(program: Program) -> Program:
    """The program of both the value and the derivative; common parts are computed once."""
    builder = Builder()
    registers: list[int] = []
    slopes: list[int | None] = []  # None is a derivative that is 0 for every input
    emit = builder.emit

    def scaled(slope: int | None, factor: int) -> int | None:
        return None if slope is None else emit("mul", slope, factor)

    def selected(condition: int, a: int | None, b: int | None) -> int | None:
        if a is None and b is None:
            return None
        zero = builder.constant(0.0)
        return emit("select", condition, zero if a is None else a, zero if b is None else b)

    for instruction in program.instructions:
        if instruction.operation == "input":
            registers.append(builder.input())
            slopes.append(builder.constant(1.0))
            continue
        at = [registers[argument] for argument in instruction.arguments]
        d = [slopes[argument] for argument in instruction.arguments]
        register = (
            builder.constant(instruction.value)
            if instruction.operation == "constant"
            else emit(instruction.operation, *at, value=instruction.value, table=instruction.table)
        )
        slope: int | None = None
        match instruction.operation:
            case "add" | "sub" if d[1] is None:
                slope = d[0]
            case "add" if d[0] is None:
                slope = d[1]
            case "sub" if d[0] is None and d[1] is not None:
                slope = emit("neg", d[1])
            case "add" | "sub" if d[0] is not None and d[1] is not None:
                slope = emit(instruction.operation, d[0], d[1])
            case "mul":
                left, right = scaled(d[0], at[1]), scaled(d[1], at[0])
                slope = left if right is None else right if left is None else emit("add", left, right)
            case "div":
                over = None if d[0] is None else emit("div", d[0], at[1])
                under = scaled(d[1], register)  # (a / b)' = a' / b - (a / b) b' / b
                under = None if under is None else emit("div", under, at[1])
                if under is None:
                    slope = over
                else:
                    slope = emit("neg", under) if over is None else emit("sub", over, under)
            case "neg" if d[0] is not None:
                slope = emit("neg", d[0])
            case "abs" if d[0] is not None:
                slope = selected(emit("lt", at[0], builder.constant(0.0)), emit("neg", d[0]), d[0])
            case "min":
                slope = selected(emit("lt", at[1], at[0]), d[1], d[0])
            case "max":
                slope = selected(emit("lt", at[0], at[1]), d[1], d[0])
            case "sqrt" if d[0] is not None:
                slope = emit("div", d[0], emit("mul", builder.constant(2.0), register))
            case "exp":
                slope = scaled(d[0], register)
            case "log" if d[0] is not None:
                slope = emit("div", d[0], at[0])
            case "select":
                slope = selected(at[0], d[1], d[2])
        registers.append(register)
        slopes.append(None if instruction.operation in CONDITIONS else slope)
    output = program.outputs[0]
    slope = slopes[output]
    return builder.finish(registers[output], builder.constant(0.0) if slope is None else slope)
