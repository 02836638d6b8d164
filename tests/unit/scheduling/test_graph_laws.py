"""Graphs that are joined: each one as it was, under new numbers, and after all of the one before."""

import random

from presilicon.records import HostInput
from presilicon.scheduling.graphs import Graph, GraphOp, joined


def some_graph(draw: random.Random, name: str) -> Graph:
    """Ops with ids of their own, in which every field is set."""
    count = draw.randint(1, 6)
    ids = draw.sample(range(50), count)
    ops = tuple(
        GraphOp(
            id=ids[number], kind=draw.choice(["Mul", "Add"]), size=draw.choice(["", "S"]), bytes_out=draw.randint(0, 9),
            deps=tuple(sorted(draw.sample(ids[:number], min(number, draw.randint(0, 2))))),
            next_readers=tuple(draw.sample(ids, draw.randint(0, min(count, 2)))), held_bytes=draw.randint(0, 5),
            gradient=draw.random() < 0.5, name=f"op{number}", flops=draw.choice([None, 7]), bytes_moved=3,
            operator="aten.mul", shape=(number, 2),
        )
        for number in range(count)
    )  # fmt: skip
    inputs = tuple(HostInput(bytes=draw.randint(1, 9), readers=tuple(draw.sample(ids, 1))) for _ in range(2))
    notes = tuple(draw.sample(["first note", "second note", "third note"], 2))
    return Graph(name=name, ops=ops, batch_size=4, inputs=inputs, notes=notes)


def test_a_joined_graph_is_made_of_its_parts() -> None:
    draw = random.Random(1)
    for _ in range(60):
        parts = [some_graph(draw, f"part{number}") for number in range(draw.randint(1, 3))]
        whole = joined("whole", parts, 12)
        assert (whole.name, whole.batch_size) == ("whole", 12)
        assert [op.id for op in whole.ops] == list(range(len(whole.ops)))
        assert sorted(whole.notes) == sorted({note for part in parts for note in part.notes})
        begin, inputs = 0, iter(whole.inputs)
        for part in parts:
            own = [op.id for op in part.ops]
            for place, op in enumerate(part.ops):
                found = whole.ops[begin + place]
                same = set(GraphOp.__struct_fields__) - {"id", "deps", "next_readers", "name"}
                assert all(getattr(found, field) == getattr(op, field) for field in same)
                assert found.name == f"{part.name}/{op.name}"
                after = tuple(begin + own.index(dep) for dep in op.deps)
                assert found.deps == (after or ((begin - 1,) if begin else ()))
                assert found.next_readers == tuple(begin + own.index(reader) for reader in op.next_readers)
            for data in part.inputs:
                found_data = next(inputs)
                assert found_data.bytes == data.bytes
                assert found_data.readers == tuple(begin + own.index(reader) for reader in data.readers)
            begin += len(own)
        assert next(inputs, None) is None
