"""The spelling of formats: names such as `bfloat16`, and calls such as `float(exponent=6, mantissa=9)`."""

import ast
import re
from dataclasses import MISSING, fields
from typing import Any

from presilicon.base.errors import FormatError, did_you_mean
from presilicon.formats.block import BlockFloat, Mx, Nvfp4
from presilicon.formats.fixed import Fixed, Integer, wider_integer
from presilicon.formats.float import Float
from presilicon.formats.format import Format
from presilicon.formats.listed import Logarithmic, Table
from presilicon.formats.posit import Posit
from presilicon.formats.rounding import Stochastic, check_rounding
from presilicon.formats.user import UserFormat

FAMILIES: dict[str, type[Format]] = {
    cls.kind: cls for cls in (Float, Fixed, Integer, BlockFloat, Mx, Nvfp4, Posit, Logarithmic, Table)
}
"""The words that may be called with arguments."""

NAMED_FORMATS: dict[str, Format] = {
    "float32": Float(8, 23),
    "float16": Float(5, 10),
    "bfloat16": Float(8, 7),
    "tf32": Float(8, 10),
    "e5m2": Float(5, 2),
    "e4m3": Float(4, 3),
    "e3m4": Float(3, 4),
    "e4m3fn": Float(4, 3, specials="fn"),
    "e5m2fnuz": Float(5, 2, specials="fnuz"),
    "e4m3fnuz": Float(4, 3, specials="fnuz"),
    "e4m3b11fnuz": Float(4, 3, bias=11, specials="fnuz"),
    "fp6_e3m2": Float(3, 2, specials="none"),
    "fp6_e2m3": Float(2, 3, specials="none"),
    "fp4_e2m1": Float(2, 1, specials="none"),
    "mxfp8_e5m2": Mx(Float(5, 2)),
    "mxfp8_e4m3": Mx(Float(4, 3, specials="fn")),
    "mxfp6_e3m2": Mx(Float(3, 2, specials="none")),
    "mxfp6_e2m3": Mx(Float(2, 3, specials="none")),
    "mxfp4": Mx(Float(2, 1, specials="none")),
    "mxint8": Mx(Fixed(2, 6)),
    "nvfp4": Nvfp4(),
    "int8": Integer(8),
    "int4": Integer(4),
}
"""Every name that `parse` knows, with its format."""


def name_of(fmt: Format) -> str | None:
    """The name of a format that has one."""
    return next((name for name, known in NAMED_FORMATS.items() if known == fmt), None)


def register(fmt: UserFormat) -> UserFormat:
    """Make a user-defined format known to `parse` by its name, and return it.

    Raises `FormatError` where the name is taken by another format.
    """
    taken = fmt.name in FAMILIES or NAMED_FORMATS.get(fmt.name, fmt) != fmt
    if taken:
        raise FormatError(f'the name "{fmt.name}" belongs to another format; choose another name')
    NAMED_FORMATS[fmt.name] = fmt
    return fmt


def parse(text: str) -> Format:
    """The format that a text spells.

    A name, a name with changed options, or a family called with positional or keyword arguments. Words need no quotes.

    >>> parse("e5m2") == Float(exponent=5, mantissa=2)
    True
    >>> parse("float(6, mantissa=9)")
    Float(exponent=6, mantissa=9, bias=31, subnormals=True, specials='ieee', overflow='infinity', nan='zero')
    >>> str(parse("e4m3fn(overflow=saturate)"))
    'float(exponent=4, mantissa=3, specials=fn, overflow=saturate)'

    Raises:
        FormatError: The text spells no format; the message proposes the nearest name.
    """
    if not isinstance(text, str):
        raise FormatError(f"a format is spelt as text, not {text!r}; try parse('bfloat16')")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError):
        raise FormatError(f'format "{text}" cannot be read; try a name such as bfloat16 or float(5, 2)') from None
    return _build(tree, text)


def parse_rounding(text: str) -> str | Stochastic:
    """The rounding that a text spells: a mode's name or `stochastic(bits=8, source=lfsr)`.

    >>> parse_rounding("stochastic(bits=8)")
    Stochastic(bits=8, source='counter')
    """
    if not isinstance(text, str):
        raise FormatError(f'a rounding is spelt as text, not {text!r}; try "stochastic(bits=8, source=lfsr)"')
    if not text.strip().startswith("stochastic("):
        return check_rounding(text.strip())
    try:
        call = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError):
        call = None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        raise FormatError(f'rounding "{text}" cannot be read; try stochastic(bits=8, source=lfsr)')
    return Stochastic(**_arguments(call, Stochastic, text))


def _build(tree: ast.expr, text: str) -> Format:
    match tree:
        case ast.Name(id=name):
            if name in NAMED_FORMATS:
                return NAMED_FORMATS[name]
            if name in FAMILIES:
                return FAMILIES[name](**_arguments(ast.Call(tree, [], []), FAMILIES[name], text))
            raise _unknown(name)
        case ast.Call(func=ast.Name(id=name)) if name in FAMILIES:
            return FAMILIES[name](**_arguments(tree, FAMILIES[name], text))
        case ast.Call(func=ast.Name(id=name), args=[]) if name in NAMED_FORMATS:
            base = NAMED_FORMATS[name]
            # What the base derives (a bias from its exponent) is derived anew.
            return type(base)(**base.arguments() | _arguments(tree, type(base), text, complete=False))
        case ast.Call(func=ast.Name(id=name)) if name in NAMED_FORMATS:
            raise FormatError(f'format "{text}": options of {name} are given by name, as in {name}(option=value)')
        case ast.Call(func=ast.Name(id=name)):
            raise _unknown(name)
        case _:
            raise FormatError(f'format "{text}" cannot be read; try a name such as bfloat16 or float(5, 2)')


def _unknown(name: str) -> FormatError:
    integer = re.fullmatch(r"int(\d{1,2})", name)
    if integer:
        bits = int(integer[1])
        hint = wider_integer(bits) or (f"write int({bits})" if 2 <= bits <= 24 else "int(2) to int(24) exist")
        return FormatError(f'unknown format "{name}": {hint}')
    return FormatError(f'unknown format "{name}": {did_you_mean(name, [*NAMED_FORMATS, *FAMILIES])}')


def _arguments(call: ast.Call, target: type, text: str, complete: bool = True) -> dict[str, Any]:
    declared = fields(target)
    names = [field.name for field in declared]
    if len(call.args) > len(names):
        raise FormatError(f'format "{text}": {len(call.args)} arguments, at most {len(names)}: {", ".join(names)}')
    arguments = {name: _value(node, text) for name, node in zip(names, call.args, strict=False)}
    for keyword in call.keywords:
        if keyword.arg not in names:
            raise FormatError(
                f'format "{text}": unknown option "{keyword.arg}": {did_you_mean(str(keyword.arg), names)}'
            )
        if keyword.arg in arguments:
            raise FormatError(f'format "{text}": option "{keyword.arg}" is given twice')
        arguments[keyword.arg] = _value(keyword.value, text)
    needed = [field.name for field in declared if field.default is MISSING]
    absent = [name for name in needed if name not in arguments]
    if complete and absent:
        raise FormatError(f'format "{text}" lacks {", ".join(absent)}; its arguments: {", ".join(names)}')
    return arguments


_WORDS = {"true": True, "false": False}


def _value(node: ast.expr, text: str) -> Any:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
            return -number
        case ast.Name(id=word) if word in _WORDS:
            return _WORDS[word]
        case ast.Name(id=word):
            return word
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return tuple(_value(item, text) for item in items)
        case ast.Call():
            return _build(node, text)
        case _:
            raise FormatError(f'format "{text}": "{ast.unparse(node)}" is no value; allowed: numbers, words, lists')
