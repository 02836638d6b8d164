"""`presilicon list`: everything that has a name, from the package and from installed extensions."""

from collections.abc import Callable
from typing import Any, cast

import click
from msgspec import structs

from presilicon.base import ConfigError, columns, to_plain
from presilicon.cli.options import json_option, print_json

Rows = list[dict[str, Any]]


@click.group("list")
def command() -> None:
    """List designs, machine kinds, training methods, systems, workloads, number formats and other named things."""


def _listing(rows: Callable[[], Rows]) -> Callable[[], Rows]:
    """A command, called as the function is, that prints the rows which the function returns."""
    what = rows.__name__

    @command.command(what, help=rows.__doc__)
    @json_option
    def listing(as_json: bool) -> None:
        if as_json:
            print_json(**{what: rows()})
        else:
            _print(rows())

    return rows


@_listing
def designs() -> Rows:
    """List the design presets."""
    from presilicon.designs import design_names, load_design

    return [{"name": name, "description": load_design(name).description} for name in design_names()]


@_listing
def machines() -> Rows:
    """List the machine kinds with the design presets that use them."""
    from presilicon.designs import MACHINES, design_names, load_design

    kinds = {name: load_design(name).machine.kind for name in design_names()}
    return [
        {"name": name, "description": kind.summary(), "designs": [design for design in kinds if kinds[design] == name]}
        for name, kind in MACHINES.members().items()
    ]


@_listing
def methods() -> Rows:
    """List the training methods with their parameters and defaults."""
    from presilicon.designs import METHODS

    rows = []
    for name, method in METHODS.members().items():
        fields = structs.fields(cast(Any, method))
        defaults = {field.name: "required" if field.required else to_plain(field.default) for field in fields}
        changes = {"training": method.in_training, "hardware": method.in_hardware}
        rows.append({"name": name, "description": method.summary(), **changes, "parameters": defaults})
    return rows


@_listing
def systems() -> Rows:
    """List the systems of several devices that `presilicon schedule` takes."""
    from presilicon.designs import load_system, system_names

    return [{"name": name, "description": load_system(name).description} for name in system_names()]


@_listing
def workloads() -> Rows:
    """List the workloads with their metrics and targets, and the commands that take them.

    Workloads without data can be simulated but not evaluated.
    """
    from presilicon.workloads import load_workload, workload_names

    rows = []
    for name in workload_names():
        try:
            workload = load_workload(name)
        except ConfigError as error:  # of an installed package: the others are listed all the same
            click.echo(f"presilicon: warning: {error}", err=True)
            continue
        commands = ["evaluate", "simulate"] if workload.can_evaluate else ["simulate"]
        metric = workload.measure.name if workload.can_evaluate else None
        described = {"commands": commands, "description": workload.description}
        rows.append({"name": name, "metric": metric, "target": workload.target, **described})
    return rows


@_listing
def numerics() -> Rows:
    """List the numerics recipes: number formats of every role, with their sources."""
    from presilicon.designs import load_recipe, recipe_names

    recipes = [load_recipe(name) for name in recipe_names()]
    return [{"name": recipe.name, "description": recipe.description, "source": recipe.source} for recipe in recipes]


@_listing
def technologies() -> Rows:
    """List the technology tables with process node, kinds of figures and sources.

    A design may name a file of your own instead (docs/technologies.md).
    """
    from presilicon.designs import load_technology, technology_names

    return [
        {
            "name": table.name,
            "node": f"{table.node_nm:g} nm",
            "figures": "energy" if table.area is None else "energy and area",
            "source": table.source,
        }
        for table in map(load_technology, technology_names())
    ]


@command.command("formats")
@json_option
def formats(as_json: bool) -> None:
    """List the named number formats, and the families of all others."""
    from dataclasses import fields

    from presilicon.formats import FAMILIES, named_formats

    rows = [
        {"name": name, "bits_per_element": fmt.bits_per_element, "description": fmt.spelling()}
        for name, fmt in named_formats().items()
    ]
    members = FAMILIES.members()
    families = {name: [field.name for field in fields(cast(Any, family))] for name, family in members.items()}
    if as_json:
        print_json(formats=rows, families=families)
        return
    _print(rows)
    click.echo("\nfamilies, and their arguments by position or name (docs/formats.md):")
    for name, arguments in families.items():
        click.echo(f"  {name}({', '.join(arguments)})")


@_listing
def aggregations() -> Rows:
    """List the aggregations that the instrument can compute, with their options and results.

    `presilicon instrument list` shows what they cost on given hardware.
    """
    from presilicon.instrument import AGGREGATIONS

    return [
        {"name": name, "options": list(record.all_options), "description": record.gives}
        for name, record in AGGREGATIONS.members().items()
    ]


@_listing
def reproductions() -> Rows:
    """List the published results that `presilicon reproduce` computes again."""
    from presilicon.study import reproduction_names

    return [{"name": name} for name in reproduction_names()]


def _print(rows: Rows) -> None:
    texts = [[_text(value) for value in row.values()] for row in rows]
    click.echo("\n".join(columns(texts, left=range(len(texts[0])))))


def _text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, list):
        return ", ".join(_text(item) for item in value)
    if isinstance(value, dict):
        return ", ".join(f"{key}={_text(item)}" for key, item in value.items())
    return f"{value:g}" if isinstance(value, float) else str(value)
