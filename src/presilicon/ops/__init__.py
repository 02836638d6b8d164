"""The op table: one entry for each operator, which everything else that has to know an operator asks."""

from typing import TYPE_CHECKING

from presilicon.base import deferred
from presilicon.ops.entries.softmax import softmax_axis
from presilicon.ops.entry import KINDS, AttentionPart, Captured, OpEntry, Streaming, function, module_op
from presilicon.ops.steps import Steps, axes
from presilicon.ops.table import (
    Meeting,
    OpFacts,
    arguments_of,
    enter,
    entered,
    entries,
    entry_named,
    entry_of_function,
    entry_of_module,
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

if TYPE_CHECKING:
    from presilicon.ops.calls import OperatorFacts, OpPart, count_flops, describe_operator, ops_of_call
    from presilicon.ops.formulas import compile_formula, formula_of, operands
    from presilicon.ops.geometry import CallProduct, im2col

__getattr__ = deferred(__name__)

__all__ = [
    "KINDS",
    "AttentionPart",
    "CallProduct",
    "Captured",
    "Meeting",
    "OpEntry",
    "OpFacts",
    "OpPart",
    "OperatorFacts",
    "Steps",
    "Streaming",
    "arguments_of",
    "axes",
    "compile_formula",
    "count_flops",
    "describe_operator",
    "enter",
    "entered",
    "entries",
    "entry_named",
    "entry_of_function",
    "entry_of_module",
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
    "module_op",
    "operands",
    "ops_of_call",
    "product_names",
    "rectifies",
    "softmax_axis",
    "withdraw",
]
