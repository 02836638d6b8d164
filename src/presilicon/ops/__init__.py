"""The op table: one entry for each operator, which everything else that has to know an operator asks."""

from typing import TYPE_CHECKING

from presilicon.base import deferred
from presilicon.ops.custom.files import load_operator
from presilicon.ops.custom.fits import Fit, Interpolation, Outside, piecewise_linear, table
from presilicon.ops.custom.functions import check_function, split_pattern
from presilicon.ops.custom.operator import Backward, LargestError, Operator, operator
from presilicon.ops.custom.pricing import LATENCY
from presilicon.ops.entries.softmax import softmax_axis
from presilicon.ops.entry import KINDS, AttentionPart, Captured, OpEntry, Streaming, function, module_op
from presilicon.ops.lookup import (
    KnownOperator,
    OpFacts,
    all_entries,
    arguments_of,
    enter,
    entered,
    entry_named,
    entry_of_function,
    entry_of_module,
    exact_functions,
    facts_of_op,
    facts_of_op_named,
    find,
    follow,
    function_names,
    functions,
    is_unknown,
    product_names,
    rectifies,
    withdraw,
)
from presilicon.ops.steps import Steps, axes

if TYPE_CHECKING:
    from presilicon.ops.calls import OperatorFacts, OpPart, count_flops, describe_operator, ops_of_call
    from presilicon.ops.custom.calls import SlowOperatorWarning, apply_operator
    from presilicon.ops.formulas import compile_formula, formula_of, operands
    from presilicon.ops.geometry import CallProduct, im2col

__getattr__ = deferred(__name__)

__all__ = [
    "KINDS",
    "LATENCY",
    "AttentionPart",
    "Backward",
    "CallProduct",
    "Captured",
    "Fit",
    "Interpolation",
    "KnownOperator",
    "LargestError",
    "OpEntry",
    "OpFacts",
    "OpPart",
    "Operator",
    "OperatorFacts",
    "Outside",
    "SlowOperatorWarning",
    "Steps",
    "Streaming",
    "all_entries",
    "apply_operator",
    "arguments_of",
    "axes",
    "check_function",
    "compile_formula",
    "count_flops",
    "describe_operator",
    "enter",
    "entered",
    "entry_named",
    "entry_of_function",
    "entry_of_module",
    "exact_functions",
    "facts_of_op",
    "facts_of_op_named",
    "find",
    "follow",
    "formula_of",
    "function",
    "function_names",
    "functions",
    "im2col",
    "is_unknown",
    "load_operator",
    "module_op",
    "operands",
    "operator",
    "ops_of_call",
    "piecewise_linear",
    "product_names",
    "rectifies",
    "softmax_axis",
    "split_pattern",
    "table",
    "withdraw",
]
