import io

import pytest
from rich.console import Console

from presilicon.records import Comparison
from presilicon.report import print_table, render_table
from presilicon.report.table import rich_table


class Terminal(io.StringIO):
    def isatty(self):
        return True


def on_console(comparison, width):
    console = Console(width=width, file=io.StringIO(), force_terminal=True, color_system=None)
    console.print(rich_table(comparison, console))
    return console.file.getvalue()


def test_plain_text_is_whole_and_best_first(mixed):
    lines = render_table(mixed).splitlines()
    header = lines[0].split("  ")
    assert [title.strip() for title in header if title.strip()] == [
        "design", "test accuracy", "steps to 97%", "time/step", "TIME TO ACCURACY", "energy to accuracy",
        "reached", "memory", "area",
    ]  # fmt: skip
    assert " ".join(lines[1].split()) == (
        "* fp8-systolic 97.7% 190 [160-210] 21.3 us 4.05 ms [3.41-4.47] 1.3 mJ [1.09-1.43] 5/5 2 MiB 10.6 mm2"
    )
    assert [line[:2] for line in lines[1:5]] == ["* ", "  ", "  ", "  "]
    assert " ".join(lines[4].split()) == "log8-systolic 92.1% never 25 us never never 0/5 1.2 MiB 4.53 mm2"
    assert lines[6].startswith("fp8-systolic has the lowest median time")
    assert "\x1b" not in render_table(mixed)


def test_nobody_is_marked_when_nobody_arrived(build):
    text = render_table(build["comparison"](2, ceiling=0.9))
    assert "*" not in text
    assert "never: the target was not held" in text


def test_a_single_seed_shows_no_interval(build):
    text = render_table(build["comparison"](seeds=1))
    assert "[" not in text


def test_no_designs_is_an_empty_table():
    assert "No designs were compared." in render_table(Comparison(designs=()))
    assert "No designs were compared." in on_console(Comparison(designs=()), 80)


@pytest.mark.parametrize("columns", ["80", "40"])
def test_a_pipe_gets_plain_text_however_narrow_it_claims_to_be(mixed, columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", columns)
    pipe = io.StringIO()
    print_table(mixed, pipe)
    assert pipe.getvalue() == render_table(mixed)


def test_standard_output_is_the_default(comparison, capsys):
    print_table(comparison)
    assert capsys.readouterr().out == render_table(comparison)


def test_a_terminal_gets_colour(comparison, monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.delenv("NO_COLOR", raising=False)
    terminal = Terminal()
    print_table(comparison, terminal)
    assert "\x1b[" in terminal.getvalue()
    assert "3.83 ms" in terminal.getvalue()


@pytest.mark.parametrize("width", [200, 80, 48])
def test_every_width_shows_every_value_whole(mixed, width):
    text = on_console(mixed, width)
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    for value in ("4.05 ms", "[3.41-4.47]", "1.3 mJ", "[1.09-1.43]", "21.3 us", "97.7%", "5/5", "2 MiB", "10.6 mm2"):
        assert value in text
    assert "[3.36 ms-never]" in text


def test_two_lines_for_each_design_fit_eighty_columns(mixed):
    lines = on_console(mixed, 80).splitlines()
    assert lines[3].startswith("* fp8-systolic")
    assert lines[4].startswith("  21.3 us/step")
