"""Ctrl-C in a search: the best schedule so far, and exit 130."""

import json
import signal
import subprocess
import sys
from pathlib import Path

GRAPH = Path(__file__).parents[3] / "benchmarks" / "graphs" / "step-432-M.json"


def test_an_interrupted_search_prints_its_best_so_far(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "presilicon", "schedule", "v100-3xs10-ideal", "--graph", str(GRAPH),
         "--solver", "anytime", "--time-limit", "300", "--json"],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    assert process.stderr is not None
    assert "searching" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in err
    document = json.loads(out)
    assert document["interrupted"] is True
    assert any("interrupted" in note for note in document["notes"])
    assert document["energy_per_step_j"] < document["baseline"]["energy_per_step_j"]
    assert len(document["placement"]) == 432
