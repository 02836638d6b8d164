"""`presilicon quantize`: single numbers in a number format."""

import math
from dataclasses import asdict
from typing import Any

import click

from presilicon.base import ConfigError, columns
from presilicon.cli.options import json_option, print_json


@click.command("quantize", context_settings={"ignore_unknown_options": True})
@click.argument("format_text", metavar="FORMAT")
@click.argument("values", nargs=-1, required=True, metavar="VALUE...")
@click.option(
    "--rounding",
    metavar="MODE",
    help="nearest-even (default), nearest-away, toward-zero, up, down, stochastic or stochastic(bits=8, source=lfsr).",
)
@click.option("--seed", type=int, default=0, help="Seed of stochastic rounding.")
@json_option
def command(format_text: str, values: tuple[str, ...], rounding: str | None, seed: int, as_json: bool) -> None:
    """Show each VALUE in FORMAT: its value, code, bits by field, error and neighbours.

    In block formats the values form one row and share groups.

    \b
    Examples:
      presilicon quantize e5m2 1.1 -70000 nan
      presilicon quantize "bfp(mantissa=4, group=4)" 0.1 0.2 3 4
    """
    from presilicon.formats import Key, describe, parse, parse_rounding, special_results

    fmt = parse(format_text)
    numbers = [_number(value) for value in values]
    mode: Any = None if rounding is None else parse_rounding(rounding)
    descriptions = describe(numbers, fmt, mode, Key(seed=seed))
    if as_json:
        plain = [{name: _plain(item) for name, item in asdict(description).items()} for description in descriptions]
        specials = dict(zip(("infinity", "-infinity", "nan"), map(_plain, special_results(fmt)), strict=True))
        print_json(format=str(fmt), bits_per_element=fmt.bits_per_element, specials=specials, values=plain)
        return
    up, down, nan = map(_show, special_results(fmt))
    click.echo(f"{fmt}: {fmt.bits_per_element:g} bits per number; inf becomes {up}, -inf {down}, nan {nan}")
    header = ("given", "value", "error", "code", "bits", "below", "above", "scale")
    rows = [
        (
            f"{description.given:.9g}",
            f"{description.value:.9g}",
            f"{description.error:.3g}",
            f"{description.code:#x}",
            " ".join(f"{field.name}={field.bits}" for field in description.fields) or description.bits,
            _show(description.below),
            _show(description.above),
            _show(description.scale),
        )
        for description in descriptions
    ]
    count = len(header) if any(row[-1] != "-" for row in rows) else len(header) - 1
    click.echo("\n".join(columns([row[:count] for row in (header, *rows)], left=range(count))))


def _number(text: str) -> float:
    try:
        return float.fromhex(text) if "0x" in text.lower() else float(text)
    except (ValueError, OverflowError):
        raise ConfigError(f'"{text}" is not a number; write 1.5, -3e-4, 0x1.8p3, inf or nan') from None


def _show(value: float | None) -> str:
    return "-" if value is None else f"{value:.9g}"


def _plain(value: Any) -> Any:
    """The value for JSON, which has no infinities and NaN: they become their names."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
