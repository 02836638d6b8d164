"""docs/instrument.md shows the example as it is, and every aggregation."""

from pathlib import Path

from presilicon.instrument.aggregations import AGGREGATIONS

ROOT = Path(__file__).parents[3]
GUIDE = (ROOT / "docs" / "instrument.md").read_text()


def test_the_example_is_shown_as_it_is() -> None:
    shown = GUIDE.split("```toml\n")[1].split("```")[0]
    example = (ROOT / "examples" / "watched.toml").read_text()
    assert _bare(shown) == _bare(example), "but for remarks"


def _bare(text: str) -> list[str]:
    lines = [line.split("#")[0].strip() for line in text.splitlines()]
    return [line for line in lines if line]


def test_every_aggregation_is_in_the_table() -> None:
    (table,) = [part for part in GUIDE.split("\n\n") if part.startswith("| aggregation | gives |")]
    assert [name for name in AGGREGATIONS.names() if f"`{name}`" not in table] == []
