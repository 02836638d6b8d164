"""Options that several commands share."""

import json
import shlex
from collections.abc import Callable, Container
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from presilicon.base import DOCUMENT_SCHEMA, ConfigError

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

set_option = repeated(
    "--set", "settings", metavar="PATH=VALUE", help="Override a field of every design, as in --set machine.rows=64."
)

vary_option = click.option(
    "--vary",
    multiple=True,
    metavar="PATH=VALUE,...",
    help="One design for each value, as in --vary machine.rows=32,64. Several make every combination.",
)

method_option = repeated(
    "--method",
    "methods",
    metavar="NAME[.PARAMETER=VALUE]",
    help="Training method of every design, or a parameter of one: see `presilicon list methods`. For designs with it "
    "beside those without, --vary methods=none,NAME.",
)

numerics_option = click.option(
    "--numerics",
    metavar="NAME",
    help="Number formats in place of the design's own: see `presilicon list numerics`; or a TOML file of your own.",
)

any_processor_option = click.option(
    "--any-processor",
    is_flag=True,
    help="Continue trainings that began on another kind of processor, whose bits differ; the result says so.",
)

clock_option = click.option(
    "--clock-ghz", type=float, help="Clock of the cycles in --times, in place of the design's own."
)

out_option = click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("runs"),
    envvar="PRESILICON_RUNS",
    show_envvar=True,
    help="Directory that holds the run directories.",
)


def say_how_to_continue(command: str, run: str, out: Path) -> None:
    """Print the command that continues an interrupted run of the directory `out`."""
    place = f" --out {shlex.quote(str(out))}" if str(out) != "runs" else ""
    click.echo(f"to continue: presilicon {command} --resume {run}{place}", err=True)
