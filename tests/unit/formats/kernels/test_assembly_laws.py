"""Laws of functions made for compilation: a compiled function computes what the plain one does, and changes it not."""

import inspect
import linecache
import math

import numba
import numpy as np
import pytest

from presilicon.formats.kernels.assembly import as_table, define, jit, names_used, plain_function

TABLE = [3.0, 1.0, 4.0, 1.5]
GRID = ((1, 2), (3, 5))
SHIFT = 2


def shifted(x):  # type: ignore[no-untyped-def]
    return x + SHIFT


def looked_up(index, x=0.25):  # type: ignore[no-untyped-def]
    return TABLE[index] * shifted(x)


def halvings(x):  # type: ignore[no-untyped-def]
    return 0 if x < 1.0 else 1 + halvings(x / 2)


def on_a_grid(row, column):  # type: ignore[no-untyped-def]
    return GRID[row][column] - shifted(row)


def closed_over(scale, steps):  # type: ignore[no-untyped-def]
    def stepped(index):  # type: ignore[no-untyped-def]
        return scale * steps[index] + shifted(steps[0])

    def outer(index):  # type: ignore[no-untyped-def]
        return stepped(index) - scale + math.sqrt(steps[index])

    return outer


def without_tables(x):  # type: ignore[no-untyped-def]
    return shifted(x) * math.pi


def counting_down(least):  # type: ignore[no-untyped-def]
    def counted(x):  # type: ignore[no-untyped-def]
        return 0 if x < least else 1 + counted(x - TABLE[1])

    return counted


CLOSED, OTHER = closed_over(2.0, [4.0, 9.0, 16.0]), closed_over(5.0, [1.0, 25.0])
CASES = [
    *((looked_up, (index, x)) for index in range(4) for x in (0.0, -3.5)),
    *((looked_up, (index,)) for index in range(4)),
    *((halvings, (x,)) for x in (0.5, 1.0, 7.9, 64.0)),
    *((counting_down(least), (x,)) for least in (0.0, 2.0) for x in (0.5, 1.0, 7.5)),
    *((on_a_grid, (row, column)) for row in range(2) for column in range(2)),
    *((CLOSED, (index,)) for index in range(3)),
    *((OTHER, (index,)) for index in range(2)),
    (without_tables, (0.5,)),
]


def test_a_compiled_function_computes_what_the_plain_one_does() -> None:
    for function, arguments in CASES:
        plain = function(*arguments)
        compiled = jit(function)
        assert isinstance(compiled, numba.core.dispatcher.Dispatcher)
        assert compiled(*arguments) == plain == function(*arguments)
    assert isinstance(TABLE, list)
    assert isinstance(names_used(CLOSED)["steps"], list)


def test_compiled_functions_call_one_another() -> None:
    compiled = jit(CLOSED)

    @numba.njit
    def caller(index):  # type: ignore[no-untyped-def]
        return compiled(index) * 2

    assert caller(1) == 2 * CLOSED(1)


@pytest.mark.parametrize(("function", "arguments"), [(looked_up, (4,)), (on_a_grid, (0, 2)), (CLOSED, (3,))])
def test_an_index_outside_of_a_table_is_an_error(function, arguments) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(IndexError):
        jit(function)(*arguments)


def test_each_function_is_compiled_once_and_what_is_no_function_stays() -> None:
    assert jit(looked_up) is jit(looked_up)
    assert jit(CLOSED) is not jit(OTHER)
    for value in (jit(looked_up), math.sqrt, np.float32, 3):
        assert jit(value) is value
    assert plain_function(jit(halvings)).__code__ is halvings.__code__
    assert plain_function(halvings) is halvings


def test_names_are_those_that_the_text_reads() -> None:
    assert names_used(looked_up) == {"TABLE": TABLE, "shifted": shifted}
    assert names_used(halvings) == {"halvings": halvings}
    inner = names_used(CLOSED)["stepped"]
    assert names_used(CLOSED) == {"math": math, "scale": 2.0, "steps": [4.0, 9.0, 16.0], "stepped": inner}
    assert names_used(inner) == {"shifted": shifted, "scale": 2.0, "steps": [4.0, 9.0, 16.0]}

    def nested(rows):  # type: ignore[no-untyped-def]
        return [shifted(row) for row in rows] + [(lambda x: x + len(TABLE))(row) for row in rows]

    assert names_used(nested) == {"TABLE": TABLE, "shifted": shifted}


def test_only_numbers_in_full_rows_are_tables() -> None:
    for value, kind in (([1, 2], "i"), ((0.5, 2), "f"), (GRID, "i"), (np.array([1, 2], np.uint8), "u")):
        table = as_table(value)
        assert table.dtype.kind == kind
        assert table.tolist() == np.asarray(value).tolist()
    logical = np.array([True, False])
    assert as_table(logical) is logical
    for value in ([], (), ["a"], [1, "a"], [[1, 2], [3]], [[]] * 0, 5, "12", [None], [{}], np.array(["a"])):
        assert as_table(value) is None


def test_definitions_of_one_name_stay_apart_and_can_be_read() -> None:
    first, second = (define("f", f"def f(x):\n    return x + {number}\n", {}) for number in (1, 2))
    assert (first(1), second(1)) == (2, 3)
    assert inspect.getsource(first) == "def f(x):\n    return x + 1\n"
    assert inspect.getsource(second) == "def f(x):\n    return x + 2\n"
    linecache.checkcache()
    assert inspect.getsource(first).endswith("+ 1\n")
    assert define("g", "def g(x):\n    return f(x) + 3\n", {"f": second})(1) == 6
    assert jit(second)(1) == 3
