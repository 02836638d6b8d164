"""`presilicon instrument` on trainings: watch one, program its taps, set its learning rate, hold it against a chip."""

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from presilicon.cli.options import json_option, out_option

if TYPE_CHECKING:
    from presilicon.instrument import Answer
    from presilicon.records import InstrumentEvent, InstrumentStarted
    from presilicon.runs import StoredRun

_RUN = click.argument("run", default="latest")
_DESIGN = click.option("--design", metavar="NAME", help="Only the trainings of this design of the run.")
_SEED = click.option("--seed", type=int, help="Only the training with this seed.")
_TAP = click.option("--tap", required=True, metavar="NAME", help="A tap of the design, or one of its layers' taps.")
_WAIT = click.option(
    "--wait", "wait_s", type=click.FloatRange(min=0), default=60.0, show_default=True, help="Seconds for an answer."
)


@click.command("watch")
@_RUN
@click.option("--once", is_flag=True, help="Print what there is now, and end.")
@click.option("--interval", type=click.FloatRange(min=0.05), default=0.5, show_default=True, help="Seconds.")
@out_option
@json_option
def watch(run: str, once: bool, interval: float, out: Path, as_json: bool) -> None:
    """Show what the instruments of a RUN see: curves, histograms, dropped frames; live, or from its record.

    \b
    Examples:
      presilicon instrument watch latest
      presilicon instrument watch latest --once
    """
    from presilicon.base.errors import ConfigError
    from presilicon.runs import load_run, watch_run
    from presilicon.runs.readings import to_plain

    found = load_run(out, run)
    watcher = watch_run(found.path)
    if not watcher.streams and found.status != "running":
        raise ConfigError(f"{found.name} has no instrument: its design needs an [instrument] section")
    if as_json:
        click.echo(json.dumps({"run": found.name, "status": found.status, **to_plain(watcher)}))
        return
    from rich.console import Console
    from rich.live import Live

    from presilicon.instrument import render_watch

    console = Console()

    def view(status: str) -> Any:
        return render_watch(watcher, name=found.name, status=status, width=min(console.width, 120))

    if once or found.status != "running" or not console.is_terminal:
        console.print(view(found.status))
        return
    with Live(view(found.status), console=console, auto_refresh=False) as live:
        while True:
            status = load_run(out, found.name).status
            watcher.update()
            live.update(view(status), refresh=True)
            if status != "running":
                return
            time.sleep(interval)


@click.command("program")
@_RUN
@_TAP
@click.option("--aggregation", metavar="NAME", help="See `presilicon instrument list`.")
@click.option("--option", "options", multiple=True, metavar="KEY=VALUE", help="Of the aggregation, as in bins=32.")
@click.option(
    "--firmware", type=click.Path(path_type=Path), metavar="F.json", help="Chains of your own, as `compile` reads them."
)
@_DESIGN
@_SEED
@_WAIT
@out_option
@json_option
def program(
    run: str,
    tap: str,
    aggregation: str | None,
    options: tuple[str, ...],
    firmware: Path | None,
    design: str | None,
    seed: int | None,
    wait_s: float,
    out: Path,
    as_json: bool,
) -> None:
    """Give a tap of a RUN that trains another aggregation, or firmware of your own; training goes on.

    \b
    Example:
      presilicon instrument program latest --tap hidden --aggregation distribution --option bins=32
    """
    from presilicon.base.errors import ConfigError
    from presilicon.instrument import program_tap, read_chains

    if options and aggregation is None:
        raise ConfigError("--option is of an aggregation: give --aggregation NAME, too")
    chains, rows = (None, None) if firmware is None else read_chains(firmware)
    answers = program_tap(
        _load(out, run), tap, aggregation=aggregation, options=_options(options), firmware=chains,
        range_boundaries=rows, design=design, seed=seed, wait_s=wait_s,
    )  # fmt: skip
    _show(answers, as_json)


@click.command("set")
@_RUN
@click.option("--learning-rate", type=float, required=True, metavar="X", help="From the next step on.")
@_DESIGN
@_SEED
@_WAIT
@out_option
@json_option
def set_command(
    run: str, learning_rate: float, design: str | None, seed: int | None, wait_s: float, out: Path, as_json: bool
) -> None:
    """Set the learning rate of a RUN that trains, through a control register of its instrument.

    \b
    Example:
      presilicon instrument set latest --learning-rate 0.001
    """
    from presilicon.instrument import set_learning_rate

    _show(set_learning_rate(_load(out, run), learning_rate, design=design, seed=seed, wait_s=wait_s), as_json)


@click.command("ranges")
@_RUN
@_TAP
@click.option(
    "--boundaries",
    "rows",
    multiple=True,
    required=True,
    metavar="B,B,...",
    help="One row of ranges: one boundary more than ranges, -inf and inf allowed. May be repeated.",
)
@_DESIGN
@_SEED
@_WAIT
@out_option
@json_option
def ranges(
    run: str,
    tap: str,
    rows: tuple[str, ...],
    design: str | None,
    seed: int | None,
    wait_s: float,
    out: Path,
    as_json: bool,
) -> None:
    """Give the rows of ranges of a tap of a RUN that trains other boundaries."""
    from presilicon.instrument import set_ranges

    boundaries = [_row(text) for text in rows]
    _show(set_ranges(_load(out, run), tap, boundaries, design=design, seed=seed, wait_s=wait_s), as_json)


@click.command("sample")
@_RUN
@_TAP
@click.option("--every", type=click.IntRange(0, 65535), required=True, help="Steps; 0 is never.")
@_DESIGN
@_SEED
@_WAIT
@out_option
@json_option
def sample(
    run: str, tap: str, every: int, design: str | None, seed: int | None, wait_s: float, out: Path, as_json: bool
) -> None:
    """Look at a tap of a RUN that trains every so many steps."""
    from presilicon.instrument import set_sampling

    _show(set_sampling(_load(out, run), tap, every, design=design, seed=seed, wait_s=wait_s), as_json)


@click.command("lockstep")
@_RUN
@click.option(
    "--stream",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A stream of packets, from a chip or a simulated circuit, in place of the one that the run has kept.",
)
@click.option("--recorded", is_flag=True, help="Hold --stream against the run's own stream, without emulating again.")
@click.option("--engine", type=click.Choice(["fast", "reference", "rtl"]), default="fast", show_default=True)
@_DESIGN
@_SEED
@out_option
@json_option
def lockstep(
    run: str,
    stream: Path | None,
    recorded: bool,
    engine: str,
    design: str | None,
    seed: int | None,
    out: Path,
    as_json: bool,
) -> None:
    """Emulate an instrumented training of a RUN again and hold it against a stream: the first frame that differs.

    Exits with 1 where they differ, naming tap, step and element.
    """
    from presilicon.base.config import to_plain
    from presilicon.base.errors import ConfigError, RunFailedError
    from presilicon.instrument import compare_streams
    from presilicon.runs import load_run

    if recorded and stream is None:
        raise ConfigError("--recorded holds a --stream against the run's own: give its file")
    found = load_run(out, run)
    kept = _kept(found, design, seed)
    there = _read(stream or kept.file)
    if recorded:
        names = {tap.tap: tap.name for tap in kept.started.taps}
        agreement = compare_streams(_read(kept.file), there, kept.design.instrument.built, names=names)
    else:
        from presilicon.cli.instrument import _engine
        from presilicon.records import InstrumentAnswer
        from presilicon.study.instrumented import compare_with_stream

        asked = [answer for answer in found.events(InstrumentAnswer) if answer.stream == kept.started.stream]
        agreement = compare_with_stream(
            there, kept.workload, kept.design, asked, seed=kept.started.seed,
            device=kept.device, step_s=kept.started.step_s, engine=_engine(engine, kept.design.instrument.built),
        )  # fmt: skip
    if as_json:
        click.echo(json.dumps({"schema": 1, **to_plain(agreement)}))
    else:
        only = f"; only here {agreement.only_here}, only there {agreement.only_there}"
        click.echo(f"{agreement.compared} frames compared{only}")
        if agreement.difference is None:
            click.echo("no difference" if agreement.compared else "nothing to compare")
    if agreement.difference is not None:
        raise RunFailedError(f"the first difference: {agreement.difference}")
    if not agreement.compared:
        raise RunFailedError("the two streams have no frame in common")


@click.command("listen")
@click.argument("link")
@click.option("--design", "design_name", required=True, metavar="DESIGN", help="With the [instrument] of that board.")
@click.option("--workload", required=True, metavar="NAME", help="What it trains: the names of its layers.")
@click.option("--baud", type=click.IntRange(min=1), default=115200, show_default=True, help="Of a serial port.")
@click.option(
    "--seconds", type=click.FloatRange(min=0), help="Listen for so long.  [default: until Ctrl-C; a file, to its end]"
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
    link: str,
    design_name: str,
    workload: str,
    baud: int,
    seconds: float | None,
    token_file: Path | None,
    out: Path,
    as_json: bool,
) -> None:
    """Program the instrument of a board and record what it sends: LINK is HOST:PORT, a serial device or a file.

    The recording is a run: `watch`, `program`, `set`, `ranges` and `sample` work on it from another terminal. Its
    directory keeps the bytes that came, in stream-NAME-seed0.bin, as `lockstep --stream` takes them.

    \b
    Example:
      presilicon instrument listen /dev/ttyUSB0 --baud 3000000 --design board.toml --workload digits-cnn
    """
    from msgspec.structs import replace

    from presilicon.base.errors import ConfigError
    from presilicon.designs import load_design
    from presilicon.instrument import CONTROL_FILE, Commands, FileLink, Listener, client_token, connect
    from presilicon.runs import create_run
    from presilicon.study.instrumented import layers_of_workload, stream_file
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
                found = listener.poll()
                frames += found
                if until is None and isinstance(end, FileLink) and listener.is_quiet:
                    break
                if not found:
                    time.sleep(0.02)
        finally:
            listener.finish()
    lost = listener.host.losses
    if as_json:
        click.echo(json.dumps({"schema": 1, "run": run.name, "frames": frames, "lost_packets": lost.lost_packets}))
    else:
        click.echo(f"{run.name}: {frames} frames, {lost.lost_packets} packets lost, {lost.bad_packets} bad")


class _Kept:
    """An instrumented training of a run, and what it was started with."""

    def __init__(self, design: Any, workload: Any, device: str, started: "InstrumentStarted", file: Path) -> None:
        self.design, self.workload, self.device, self.started, self.file = design, workload, device, started, file


def _kept(run: "StoredRun", design: str | None, seed: int | None) -> _Kept:
    from presilicon.base.errors import ConfigError
    from presilicon.records import InstrumentStarted
    from presilicon.study import load_request, plan_request
    from presilicon.study.instrumented import stream_file

    starts = [
        event
        for event in run.events(InstrumentStarted)
        if design in (None, event.design) and seed in (None, event.seed) and event.first_step == 0
    ]
    if not starts:
        raise ConfigError(f"{run.name} has no instrumented training from its first step on (of that design and seed)")
    plan = plan_request(load_request(run))
    first = (starts[0].design, starts[0].seed)
    started = next(event for event in reversed(starts) if (event.design, event.seed) == first)  # it wrote the file
    chosen = next(each for each in plan.designs if each.name == started.design)
    file = run.path / stream_file(f"{started.design}-seed{started.seed}")
    return _Kept(chosen, plan.workload, plan.device, started, file)


def _read(path: Path) -> bytes:
    from presilicon.base.errors import ConfigError

    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror or error})") from None


def _load(out: Path, run: str) -> "StoredRun":
    from presilicon.runs import load_run

    return load_run(out, run)


def _options(texts: tuple[str, ...]) -> dict[str, Any]:
    from presilicon.base.errors import ConfigError

    found: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise ConfigError(f'--option "{text}": write a key and a value, as in bins=32')
        try:
            found[key] = json.loads(value)
        except json.JSONDecodeError:
            found[key] = value
    return found


def _row(text: str) -> list[Any]:
    from presilicon.base.errors import ConfigError

    try:
        return [part.strip() if "inf" in part else float(part) for part in text.split(",")]
    except ValueError:
        raise ConfigError(f'--boundaries "{text}": write numbers, -inf or inf, with commas between them') from None


def _show(answers: "list[Answer]", as_json: bool) -> None:
    import msgspec

    from presilicon.base.errors import ConfigError

    if as_json:
        click.echo(json.dumps({"schema": 1, "answers": msgspec.to_builtins(answers)}))
    else:
        for answer in answers:
            if answer.ok:
                click.echo(f"{answer.design}, seed {answer.seed}: from step {answer.step} on: {answer.message}")
    refused = [answer for answer in answers if not answer.ok]
    if refused:
        raise ConfigError(f"{refused[0].design}, seed {refused[0].seed} refused: {refused[0].message}")


COMMANDS = (watch, program, set_command, ranges, sample, lockstep, listen)
