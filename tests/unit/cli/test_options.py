"""Options of commands are made of the fields that they give: a new field is an option, and its text is the help."""

from pathlib import Path
from typing import Annotated, Literal

import click
import pytest
from click.testing import CliRunner
from msgspec import Meta, Struct

from presilicon.cli.evaluate import command as evaluate
from presilicon.cli.main import cli
from presilicon.cli.options import field_texts, options_of
from presilicon.cli.schedule import command as schedule
from presilicon.study.options import ExecutionOptions, Flag, RequestOptions, ScheduleOptions, Seeds


class Base(Struct, frozen=True, kw_only=True):
    seed: int = 3
    """The seed
    of all."""
    hidden: int = 0


class Given(Base, frozen=True, kw_only=True):
    """One field of every kind."""

    rate: Annotated[float | None, Flag("lr", "X")] = None
    """Rate."""
    most: Annotated[int, Meta(ge=1, le=9)] = 5
    """Most."""
    share: Annotated[float, Meta(ge=0, le=1)] = 0.5
    """Share."""
    rule: Literal["all", "none"] = "all"
    """Rule."""
    many: tuple[float, ...] = ()
    """Many."""
    seeds: Seeds = 5
    """Seeds."""
    file: Path | None = None
    """File."""
    checks: bool = False
    """Check."""
    moves: bool = True
    """Move."""


@click.command()
@options_of(Given, rule="Another text.")
@click.pass_context
def given(context, /, **options):
    context.obj.append(Given(**options))


def run(*arguments):
    seen = []
    result = CliRunner().invoke(given, arguments, obj=seen)
    return result, seen


def test_without_options_every_field_has_its_default():
    assert run()[1] == [Given()]


def test_every_option_gives_its_field():
    arguments = ["--seed", "1", "--lr", "0.5", "--most", "9", "--share", "1", "--rule", "none", "--many", "1"]
    arguments += ["--many", "2", "--seeds", "auto", "--file", "a.json", "--checks", "--no-moves"]
    changed = {"seed": 1, "rate": 0.5, "most": 9, "share": 1.0, "rule": "none", "many": (1.0, 2.0), "seeds": "auto"}
    assert run(*arguments)[1] == [Given(**changed, file=Path("a.json"), checks=True, moves=False)]


@pytest.mark.parametrize(
    "arguments",
    [["--most", "10"], ["--most", "0"], ["--share", "1.5"], ["--rule", "some"], ["--seeds", "0"], ["--hidden", "1"]],
)
def test_values_out_of_bounds_and_fields_without_a_text_are_refused(arguments):
    result, seen = run(*arguments)
    assert result.exit_code == 2
    assert arguments[0] in result.output
    assert seen == []


def test_the_text_of_a_field_is_the_help_of_its_option():
    shown = " ".join(run("--help")[0].output.split())
    assert "The seed of all. " in shown
    assert "Another text." in shown
    assert "Many. May be repeated." in shown
    assert "--lr X Rate." in shown


@pytest.mark.parametrize(
    ("command", "kinds"),
    [(evaluate, [RequestOptions]), (schedule.commands["run"], [ScheduleOptions, ExecutionOptions])],
)
def test_every_field_of_a_command_has_a_text_and_is_an_option(command, kinds):
    options = {option.name: option for option in command.params}
    for kind in kinds:
        texts = field_texts(kind)
        assert set(texts) == set(kind.__struct_fields__)
        for name, text in texts.items():
            assert options[name].help.startswith(text)


def test_an_option_has_one_text_in_all_commands_that_take_it():
    taken = {}
    for name in ("evaluate", "sweep", "simulate"):
        for option in cli.get_command(None, name).params:
            if option.name in ("accumulate", "any_processor", "clock_ghz", "methods", "settings", "vary"):
                taken.setdefault(option.name, set()).add(option.help)
    assert {name: len(texts) for name, texts in taken.items()} == dict.fromkeys(taken, 1)
    assert len(taken) == 6
