"""Axes of operands and results, as the annotations of a function name them: `x: "b c h w"`."""

import ast
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from presilicon.base import UNREADABLE, ConfigError
from presilicon.programs.source import FunctionSource

_NAME = re.compile(r"[a-z][a-z0-9_]*")
AXES = 'names in small letters, whole numbers and a leading "...", as x: "... h w"; y=(H + 1)//2 for a size of a result'


class TensorAxis(NamedTuple):
    """One axis: a name, `_` for all leading axes ("..."), or a number."""

    name: str
    extent: ast.expr | None = None
    """The size of an axis that only the result has."""


def parse_axes(
    source: FunctionSource, node: ast.expr | None, *, is_result: bool = False
) -> tuple[TensorAxis, ...] | None:
    """The axes of an annotation; None if it names none.

    Raises:
        LanguageError: it is no list of axes.
    """
    if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
        return None
    text = re.sub(r"\s*(//|[=+\-*/%])\s*", r"\1", node.value.replace(",", " "))
    axes = []
    for word in re.findall(r"(?:\([^()]*(?:\([^()]*\)[^()]*)*\)|\S)+", text):
        name, equals, extent = word.partition("=")
        if word == "...":
            axes.append(TensorAxis("_"))
        elif word.isdigit() or (_NAME.fullmatch(name) and not equals):
            axes.append(TensorAxis(word))
        elif equals and is_result and _NAME.fullmatch(name):
            try:
                axes.append(TensorAxis(name, ast.parse(extent, mode="eval").body))
            except UNREADABLE:
                raise source.error(node, f'the size "{extent}" of axis {name}', AXES) from None
        else:
            raise source.error(node, f'the axis "{word}"', AXES)
    names = [axis.name for axis in axes]
    if "_" in names[1:]:
        raise source.error(node, '"..." after another axis', AXES)
    if is_result and len(set(names)) < len(names):
        raise source.error(node, "an axis twice in the result", AXES)
    return tuple(axes)


def bind_sizes(
    where: str, operands: Mapping[str, Sequence[TensorAxis]], shapes: Mapping[str, Sequence[int]]
) -> dict[str, int]:
    """The size of every axis, from the shapes of the operands.

    Raises:
        ConfigError: an operand has another number of axes, or two have different sizes for the same axis.
    """
    sizes: dict[str, int] = {}
    owners: dict[str, str] = {}
    for operand, axes in operands.items():
        shape = tuple(shapes[operand])
        if len(shape) != len(axes):
            named = " ".join("..." if axis.name == "_" else axis.name for axis in axes)
            raise ConfigError(f'{where}: {operand} must have the axes "{named}", not the shape {shape}')
        for axis, size in zip(axes, shape, strict=True):
            expected = int(axis.name) if axis.name.isdigit() else sizes.setdefault(axis.name, size)
            owner = owners.setdefault(axis.name, operand)
            if expected != size:
                label = "the leading axes" if axis.name == "_" else f"axis {axis.name}"
                origin = "must be" if axis.name.isdigit() else f"is {expected} in {owner}, but"
                raise ConfigError(
                    f"{where}: {label} of {operand} {origin} {expected}, not {size}"
                    if axis.name.isdigit()
                    else f"{where}: {label} {origin} {size} in {operand}"
                )
    return sizes
