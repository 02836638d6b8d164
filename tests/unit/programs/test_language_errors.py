"""Python that the language does not have: file, line, the line itself, and what is allowed."""

from pathlib import Path

import pytest

from presilicon.base import ConfigError
from presilicon.ops import load_operator, operator
from presilicon.programs import LanguageError

HEAD = "import math\nimport numpy as np\nfrom presilicon.ops import operator\nNAMES = [1, 2]\nTEXT = 'a'\n"
HEAD += "def helper(x):\n    return x\n\n\ndef endless(x):\n    return endless(x)\n\n\n"

FORBIDDEN = {
    "a loop over something that is no range": "    for i in NAMES:\n        x = x * x\n    return x",
    "a range whose bound is known only at run time": "    return sum(x for i in range(int(x)))",
    "a loop of 5000 rounds": "    for i in range(5000):\n        x = x * x\n    return x",
    "a loop over more than one name": "    for i, j in range(3):\n        x = x * i\n    return x",
    "a loop with else": "    while x > 1:\n        x = x / 2\n    else:\n        x = 1.0\n    return x",
    "a range whose bound is known only at run time ": "    return sum(x for i in range(int(x)) if i)",
    "a comprehension outside": "    y = (x for _ in range(3))\n    return x",
    "abs of a comprehension": "    return abs(x for _ in range(3))",
    '"i" is assigned only in a loop': "    for i in range(50):\n        x = x + 1\n    return i",
    "a comprehension": "    y = [x for _ in range(3)]\n    return x",
    "a lambda": "    f = lambda y: y\n    return f(x)",
    "a string": "    name = 'tanh'\n    return x",
    "a dict": "    table = {1: 2}\n    return x",
    "a tuple where a number is needed": "    pair = 1, x\n    return pair * 2",
    "a tuple where a condition is needed": "    pair = 1, x\n    return x if pair else 0.0",
    "one number for 2 names": "    a, b = x\n    return a",
    "3 values for 2 names": "    a, b = x, x, x\n    return a",
    "tuples of different lengths on two paths": "    pair = (x, x) if x > 0 else (x, x, x)\n    return pair[0]",
    "is a tuple of another length": "    pair = x, x\n    if x > 0:\n        pair = x, x, x\n    return pair[0]",
    '"pair" has no entry 2': "    pair = x, x\n    return pair[2]",
    "an assignment to an entry": "    pair = [x, x]\n    pair[0] = x\n    return x",
    "& of a number that is not whole": "    return x & 3",
    "~ of a number that is not whole": "    return ~x",
    "<< of a number that is not whole": "    return 1 << x",
    'an index of "x", which is a number': "    return x[0]",
    '"TEXT" is no table': "    return TEXT[x]",
    '"NAMES" has no entry 2': "    return NAMES[2] * x",
    '"NAMES" is a table with 1 axes, but has 2 indices': "    return NAMES[x, 0]",
    '"NAMES" is a list': "    return x * NAMES",
    '"TEXT" is a str': "    return x * TEXT",
    "attribute access": "    return x.real",
    "the call of tanh": "    return np.tanh(x)",
    'there is no "math.tan_h"': "    return math.tan_h(x)",
    "recursion": "    return f(x / 2)",
    "the call of atanh": "    return math.atanh(x)",
    "the call of round": "    return round(x, 2)",
    "a call of helper with 2 arguments": "    return helper(x, x)",
    "recursion: endless calls itself": "    return endless(x)",
    'there is no "nothing" here': "    return x + nothing",
    "a path through f ends without a return": "    if x > 0:\n        return x",
    '"y" is not assigned on every path': "    if x > 0:\n        y = x\n    return y",
    '"y" is read before it is assigned': "    z = y\n    y = x\n    return z",
    "return without a number": "    return",
    "the operator MatMult": "    return x @ x",
    "the comparison Is": "    return 1.0 if x is 1 else x",
    "an exponent that is no constant": "    return x ** x",
    "-2 to a power that is no constant": "    return (-2) ** x",
    "the exponent 0.5": "    return x ** 0.5",
    "the exponent 100": "    return x ** 100",
    "try": "    try:\n        return x\n    except ValueError:\n        return 0.0",
    "assert": "    assert x > 0\n    return x",
    "an import": "    import math\n    return x",
    "global": "    global TEXT\n    return x",
    "yield": "    yield x",
    "an expression without effect": "    x + 1\n    return x",
    "the call of print": "    print(x)\n    return x",
    "a function inside the function": "    def g(y):\n        return y\n    return x",
    "an assignment inside an expression": "    return (y := x) + y",
    "this pattern (sequence)": "    match x:\n        case [a, b]:\n            return a\n    return x",
    "min of 1 arguments": "    return min(x)",
    "sqrt of 2 arguments": "    return math.sqrt(x, x)",
    "None is no number": "    return None",
}


def write(tmp_path: Path, body: str, signature: str = "x") -> str:
    path = tmp_path / "my_ops.py"
    path.write_text(f'{HEAD}@operator("tanh")\ndef f({signature}):\n{body}\n')
    return f"{path}:f"


@pytest.mark.parametrize(("what", "body"), FORBIDDEN.items())
@pytest.mark.filterwarnings("ignore::SyntaxWarning")  # x is 1
def test_what_is_forbidden_is_named_with_its_place(tmp_path, what: str, body: str) -> None:
    with pytest.raises(LanguageError) as caught:
        load_operator(write(tmp_path, body))
    message, _, line = str(caught.value).partition("\n    ")
    assert what.strip() in message
    assert "; allowed: " in message
    number = int(message.removeprefix("my_ops.py, line ").partition(":")[0])
    lines = (tmp_path / "my_ops.py").read_text().splitlines()
    assert line == lines[number - 1].strip()
    assert 11 <= number <= len(lines)


@pytest.mark.parametrize("signature", ["", "*x", "x, **y", "x, *, y", "x, y='a'", "y=1"])
def test_arguments_are_operands_and_constants(tmp_path, signature: str) -> None:
    with pytest.raises(LanguageError, match=r"my_ops\.py, line 15: "):
        load_operator(write(tmp_path, "    return 1.0", signature))


def test_the_message_in_full(tmp_path) -> None:
    with pytest.raises(LanguageError) as caught:
        load_operator(write(tmp_path, "    rows = [x for _ in range(3)]\n    return x"))
    assert str(caught.value) == (
        "my_ops.py, line 16: a comprehension is not in the language; allowed: numbers, + - * / // % **, & | ^ ~ << >> "
        "of whole numbers, comparisons, and/or/not, if/elif/else, match, for k in range(n), while, break, continue, "
        "local variables and tuples, return, sum/max/min/prod/mean over ranges, abs, min, max, round, int, floor, "
        "ceil, sqrt, exp, log, tanh, erf, sin, cos, frexp, ldexp, copysign, operands and tables by index, and "
        "functions of these; try: a loop, or sum(... for k in range(n))\n    rows = [x for _ in range(3)]"
    )


def test_a_source_is_needed() -> None:
    space: dict[str, object] = {}
    exec("def f(x):\n    return x", space)
    with pytest.raises(LanguageError, match="the source of f cannot be read"):
        operator("tanh")(space["f"])  # type: ignore[arg-type]
    with pytest.raises(LanguageError, match="not a lambda"):
        operator("tanh")(lambda x: x)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"replaces": "tanhh"}, 'unknown function to replace "tanhh": did you mean "tanh"'),
        ({"replaces": "tanh", "backward": "derive"}, 'did you mean "derived"'),
        ({"replaces": "tanh", "format": "bfp(mantissa=4, exponent=8, group=16)"}, "must round each number alone"),
        ({"replaces": "tanh", "cycles": 0}, "a whole number of at least 1, not 0"),
        ({"replaces": abs}, "the source of abs cannot be read"),
        ({"backward": "exact"}, "the function that an operator replaces; name it"),
    ],
)
def test_options_are_checked(options, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        operator(**options)


def test_references_are_checked(tmp_path) -> None:
    whole = write(tmp_path, "    return x")
    assert load_operator(whole)(2.0) == 2.0
    for wrong, message in [
        ("nothing.py:f", "no such file"),
        ("ops", "must be a Python file and a name"),
        (whole + "g", 'has no operator "fg": did you mean "f"'),
    ]:
        with pytest.raises(ConfigError, match=message):
            load_operator(wrong)
    broken = tmp_path / "broken.py"
    broken.write_text("1 / 0")
    with pytest.raises(ConfigError, match=r"broken\.py: ZeroDivisionError"):
        load_operator(f"{broken}:f")
