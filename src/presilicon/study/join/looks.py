"""Seeds added until the ranking of designs is decided: when to look, and how sure each look must be."""

from presilicon.base import ConfigError
from presilicon.study.join.statistics import CONFIDENCE
from presilicon.study.options import Seeds

FIRST_LOOK = 5
BATCH = 5
MAX_SEEDS = 40


def seed_looks(seeds: Seeds, max_seeds: int = MAX_SEEDS) -> tuple[int, ...]:
    """The numbers of seeds after which the ranking is looked at; a fixed number has one look.

    >>> seed_looks(7), seed_looks("auto", 18)
    ((7,), (5, 10, 15, 18))
    """
    if seeds != "auto":
        return (seeds,)
    return (*range(FIRST_LOOK, max_seeds, BATCH), max_seeds)


def look_confidence(looks: int) -> float:
    """The confidence that each look needs so that all of them together err no more often than one (Bonferroni).

    >>> look_confidence(1), look_confidence(8)
    (0.95, 0.99375)
    """
    return 1 - (1 - CONFIDENCE) / looks


def check_seeds(seeds: object, max_seeds: object, designs: int) -> None:
    """Refuse numbers of seeds that make no sense.

    Raises:
        ConfigError: says what they must be.
    """
    if seeds != "auto" and (not isinstance(seeds, int) or isinstance(seeds, bool) or seeds < 1):
        raise ConfigError(f'seeds must be at least 1 or "auto", not {seeds!r}')
    if seeds == "auto" and designs < 2:
        raise ConfigError("seeds are added until the ranking of designs is decided: give --seeds auto at least two")
    if seeds == "auto" and (not isinstance(max_seeds, int) or max_seeds < FIRST_LOOK):
        raise ConfigError(f"max_seeds must be at least {FIRST_LOOK}, with which --seeds auto begins, not {max_seeds!r}")


def looks_rule(max_seeds: int) -> str:
    """How seeds were added, in words, for the provenance."""
    looks = seed_looks("auto", max_seeds)
    return (
        f"{FIRST_LOOK} at first, then {BATCH} at a time up to {max_seeds}, until the paired interval of every pair's "
        f"times excludes 1; to allow for up to {len(looks)} looks the intervals have a confidence of "
        f"{look_confidence(len(looks)):.2%} each (Bonferroni), so that a pair is decided wrongly in at most "
        f"{1 - CONFIDENCE:.0%} of studies"
    )
