"""Options that several commands share."""

import ast
import inspect
import json
import re
import shlex
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, Union, get_origin, get_type_hints

import click
from click.core import ParameterSource
from msgspec import NODEFAULT, Meta, Struct
from msgspec.structs import fields

from presilicon.base import DOCUMENT_SCHEMA, ConfigError
from presilicon.study import Flag, RequestOptions

if TYPE_CHECKING:
    from presilicon.runs import Run

F = TypeVar("F", bound=Callable[..., Any])


class SeedCount(click.ParamType):  # type: ignore[type-arg]
    """A number of seeds of at least 1, or `auto`."""

    name = "integer or auto"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number, or `auto` itself."""
        if value == "auto":
            return value
        try:
            seeds = int(value)
        except ValueError:
            seeds = 0
        if seeds < 1:
            self.fail(f"{value!r} must be a whole number of at least 1, or auto", param, ctx)
        return seeds


def options_of(kind: type[Struct], *names: str, **helps: str) -> Callable[[F], F]:
    """The fields of a struct (all, or those named) as options, by their types, defaults and docstrings.

    `helps` are texts in place of docstrings, where a command gives an option another meaning.
    """
    hints, texts = get_type_hints(kind, include_extras=True), field_texts(kind)
    defaults = {field.name: field.default for field in fields(kind)}

    def decorate(function: F) -> F:
        for name in reversed(names or list(texts)):
            function = _option(name, hints[name], defaults[name], helps.get(name, texts[name]))(function)
        return function

    return decorate


def field_texts(kind: type[Struct]) -> dict[str, str]:
    """The docstring of each field of a struct: those of its own first, then those that it inherits.

    >>> field_texts(RequestOptions)["seed"]
    'The first seed; the others follow it.'
    """
    texts: dict[str, str] = {}
    for base in kind.__mro__[: kind.__mro__.index(Struct)]:
        (definition,) = ast.parse(inspect.getsource(base)).body
        for field, text in pairwise(definition.body):  # type: ignore[attr-defined]
            if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
                texts[ast.unparse(field.target)] = re.sub(r"\n\s*", " ", ast.literal_eval(text.value))
    return texts


def _option(name: str, hint: Any, default: Any, text: str) -> Callable[[F], F]:
    """One field as an option: its name is `Flag`'s or its own, and it may be repeated if it is a tuple."""
    flag, bounds, parts, types = Flag(), Meta(), [hint], []
    while parts:
        part = parts.pop(0)
        if get_origin(part) is Annotated:
            flag = next((extra for extra in part.__metadata__ if isinstance(extra, Flag)), flag)
            bounds = next((extra for extra in part.__metadata__ if isinstance(extra, Meta)), bounds)
        if get_origin(part) in (Annotated, Union, UnionType):
            parts += part.__args__
        elif part is not NoneType:
            types.append(part)
    words = (flag.name or name).replace("_", "-")
    if types == [bool]:
        words = f"no-{words}" if default else words
        shown = {"default": default, "show_default": False, "help": text}
        return click.option(f"--{words}", name, is_flag=True, flag_value=not default, **shown)
    form: Any = flag.form or (click.Path(path_type=Path) if types == [Path] else types[0])
    row = next((part for part in types if get_origin(part) is tuple), None)
    if row is not None:
        form, default = row.__args__[0], ()
        text = text if "repeated" in text.lower() else f"{text} May be repeated."
    elif bounds.ge is not None:
        form = (click.IntRange if form is int else click.FloatRange)(bounds.ge, bounds.le)  # type: ignore[arg-type]
    elif get_origin(form) is Literal:
        form = click.Choice(form.__args__)
    elif len(types) > 1:
        form = SeedCount()
    rest: dict[str, Any] = {} if default is NODEFAULT else {"default": default}
    return click.option(
        f"--{words}", name, type=form, multiple=row is not None, metavar=flag.metavar, help=text, **rest
    )


def print_json(**fields: Any) -> None:
    """Print a JSON document on stdout."""
    click.echo(json.dumps({"schema": DOCUMENT_SCHEMA, **fields}, indent=2))


def refuse_options(context: click.Context, names: Container[str | None], reason: str) -> None:
    """Refuse options that were given and would be ignored.

    Raises:
        ConfigError: names the option, with the reason.
    """
    for option in context.command.params:
        if option.name in names and context.get_parameter_source(option.name or "") is not ParameterSource.DEFAULT:
            raise ConfigError(f"{option.opts[0]} {reason}")


def repeated(*names: str, help: str, **rest: Any) -> Callable[[F], F]:
    """An option that may be given several times, as its help says."""
    return click.option(*names, multiple=True, help=f"{help} May be repeated.", **rest)


json_option = click.option("--json", "as_json", is_flag=True, help="Print a JSON document on stdout.")

set_option = options_of(RequestOptions, "settings")

out_option = click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("runs"),
    envvar="PRESILICON_RUNS",
    show_envvar=True,
    help="Directory that holds the run directories.",
)


@contextmanager
def continues(command: str, out: Path) -> Iterator[list["Run"]]:
    """A context that says, when it is interrupted, how the run that its caller noted in the list is continued."""
    recorded: list[Run] = []
    try:
        yield recorded
    except KeyboardInterrupt:
        if recorded:
            place = f" --out {shlex.quote(str(out))}" if str(out) != "runs" else ""
            click.echo(f"to continue: presilicon {command} --resume {recorded[0].name}{place}", err=True)
        raise
