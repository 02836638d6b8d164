"""One function of the user's, as the `add` of a format and as an operator: there is one language."""

import math
import warnings

import pytest
import torch

from presilicon.formats import UserFormat, user_step
from presilicon.formats.kernels.user_functions import map_codes, operation_table
from presilicon.ops import operator
from presilicon.ops.custom.calls import Definition
from presilicon.programs import LanguageError

ROM = [0, 3, 5, 6, 9, 10, 12, 15]


def halves(code):
    """A pair from a helper, by bits of a whole number."""
    return code & 15, code >> 4


def mixed(a, b):
    """Bits, a loop with `break`, tuples, a table, a helper, `math.tanh`."""
    low, high = halves(int(a))
    total = 0
    for k in range(5):
        if (low + int(b)) >> k == 0:
            break
        total += ROM[(low ^ k) & 7]
    if high > 9:
        return min(total, 255)
    large, small = (total, high) if total > high else (high, total)
    return min(int(large + 8 * math.tanh(small / 4)), 255)


def as_float(code):
    return float(code)


FORMAT = UserFormat("mixed", (("m", 8),), as_float, add=mixed)
AS_OPERATOR = operator(backward="none")(mixed)


def test_a_format_and_an_operator_compute_the_same() -> None:
    a, b = (x.flatten() for x in torch.meshgrid(torch.arange(256), torch.arange(256), indexing="ij"))
    wanted = torch.tensor([mixed(int(x), int(y)) for x, y in zip(a, b, strict=True)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # neither runs slowly
        assert torch.equal(torch.from_numpy(operation_table(FORMAT, "add")).flatten().long(), wanted)
        assert torch.equal(map_codes(FORMAT, "add", (a.byte(), b.byte())).long(), wanted)
        assert torch.equal(user_step(FORMAT, "add", (a.float(), b.float())), wanted.float())
        assert torch.equal(AS_OPERATOR(a.double(), b.double()).long(), wanted)
        assert torch.equal(AS_OPERATOR(a.float(), b.float()).long(), wanted)
    assert AS_OPERATOR(77, 5) == mixed(77, 5)


def endless(a, b):
    return a if b < 1 else endless(a, b - 1)


def test_both_refuse_with_the_same_words() -> None:
    with pytest.raises(LanguageError) as caught:
        operator(endless)
    message = str(caught.value).partition("\n")[0]
    assert (
        f"test_one_function.py, line {endless.__code__.co_firstlineno + 1}: recursion: endless calls itself" in message
    )
    fmt = UserFormat("endless", (("m", 9),), as_float, add=endless)
    with pytest.warns(UserWarning, match="it runs in Python, number by number") as warned:
        map_codes(fmt, "add", (torch.tensor([3]), torch.tensor([2])))
    assert message in str(warned[0].message)


def while_above(x):
    steps = 0
    while x > 1:
        x = x / 2
        steps += 1
    return x * steps


def test_a_loop_that_depends_on_data_runs_and_has_neither_derivative_nor_price() -> None:
    halved = operator(while_above)
    x = torch.tensor([0.5, 1.5, 100.0, 3.0])
    assert halved(x).tolist() == [while_above(value) for value in x.tolist()]
    assert halved(100.0) == while_above(100.0)
    with pytest.raises(Exception, match=r"has no derivative; allowed: custom_backward"):
        halved(x.requires_grad_())
    with pytest.raises(Exception, match=r"has no known cost"):
        Definition(halved, ()).work({"_": 4})
    with pytest.raises(Exception, match=r"has no known cost"):
        _ = halved.cost


def test_a_loop_that_depends_on_data_is_rounded_step_by_step() -> None:
    rounded = operator(format="e4m3fn", backward="none")(while_above)
    x = torch.tensor([100.0, 3.0, 0.7])
    assert rounded(x).tolist() == [rounded(value) for value in x.tolist()]
    assert rounded(3.0) != while_above(3.0) or rounded(100.0) != while_above(100.0)
