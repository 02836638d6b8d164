"""Files, names and links that the documentation mentions exist."""

import re
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "CONTRIBUTING.md", "evidence/README.md")
TEXTS = [*(ROOT / page for page in PAGES), *sorted((ROOT / "docs").rglob("*.md"))]
"""Not the changelog, which also names what is gone."""
ROOTS = (ROOT, ROOT / "src" / "presilicon", ROOT / "evidence" / "src" / "presilicon_evidence", ROOT / "docs")
ENTRY_POINT_GROUPS = {f"presilicon.{group}" for group in ("aggregations", "machines", "methods", "reproductions")}
"""Groups that are not rooms too."""

_PATH = re.compile(r"(?<![\w/.-])((?:[\w*-]+/)+[\w*-]+\.(?:py|toml|md|json|csv|png|svg|sv|v))(?![\w(])")
_NAME = re.compile(r"(?<![\w./-])(presilicon(?:_evidence)?(?:\.[A-Za-z_]\w*)+)")
_LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
_DECISION = re.compile(r"decisions?/(\d{4})(?!\d*-)")


def missing_files(text: str) -> list[str]:
    """Paths in one of our folders that lead nowhere; other paths, and build, are the reader's own."""
    ours = {
        path
        for path in _PATH.findall(text)
        if not path.startswith("build/") and any((root / path.split("/")[0]).is_dir() for root in ROOTS)
    }
    decisions = {f"docs/decisions/{number}-*.md" for number in _DECISION.findall(text)}
    return sorted(path for path in ours | decisions if not any(any(root.glob(path)) for root in ROOTS))


def resolves(name: str) -> bool:
    """Whether a dotted name is a module, or an attribute of one."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        try:
            target = import_module(".".join(parts[:count]))
        except ModuleNotFoundError:
            continue
        for part in parts[count:]:
            target = getattr(target, part, None)
        return target is not None
    return False


def text_id(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("path", TEXTS, ids=text_id)
def test_what_a_text_mentions_exists(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert missing_files(text) == []
    assert [name for name in sorted(set(_NAME.findall(text)) - ENTRY_POINT_GROUPS) if not resolves(name)] == []
    assert [target for target in sorted(set(_LINK.findall(text))) if not (path.parent / target).exists()] == []


def test_a_file_or_name_that_is_gone_is_noticed() -> None:
    assert missing_files("`simulation/systolic.py`, `docs/decisions/9999`, `my_package/x.py`, `base/config.py`") == [
        "docs/decisions/9999-*.md",
        "simulation/systolic.py",
    ]
    assert not resolves("presilicon.scheduling.no_such_solver")
    assert resolves("presilicon.scheduling.solvers.bounds.energy_bound")
