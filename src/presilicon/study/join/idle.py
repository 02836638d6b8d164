"""Fields of machines that were varied and change nothing."""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

from presilicon.designs import Design, flat_fields
from presilicon.records import Result


def idle_remarks(cases: Iterable[tuple[Mapping[str, Any], Hashable]]) -> tuple[str, ...]:
    """Sentences on fields of `machine` without effect: cases that differ in nothing else cost the same.

    A case has the fields of a design by path, and everything that may differ in its result.

    >>> rows, lanes = "machine.rows", "machine.vector_lanes"
    >>> idle_remarks([({rows: 32, lanes: 8}, 5.0), ({rows: 64, lanes: 8}, 3.0), ({rows: 64, lanes: 9}, 3.0)])
    ('machine.vector_lanes has no effect here: designs that differ in nothing else cost the same',)
    """
    known = [({path: repr(value) for path, value in fields.items()}, cost) for fields, cost in cases]
    paths = dict.fromkeys(path for fields, _ in known for path in fields if path.startswith("machine."))
    varied = [path for path in paths if len({fields.get(path) for fields, _ in known}) > 1]
    idle = []
    for path in varied:
        costs: dict[frozenset[tuple[str, str]], list[Hashable]] = defaultdict(list)
        for fields, cost in known:
            costs[frozenset(item for item in fields.items() if item[0] != path)].append(cost)
        several = [alike for alike in costs.values() if len(alike) > 1]
        if several and all(len(set(alike)) == 1 for alike in several):
            idle.append(path)
    return tuple(f"{path} has no effect here: designs that differ in nothing else cost the same" for path in idle)


def idle_in_prices(designs: Sequence[Design], prices: Sequence[tuple[float, ...]]) -> tuple[str, ...]:
    """Remarks on designs by their areas and by figures of the price of a step or a product."""
    from presilicon.simulation import area

    return idle_remarks(
        (_fields(design.to_plain()), (price, area(design).mm2)) for design, price in zip(designs, prices, strict=True)
    )


def idle_in_results(results: Sequence[Result]) -> tuple[str, ...]:
    """Remarks on designs by their results, seed by seed."""
    return idle_remarks(
        (
            _fields(result.provenance["design"]),
            (result.memory_bytes, result.area_mm2, tuple((s.time_s, s.energy_j, s.fingerprint) for s in result.seeds)),
        )
        for result in results
    )


def _fields(design: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a design by path, but for what it is called."""
    return flat_fields({key: value for key, value in design.items() if key not in ("name", "description")})
