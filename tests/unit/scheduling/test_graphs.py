"""Graphs from JSON, and what is said about wrong ones."""

import json
from pathlib import Path
from typing import Any

import pytest

from presilicon.base import ConfigError
from presilicon.scheduling.graphs import Graph, GraphOp, joined, parse_graph, read_graph


def _op(id: Any, deps: Any = (), **more: Any) -> dict[str, Any]:
    listed = list(deps) if isinstance(deps, list | tuple) else deps
    return {"id": id, "kind": "Mul", "size": "S", "bytes_out": 4, "deps": listed, **more}


def test_ops_in_any_order_are_put_in_one_in_which_they_can_run() -> None:
    found = parse_graph({"ops": [_op(7, [5]), _op(5, [9]), _op(9)]})
    assert [op.id for op in found.ops] == [9, 5, 7]
    assert found.ops[2].deps == (5,)


def test_ops_that_are_in_order_stay(graph) -> None:
    found = graph("39-M")
    assert [op.id for op in found.ops] == list(range(39))


def test_a_dependency_that_stands_twice_counts_once() -> None:
    assert parse_graph({"ops": [_op(0), _op(1, [0, 0])]}).ops[1].deps == (0,)


def test_batch_size_and_name_are_read() -> None:
    found = parse_graph({"name": "mine", "batch_size": 32, "ops": [_op(0)]})
    assert (found.name, found.batch_size) == ("mine", 32)


@pytest.mark.parametrize(
    ("ops", "words"),
    [
        ([_op(0, [2]), _op(1, [0]), _op(2, [1])], ["cycle", "op 0 (Mul S) needs op 2", "op 1"]),
        ([_op(0, [0])], ["cycle", "op 0"]),
        ([_op(0), _op(1)], ["2 unconnected parts", "op 1", "--allow-parts"]),
        ([_op(0), _op(1, [5])], ["op 1 (Mul S)", "depends on op 5"]),
        ([_op(0), _op(0)], ["op 0", "twice"]),
        ([_op(0, bytes_out=-1)], ["id 0", "bytes_out must be", "not -1"]),
        ([_op(-4)], ["id must be", "not -4"]),
        ([_op(0, flops=-2)], ["flops must be", "not -2"]),
        ([_op(True)], ["id must be", "not True"]),
        ([_op(None)], ["ops[0]", "must have an id"]),
        ([{"kind": "Mul"}], ["ops[0]", 'must have "id"']),
        ([{"id": 3}], ["ops[0]", 'must have "kind"']),
        ([_op(0, sise="S")], ["sise", "size"]),
        ([_op(0, deps="1")], ["deps must be", "not '1'"]),
        ([_op(0, size=3)], ["size must be", "not 3"]),
        (["text"], ["ops[0]", "must be an object"]),
        ([], ["at least one op"]),
    ],
)
def test_wrong_graphs_are_named(ops: list[Any], words: list[str]) -> None:
    with pytest.raises(ConfigError) as error:
        parse_graph({"ops": ops})
    assert all(word in str(error.value) for word in words), str(error.value)


def test_parts_may_be_meant() -> None:
    assert len(parse_graph({"ops": [_op(0), _op(1)]}, parts=True).ops) == 2


@pytest.mark.parametrize("text", ["", "[1]", "{", '{"ops": 3}', '{"ops": [], "batch_size": 0}'])
def test_files_that_are_no_graphs(tmp_path: Path, text: str) -> None:
    path = tmp_path / "graph.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"graph\.json"):
        read_graph(path)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        read_graph(tmp_path / "nothing.json")


def test_a_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text(json.dumps({"ops": [_op(0), _op(1, [0])]}))
    assert read_graph(path).name == "mine"


def test_graphs_are_joined_end_to_end() -> None:
    one = Graph(name="one", ops=(GraphOp(id=4, kind="Mul"), GraphOp(id=6, kind="Add", deps=(4,))))
    both = joined("both", [one, one], 8)
    assert [(op.id, op.deps, op.kind) for op in both.ops] == [
        (0, (), "Mul"),
        (1, (0,), "Add"),
        (2, (1,), "Mul"),
        (3, (2,), "Add"),
    ]
    assert both.batch_size == 8
