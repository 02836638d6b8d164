"""`presilicon design`: check, show, compare and size design files."""

from pathlib import Path
from typing import Any

import click

from presilicon.base import change_lines, located, to_toml, write_file
from presilicon.cli.options import json_option, print_json, set_option


@click.group("design")
def command() -> None:
    """Check, show, compare and size design files."""


@command.command("validate")
@click.argument("designs", nargs=-1, required=True, metavar="DESIGN...")
@set_option
def validate(designs: tuple[str, ...], settings: tuple[str, ...]) -> None:
    """Check DESIGNs (presets or TOML files); the first error is explained, and the exit code is 2."""
    from presilicon.designs import load_design

    for name in designs:
        design = load_design(name, settings)
        if design.instrument is not None and design.instrument.taps:
            from presilicon.instrument import check_taps

            with located(name):
                check_taps(design.instrument)
        click.echo(f"{name}: ok ({design.name})")
        for remark in design.numerics.remarks():
            click.echo(f"{name}: {remark}", err=True)


@command.command("show")
@click.argument("design")
@set_option
@json_option
def show(design: str, settings: tuple[str, ...], as_json: bool) -> None:
    """Print DESIGN as TOML with every default: a starting point for a file of your own."""
    from presilicon.designs import load_design

    loaded = load_design(design, settings)
    plain = loaded.to_plain()
    print_document("design", plain, to_toml(plain, loaded), as_json)


def print_document(what: str, plain: Any, toml: str, as_json: bool) -> None:
    """Print a document as JSON under the key `what`, or as TOML."""
    if as_json:
        print_json(**{what: plain})
    else:
        click.echo(toml, nl=False)


@command.command("diff")
@click.argument("left")
@click.argument("right")
@json_option
def diff(left: str, right: str, as_json: bool) -> None:
    """Print the fields in which two designs differ, defaults included."""
    from presilicon.designs import diff_designs, load_design

    print_differences(diff_designs(load_design(left), load_design(right)), as_json)


@command.command("fit-area")
@click.argument("design")
@click.option("--like", required=True, metavar="OTHER", help="The design whose area is the goal.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Write the design here.")
@set_option
@json_option
def fit(design: str, like: str, out: Path | None, settings: tuple[str, ...], as_json: bool) -> None:
    """Size the array of DESIGN so that its area is that of OTHER; prints the design as TOML, or writes it.

    It is called by DESIGN and its new size. --set applies to both designs.
    """
    from presilicon.designs import load_design
    from presilicon.simulation import fit_area

    fitted = fit_area(load_design(design, settings), load_design(like, settings))
    plain = fitted.design.to_plain()
    machine = plain["machine"]
    difference = fitted.mm2 / fitted.goal_mm2 - 1
    line = (
        f"{machine['rows']} x {machine['cols']}: {fitted.mm2:.4f} mm2, {difference:+.3%} of the "
        f"{fitted.goal_mm2:.4f} mm2 of {like}; areas of technology {machine['technology']}"
    )
    if out is not None:
        write_file(out, f"# {line}\n{to_toml(plain, fitted.design)}")
        click.echo(line)
        return
    click.echo(line, err=True)
    if as_json:
        areas = {"area_mm2": fitted.mm2, "goal_mm2": fitted.goal_mm2, "technology": machine["technology"]}
        print_json(design=plain, **areas)
    else:
        print_document("design", plain, to_toml(plain, fitted.design), as_json=False)


def print_differences(changes: list[tuple[str, Any, Any]], as_json: bool) -> None:
    """Print path, left and right value of each difference."""
    if as_json:
        documents = [{"path": path, "left": before, "right": after} for path, before, after in changes]
        print_json(differences=documents)
    elif not changes:
        click.echo("no difference")
    else:
        click.echo("\n".join(change_lines(changes)))
