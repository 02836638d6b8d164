"""The Pareto front of points, and which limits they satisfy."""

from collections.abc import Sequence

from presilicon.base import Condition, np
from presilicon.records import Direction, PointRecord, direction_of


def broken_limit(record: PointRecord, limits: Sequence[Condition], *, known: bool = False) -> Condition | None:
    """The first limit that a point does not satisfy; with `known`, of those on metrics that it has."""
    for limit in limits:
        if known and limit.name not in record.metrics:
            continue
        if not limit.holds(record.metric(limit.name)):
            return limit
    return None


def pareto_front(
    records: Sequence[PointRecord], objectives: Sequence[str], better: Direction = "higher"
) -> list[PointRecord]:
    """The points that no other point beats: as good in all objectives and better in one.

    `better` is the direction of the workload's own metric. Points without one of the objectives, or with an infinite
    one, are left out; of equal points all are on the front.
    """
    signs = np.array([-1.0 if direction_of(name, better) == "higher" else 1.0 for name in objectives])
    values = np.array([[record.metric(name) for name in objectives] for record in records], dtype=float)
    values = values.reshape(len(records), len(objectives)) * signs
    usable = np.isfinite(values).all(axis=1)
    indices = np.flatnonzero(usable)
    # In lexicographic order a point can only be beaten by one before it.
    order = indices[np.lexsort(values[indices].T[::-1])]
    front = np.empty((0, len(objectives)))
    chosen: list[int] = []
    for index in order:
        point = values[index]
        if not ((front <= point).all(axis=1) & (front < point).any(axis=1)).any():
            chosen.append(int(index))
            front = np.vstack([front, point])
    return [records[index] for index in sorted(chosen)]
