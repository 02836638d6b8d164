"""Laws of functions assembled from text."""

import inspect
import linecache

from presilicon.formats.kernels.assembly import define


def test_definitions_of_one_name_stay_apart_and_can_be_read() -> None:
    first, second = (define("f", f"def f(x):\n    return x + {number}\n", {}) for number in (1, 2))
    assert (first(1), second(1)) == (2, 3)
    assert inspect.getsource(first) == "def f(x):\n    return x + 1\n"
    assert inspect.getsource(second) == "def f(x):\n    return x + 2\n"
    linecache.checkcache()
    assert inspect.getsource(first).endswith("+ 1\n")
    assert define("g", "def g(x):\n    return f(x) + 3\n", {"f": second})(1) == 6
