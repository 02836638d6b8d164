"""Patterns of layers: whether two of them may mean the same layer."""

import re

_TOKEN = re.compile(r"\[!?.[^]]*\]|.", re.DOTALL)
_ENDS = {"first", "last"}


def patterns_meet(one: str, other: str) -> bool:
    """Whether some network may have a layer that both patterns mean; a pattern means the modules inside a match, too.

    "first" and "last" may be any layer, but not the same one.

    >>> patterns_meet("conv*", "*2"), patterns_meet("blocks.0", "*.fc1"), patterns_meet("conv*", "fc*")
    (True, True, False)
    """
    if _ENDS & {one, other}:
        return {one, other} != _ENDS
    return _match_alike(one, other) or _match_alike(f"{one}.*", other) or _match_alike(one, f"{other}.*")


def _match_alike(one: str, other: str) -> bool:
    """Whether some text matches both: reached are pairs of positions up to which the same text matches."""
    left, right = _TOKEN.findall(one), _TOKEN.findall(other)
    reached, ahead = {(0, 0)}, [(0, 0)]
    while ahead:
        i, j = ahead.pop()
        a, b = left[i] if i < len(left) else "", right[j] if j < len(right) else ""
        pairs = []
        if a == "*":
            pairs += [(i + 1, j), (i, j + 1)] if b else [(i + 1, j)]
        if b == "*":
            pairs += [(i, j + 1), (i + 1, j)] if a else [(i, j + 1)]
        if "*" not in (a, b) and a and b and (a == b or "?" in (a, b) or len(a) > 1 or len(b) > 1):
            pairs.append((i + 1, j + 1))
        ahead += [pair for pair in pairs if pair not in reached]
        reached.update(pairs)
    return (len(left), len(right)) in reached
