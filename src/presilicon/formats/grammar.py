"""The spelling of formats: names such as `bfloat16`, and calls such as `float(exponent=6, mantissa=9)`."""

import ast
import math
import re
from dataclasses import MISSING, fields
from functools import cache
from typing import TYPE_CHECKING, Any

from presilicon.base import UNREADABLE, ExtensionPoint, FormatError, did_you_mean
from presilicon.formats.families.integer import wider_integer
from presilicon.formats.format import Format, spell_value
from presilicon.formats.rounding import Mode, Stochastic, check_rounding

if TYPE_CHECKING:
    from presilicon.formats.families.user import UserFormat

_BUILTIN = {
    "float": "presilicon.formats.families.float:Float",
    "fixed": "presilicon.formats.families.fixed:Fixed",
    "bfp": "presilicon.formats.families.block:BlockFloat",
    "mx": "presilicon.formats.families.mx:Mx",
    "nvfp": "presilicon.formats.families.nvfp:Nvfp4",
    "scaled": "presilicon.formats.families.scaled:Scaled",
    "int": "presilicon.formats.families.integer:Integer",
    "posit": "presilicon.formats.families.posit:Posit",
    "lns": "presilicon.formats.families.logarithmic:Logarithmic",
    "table": "presilicon.formats.families.table:Table",
}

FAMILIES: ExtensionPoint[type[Format]] = ExtensionPoint(
    "presilicon.formats", "number format", _BUILTIN, Format, aliases=lambda family: family.names()
)
"""The families of formats, by the word before the parenthesis."""


@cache
def _names_of(family: type[Format]) -> dict[str, Format]:
    return family.names()


NAMED_FORMATS: dict[str, Format] = {
    name: fmt for family in _BUILTIN for name, fmt in _names_of(FAMILIES.load(family)).items()
}
"""The names that `parse` knows without installed packages, and those that were registered."""


def named_formats() -> dict[str, Format]:
    """Every name that `parse` knows, with its format; includes those of installed packages."""
    installed = {name: fmt for family in FAMILIES.members().values() for name, fmt in _names_of(family).items()}
    return NAMED_FORMATS | {name: fmt for name, fmt in installed.items() if name not in NAMED_FORMATS}


def name_of(fmt: Format) -> str | None:
    """The name of a format that has one, unless another family has the same name."""
    named = (name for name, known in _names_of(type(fmt)).items() if known == fmt)
    return next((name for name in named if NAMED_FORMATS.get(name, fmt) == fmt), None)


@cache
def short_name(fmt: Format) -> str:
    """The shortest text that `parse` reads as this format: its spelling, or a name with changed options.

    >>> short_name(parse("e4m3fn(overflow=saturate)")), short_name(parse("float(6, 9)"))
    ('e4m3fn(overflow=saturate)', 'float(exponent=6, mantissa=9)')
    """
    texts = [str(fmt)]
    options = {argument.name for argument in fields(fmt) if argument.default is not MISSING}  # type: ignore[arg-type]
    for name, known in _names_of(type(fmt)).items():
        own = known.arguments()
        changed = {key: value for key, value in fmt.arguments().items() if own.get(key) != value}
        text = f"{name}({', '.join(f'{key}={spell_value(value)}' for key, value in changed.items())})"
        if changed.keys() <= options and len(text) < len(texts[-1]) and parse(text) == fmt:
            texts.append(text)
    return texts[-1]


def register(fmt: "UserFormat") -> "UserFormat":
    """Make a user-defined format known to `parse` by its name, and return it.

    Raises `FormatError` if another format has the name.
    """
    is_taken = fmt.name in FAMILIES or NAMED_FORMATS.get(fmt.name, fmt) != fmt
    if is_taken:
        raise FormatError(f'the name "{fmt.name}" belongs to another format; choose another name')
    NAMED_FORMATS[fmt.name] = fmt
    return fmt


def parse(text: str) -> Format:
    """The format that a text spells.

    A name, a name with changed options, or a family called with positional or keyword arguments. Words need no quotes.

    >>> from presilicon.formats import Float
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
        raise FormatError(f"a format must be spelt as text, not {text!r}; try parse('bfloat16')")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except UNREADABLE:
        raise FormatError(f'format "{text}" cannot be read; try a name such as bfloat16 or float(5, 2)') from None
    return _build(tree, text)


def parse_rounding(text: str) -> Mode:
    """The rounding that a text spells: a mode's name or `stochastic(bits=8, source=lfsr)`.

    >>> parse_rounding("stochastic(bits=8)")
    Stochastic(bits=8, source='counter')
    """
    if not isinstance(text, str):
        raise FormatError(f'a rounding must be spelt as text, not {text!r}; try "stochastic(bits=8, source=lfsr)"')
    if not text.strip().startswith("stochastic("):
        return check_rounding(text.strip())
    try:
        call = ast.parse(text.strip(), mode="eval").body
    except UNREADABLE:
        call = None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        raise FormatError(f'rounding "{text}" cannot be read; try stochastic(bits=8, source=lfsr)')
    return Stochastic(**_arguments(call, Stochastic, text))


def _build(tree: ast.expr, text: str) -> Format:
    match tree:
        case ast.Name(id=name):
            if name not in NAMED_FORMATS and name in FAMILIES:
                return _build(ast.Call(tree, [], []), text)
            named = _named(name)
            if named is None:
                raise _unknown(name)
            return named
        case ast.Call(func=ast.Name(id=name)) if name in FAMILIES:
            family = _family(name)
            with FAMILIES.errors_of(name):
                return family(**_arguments(tree, family, text))
        case ast.Call(func=ast.Name(id=name), args=arguments):
            base = _named(name)
            if base is None:
                raise _unknown(name)
            if arguments:
                raise FormatError(f'format "{text}": options of {name} are given by name, as in {name}(option=value)')
            # Values that the base derives, such as a bias from its exponent, are derived again.
            return type(base)(**base.arguments() | _arguments(tree, type(base), text, complete=False))
        case _:
            raise FormatError(f'format "{text}" cannot be read; try a name such as bfloat16 or float(5, 2)')


def _named(name: str) -> Format | None:
    """The format of a name; installed packages are asked last, since that imports them."""
    if name in NAMED_FORMATS:
        return NAMED_FORMATS[name]
    return named_formats().get(name)


def _family(name: str) -> type[Format]:
    """The family of a name; an installed package may have registered it under another name than its `kind`."""
    family = FAMILIES.load(name)
    if family.kind != name:
        raise FormatError(f'number format "{name}": the class {family.__name__} must have kind = "{name}"')
    return family


def _unknown(name: str) -> FormatError:
    integer = re.fullmatch(r"int(\d{1,2})", name)
    if integer:
        bits = int(integer[1])
        hint = wider_integer(bits) or (f"write int({bits})" if 2 <= bits <= 24 else "int(2) to int(24) exist")
        return FormatError(f'unknown format "{name}": {hint}')
    return FormatError(f'unknown format "{name}": {did_you_mean(name, [*named_formats(), *FAMILIES.names()])}')


def _arguments(call: ast.Call, target: type, text: str, complete: bool = True) -> dict[str, Any]:
    declared = fields(target)
    names = [field.name for field in declared]
    if call.args and str(declared[0].type).startswith("tuple") and not isinstance(call.args[0], ast.List | ast.Tuple):
        call = ast.Call(call.func, [ast.List(call.args)], call.keywords)  # table(-1, 0, 1)
    if len(call.args) > len(names):
        raise FormatError(
            f'format "{text}": there are at most {len(names)} arguments, not {len(call.args)}: {", ".join(names)}'
        )
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


_WORDS = {"true": True, "false": False, "inf": math.inf}


def _value(node: ast.expr, text: str) -> Any:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
            return -number
        case ast.UnaryOp(op=ast.USub(), operand=ast.Name(id="inf")):
            return -math.inf
        case ast.Name(id=word) if word in _WORDS:
            return _WORDS[word]
        case ast.Name(id=word):
            return word
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return tuple(_value(item, text) for item in items)
        case ast.Call():
            return _build(node, text)
        case _:
            raise FormatError(f'format "{text}": a value must be a number, a word or a list, not "{ast.unparse(node)}"')
