"""Run records: a directory per run, with `run.json` and an append-only `events.jsonl`.

    with create_run(Path("runs"), "evaluate", config, seed=0) as run:
        run.record(EvaluationEvent(design="bf16-systolic", seed=0, step=20, value=0.91, loss=0.3))

    load_run(Path("runs"), "latest").events()

However the process ends, what was recorded stays readable, also while it is being written.
"""

from presilicon.runs.append import AppendLog
from presilicon.runs.events import EventLog, parse_event, read_events, read_plain_events
from presilicon.runs.export import EXPORT_FORMATS, export_run
from presilicon.runs.older import present_comparison
from presilicon.runs.provenance import commit, config_hash, identity_hash, versions
from presilicon.runs.readings import EventReader, StreamView, TapView, describe_warning, starved, to_plain, watch_run
from presilicon.runs.run import EVENTS_FILE, Run, RunRecord, create_run, resume_run
from presilicon.runs.store import (
    Labels,
    StoredRun,
    label_run,
    list_runs,
    load_run,
    make_labels,
    remove_run,
    write_labels,
)

__all__ = [
    "EVENTS_FILE",
    "EXPORT_FORMATS",
    "AppendLog",
    "EventLog",
    "EventReader",
    "Labels",
    "Run",
    "RunRecord",
    "StoredRun",
    "StreamView",
    "TapView",
    "commit",
    "config_hash",
    "create_run",
    "describe_warning",
    "export_run",
    "identity_hash",
    "label_run",
    "list_runs",
    "load_run",
    "make_labels",
    "parse_event",
    "present_comparison",
    "read_events",
    "read_plain_events",
    "remove_run",
    "resume_run",
    "starved",
    "to_plain",
    "versions",
    "watch_run",
    "write_labels",
]
