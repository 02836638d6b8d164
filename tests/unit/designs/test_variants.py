"""What hardware must support: numerics of all layers in which patterns may meet."""

import random

import pytest

from presilicon.base import ConfigError
from presilicon.designs import Numerics, Override, RoleFormat
from presilicon.designs.patterns import patterns_meet
from presilicon.formats import parse

PATTERNS = ("conv*", "*2", "fc*", "last", "first", "*", "blocks.0", "*.fc1", "*.fc2")


def tried_all(numerics: Numerics) -> set[Numerics]:
    """Every set of entries whose patterns meet, one by one."""
    tried: dict[tuple[Numerics, frozenset[str]], None] = {(numerics, frozenset()): None}
    for entry in numerics.overrides:
        for base, patterns in tuple(tried):
            if all(patterns_meet(entry.layers, pattern) for pattern in patterns):
                tried[base.changed(entry.changes()), patterns | {entry.layers}] = None
    return {base for base, _ in tried}


def override(layers: str, role: str, fmt: str) -> Override:
    return Override(layers=layers, **{role: RoleFormat(parse(fmt))})


def test_variants_are_those_of_all_sets_of_entries() -> None:
    draw = random.Random(1)
    for _ in range(60):
        entries = [
            override(
                draw.choice(PATTERNS), draw.choice(("weight", "activation")), draw.choice(("e4m3", "e5m2", "float16"))
            )
            for _ in range(draw.randint(1, 6))
        ]
        numerics = Numerics(overrides=tuple(entries))
        assert set(numerics.variants()) == tried_all(numerics)


def test_many_patterns_that_replace_one_another_make_few_variants() -> None:
    """There are 2 to the power of 40 sets of these entries."""
    entries = [override(f"*.part{number}", "weight", ("e4m3", "e5m2")[number % 2]) for number in range(40)]
    assert len(Numerics(overrides=tuple(entries)).variants()) == 3


def test_overrides_in_a_list_are_a_tuple_and_others_are_refused() -> None:
    numerics = Numerics(overrides=[Override(layers="0", weight="bfloat16")])  # type: ignore[arg-type]
    assert numerics == Numerics(overrides=(Override(layers="0", weight="bfloat16"),))
    hash(numerics)
    for wrong in ({"layers": "0"}, [{"layers": "0"}], Override(layers="0", weight="bfloat16")):
        with pytest.raises(ConfigError, match="overrides: must be a tuple of Override, not"):
            Numerics(overrides=wrong)  # type: ignore[arg-type]
