"""No reproduction writes its outcome down: rules for the source, and examples that break each of them."""

from pathlib import Path

import pytest
from tests.verdict_source import faults, has_number

from presilicon_evidence import reproductions

SOURCES = sorted(Path(reproductions.__file__).parent.glob("*.py"))
SOUND = '''
SEEDS = range(8)
NEAR = 0.1
_NAMES = {"two V100 with six boards": "2xv100"}


def reproduce():
    rows = tuple(_rows())
    return Reproduction(name="sound", rows=rows, verdict=conclude(statements, rows))


def _rows():
    for seed in SEEDS:
        if run(seed=seed):
            break
    yield Reproduced("seeds tried", ours=seed + 1)
    yield Reproduced("time to 97%", "s", 2.0, measure() if seed else None)


def statements(rows):
    """The 3 figures."""
    row = rows["time to 97%"]
    yield Statement(
        row.ours < NEAR, f"Table 1 and Fig. 9b of ResNet-50, within {NEAR:.0%}", _beside(row, rows.like("of 16 lanes"))
    )


def _beside(row, others):
    return f"{row.ours:.3g}, published {row.published}; {len(others)} others"
'''
PLANTED = {
    "a literal for ours": ('"s", 2.0, measure() if seed else None', '"s", 2.0, 0.0'),
    "a literal in a branch": ("measure() if seed else None", "5 if alike else None"),
    "a literal in place of nothing": ("measure() if seed else None", "measure() or 0.0"),
    "a literal through a name": ("measure() if seed else None", "NEAR"),
    "a literal by another name": ("ours=seed + 1", "ours=float(0)"),
    "a verdict of its own": ("verdict=conclude(statements, rows)", 'verdict="Reproduced."'),
    "a verdict on other rows": ("verdict=conclude(statements, rows)", "verdict=conclude(statements, others)"),
    "rows that the verdict does not see": ("rows=rows", "rows=(*rows, another)"),
    "a number in a claim": ("Table 1 and", "15% of"),
    "a number in a helper": ("published {row.published}", "published 3.5"),
    "a number in words": ("{len(others)} others", "{len(others)} others, twice"),
    "a range in words": ("{len(others)} others", "two to three others"),
    "a number in braces": ("{len(others)}", "{7}"),
    "a number that is made text": ('f"{row.ours:.3g}', 'str(7) + f"{row.ours:.3g}'),
    "a number through a constant": ("{len(others)}", "{_NAMES['two V100 with six boards']}"),
    "seeds that are listed": ("range(8)", "(1, 2, 0, 3, 6, 7)"),
    "a seed that is written down": ("seed=seed", "seed=4"),
    "seeds listed in a loop": ("for seed in SEEDS", "for seed in (3, 5)"),
    "a choice that does not state its tries": ('"seeds tried"', '"tries"'),
}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_a_reproduction_computes_its_figures_and_its_verdict(path: Path) -> None:
    assert not faults(path.read_text())


def test_a_sound_source_passes() -> None:
    assert not faults(SOUND)


@pytest.mark.parametrize(("old", "new"), PLANTED.values(), ids=PLANTED)
def test_a_planted_fault_is_found(old: str, new: str) -> None:
    assert SOUND.count(old) >= 1
    assert faults(SOUND.replace(old, new))


@pytest.mark.parametrize(
    ("text", "has"),
    [
        ("ResNet-50 in bfloat16 on CONV3 of the V100, of GPT-2", False),
        ("Table 3, Fig. 5b, section 3.3 and Tables III", False),
        ("one pass more, of either", False),
        ("a copy in 16-bit words", False),
        ("16 bits", True),
        ("within 10%", True),
        ("-23.3% in the mean", True),
        ("16x16", True),
        ("a third more", True),
        ("Twice as long", True),
        ("halfway", False),
    ],
)
def test_numbers_are_told_from_names(text: str, has: bool) -> None:
    assert has_number(text) == has
