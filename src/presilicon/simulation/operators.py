"""Ops that compute a function which the design replaces by an operator, and the cost of that operator."""

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from presilicon.base import PICO
from presilicon.designs import Numerics, Technology, curve_pj
from presilicon.ops import facts_of_op
from presilicon.records import Op, OperatorCost, OperatorWork

SPECIAL_STEPS = 4
"""Multiplications, and additions, that a unit for division, root, exponential or logarithm is charged with: two steps
of Newton's method, or a polynomial of degree four."""


class Replaced(NamedTuple):
    """The part of an op that an operator computes."""

    cost: OperatorCost
    elements: int
    """Results that the operator computes."""


class Functions:
    """The operators of a design, found by the ops that compute the functions which they replace."""

    def __init__(self, numerics: Numerics) -> None:
        self._forward: dict[str, OperatorCost] = {}
        self._backward: dict[str, OperatorCost] = {}
        for operator in numerics.make_operators():
            if not operator.is_inner:
                continue  # captured as an op of its own
            assert operator.replaces is not None
            self._forward[operator.replaces] = operator.cost
            if operator.backward_cost is not None:
                self._backward[operator.replaces] = operator.backward_cost

    def find(self, op: Op) -> Replaced | None:
        """The part of an op that an operator replaces, or None.

        The optimizer and the softmax of the loss lie outside the model, so they are not replaced. The tanh
        inside gelu cannot be told from a captured step, and keeps gelu's own cost.
        """
        if not self._forward or op.phase == "update" or not op.outputs:
            return None
        facts = facts_of_op(op)
        if facts.entry is None:
            return None
        if facts.is_gradient:
            cost = self._backward.get(facts.entry.name)
            return None if cost is None else Replaced(cost, op.outputs[0].elements)
        if facts.entry.name in self._forward:
            return Replaced(self._forward[facts.entry.name], op.outputs[0].elements)
        inner = facts.captured.inner
        if inner in self._forward and (op.layer or not facts.captured.ends_model):
            # Norms have a reciprocal root for each of their statistics, other functions one for each element.
            results = op.outputs[-1 if facts.statistics else 0]
            return Replaced(self._forward[inner], results.elements)
        return None


def operator_j(cost: OperatorCost, technology: Technology) -> float:
    """Joules of one result of an operator: its multipliers, adders and comparators, and its table reads.

    Every unit works for every result: both sides of a branch do.
    """
    multiply = curve_pj(technology.float_multiply, cost.significand_bits)
    add = curve_pj(technology.float_add, cost.bits)
    special = cost.special * SPECIAL_STEPS
    arithmetic = (cost.multipliers + special) * multiply + (cost.adders + cost.comparators + special) * add
    if not cost.entries:
        return arithmetic * PICO
    read = curve_pj(technology.sram_64bit, cost.entries * cost.bits / 8 / 1024) * cost.bits / 64
    return (arithmetic + cost.reads * read) * PICO


def work_j(work: OperatorWork, technology: Technology) -> float:
    """Joules of a call of an operator."""
    each = OperatorCost(bits=work.bits, significand_bits=work.significand_bits)
    counts = {
        "multipliers": work.multiplications, "adders": work.additions, "comparators": work.comparisons,
        "special": work.special, "entries": work.entries, "reads": work.lookups,
    }  # fmt: skip
    return operator_j(replace(each, **counts), technology)


def with_arithmetic(ops: Sequence[Op], numerics: Numerics, steps: int) -> tuple[Op, ...]:
    """Ops with the arithmetic of operators, for machines that count results.

    A division, root or exponential counts as `steps`. A function of the design's operators has as many results as these
    compute; a custom operator has its own.
    """
    functions = Functions(numerics)
    changed = []
    for op in ops:
        if op.work is not None:
            op = replace(op, flops=op.work.operations + (steps - 1) * op.work.special + op.work.lookups)
        elif (found := functions.find(op)) is not None:
            cost = found.cost
            results = cost.multipliers + cost.adders + cost.comparators + steps * cost.special + cost.reads
            op = replace(op, flops=max(0, op.flops - found.elements) + found.elements * results)
        changed.append(op)
    return tuple(changed)
