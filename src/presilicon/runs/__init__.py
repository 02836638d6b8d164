"""Run records: a directory for each run, with `run.json` and an append-only `events.jsonl`.

    with create_run(Path("runs"), "evaluate", config, seed=0) as run:
        run.record("evaluation", design="bf16-systolic", seed=0, step=20, accuracy=0.91, loss=0.3)

    load_run(Path("runs"), "latest").events()

Whatever ends the process, what was recorded stays readable, also while it is being written.
"""

from presilicon.runs.events import EventLog, read_events
from presilicon.runs.export import EXPORT_FORMATS, export_run
from presilicon.runs.provenance import commit, config_hash, versions
from presilicon.runs.readings import StreamView, TapView, Watcher, watch_run
from presilicon.runs.run import Run, RunRecord, create_run, resume_run
from presilicon.runs.store import StoredRun, list_runs, load_run, remove_run

__all__ = [
    "EXPORT_FORMATS",
    "EventLog",
    "Run",
    "RunRecord",
    "StoredRun",
    "StreamView",
    "TapView",
    "Watcher",
    "commit",
    "config_hash",
    "create_run",
    "export_run",
    "list_runs",
    "load_run",
    "read_events",
    "remove_run",
    "resume_run",
    "versions",
    "watch_run",
]
