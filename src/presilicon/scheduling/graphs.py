"""Graphs of ops for scheduling: kinds, sizes and dependencies of the ops of a training step."""

import heapq
from collections.abc import Collection, Iterable, Sequence
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

from msgspec import Struct, ValidationError, convert
from msgspec.structs import replace

from presilicon.base import LARGEST_DATA, ConfigError, did_you_mean, located, read_json
from presilicon.records import HostInput


class GraphOp(Struct, frozen=True, kw_only=True, gc=False):
    """An op, looked up in a characterization table by kind and size, or by kind and work."""

    id: int
    kind: str
    size: str = ""
    """`S`, `M` or `L`; empty if the op's work decides instead."""
    bytes_out: int = 0
    """Size of the result that dependent ops read."""
    deps: tuple[int, ...] = ()
    next_readers: tuple[int, ...] = ()
    """Ops that read its result in the next step, as forward ops read updated weights."""
    held_bytes: int = 0
    """State that it updates, which stays on its device from step to step."""
    gradient: bool = False
    """Whether replicas add up its result before others read it."""
    name: str = ""
    flops: int | None = None
    bytes_moved: int | None = None
    """Bytes moved between the device and its own memory."""
    operator: str = ""
    """Operator of a captured op: `aten.mm.default`."""
    shape: tuple[int, ...] = ()
    """Shape of its first result."""

    @property
    def label(self) -> str:
        """Name of the op in messages."""
        return f"op {self.id} ({f'{self.kind} {self.size}'.rstrip()})"


class Graph(Struct, frozen=True, kw_only=True):
    """Ops in an order in which they can run; they keep the ids of their source."""

    name: str
    ops: tuple[GraphOp, ...]
    batch_size: int = 1
    inputs: tuple[HostInput, ...] = ()
    """What ops read from the host in every step; readers are ids."""
    notes: tuple[str, ...] = ()


_FIELDS = tuple(field for field in GraphOp.__struct_fields__ if field not in ("operator", "shape"))
_REQUIRED = ("id", "kind")
_INTEGER_FIELDS = ("id", "bytes_out", "held_bytes", "flops", "bytes_moved")


def read_graph(path: Path, *, parts: bool = False) -> Graph:
    """The graph in a JSON file: `{"ops": [{"id": 0, "kind": "Conv2D", "size": "M", "bytes_out": 0, "deps": []}]}`.

    Ops may come in any order; `batch_size`, `name` and `inputs` (`[{"bytes": 4096, "readers": [0]}]`, read from the
    host) may stand beside `ops`, and an op may have a `name`, `flops`, `bytes_moved`, `held_bytes`, `next_readers` and
    `gradient`. A
    graph of several unconnected parts is refused unless `parts` is set.

    Raises:
        ConfigError: the file cannot be read, or a value in it is invalid; names the op and the value.
    """
    data = read_json(path, LARGEST_DATA)
    with located(path):
        return parse_graph(data, path.name.removesuffix(".json"), parts=parts)


def parse_graph(data: Any, name: str = "graph", *, parts: bool = False) -> Graph:
    """The graph of a parsed JSON document; see `read_graph`.

    >>> parse_graph({"ops": [{"id": 1, "kind": "Mul", "deps": [0]}, {"id": 0, "kind": "Mul"}]}).ops[0].id
    0
    """
    if not isinstance(data, dict) or not isinstance(data.get("ops"), list):
        raise ConfigError('a graph must be an object with a list "ops"')
    if not data["ops"]:
        raise ConfigError("the graph must have at least one op")
    batch = data.get("batch_size", 1)
    if not isinstance(batch, int) or isinstance(batch, bool) or batch < 1:
        raise ConfigError(f"batch_size must be a whole number of at least 1, not {batch!r}")
    ops = [_op(entry, index) for index, entry in enumerate(data["ops"])]
    ordered = in_order(ops)
    if not parts:
        check_connected(ordered)
    known = {op.id for op in ordered}
    inputs = tuple(_input(entry, number, known) for number, entry in enumerate(data.get("inputs", ())))
    return Graph(name=str(data.get("name", name)), ops=ordered, batch_size=batch, inputs=inputs)


def _input(entry: Any, number: int, known: Collection[int]) -> HostInput:
    try:
        data = convert(entry, HostInput)
    except ValidationError as error:
        raise ConfigError(f'inputs[{number}] must be as {{"bytes": 4096, "readers": [0]}}: {error}') from None
    if data.bytes < 0 or not data.readers or not set(data.readers) <= set(known):
        raise ConfigError(f"inputs[{number}]: bytes must be at least 0, and readers ids of ops, not {entry!r:.80}")
    return data


def _op(entry: Any, index: int) -> GraphOp:
    where = f"ops[{index}]"
    if not isinstance(entry, dict):
        raise ConfigError(f"{where} must be an object, not {entry!r:.60}")
    for field in _REQUIRED:
        if field not in entry:
            raise ConfigError(f'{where} must have "{field}"')
    for field in entry:
        if field not in _FIELDS:
            raise ConfigError(f'{where}: unknown field "{field}": {did_you_mean(str(field), _FIELDS)}')
    for field in _INTEGER_FIELDS:
        value = entry.get(field)
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
            where += f" (id {entry['id']!r:.20})"
            raise ConfigError(f"{where}: {field} must be a whole number of at least 0, not {value!r:.40}")
    for field in ("kind", "size", "name"):
        if not isinstance(entry.get(field, ""), str):
            raise ConfigError(f"{where} (id {entry['id']}): {field} must be a string, not {entry[field]!r:.40}")
    lists = {}
    for field in ("deps", "next_readers"):
        ids = entry.get(field, [])
        if not isinstance(ids, list) or not all(
            isinstance(other, int) and not isinstance(other, bool) for other in ids
        ):
            raise ConfigError(f"{where} (id {entry['id']}): {field} must be a list of ids, not {ids!r:.60}")
        lists[field] = tuple(dict.fromkeys(ids))
    if not isinstance(entry.get("gradient", False), bool):
        raise ConfigError(f"{where} (id {entry['id']}): gradient must be true or false, not {entry['gradient']!r:.40}")
    if entry["id"] is None:
        raise ConfigError(f"{where} must have an id")
    fields = {key: value for key, value in entry.items() if value is not None}
    return GraphOp(**{**fields, **lists})


def in_order(ops: Iterable[GraphOp]) -> tuple[GraphOp, ...]:
    """The ops in topological order, as close to the given order as possible.

    Raises:
        ConfigError: an id is used twice, a dependency does not exist, or the graph has a cycle.
    """
    ops = list(ops)
    known: dict[int, GraphOp] = {}
    for op in ops:
        if op.id in known:
            raise ConfigError(f"{op.label}: its id is used twice, also by {known[op.id].kind}")
        known[op.id] = op
    for op in ops:
        for dep in op.deps:
            if dep not in known:
                raise ConfigError(f"{op.label}: it depends on op {dep}, which is not in the graph")
        for reader in op.next_readers:
            if reader not in known:
                raise ConfigError(f"{op.label}: op {reader}, which reads its result next, is not in the graph")
    sorter = TopologicalSorter({op.id: op.deps for op in ops})
    try:
        sorter.prepare()
    except CycleError as error:
        shown = [known[op_id].label for op_id in reversed(error.args[1])]
        text = " needs ".join(shown if len(shown) <= 8 else [*shown[:4], "...", *shown[-3:]])
        raise ConfigError(f"the graph has a cycle: {text}") from None
    index_of = {op.id: index for index, op in enumerate(ops)}
    ready: list[int] = []
    ordered: list[GraphOp] = []
    while sorter.is_active():
        for op_id in sorter.get_ready():
            heapq.heappush(ready, index_of[op_id])
        ordered.append(ops[heapq.heappop(ready)])
        sorter.done(ordered[-1].id)
    return tuple(ordered)


def check_connected(ops: Sequence[GraphOp]) -> None:
    """Refuse a graph of several unconnected parts.

    Raises:
        ConfigError: names an op that is not connected to the first one.
    """
    parent = {op.id: op.id for op in ops}

    def root(op_id: int) -> int:
        while parent[op_id] != op_id:
            parent[op_id] = parent[parent[op_id]]
            op_id = parent[op_id]
        return op_id

    for op in ops:
        for dep in op.deps:
            parent[root(op.id)] = root(dep)
    parts = {root(op.id) for op in ops}
    if len(parts) > 1:
        first = root(ops[0].id)
        other = next(op for op in ops if root(op.id) != first)
        raise ConfigError(
            f"the graph has {len(parts)} unconnected parts: nothing connects {other.label} to {ops[0].label}. If that "
            "is intended, add --allow-parts"
        )


def joined(name: str, graphs: Sequence[Graph], batch_size: int) -> Graph:
    """Graphs joined one after another: each starts when the last op of the previous one is done."""
    ops: list[GraphOp] = []
    inputs: list[HostInput] = []
    for graph in graphs:
        shift = len(ops)
        new_id = {op.id: shift + index for index, op in enumerate(graph.ops)}
        last = (shift - 1,) if shift else ()
        for op in graph.ops:
            deps = tuple(new_id[dep] for dep in op.deps) or last
            readers = tuple(new_id[reader] for reader in op.next_readers)
            named = f"{graph.name}/{op.name}"
            ops.append(replace(op, id=new_id[op.id], deps=deps, next_readers=readers, name=named))
        inputs += [replace(data, readers=tuple(new_id[reader] for reader in data.readers)) for data in graph.inputs]
    notes = tuple(dict.fromkeys(note for graph in graphs for note in graph.notes))
    return Graph(name=name, ops=tuple(ops), batch_size=batch_size, inputs=tuple(inputs), notes=notes)
