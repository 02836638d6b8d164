"""Graphs of ops to be scheduled: what is left of a training step when only kinds, sizes and order matter."""

import heapq
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from presilicon.base.errors import ConfigError, did_you_mean


class GraphOp(Struct, frozen=True, kw_only=True, gc=False):
    """An op that a table knows by kind and size, or by kind and work."""

    id: int
    kind: str
    size: str = ""
    """`S`, `M`, `L`; empty where its work decides."""
    bytes_out: int = 0
    """What whoever depends on it needs of it."""
    deps: tuple[int, ...] = ()
    name: str = ""
    flops: int | None = None
    bytes_moved: int | None = None
    """Between the device and its own memory."""

    @property
    def label(self) -> str:
        """How messages call it."""
        return f"op {self.id} ({f'{self.kind} {self.size}'.rstrip()})"


class Graph(Struct, frozen=True, kw_only=True):
    """Ops in an order in which they can run; their ids are those of where they come from."""

    name: str
    ops: tuple[GraphOp, ...]
    batch_size: int = 1
    notes: tuple[str, ...] = ()


_FIELDS = GraphOp.__struct_fields__
_REQUIRED = ("id", "kind")
_WHOLE = ("id", "bytes_out", "flops", "bytes_moved")


def read_graph(path: Path, *, parts: bool = False) -> Graph:
    """The graph in a JSON file: `{"ops": [{"id": 0, "kind": "Conv2D", "size": "M", "bytes_out": 0, "deps": []}]}`.

    Ops may come in any order; `batch_size` and `name` may stand beside `ops`, and an op may have a `name`, `flops` and
    `bytes_moved`. A graph that falls into parts that nothing joins is refused, unless `parts` says that it is meant.

    Raises:
        ConfigError: the file cannot be read, or something in it is wrong; the op and the value are named.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such file") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror or error})") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: not a JSON document: {error}") from None
    try:
        return parse_graph(data, path.name.removesuffix(".json"), parts=parts)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def parse_graph(data: Any, name: str = "graph", *, parts: bool = False) -> Graph:
    """The graph of a document, as `read_graph` takes it from a file.

    >>> parse_graph({"ops": [{"id": 1, "kind": "Mul", "deps": [0]}, {"id": 0, "kind": "Mul"}]}).ops[0].id
    0
    """
    if not isinstance(data, dict) or not isinstance(data.get("ops"), list):
        raise ConfigError('expected an object with a list "ops"')
    if not data["ops"]:
        raise ConfigError("the graph has no ops")
    batch = data.get("batch_size", 1)
    if not isinstance(batch, int) or isinstance(batch, bool) or batch < 1:
        raise ConfigError(f"batch_size is {batch!r}, expected a whole number of at least 1")
    ops = [_op(entry, place) for place, entry in enumerate(data["ops"])]
    found = in_order(ops)
    if not parts:
        check_connected(found)
    return Graph(name=str(data.get("name", name)), ops=found, batch_size=batch)


def _op(entry: Any, place: int) -> GraphOp:
    where = f"ops[{place}]"
    if not isinstance(entry, dict):
        raise ConfigError(f"{where} is {entry!r:.60}, expected an object")
    for field in _REQUIRED:
        if field not in entry:
            raise ConfigError(f'{where} has no "{field}"')
    for field in entry:
        if field not in _FIELDS:
            raise ConfigError(f'{where}: unknown field "{field}": {did_you_mean(str(field), _FIELDS)}')
    for field in _WHOLE:
        value = entry.get(field)
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
            raise ConfigError(f"{where} (id {entry['id']!r:.20}): {field} is {value!r:.40}, expected at least 0")
    for field in ("kind", "size", "name"):
        if not isinstance(entry.get(field, ""), str):
            raise ConfigError(f"{where} (id {entry['id']}): {field} is {entry[field]!r:.40}, expected a text")
    deps = entry.get("deps", [])
    if not isinstance(deps, list) or not all(isinstance(dep, int) and not isinstance(dep, bool) for dep in deps):
        raise ConfigError(f"{where} (id {entry['id']}): deps is {deps!r:.60}, expected a list of ids")
    if entry["id"] is None:
        raise ConfigError(f"{where} has no id")
    given = {key: value for key, value in entry.items() if value is not None}
    return GraphOp(**{**given, "deps": tuple(dict.fromkeys(deps))})


def in_order(ops: Iterable[GraphOp]) -> tuple[GraphOp, ...]:
    """The ops in an order in which each comes after those that it depends on; as given, where that is possible.

    Raises:
        ConfigError: an id stands twice, a dependency does not exist, or ops wait for one another.
    """
    ops = list(ops)
    known: dict[int, GraphOp] = {}
    for op in ops:
        if op.id in known:
            raise ConfigError(f"{op.label}: its id stands twice, the other is {known[op.id].kind}")
        known[op.id] = op
    for op in ops:
        for dep in op.deps:
            if dep not in known:
                raise ConfigError(f"{op.label}: it depends on op {dep}, which the graph does not have")
    done: set[int] = set()
    found: list[GraphOp] = []
    followers: dict[int, list[int]] = {op.id: [] for op in ops}
    missing = {op.id: len(op.deps) for op in ops}
    for op in ops:
        for dep in op.deps:
            followers[dep].append(op.id)
    place = {op.id: index for index, op in enumerate(ops)}
    ready = [place[op.id] for op in ops if not op.deps]
    heapq.heapify(ready)
    while ready:
        op = ops[heapq.heappop(ready)]
        found.append(op)
        done.add(op.id)
        for follower in followers[op.id]:
            missing[follower] -= 1
            if missing[follower] == 0:
                heapq.heappush(ready, place[follower])
    if len(found) < len(ops):
        raise ConfigError(_cycle(known, [op.id for op in ops if op.id not in done]))
    return tuple(found)


def _cycle(known: dict[int, GraphOp], left: Sequence[int]) -> str:
    """A sentence that names ops which wait for one another."""
    waiting = set(left)
    path = [left[0]]
    while path.count(path[-1]) < 2:
        path.append(next(dep for dep in known[path[-1]].deps if dep in waiting))
    circle = path[path.index(path[-1]) :]
    shown = [known[each].label for each in circle]
    text = " needs ".join(shown if len(shown) <= 8 else [*shown[:4], "...", *shown[-3:]])
    return f"the graph has a cycle: {text}"


def check_connected(ops: Sequence[GraphOp]) -> None:
    """One graph, and not several side by side.

    Raises:
        ConfigError: naming an op that nothing joins to the first one.
    """
    parent = {op.id: op.id for op in ops}

    def root(each: int) -> int:
        while parent[each] != each:
            parent[each] = parent[parent[each]]
            each = parent[each]
        return each

    for op in ops:
        for dep in op.deps:
            parent[root(op.id)] = root(dep)
    parts = {root(op.id) for op in ops}
    if len(parts) > 1:
        first = root(ops[0].id)
        other = next(op for op in ops if root(op.id) != first)
        raise ConfigError(
            f"the graph falls into {len(parts)} parts: nothing joins {other.label} to {ops[0].label}. If that is "
            "meant, say --allow-parts"
        )


def joined(name: str, graphs: Sequence[Graph], batch_size: int) -> Graph:
    """Graphs one after another: each begins when the last op of the one before is done."""
    ops: list[GraphOp] = []
    for graph in graphs:
        shift = len(ops)
        place = {op.id: shift + index for index, op in enumerate(graph.ops)}
        last = (shift - 1,) if shift else ()
        for op in graph.ops:
            deps = tuple(place[dep] for dep in op.deps) or last
            ops.append(replace(op, id=place[op.id], deps=deps, name=f"{graph.name}/{op.name}"))
    notes = tuple(dict.fromkeys(note for graph in graphs for note in graph.notes))
    return Graph(name=name, ops=tuple(ops), batch_size=batch_size, notes=notes)
