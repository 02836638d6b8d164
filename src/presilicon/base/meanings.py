"""Numbers of meaning: they tell results apart whose configurations read the same and meant something else.

`TRAINING` rises by one whenever a design, a workload and a seed come to train other bits than before, `PRICE` whenever
a step on a machine comes to cost something else. Both are part of every identity: a run of other numbers can be shown,
but is neither resumed nor reused, and comparisons with it carry a warning. A new price discards no training.
"""

TRAINING = 4
PRICE = 4


def meaning() -> dict[str, int]:
    """Both numbers, by what they speak of."""
    return {"training": TRAINING, "price": PRICE}


def meaning_changes(then: dict[str, int]) -> list[str]:
    """The differences between numbers recorded earlier and those of today, in words.

    >>> meaning_changes(meaning()), [change.partition(",")[0] for change in meaning_changes(meaning() | {"price": 0})]
    ([], ['price 0'])
    """
    return [f"{what} {then.get(what)}, now {now}" for what, now in meaning().items() if then.get(what) != now]
