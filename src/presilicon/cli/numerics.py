"""`presilicon numerics`: check, show and compare files of number formats."""

import click

from presilicon.base import to_plain
from presilicon.cli.design import print_differences, print_document
from presilicon.cli.options import json_option, repeated


@click.group("numerics")
def command() -> None:
    """Check, show and compare numerics: recipes of the package, or TOML files of your own."""


@command.command("validate")
@click.argument("recipes", nargs=-1, required=True, metavar="NUMERICS...")
def validate(recipes: tuple[str, ...]) -> None:
    """Check NUMERICS (recipes or TOML files); the first error is explained, and the exit code is 2."""
    from presilicon.designs import load_numerics

    for name in recipes:
        numerics = load_numerics(name)
        click.echo(f"{name}: ok")
        for remark in numerics.remarks():
            click.echo(f"{name}: {remark}", err=True)


@command.command("show")
@click.argument("recipe", metavar="NUMERICS")
@json_option
def show(recipe: str, as_json: bool) -> None:
    """Print NUMERICS as TOML without defaults: a starting point for a file of your own."""
    from presilicon.designs import load_numerics, write_numerics

    numerics = load_numerics(recipe)
    print_document("numerics", to_plain(numerics), write_numerics(numerics), as_json)


@command.command("diff")
@click.argument("left")
@click.argument("right")
@json_option
def diff(left: str, right: str, as_json: bool) -> None:
    """Print the fields in which two numerics differ, defaults included."""
    from presilicon.designs import diff_plain, load_numerics

    print_differences(diff_plain(to_plain(load_numerics(left)), to_plain(load_numerics(right))), as_json)


@command.command("sensitivity")
@click.argument("workload")
@repeated("--format", "formats", required=True, metavar="FORMAT", help="A format to try, as in --format e4m3fn.")
@click.option("--numerics", default="fp32", metavar="NAME", help="Formats of everything else.")
@repeated("--layers", default=("*",), show_default=False, metavar="PATTERN", help="Layers to try.")
@click.option("--by-role", is_flag=True, help="Try weights, activations and errors one by one.")
@click.option("--lift", is_flag=True, help="Ask which layer a wider FORMAT than that of --numerics helps most.")
@click.option("--threshold", default=0.1, help="Largest relative error of the gradients that passes.")
@json_option
def sensitivity(
    workload: str, formats: tuple[str, ...], numerics: str, layers: tuple[str, ...], by_role: bool, lift: bool,
    threshold: float, as_json: bool,
) -> None:  # fmt: skip
    """Put one layer of WORKLOAD at a time in each format, and print how far the gradients of its first step move."""
    from presilicon.designs import load_numerics
    from presilicon.emulation import workload_sensitivity
    from presilicon.workloads import load_workload

    result = workload_sensitivity(
        load_workload(workload), formats, load_numerics(numerics), layers=layers, by_role=by_role, lift=lift,
        threshold=threshold,
    )  # fmt: skip
    print_document("sensitivity", to_plain(result), f"{result}\n", as_json)
