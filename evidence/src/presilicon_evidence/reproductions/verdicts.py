"""Verdicts: statements of a source, each decided by the rows of a reproduction and by nothing else."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from statistics import mean
from typing import NamedTuple

from presilicon.records import Reproduced

OF_SOURCE = ("Reproduced", "Not reproduced")
OUR_OWN = ("Seen here", "Not seen here")
"""How a statement begins that no source makes."""


class Statement(NamedTuple):
    """A statement with its criterion, whether the rows bear it out, and their figures."""

    holds: bool
    claim: str
    figures: str
    words: tuple[str, str] = OF_SOURCE

    def __str__(self) -> str:
        return f"{self.words[not self.holds]}: {self.claim} ({self.figures})."


class Rows:
    """The rows that a verdict reads, by their quantity; indented ones by that of their heading too.

    >>> rows = Rows([Reproduced("under A"), Reproduced("  time", "s", 2.0, 3.0), Reproduced("area", ours=1.0)])
    >>> rows["under A", "time"].ours, rows["area"].ours, [row.quantity for row in rows.like("ti")]
    (3.0, 1.0, ['  time'])
    """

    def __init__(self, rows: Iterable[Reproduced]) -> None:
        self._rows = tuple(rows)
        self._by_name: dict[str | tuple[str, str], Reproduced] = {}
        heading = ""
        for row in self._rows:
            name = row.quantity.strip()
            if row.quantity.startswith(" "):
                self._by_name.setdefault((heading, name), row)
            else:
                heading = name
                self._by_name.setdefault(name, row)

    def __iter__(self) -> Iterator[Reproduced]:
        return iter(self._rows)

    def __getitem__(self, name: str | tuple[str, str]) -> Reproduced:
        return self._by_name[name]

    def like(self, *parts: str) -> list[Reproduced]:
        """Rows whose quantity has all of these parts."""
        return [row for row in self if all(part in row.quantity for part in parts)]

    def under(self, heading: str) -> list[Reproduced]:
        """Indented rows below a heading that begins so."""
        return [row for name, row in self._by_name.items() if isinstance(name, tuple) and name[0].startswith(heading)]


def conclude(statements: Callable[[Rows], Iterable[Statement]], rows: Iterable[Reproduced]) -> str:
    """The verdict on these rows."""
    return " ".join(map(str, statements(Rows(rows))))


def is_near(row: Reproduced, within: float) -> bool:
    """Whether a figure of ours is so near to the published one, as a fraction of it; False where one is missing."""
    if row.published == 0:
        return row.ours == 0
    return row.difference is not None and abs(row.difference) <= within


def shown(row: Reproduced) -> str:
    """Our figure beside the published one.

    >>> shown(Reproduced("area", "mm2", 4.0, 5.0)), shown(Reproduced("gain", "x", note="never arrives"))
    ('5 mm2, published 4', 'no figure: never arrives')
    """
    if row.ours is None:
        return f"no figure: {row.note}" if row.note else "no figure"
    unit = f" {row.unit}" if row.unit and row.unit != "%" else row.unit
    ours = f"{row.ours:.4g}{unit}"
    return ours if row.published is None else f"{ours}, published {row.published:.4g}"


def listed(rows: Iterable[Reproduced], name: Callable[[Reproduced], str] = lambda row: row.quantity.strip()) -> str:
    """Figures of ours, each with the name of its row."""
    return ", ".join(f"{name(row)} {'none' if row.ours is None else f'{row.ours:.4g}'}" for row in rows)


def spread(rows: Sequence[Reproduced], within: float) -> str:
    """How far all of these figures are from the published ones.

    >>> spread([Reproduced("a", "", 2.0, 2.1), Reproduced("b", "", 2.0, 4.0), Reproduced("c", "", 2.0)], 0.1)
    '1 of 3 within 10%; from +5.0% to +100.0%, 52.5% off on average; 1 without a figure of ours'
    """
    apart = [row.difference for row in rows if row.difference is not None]
    words = [f"{sum(is_near(row, within) for row in rows)} of {len(rows)} {tolerance(within)}"]
    if apart:
        words.append(f"from {min(apart):+.1%} to {max(apart):+.1%}, {mean(map(abs, apart)):.1%} off on average")
    if missing := sum(row.ours is None for row in rows):
        words.append(f"{missing} without a figure of ours")
    return "; ".join(words)


def stated(claim: str, rows: Sequence[Reproduced], within: float) -> Statement:
    """The statement that published figures come out, all within a fraction of them."""
    holds = bool(rows) and all(is_near(row, within) for row in rows)
    figures = shown(rows[0]) if len(rows) == 1 else spread(rows, within)
    return Statement(holds, f"{claim}, {tolerance(within)}", figures)


def tolerance(within: float) -> str:
    """A criterion in words.

    >>> tolerance(0.1), tolerance(0.001), tolerance(0.0)
    ('within 10%', 'within 0.1%', 'exactly')
    """
    return f"within {100 * within:g}%" if within else "exactly"
