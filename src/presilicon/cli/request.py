"""What `presilicon evaluate` was asked to do, kept with the run so that it can be taken up again."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from presilicon.base.errors import ConfigError

if TYPE_CHECKING:
    from presilicon.designs import Design
    from presilicon.runs import Run, StoredRun
    from presilicon.workloads import Workload

REQUEST_FILE = "request.json"


class Request(Struct, frozen=True, kw_only=True):
    """The arguments that decide what is computed, as they were given. Files are named as they were, too."""

    designs: tuple[str, ...]
    workload: str
    seeds: int
    seed: int
    target: float | None
    max_steps: int | None
    device: str
    sensitivity: bool
    times: tuple[str, ...]
    clock_ghz: float | None
    settings: tuple[str, ...]
    checkpoint_every: int
    evaluate_every: int | None = None
    strict: bool = False
    strict_coverage: bool = False
    numerics: tuple[str, ...] = ()
    """Recipes, each in place of every design's own numerics."""

    def load(self) -> tuple[list["Design"], "Workload", "Workload"]:
        """The designs, the workload with what was given in place of its own, and the workload as it comes."""
        from dataclasses import replace

        from presilicon.designs import load_design
        from presilicon.workloads import load_workload

        designs = [design for name in self.designs for design in self._designs(name, load_design)]
        workload = load_workload(self.workload)
        workload.require_data()
        given = {"target": self.target, "max_steps": self.max_steps, "evaluate_every": self.evaluate_every}
        changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        return designs, replace(workload, **changes), workload

    def _designs(self, name: str, load: Callable[..., "Design"]) -> list["Design"]:
        """A design, or one for each recipe, called by the recipe (and the design, where there are several)."""
        recipes = [recipe for text in self.numerics for recipe in text.split(",")]
        if not recipes:
            return [load(name, self.settings)]
        found = []
        for recipe in recipes:
            design = load(name, self.settings, numerics=recipe.strip())
            alone = recipe.strip() if len(self.designs) == 1 else f"{design.name}/{recipe.strip()}"
            found.append(msgspec.structs.replace(design, name=alone))
        return found

    def times_of(self, names: list[str]) -> dict[str, str]:
        """The file of times of each design; a plain file is for the only design there is."""
        given: dict[str, str] = {}
        for text in self.times:
            name, found, file = text.partition("=")
            if not found or name not in names:
                name, file = names[0], text
                if len(names) > 1:
                    raise ConfigError(f"--times {text[:80]!r}: say whose times they are, as in --times {names[0]}=FILE")
            if name in given:
                raise ConfigError(f"--times: {name} has two files; give each design one")
            given[name] = file
        return given


def write_request(run: "Run", request: Request) -> None:
    """Keep a request in the run's directory."""
    run.write_file(REQUEST_FILE, msgspec.json.format(msgspec.json.encode(request)) + b"\n")


def read_request(run: "StoredRun") -> Request:
    """The request of a run that can be taken up again.

    Raises:
        ConfigError: it is still running or has ended well, or it was not kept for being taken up.
    """
    if run.status in ("running", "finished"):
        raise ConfigError(f"{run.name} is {run.status}: only a run that was broken off can be resumed")
    try:
        return msgspec.json.decode((run.path / REQUEST_FILE).read_bytes(), type=Request)
    except FileNotFoundError:
        raise ConfigError(f"{run.name} cannot be resumed: it has no {REQUEST_FILE}") from None
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ConfigError(f"{run.name} cannot be resumed: {REQUEST_FILE} cannot be read ({error})") from None


def resume(run: "StoredRun", config: dict[str, Any]) -> "Run":
    """The run, going on, if what it was started with is still what `config` says.

    Raises:
        ConfigError: a design, the workload or its data has changed since, or the run's record cannot be read.
    """
    from presilicon.runs import config_hash, resume_run

    if run.record is None:
        raise ConfigError(f"{run.name} cannot be resumed: {run.problem}")
    now, then = msgspec.to_builtins(config, str_keys=True), run.record.config
    if config_hash(now) != run.record.config_hash:
        changed = [name for name in {**then, **now} if then.get(name) != now.get(name)]
        raise ConfigError(f"{run.name} cannot be resumed: its {', '.join(changed)} changed since; start it anew")
    return resume_run(run.path, run.record)


def checkpoints_of(path: Path) -> Path:
    """The folder of a run that keeps its training while it is under way."""
    return path / "checkpoints"
