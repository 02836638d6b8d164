"""Arguments of public functions, checked against the types that the functions name."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, wraps
from inspect import Parameter, signature
from os import PathLike
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from presilicon.base.errors import ConfigError

F = TypeVar("F", bound=Callable[..., Any])

_PLAIN = {
    int: "a whole number",
    float: "a number",
    bool: "True or False",
    str: "a string",
    Path: "a path",
    NoneType: "None",
}
_BY_NAME = ("Design",)
"""Types whose values may be given by a name, a path or several of them, about which the function itself decides."""
_VARIADIC = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)


@cache
def checked(function: F) -> F:
    """The function, which refuses arguments of other types than it names before it does anything.

    Raises:
        ConfigError: says which argument, and what is allowed.
    """

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        kinds, rules = _parameters(function)
        for (name, hint), value in zip(rules.items(), args, strict=False):
            check_argument(function.__name__, name, value, hint)
        for name in kwargs.keys() & kinds:
            check_argument(function.__name__, name, kwargs[name], kinds[name])
        return function(*args, **kwargs)

    call.__module__ = __name__.partition(".")[0]  # where the function is public, so that it can be pickled
    return call  # type: ignore[return-value]


@cache
def _parameters(function: Callable[..., Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The types of all named parameters, and of those that may be given by position, in order."""
    parameters = signature(function).parameters.values()
    named = {each.name: _resolved(each.annotation, function) for each in parameters if each.kind not in _VARIADIC}
    by_position = {each.name: named[each.name] for each in parameters if each.kind is Parameter.POSITIONAL_OR_KEYWORD}
    return named, by_position


def _resolved(annotation: Any, function: Callable[..., Any]) -> Any:
    """The type that an annotation names; one that is only there for type checkers is anything."""
    if not isinstance(annotation, str):
        return annotation
    try:
        return eval(annotation, function.__globals__)
    except NameError:
        return Any


def check_argument(function: str, name: str, value: Any, hint: Any) -> None:
    """Refuse a value that is not of a type.

    >>> check_argument("simulate", "design", 5, str | None)
    Traceback (most recent call last):
    presilicon.base.errors.ConfigError: simulate: design must be a string or None, not 5
    """
    if not fits(value, hint):
        simple = value is None or isinstance(value, int | float | str)
        given = repr(value)[:60] if simple else f"a {type(value).__name__}"
        raise ConfigError(f"{function}: {name} must be {_described(hint)}, not {given}")


def fits(value: Any, hint: Any) -> bool:
    """Whether a value is of a type, as far as that can be said without looking into the value's own parts.

    >>> fits(3, float), fits("3", int | None), fits(["a", 3], Sequence[str]), fits(3, Literal["bf16", "fp32"])
    (True, False, False, False)
    """
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return any(fits(value, part) for part in parts)
    if origin is Literal:
        return any(type(value) is type(part) for part in parts)  # a wrong word gets a proposal from the function
    if origin is Annotated:
        return fits(value, parts[0])
    if isinstance(hint, TypeVar):
        return hint.__bound__ is None or fits(value, hint.__bound__)
    if origin is not None:
        return isinstance(value, origin) and _parts_fit(value, origin, parts)
    return _is_instance(value, hint)


def _parts_fit(value: Any, origin: type, parts: tuple[Any, ...]) -> bool:
    """Whether the elements of a sequence fit; those of other iterables are not looked into, which may use them up."""
    if isinstance(value, str):
        return not parts or fits(value, parts[0])
    if not issubclass(origin, Sequence) or issubclass(origin, tuple):
        return True
    return all(fits(element, parts[0]) for element in value)


def _is_instance(value: Any, hint: Any) -> bool:
    if hint is None:
        return value is None
    if isinstance(value, type) and hint in (int, float):
        return False
    if getattr(hint, "__name__", "") in _BY_NAME and isinstance(value, str | PathLike | list | tuple):
        return True
    if hint is Path:
        return isinstance(value, PathLike)
    if hint is int:  # NumPy's whole numbers too
        return hasattr(value, "__index__")
    if hint is float:
        return hasattr(value, "__float__") or hasattr(value, "__index__")
    if not isinstance(hint, type):
        return True
    try:
        return isinstance(value, hint)
    except TypeError:  # a protocol, which only type checkers can tell
        return True


def _described(hint: Any) -> str:
    """A type in words: `a Design, a string or None`."""
    words = list(dict.fromkeys(_words(hint)))
    return " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _words(hint: Any) -> list[str]:
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return [word for part in parts for word in _words(part)]
    if origin is Literal:
        return [repr(part) for part in parts]
    if origin is Annotated:
        return _words(parts[0])
    if isinstance(hint, TypeVar):
        return _words(hint.__bound__)
    if origin is Callable or hint is Callable:
        return ["a function"]
    if origin is not None and parts and issubclass(origin, Iterable) and not issubclass(origin, Mapping):
        return [f"a list of {_described(parts[0])}"]
    hint = origin or hint
    if hint in _PLAIN:
        return [_PLAIN[hint]]
    name = getattr(hint, "__name__", str(hint))
    return [f"{'an' if name[0] in 'AEIOU' else 'a'} {name}"]
