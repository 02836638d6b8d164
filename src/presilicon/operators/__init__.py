"""Custom operators: approximations of scalar functions, written in Python and compiled, differentiated and priced.

>>> from presilicon.operators import operator
>>> @operator("tanh")
... def approximate_tanh(x):
...     size = abs(x)
...     if size < 2:
...         return x * (1 - size / 4)
...     return 1.0 if x > 0 else -1.0
>>> approximate_tanh(0.5), approximate_tanh.derivative(0.5), approximate_tanh.cost.multipliers
(0.4375, 0.75, 1)
"""

from typing import TYPE_CHECKING

from presilicon.base import deferred
from presilicon.operators.exact import EXACT
from presilicon.operators.files import load_operator
from presilicon.operators.fits import Fit, Interpolation, Outside, piecewise_linear, table
from presilicon.operators.functions import check_function, split_pattern
from presilicon.operators.operator import Backward, LargestError, Operator, operator
from presilicon.operators.pricing import LATENCY
from presilicon.programs import CONDITIONS, LanguageError, Program, ProgramInstruction

if TYPE_CHECKING:
    from presilicon.operators.calls import SlowOperatorWarning, apply_operator, work_of_call

__getattr__ = deferred(__name__)

__all__ = [
    "CONDITIONS",
    "EXACT",
    "LATENCY",
    "Backward",
    "Fit",
    "Interpolation",
    "LanguageError",
    "LargestError",
    "Operator",
    "Outside",
    "Program",
    "ProgramInstruction",
    "SlowOperatorWarning",
    "apply_operator",
    "check_function",
    "load_operator",
    "operator",
    "piecewise_linear",
    "split_pattern",
    "table",
    "work_of_call",
]
