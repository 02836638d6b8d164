"""Chakra traces, read back with the format's own library."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from presilicon.base import ConfigError, MissingToolError
from presilicon.designs import load_design
from presilicon.records import StepFacts
from presilicon.simulation import simulate, write_chakra
from presilicon.workloads import capture_workload, load_workload

DESIGN = load_design("bf16-systolic")


@pytest.fixture(scope="module")
def graph():
    return capture_workload(load_workload("resnet18"), 4)


@pytest.fixture
def chakra() -> Any:
    return pytest.importorskip("chakra.schema.protobuf.et_def_pb2", reason="pip install 'presilicon[chakra]'")


def read(path: Path, chakra: Any) -> tuple[Any, list[Any]]:
    from chakra.src.third_party.utils.protolib import decodeMessage, openFileRd

    with openFileRd(str(path)) as file:
        metadata = chakra.GlobalMetadata()
        assert decodeMessage(file, metadata)
        nodes = []
        while decodeMessage(file, node := chakra.Node()):
            nodes.append(node)
    return metadata, nodes


def attributes(message: Any) -> dict[str, Any]:
    return {each.name: getattr(each, each.WhichOneof("value")) for each in message.attr}


def test_nodes_and_dependencies_come_back(graph, chakra, tmp_path) -> None:
    cost = simulate(graph, DESIGN)
    write_chakra(tmp_path / "step.et", graph, DESIGN, cost)
    metadata, nodes = read(tmp_path / "step.et", chakra)
    assert attributes(metadata) == {
        "workload": "resnet18", "design": "bf16-systolic", "generator": "presilicon", "batch_size": 4,
    }  # fmt: skip
    assert [(node.id, node.name) for node in nodes] == [(op.index, op.name) for op in cost.ops]
    assert {node.type for node in nodes} == {chakra.COMP_NODE}
    assert [tuple(node.data_deps) for node in nodes[:-1]] == [op.depends_on for op in graph.ops]
    assert sum(len(node.data_deps) for node in nodes) > len(nodes)
    # The last node rounds the weights, once every one of them is updated.
    rounding = nodes[-1]
    assert rounding.name == "update.round_weights"
    assert len(rounding.data_deps) == len(graph.parameters)
    assert {graph.ops[index].phase for index in rounding.data_deps} == {"update"}
    assert all(index < node.id for node in nodes for index in node.data_deps)


def test_durations_and_sizes_are_the_simulated_ones(graph, chakra, tmp_path) -> None:
    cost = simulate(graph, DESIGN)
    write_chakra(tmp_path / "step.et", graph, DESIGN, cost)
    _, nodes = read(tmp_path / "step.et", chakra)
    for node, price in zip(nodes, cost.ops, strict=True):
        found = attributes(node)
        assert (found["time_s"], found["num_ops"], found["is_cpu_op"]) == (price.time_s, price.flops, False)
        assert found["tensor_size"] == round(price.bytes_dram)
        assert (found["phase"], found["layer"], found["op_kind"]) == (price.phase, price.layer, price.kind)
        assert abs(node.duration_micros - price.time_s * 1e6) <= 1
        assert abs(node.start_time_micros - price.start_s * 1e6) <= 0.5
    assert sum(node.duration_micros for node in nodes) == round(cost.time_s * 1e6)
    first = graph.ops[0]
    assert json.loads(nodes[0].inputs.shapes) == [list(tensor.shape) for tensor in first.inputs]
    assert json.loads(nodes[0].inputs.types)[0] == "Tensor(bfloat16)"
    assert json.loads(nodes[0].outputs.values)[0][3:5] == [first.outputs[0].elements, 2.0]


def test_the_librarys_own_converter_reads_it(graph, chakra, tmp_path) -> None:
    write_chakra(tmp_path / "step.et", graph, DESIGN, simulate(graph, DESIGN))
    command = ["chakra.src.jsonizer.jsonizer", "--input_filename", "step.et", "--output_filename", "step.json"]
    subprocess.run([sys.executable, "-m", *command], cwd=tmp_path, check=True)
    assert (tmp_path / "step.json").read_text().count('"type": "COMP_NODE"') == len(graph.ops) + 1


def test_a_skipped_update_is_no_part_of_the_trace(graph, chakra, tmp_path) -> None:
    facts = StepFacts(update_skipped=True)
    write_chakra(tmp_path / "step.et", graph, DESIGN, simulate(graph, DESIGN, facts), facts)
    _, nodes = read(tmp_path / "step.et", chakra)
    assert {attributes(node)["phase"] for node in nodes} == {"forward", "input_grad", "weight_grad"}


def test_a_missing_library_is_named(graph, tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "chakra.schema.protobuf", None)
    with pytest.raises(MissingToolError, match=r"pip install 'presilicon\[chakra\]'"):
        write_chakra(tmp_path / "step.et", graph, DESIGN, simulate(graph, DESIGN))
    assert not (tmp_path / "step.et").exists()


def test_a_path_that_cannot_be_written_is_named(graph, chakra, tmp_path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere.step\.et: the trace cannot be written: No such file"):
        write_chakra(tmp_path / "nowhere" / "step.et", graph, DESIGN, simulate(graph, DESIGN))
