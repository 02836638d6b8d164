"""Laws of what is read of instruments and processes: main reasons, and fields behind names that hold anything."""

import random
from pathlib import Path

import pytest

from presilicon.runs import lock
from presilicon.runs.readings import REASONS, StreamView, TapView, starved


def test_starved_taps_are_listed_under_their_main_reason() -> None:
    draw, seen = random.Random(3), set()
    for _ in range(200):
        taps = {}
        expected: dict[str, list[str]] = {}
        for number in range(draw.randint(0, 4)):
            name = f"tap{number}"
            counts = draw.sample(range(1, 9), 3)
            kinds = draw.sample(["busy", "output", "size", "of a later version"], draw.randint(0, 3))
            tap = TapView(
                name, "0", "error", dropped=draw.choice([0, 5]), frames=draw.choice([0, 0, 2]),
                reasons=dict(zip(kinds, counts, strict=False)),
            )  # fmt: skip
            taps[name] = tap
            if tap.dropped and not tap.frames:
                main = sorted(tap.reasons, key=tap.reasons.__getitem__)[-1] if kinds else ""
                expected.setdefault(main if main in REASONS else "", []).append(name)
        sentence = starved(StreamView("0", "mine", 0, taps))
        parts = [
            f"{', '.join(names)}: dropped whenever it was their turn, for {REASONS[reason]}"
            for reason, names in expected.items()
        ]
        assert sentence == "; ".join(parts)
        seen |= set(expected)
    assert seen == {"busy", "output", "size", ""}


@pytest.mark.parametrize("name", ["python", "a b", "x) Z 1 2 3 4 5 6", "((", ") S"])
@pytest.mark.parametrize("state", "RSDZX")
def test_the_start_of_a_process_is_read_behind_whatever_it_is_called(
    name: str, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields = [state, *map(str, range(4, 53))]  # by the manual, from the third on; the 22nd is the start
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: f"77 ({name}) {' '.join(fields)}\n")
    assert lock.process_start(77) == (None if state in "ZX" else "22")


@pytest.mark.parametrize("text", ["", "77 (python) S 1 2", "77 (python"])
def test_a_system_that_tells_less_tells_no_start(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: text)
    assert lock.process_start(77) is None
