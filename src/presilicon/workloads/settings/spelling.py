"""Names with parameters, written as text: `cosine(warmup=100)`."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from typing import Any

from presilicon.base import UNREADABLE, ConfigError, did_you_mean, unknown


def read_call(text: str, what: str, parameters: Mapping[str, Iterable[str]]) -> tuple[str, dict[str, Any]]:
    """The name and the parameters in a text; `parameters` maps each allowed name to the parameters it takes.

    >>> read_call("step(every=300, factor=0.1)", "schedule", {"step": ("every", "factor")})
    ('step', {'every': 300, 'factor': 0.1})
    >>> read_call("stepp", "schedule", {"step": ("every", "factor")})
    Traceback (most recent call last):
    presilicon.base.errors.ConfigError: unknown schedule "stepp": did you mean "step"? Allowed: step

    Raises:
        ConfigError: the text is not of this form, or the name or a parameter is unknown.
    """
    example = next(iter(parameters))
    shape = f"{what} {text!r} must be a name with parameters, such as {example}({next(iter(parameters[example]))}=...)"
    try:
        call = ast.parse(text.strip(), mode="eval").body
    except UNREADABLE:
        raise ConfigError(shape) from None
    function = call.func if isinstance(call, ast.Call) else call
    if not isinstance(function, ast.Name) or (isinstance(call, ast.Call) and call.args):
        raise ConfigError(shape)
    name = function.id
    if name not in parameters:
        raise unknown(what, name, parameters)
    keywords = call.keywords if isinstance(call, ast.Call) else []
    return name, {_known(word, name, what, parameters[name]): _value(word, name, what) for word in keywords}


def write_call(name: str, values: Mapping[str, Any]) -> str:
    """The text that `read_call` reads.

    >>> write_call("step", {"every": 300.0, "factor": 0.1})
    'step(every=300, factor=0.1)'
    """
    arguments = ", ".join(f"{key}={_spell(value)}" for key, value in values.items())
    return f"{name}({arguments})" if arguments else name


def _known(word: ast.keyword, name: str, what: str, allowed: Iterable[str]) -> str:
    if word.arg not in set(allowed):
        raise ConfigError(f'{what} {name} has no parameter "{word.arg}": {did_you_mean(str(word.arg), allowed)}')
    return str(word.arg)


def _value(word: ast.keyword, name: str, what: str) -> Any:
    try:
        return ast.literal_eval(word.value)
    except ValueError:
        raise ConfigError(f"{what} {name}: {word.arg} must be a number or a list of numbers") from None


def _spell(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_spell, value))}]"
    return str(int(value)) if isinstance(value, float) and value.is_integer() and abs(value) < 1e15 else repr(value)
