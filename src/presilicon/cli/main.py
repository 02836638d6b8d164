"""The `presilicon` command: its subcommands, and exit codes for errors."""

import os
import signal
import sys
import warnings
from contextlib import suppress
from importlib import import_module
from typing import Any

import click

from presilicon import __version__
from presilicon.base import PresiliconError, shorten, unknown
from presilicon.cli.doctor import missing_module

_COMMANDS = {
    "evaluate": "presilicon.cli.evaluate",
    "simulate": "presilicon.cli.simulate",
    "sweep": "presilicon.cli.sweep",
    "characterize-gpu": "presilicon.cli.characterize",
    "characterize-cpu": "presilicon.cli.characterize_cpu",
    "schedule": "presilicon.cli.schedule",
    "quantize": "presilicon.cli.quantize",
    "replay": "presilicon.cli.replay",
    "instrument": "presilicon.cli.instrument",
    "rtl": "presilicon.cli.rtl",
    "design": "presilicon.cli.design",
    "numerics": "presilicon.cli.numerics",
    "runs": "presilicon.cli.runs",
    "reproduce": "presilicon.cli.reproduce",
    "list": "presilicon.cli.listing",
    "doctor": "presilicon.cli.doctor",
}

_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 110, "show_default": True}
INTERRUPTED = 130
_INTERRUPTED = "interrupted; recorded results are kept (see `presilicon runs list`)"


class _LazyGroup(click.Group):
    """A group whose subcommands are imported when they are asked for."""

    def list_commands(self, context: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in _COMMANDS:
            return None
        command: click.Command = import_module(_COMMANDS[name]).command
        return command

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in _COMMANDS and not args[0].startswith("-"):
            raise unknown("command", args[0], _COMMANDS)
        return super().resolve_command(context, args)


@click.group(cls=_LazyGroup, context_settings=_SETTINGS)
@click.version_option(__version__, prog_name="presilicon")
def cli() -> None:
    """How long, and how many joules, a design needs to train a model to an accuracy, before silicon exists."""


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit: 0 ok, 1 failed, 2 bad usage or config, 3 a tool is missing, 130 interrupted."""
    sys.exit(_run(arguments))


class _Interrupts:
    """Turns SIGINT and SIGTERM into KeyboardInterrupt and remembers them: an import may swallow the exception."""

    seen = False

    def handle(self, number: int, frame: Any) -> None:
        self.seen = True
        raise KeyboardInterrupt

    def install(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            with suppress(ValueError):  # only the main thread can
                signal.signal(number, self.handle)


def _show_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    """A warning as one line, without the place in our source that gave it."""
    click.echo(f"presilicon: warning: {message}", err=True)


def _run(arguments: list[str] | None) -> int:
    interrupts = _Interrupts()
    interrupts.install()
    if not sys.warnoptions:
        warnings.showwarning = _show_warning
    try:
        result: Any = cli.main(args=arguments, prog_name="presilicon", standalone_mode=False)
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except PresiliconError as error:
        return _complain(str(error), error.exit_code)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return 2
    except click.ClickException as error:
        return _complain(error.format_message(), 2)
    except (KeyboardInterrupt, click.Abort):
        return _complain(_INTERRUPTED, INTERRUPTED)
    except SystemExit as ended:
        # click exits like this when the reader of our output is gone (`| head`), which is not a failure.
        return 0 if type(sys.stdout).__name__.endswith("PacifyFlushWrapper") else int(ended.code or 0)
    except Exception as error:
        if interrupts.seen:
            return _complain(_INTERRUPTED, INTERRUPTED)
        if isinstance(error, ModuleNotFoundError) and (missing := missing_module(error.name)) is not None:
            return _complain(str(missing), missing.exit_code)
        if os.environ.get("PRESILICON_DEBUG"):
            raise
        text = " ".join(str(error).split()) or type(error).__name__
        return _complain(f"unexpected {type(error).__name__}: {text} (set PRESILICON_DEBUG=1 for the traceback)", 1)


def _complain(message: str, exit_code: int) -> int:
    click.echo(f"presilicon: {shorten(message)}", err=True)
    return exit_code
