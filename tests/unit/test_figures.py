"""Figures of README and docs carry their command and the hash of its inputs, and are made again by it."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SPEC = importlib.util.spec_from_file_location("figures", ROOT / "tools" / "figures.py")
tool = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(tool)

PAGE = """# Speed

<!-- figure speed
command: printf '| a | b |\\n|---|---|\\n| x | 7 |\\n'
inputs: price data.txt
makes: table
hash: 000000000000
-->
| a | b |
|---|---|
| x | 5 |

Text.
"""


@pytest.fixture
def page(tmp_path, monkeypatch):
    monkeypatch.setattr(tool, "ROOT", tmp_path)
    monkeypatch.setattr(tool, "OUTPUTS", tmp_path / "build")
    (tmp_path / "docs").mkdir()
    (tmp_path / "data.txt").write_text("1")
    (tmp_path / "README.md").write_text(PAGE)
    return tmp_path / "README.md"


@pytest.mark.parametrize("path", tool.pages(), ids=lambda path: path.name)
def test_every_measured_table_and_picture_has_a_mark(path: Path) -> None:
    assert tool.unmarked(path) == []


def test_names_are_unique_and_inputs_exist() -> None:
    marked = [figure for path in tool.pages() for figure in tool.figures(path)]
    names = [figure.name for figure in marked]
    assert len(names) == len(set(names))
    assert all(len(tool.digest(figure.inputs)) == 12 for figure in marked)


def test_a_table_of_numbers_without_a_mark_is_noticed(page) -> None:
    text = PAGE.replace("<!-- figure", "<!-- something")
    assert tool.unmarked(page, text) == ["| a | b |"]
    assert tool.unmarked(page, PAGE) == []
    assert tool.unmarked(page, "| option | meaning |\n|---|---|\n| `--batch` | samples of a step |\n") == []
    assert tool.unmarked(page, "<!-- definitions -->\n| bits | meaning |\n|---|---|\n| 8 | 9 |\n") == []
    assert tool.unmarked(page, "![A layer dies](x.png)\n") == ["![A layer dies](x.png)"]


def test_a_figure_is_made_again_by_its_command(page) -> None:
    (figure,) = tool.figures(page)
    assert figure.is_stale
    assert tool.make(figure)
    (made,) = tool.figures(page)
    assert not made.is_stale
    assert "| x | 7 |\n\nText." in page.read_text()


@pytest.mark.parametrize("change", ["file", "number"])
def test_a_figure_is_stale_when_an_input_changes(page, change, monkeypatch) -> None:
    tool.stamp(*tool.figures(page))
    assert not tool.figures(page)[0].is_stale
    if change == "file":
        (page.parent / "data.txt").write_text("2")
    else:
        monkeypatch.setattr(tool, "meaning", lambda: {"training": 1, "price": 99})
    assert tool.figures(page)[0].is_stale
    assert tool.check(strict=False) == 0
    assert tool.check(strict=True) == 1


def test_a_command_that_fails_leaves_the_page_as_it_is(page) -> None:
    page.write_text(PAGE.replace("printf", "false; exit 3; printf"))
    before = page.read_text()
    assert not tool.make(*tool.figures(page))
    assert page.read_text() == before


def test_a_mark_that_cannot_be_read_is_named(page) -> None:
    page.write_text(PAGE.replace("makes: table\n", ""))
    with pytest.raises(SystemExit, match="figure speed: makes missing"):
        tool.figures(page)
    page.write_text(PAGE.replace("data.txt", "nothing.txt"))
    with pytest.raises(SystemExit, match=r"nothing\.txt"):
        tool.figures(page)[0].is_stale  # noqa: B018 - computed when it is read
