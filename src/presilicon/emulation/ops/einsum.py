"""einsum as a chain of batched matrix products."""

from collections.abc import Callable, Mapping, Sequence
from math import prod
from string import ascii_letters
from typing import NamedTuple

from torch import Tensor


class Arrangement(NamedTuple):
    """Two operands arranged as (batch, m, k) and (batch, k, n), and how to shape the product of them."""

    a: Tensor
    b: Tensor
    finish: Callable[[Tensor], Tensor]
    sources: tuple[Tensor, Tensor]
    """The operands before they were arranged."""


def read_equation(equation: str, operands: Sequence[Tensor]) -> tuple[list[str], str]:
    """The labels of each operand and of the result, with ellipses and an implicit result written out.

    >>> import torch
    >>> read_equation("...ij, ...jk", [torch.empty(5, 2, 3), torch.empty(3, 4)])
    (['Zij', 'jk'], 'Zik')
    """
    inputs, arrow, output = equation.replace(" ", "").partition("->")
    labels = inputs.split(",")
    spare = [letter for letter in reversed(ascii_letters) if letter not in equation]
    widths = [
        operand.dim() - len(label) + 3 if "..." in label else 0 for label, operand in zip(labels, operands, strict=True)
    ]
    letters = "".join(spare[: max(widths, default=0)])
    labels = [
        label.replace("...", letters[len(letters) - width :]) for label, width in zip(labels, widths, strict=True)
    ]
    if not arrow:
        joined = "".join(labels)
        once = sorted(label for label in set(joined) if joined.count(label) == 1 and label not in letters)
        return labels, letters + "".join(once)
    return labels, output.replace("...", letters)


def reduce_alone(tensor: Tensor, labels: str, remaining: str) -> tuple[Tensor, str]:
    """An operand with the diagonals of repeated labels taken and the labels outside `remaining` summed."""
    for label in dict.fromkeys(labels):
        while labels.count(label) > 1:
            first, second = labels.index(label), labels.rindex(label)
            tensor = tensor.diagonal(dim1=first, dim2=second)
            labels = labels[:first] + labels[first + 1 : second] + labels[second + 1 :] + label
    summed = [axis for axis, label in enumerate(labels) if label not in remaining]
    if summed:
        tensor = tensor.sum(summed)
    return tensor, "".join(label for label in labels if label in remaining)


def arrange(left: Tensor, left_labels: str, right: Tensor, right_labels: str, output: str) -> Arrangement:
    """Two operands (each reduced alone) as one batched product whose result has the labels of `output`."""
    batch = [label for label in left_labels if label in right_labels and label in output]
    inner = [label for label in left_labels if label in right_labels and label not in output]
    rows = [label for label in left_labels if label not in right_labels]
    cols = [label for label in right_labels if label not in left_labels]
    sizes = dict(zip(left_labels, left.shape, strict=True)) | {
        label: size
        for label, size in zip(right_labels, right.shape, strict=True)
        if size != 1 or label not in left_labels
    }

    def finish(out: Tensor) -> Tensor:
        labels = batch + rows + cols
        return out.reshape([sizes[label] for label in labels]).permute([labels.index(label) for label in output])

    a = _fold(left, left_labels, (batch, rows, inner), sizes)
    b = _fold(right, right_labels, (batch, inner, cols), sizes)
    return Arrangement(a, b, finish, (left, right))


def _fold(tensor: Tensor, labels: str, parts: tuple[list[str], ...], sizes: Mapping[str, int]) -> Tensor:
    ordered = tensor.permute([labels.index(label) for part in parts for label in part])
    # A label of size 1 on one side is broadcast, as einsum does.
    ordered = ordered.expand([sizes[label] for part in parts for label in part])
    return ordered.reshape([prod(sizes[label] for label in part) for part in parts])


def contract(equation: str, operands: Sequence[Tensor], multiply: Callable[[Arrangement], Tensor]) -> Tensor:
    """The einsum of `operands`, pairs multiplied from left to right by `multiply`."""
    labels, output = read_equation(equation, operands)
    current, current_labels = operands[0], labels[0]
    for number in range(1, len(operands)):
        later = "".join(labels[number + 1 :]) + output
        current, current_labels = reduce_alone(current, current_labels, labels[number] + later)
        right, right_labels = reduce_alone(operands[number], labels[number], current_labels + later)
        remaining = "".join(label for label in dict.fromkeys(current_labels + right_labels) if label in later)
        result_labels = output if number == len(operands) - 1 else remaining
        current = multiply(arrange(current, current_labels, right, right_labels, result_labels))
        current_labels = result_labels
    if len(operands) == 1:
        current, current_labels = reduce_alone(current, current_labels, output)
        current = current.permute([current_labels.index(label) for label in output])
    return current
