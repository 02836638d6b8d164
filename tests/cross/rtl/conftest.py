import sys
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "instrument")]


@pytest.fixture(autouse=True)
def _optimized_models(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Long tests simulate longer than they compile."""
    if request.node.get_closest_marker("slow"):
        monkeypatch.delenv("PRESILICON_CXXFLAGS", raising=False)
