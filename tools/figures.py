"""Figures, tables and pictures of README and docs: which are stale, and how they are made again.

    python tools/figures.py check [--strict]       list what is stale (--strict: exit with 1 if anything is)
    python tools/figures.py make [NAME ...]        make what is stale again, or the named figures
    python tools/figures.py stamp NAME ...         record that figures were made again by hand

Before each of them stands a comment, which readers of the page do not see:

    <!-- figure demo
    command: presilicon evaluate edge-fp32 edge-bf16 edge-fp8 --workload digits-cnn --seeds auto
    inputs: training price
    makes: output
    hash: 0123456789ab
    -->

`inputs` are what decides the numbers: `training` and `price` stand for the numbers of meaning (`base/meanings.py`),
and other words are files (with `*` for several). `hash` is theirs when the figure was made. `makes` says what becomes
of the command: `table` (the next table of the page is replaced by the one it prints), `block` (the next code block is),
the path of a picture that it writes, or `output` (what it prints is kept in build/figures, and the page is edited by
hand, then stamped). A figure with `needs: an H200` or another machine is listed, and made by hand. A table that
explains and only looks measured has `<!-- definitions -->` before it.
"""

import argparse
import os
import re
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from presilicon.base import meaning

ROOT = Path(__file__).parents[1]
OUTPUTS = ROOT / "build" / "figures"
FIELDS = ("command", "inputs", "makes", "needs", "hash")

_MARK = re.compile(r"<!-- figure (?P<name>[a-z0-9-]+)\n(?P<fields>.*?)-->\n", re.DOTALL)
_DEFINITIONS = re.compile(r"<!-- definitions -->\n")
_TABLE = re.compile(r"(?:^\|.*\n)+", re.MULTILINE)
_BLOCK = re.compile(r"^```\w*\n(?P<content>.*?)^```$", re.MULTILINE | re.DOTALL)
_PICTURE = re.compile(r"^!\[.*\]\((?P<path>[^)]+)\)", re.MULTILINE)
_NUMBER = re.compile(r"^[~<>+\-*`]*\d[\d.,]*\s*(?:%|x|[a-zA-Zµ/]{1,5}|\[.*|\(.*|/.*|times.*)?\**$")
SHARE = 0.3
"""Share of the cells beside the first column that must be numbers for a table to count as measured."""


class Figure(NamedTuple):
    """A marked figure of a page."""

    page: Path
    name: str
    command: str
    inputs: str
    makes: str
    needs: str
    hash: str
    end: int
    """Place in the page's text behind the mark."""

    @property
    def is_stale(self) -> bool:
        return self.hash != digest(self.inputs)


def pages() -> list[Path]:
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def figures(page: Path, text: str | None = None) -> list[Figure]:
    """The marked figures of a page."""
    text = page.read_text(encoding="utf-8") if text is None else text
    return [_figure(page, mark) for mark in _MARK.finditer(text)]


def _figure(page: Path, mark: re.Match[str]) -> Figure:
    given = dict.fromkeys(FIELDS, "")
    for line in mark["fields"].splitlines():
        key, colon, value = line.partition(": ")
        if not colon or key not in FIELDS:
            sys.exit(f'{page.name}, figure {mark["name"]}: "{line}" is none of {", ".join(FIELDS)}')
        given[key] = value.strip()
    missing = [key for key in FIELDS if not given[key] and key != "needs"]
    if missing:
        sys.exit(f"{page.name}, figure {mark['name']}: {', '.join(missing)} missing")
    return Figure(page, mark["name"], **given, end=mark.end())


def digest(inputs: str) -> str:
    """The hash of what decides a figure."""
    numbers, total = meaning(), sha256()
    for word in inputs.split():
        if word in numbers:
            total.update(f"{word} {numbers[word]}\0".encode())
            continue
        files = sorted(path for path in ROOT.glob(word) if path.is_file())
        if not files:
            sys.exit(f'input "{word}": there is no such file, and it is none of {", ".join(numbers)}')
        for file in files:
            total.update(f"{file.relative_to(ROOT).as_posix()}\0".encode() + file.read_bytes())
    return total.hexdigest()[:12]


def unmarked(page: Path, text: str | None = None) -> list[str]:
    """Pictures and tables of measured numbers without a mark right before them."""
    text = page.read_text(encoding="utf-8") if text is None else text
    ends = {figure.end for figure in figures(page, text)} | {mark.end() for mark in _DEFINITIONS.finditer(text)}
    found = [(picture.start(), picture[0][:60]) for picture in _PICTURE.finditer(text)]
    found += [
        (table.start(), table[0].splitlines()[0][:60]) for table in _TABLE.finditer(text) if is_measured(table[0])
    ]
    return [title for start, title in sorted(found) if start not in ends]


def is_measured(table: str) -> bool:
    """Whether the cells of a table beside its first column are numbers rather than words."""
    rows = [[cell.strip() for cell in line.strip().strip("|").split("|")][1:] for line in table.splitlines()[2:]]
    cells = [cell for row in rows for cell in row if cell]
    return bool(cells) and sum(bool(_NUMBER.match(cell)) for cell in cells) >= SHARE * len(cells)


def make(figure: Figure) -> bool:
    """Run a figure's command and put its result in place; whether the page is done."""
    print(f"{figure.page.name}, {figure.name}: {figure.command}", flush=True)
    if figure.needs:
        print(f"  needs {figure.needs}: run it there, edit the page, then: tools/figures.py stamp {figure.name}")
        return False
    tools = Path(sys.executable).parent  # `presilicon` and `python` are those that run this
    environment = os.environ | {"PATH": f"{tools}:{os.environ.get('PATH', '')}"}
    command = ["bash", "-c", figure.command]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, env=environment, check=False)
    OUTPUTS.mkdir(parents=True, exist_ok=True)
    kept = OUTPUTS / f"{figure.name}.txt"
    kept.write_text(done.stdout, encoding="utf-8")
    if done.returncode:
        print(f"  failed with {done.returncode}; what it printed is in {kept.relative_to(ROOT)}")
        return False
    if figure.makes == "output":
        print(f"  read {kept.relative_to(ROOT)}, edit the page, then: tools/figures.py stamp {figure.name}")
        return False
    if figure.makes in ("table", "block"):
        replace_text(figure, done.stdout)
    stamp(figure)
    return True


def replace_text(figure: Figure, printed: str) -> None:
    """Put what a command printed in place of the table or block behind the figure's mark."""
    text = figure.page.read_text(encoding="utf-8")
    if figure.makes == "table":
        old, new = _TABLE.search(text, figure.end), _TABLE.search(printed)
        if old is None or new is None:
            sys.exit(f"{figure.name}: no table in {'the page' if old is None else 'what the command printed'}")
        text = text[: old.start()] + new[0] + text[old.end() :]
    else:
        old = _BLOCK.search(text, figure.end)
        if old is None:
            sys.exit(f"{figure.name}: no code block behind its mark")
        text = text[: old.start("content")] + printed.rstrip("\n") + "\n" + text[old.end("content") :]
    figure.page.write_text(text, encoding="utf-8")


def stamp(figure: Figure) -> None:
    """Record the present hash of a figure's inputs."""
    text = figure.page.read_text(encoding="utf-8")
    start = text.rindex(f"<!-- figure {figure.name}\n", 0, figure.end)
    mark = text[start : figure.end].replace(f"hash: {figure.hash}", f"hash: {digest(figure.inputs)}")
    figure.page.write_text(text[:start] + mark + text[figure.end :], encoding="utf-8")


def check(strict: bool) -> int:
    """List what is stale, and what has no mark."""
    naked = [f"{page.name}: {title}" for page in pages() for title in unmarked(page)]
    stale = [figure for page in pages() for figure in figures(page) if figure.is_stale]
    for line in naked:
        print(f"no mark   {line}")
    for figure in stale:
        need = f" (needs {figure.needs})" if figure.needs else ""
        print(f"stale     {figure.page.name}, {figure.name}: {figure.command}{need}")
    count = sum(len(figures(page)) for page in pages())
    print(f"{count} figures, {len(stale)} stale, {len(naked)} without a mark")
    return 1 if naked or (strict and stale) else 0


def main() -> int:
    parser = argparse.ArgumentParser(description="Figures of README and docs")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("check").add_argument("--strict", action="store_true")
    commands.add_parser("make").add_argument("names", nargs="*")
    commands.add_parser("stamp").add_argument("names", nargs="+")
    arguments = parser.parse_args()
    if arguments.command == "check":
        return check(arguments.strict)
    known = {figure.name: figure for page in pages() for figure in figures(page)}
    absent = sorted(set(arguments.names) - known.keys())
    if absent:
        sys.exit(f"no figure {', '.join(absent)}; there are {', '.join(sorted(known))}")
    chosen = arguments.names or [name for name, figure in known.items() if figure.is_stale]
    unfinished = 0
    for name in chosen:  # the text of a page moves with each figure: look it up again
        figure = next(figure for figure in figures(known[name].page) if figure.name == name)
        if arguments.command == "stamp":
            stamp(figure)
        else:
            unfinished += not make(figure)
    return 1 if unfinished else 0


if __name__ == "__main__":
    sys.exit(main())
