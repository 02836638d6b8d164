"""`presilicon instrument` on trainings: watch, program taps, set the learning rate, compare with a chip."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from msgspec import to_builtins
from msgspec.structs import replace

from presilicon.base import DOCUMENT_SCHEMA, ConfigError, RunFailedError, read_file, to_plain
from presilicon.cli.options import json_option, out_option, repeated

if TYPE_CHECKING:
    from presilicon.instrument import Answer
    from presilicon.records import InstrumentEvent, InstrumentStarted
    from presilicon.runs import StoredRun

_RUN = click.argument("run", default="latest")
_DESIGN = click.option("--design", metavar="NAME", help="Only the trainings of this design of the run.")
_SEED = click.option("--seed", type=int, help="Only the training with this seed.")
_TAP = click.option("--tap", required=True, metavar="NAME", help="A tap of the design, or one of its layers' taps.")
_WAIT = click.option("--wait", "wait_s", type=click.FloatRange(min=0), default=60.0, help="Seconds for an answer.")


@click.command("watch")
@_RUN
@click.option("--once", is_flag=True, help="Print the present state, and exit.")
@click.option("--interval", type=click.FloatRange(min=0.05), default=0.5, help="Seconds.")
@out_option
@json_option
def watch(run: str, once: bool, interval: float, out: Path, as_json: bool) -> None:
    """Show the readings of a RUN's instruments: curves, histograms, dropped frames; live, or from its record.

    \b
    Examples:
      presilicon instrument watch latest
      presilicon instrument watch latest --once
    """
    from presilicon.runs import load_run, to_plain, watch_run

    stored = load_run(out, run)
    watcher = watch_run(stored.path)
    if not watcher.streams and stored.status != "running":
        raise ConfigError(f"{stored.name} has no instrument: its design needs an [instrument] section")
    if as_json:
        measure = {"metric": stored.measure.name, "direction": stored.measure.direction}
        click.echo(json.dumps({"run": stored.name, "status": stored.status, **measure, **to_plain(watcher)}))
        return
    from rich.console import Console
    from rich.live import Live

    from presilicon.instrument import render_watch

    console = Console()

    def view(status: str) -> Any:
        return render_watch(
            watcher, name=stored.name, status=status, width=min(console.width, 120), measure=stored.measure
        )

    if once or stored.status != "running" or not console.is_terminal:
        console.print(view(stored.status))
        return
    with Live(view(stored.status), console=console, auto_refresh=False) as live:
        while True:
            status = load_run(out, stored.name).status
            watcher.update()
            live.update(view(status), refresh=True)
            if status != "running":
                return
            time.sleep(interval)


def _to_trainings(function: Callable[..., None]) -> Callable[..., None]:
    """The argument RUN, and the options that choose trainings of it and wait for their answers: see `_give`."""
    for option in (json_option, out_option, _WAIT, _SEED, _DESIGN, _RUN):
        function = option(function)
    return function


def _give(
    command: "Callable[..., list[Answer]]", *arguments: Any, run: str, out: Path, as_json: bool, **options: Any
) -> None:
    """Give a command to trainings of a run, and print their answers."""
    from presilicon.runs import load_run

    answers = command(load_run(out, run), *arguments, **options)
    if as_json:
        click.echo(json.dumps({"schema": DOCUMENT_SCHEMA, "answers": to_builtins(answers)}))
    else:
        for answer in answers:
            if answer.ok:
                click.echo(f"{answer.design}, seed {answer.seed}: from step {answer.step} on: {answer.message}")
    refused = [answer for answer in answers if not answer.ok]
    if refused:
        raise ConfigError(f"{refused[0].design}, seed {refused[0].seed} refused: {refused[0].message}")


@click.command("program")
@_TAP
@click.option("--aggregation", metavar="NAME", help="See `presilicon instrument list`.")
@click.option(
    "--option", "options", multiple=True, metavar="KEY=VALUE", help="Option of the aggregation, such as bins=32."
)
@click.option(
    "--firmware", type=click.Path(path_type=Path), metavar="F.json", help="Your own firmware, as `compile` reads it."
)
@_to_trainings
def program(
    tap: str, aggregation: str | None, options: tuple[str, ...], firmware: Path | None, **trainings: Any
) -> None:
    """Give a tap of a running RUN another aggregation, or your own firmware, while training continues.

    \b
    Example:
      presilicon instrument program latest --tap hidden --aggregation distribution --option bins=32
    """
    from presilicon.instrument import program_tap, read_chains

    if options and aggregation is None:
        raise ConfigError("--option needs --aggregation NAME: options belong to an aggregation")
    chains, rows = (None, None) if firmware is None else read_chains(firmware)
    _give(
        program_tap, tap, aggregation=aggregation, options=_options(options), firmware=chains, range_boundaries=rows,
        **trainings,
    )  # fmt: skip


@click.command("set")
@click.option("--learning-rate", type=float, required=True, metavar="X", help="From the next step on.")
@_to_trainings
def set_command(learning_rate: float, **trainings: Any) -> None:
    """Set the learning rate of a running RUN, through a control register of its instrument.

    \b
    Example:
      presilicon instrument set latest --learning-rate 0.001
    """
    from presilicon.instrument import set_learning_rate

    _give(set_learning_rate, learning_rate, **trainings)


@click.command("ranges")
@_TAP
@repeated(
    "--boundaries",
    "rows",
    required=True,
    metavar="B,B,...",
    help="One row of ranges: one boundary more than ranges, -inf and inf allowed.",
)
@_to_trainings
def ranges(tap: str, rows: tuple[str, ...], **trainings: Any) -> None:
    """Set the boundaries of the rows of ranges of a tap of a running RUN."""
    from presilicon.instrument import set_ranges

    _give(set_ranges, tap, [_row(text) for text in rows], **trainings)


@click.command("sample")
@_TAP
@click.option("--every", type=click.IntRange(0, 65535), required=True, help="Steps; 0 is never.")
@_to_trainings
def sample(tap: str, every: int, **trainings: Any) -> None:
    """Sample a tap of a running RUN every so many steps."""
    from presilicon.instrument import set_sampling

    _give(set_sampling, tap, every, **trainings)


@click.command("lockstep")
@_RUN
@click.option(
    "--stream",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A stream of packets from a chip or a simulated circuit, instead of the run's own.",
)
@click.option("--recorded", is_flag=True, help="Compare --stream with the run's own stream, without emulating again.")
@click.option("--complete", is_flag=True, help="Fail, too, if one side does not have a frame of the other.")
@click.option("--engine", type=click.Choice(["fast", "reference", "rtl"]), default="fast")
@_DESIGN
@_SEED
@out_option
@json_option
def lockstep(
    run: str, stream: Path | None, recorded: bool, complete: bool, engine: str, design: str | None, seed: int | None,
    out: Path, as_json: bool,
) -> None:  # fmt: skip
    """Emulate an instrumented training of a RUN again and compare it with a stream, frame by frame.

    Exits with 1 at the first difference, with its tap, step and element.
    """
    from presilicon.instrument import compare_streams
    from presilicon.runs import load_run

    if recorded and stream is None:
        raise ConfigError("--recorded needs --stream FILE, which is compared with the run's own stream")
    stored = load_run(out, run)
    training = _load_training(stored, design, seed)
    hardware = training.design.instrument.built
    there = read_file(stream or training.file)
    if recorded:
        names = {tap.tap: tap.name for tap in training.started.taps}
        agreement = compare_streams(read_file(training.file), there, hardware, names=names)
    else:
        from presilicon.cli.instrument import _engine
        from presilicon.records import InstrumentAnswer
        from presilicon.study import compare_with_stream

        started = training.started
        answers = [answer for answer in stored.events(InstrumentAnswer) if answer.stream == started.stream]
        agreement = compare_with_stream(
            there, training.workload, training.design, answers, seed=started.seed, device=training.device,
            step_s=started.step_s, engine=_engine(engine, hardware),
        )  # fmt: skip
    if as_json:
        click.echo(json.dumps({"schema": DOCUMENT_SCHEMA, **to_plain(agreement)}))
    else:
        only = f"; only here {agreement.only_here}, only there {agreement.only_there}"
        click.echo(f"{agreement.compared} frames compared{only}")
        if agreement.difference is None:
            click.echo("no difference" if agreement.compared else "nothing to compare")
    if agreement.difference is not None:
        raise RunFailedError(f"the first difference: {agreement.difference}")
    if not agreement.compared:
        raise RunFailedError("the two streams have no frame in common")
    if complete and (agreement.only_here or agreement.only_there):
        raise RunFailedError(
            f"--complete: {agreement.only_here} frames are only here, {agreement.only_there} only there"
        )


@click.command("listen")
@click.argument("link")
@click.option(
    "--design", "design_name", required=True, metavar="DESIGN", help="Design whose [instrument] describes the board."
)
@click.option("--workload", required=True, metavar="NAME", help="Workload whose layers are tapped.")
@click.option("--baud", type=click.IntRange(min=1), default=115200, help="For a serial port.")
@click.option(
    "--seconds", type=click.FloatRange(min=0), help="How long to listen.  [default: until Ctrl-C; a file, to its end]"
)
@click.option(
    "--token-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The token of an instrument on another machine, such as its run's instrument-token.  [env var: "
    "PRESILICON_INSTRUMENT_TOKEN, with the token itself]",
)
@out_option
@json_option
def listen(
    link: str, design_name: str, workload: str, baud: int, seconds: float | None, token_file: Path | None, out: Path,
    as_json: bool,
) -> None:  # fmt: skip
    """Program the instrument of a board and record its stream: LINK is HOST:PORT, a serial device or a file.

    The recording is a run: `watch`, `program`, `set`, `ranges` and `sample` work on it from another terminal. Its
    directory has the received bytes in stream-NAME-seed0.bin, for `lockstep --stream`.

    \b
    Example:
      presilicon instrument listen /dev/ttyUSB0 --baud 3000000 --design board.toml --workload digits-cnn
    """
    from presilicon.designs import load_design
    from presilicon.instrument import CONTROL_FILE, Commands, FileLink, Listener, client_token, connect
    from presilicon.runs import create_run
    from presilicon.study import layers_of_workload, stream_file
    from presilicon.workloads import load_workload

    design = load_design(design_name)
    if design.instrument is None:
        raise ConfigError(f'design "{design.name}" has no [instrument] section')
    layers = layers_of_workload(load_workload(workload))
    end = connect(link, baud=baud, token=client_token(token_file))
    frames = 0
    with create_run(out, "listen", {"designs": [design.to_plain()], "link": link}, seed=None) as run:

        def emit(event: "InstrumentEvent") -> None:
            run.record(replace(event, design=design.name, seed=0))

        listener = Listener(
            design.instrument, layers, end, emit=emit, keep=run.path / stream_file(f"{design.name}-seed0"),
            commands=lambda stream: Commands(run.path / CONTROL_FILE, stream),
        )  # fmt: skip
        click.echo(f"listening; presilicon instrument watch {run.name}", err=True)
        until = None if seconds is None else time.monotonic() + seconds
        try:
            while until is None or time.monotonic() < until:
                new_frames = listener.poll()
                frames += new_frames
                if until is None and isinstance(end, FileLink) and listener.is_quiet:
                    break
                if not new_frames:
                    time.sleep(0.02)
        finally:
            listener.finish()
    losses = listener.host.losses
    if as_json:
        click.echo(
            json.dumps(
                {"schema": DOCUMENT_SCHEMA, "run": run.name, "frames": frames, "lost_packets": losses.lost_packets}
            )
        )
    else:
        click.echo(f"{run.name}: {frames} frames, {losses.lost_packets} packets lost, {losses.bad_packets} bad")


class _Training(NamedTuple):
    """An instrumented training of a run, with the request that started it."""

    design: Any
    workload: Any
    device: str
    started: "InstrumentStarted"
    file: Path
    """Its recorded stream."""


def _load_training(run: "StoredRun", design: str | None, seed: int | None) -> _Training:
    from presilicon.records import InstrumentStarted
    from presilicon.study import load_request, plan_request, stream_file, where_started

    starts = [
        event
        for event in run.events(InstrumentStarted)
        if design in (None, event.design) and seed in (None, event.seed) and event.first_step == 0
    ]
    if not starts:
        raise ConfigError(f"{run.name} has no instrumented training from its first step on (of that design and seed)")
    request = load_request(run)
    with where_started(request):
        plan = plan_request(request)
    first = starts[0]
    # The stream file is that of the last start.
    started = next(event for event in reversed(starts) if (event.design, event.seed) == (first.design, first.seed))
    trained = next((candidate for candidate in plan.designs if candidate.name == started.design), None)
    if trained is None:
        raise ConfigError(f'{run.name}: its request has no design "{started.design}"')
    file = run.path / stream_file(f"{started.design}-seed{started.seed}")
    return _Training(trained, plan.workload, plan.device, started, file)


def _options(texts: tuple[str, ...]) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise ConfigError(f'--option "{text}": write KEY=VALUE, such as bins=32')
        try:
            options[key] = json.loads(value)
        except json.JSONDecodeError:
            options[key] = value
    return options


def _row(text: str) -> list[Any]:
    try:
        return [part.strip() if "inf" in part else float(part) for part in text.split(",")]
    except ValueError:
        raise ConfigError(f'--boundaries "{text}": write numbers, -inf or inf, with commas between them') from None


COMMANDS = (watch, program, set_command, ranges, sample, lockstep, listen)
