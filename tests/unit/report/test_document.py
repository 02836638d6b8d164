import json
import math
from importlib import resources

import msgspec
import pytest

from presilicon.base import ConfigError
from presilicon.cli.main import main
from presilicon.designs import load_design
from presilicon.records import Comparison
from presilicon.report import from_plain, render_page, render_table, to_json
from presilicon.report.document import EvaluateDocument
from presilicon.report.step_document import simulate_schema

SCHEMAS = resources.files("presilicon.report") / "schemas"
SCHEMA, STEP_SCHEMA = (json.loads((SCHEMAS / f"{name}.schema.json").read_text()) for name in ("evaluate", "simulate"))

TYPES = {
    "object": dict, "array": list, "string": str, "integer": int, "number": (int, float), "boolean": bool,
    "null": type(None),
}  # fmt: skip


def problems(value, schema, root, path="$"):
    """What a document has against a JSON schema, as far as ours use the language."""
    if "$ref" in schema:
        return problems(value, root["$defs"][schema["$ref"].rsplit("/", 1)[1]], root, path)
    if "allOf" in schema:
        return [problem for each in schema["allOf"] for problem in problems(value, each, root, path)]
    if "anyOf" in schema:
        tries = [problems(value, each, root, path) for each in schema["anyOf"]]
        return [] if [] in tries else tries[0]
    if "enum" in schema:
        return [] if value in schema["enum"] else [f"{path}: {value!r} is not one of {schema['enum']}"]
    kind = schema.get("type")
    if kind and (not isinstance(value, TYPES[kind]) or (isinstance(value, bool) and kind != "boolean")):
        return [f"{path}: {value!r} is no {kind}"]
    found = []
    if kind == "object":
        found += [f"{path}.{name}: missing" for name in schema.get("required", ()) if name not in value]
        for name, each in value.items():
            found += problems(each, schema.get("properties", {}).get(name, {}), root, f"{path}.{name}")
    if kind == "array" and len(value) < schema.get("minItems", 0):
        found.append(f"{path}: {len(value)} items")
    if kind == "array" and isinstance(schema.get("items"), dict):
        for index, each in enumerate(value):
            found += problems(each, schema["items"], root, f"{path}[{index}]")
    return found


def refuse(text):
    raise AssertionError(f"{text} is not JSON")


def test_the_document_has_the_promised_shape(comparison):
    document = json.loads(to_json(comparison), parse_constant=refuse)
    assert list(document) == ["schema", "designs"]
    assert document["schema"] == 2
    design = document["designs"][0]
    assert list(design) == [
        "name", "workload", "target", "metric", "value", "direction", "metric_is_fraction", "steps_to_accuracy",
        "samples_to_accuracy", "updates_to_accuracy", "time_to_accuracy_s", "energy_to_accuracy_j", "reached",
        "reach_probability", "expected_time_to_accuracy_s", "expected_energy_to_accuracy_j",
        "time_per_step_s", "energy_per_step_j", "memory_bytes", "area_mm2", "seeds", "milestones", "remarks",
        "provenance",
    ]  # fmt: skip
    for field in ("steps_to_accuracy", "time_to_accuracy_s", "energy_to_accuracy_j"):
        assert list(design[field]) == ["median", "low", "high"]
    assert [each["name"] for each in document["designs"]] == [each.name for each in comparison.designs]
    assert document["designs"][1]["area_mm2"] is None


def test_infinity_is_null(mixed):
    design = json.loads(to_json(mixed))["designs"][3]
    assert design["time_to_accuracy_s"] == {"median": None, "low": None, "high": None}
    assert design["reached"] == "0/5"


def test_what_is_no_number_never_appears(comparison):
    sick = msgspec.structs.replace(
        comparison.designs[0], value=math.nan, area_mm2=math.inf, provenance={"bandwidth": [math.inf, -math.inf]}
    )
    document = json.loads(to_json(Comparison(designs=(sick,))), parse_constant=refuse)
    assert document["designs"][0]["area_mm2"] is None
    assert document["designs"][0]["provenance"] == {"bandwidth": [None, None]}


def test_a_document_reads_back_as_it_was(mixed):
    assert from_plain(json.loads(to_json(mixed))) == mixed


def test_a_document_of_before_censoring_was_kept_is_readable(mixed):
    document = json.loads(to_json(mixed))
    for design in document["designs"]:
        for name in ("reach_probability", "expected_time_to_accuracy_s", "expected_energy_to_accuracy_j"):
            del design[name]
        for name in ("metric", "direction", "metric_is_fraction", "samples_to_accuracy", "updates_to_accuracy"):
            del design[name]
        del design["milestones"], design["remarks"]
        for seed in design["seeds"]:
            del seed["time_s"], seed["energy_j"], seed["samples_to_accuracy"], seed["updates_to_accuracy"]
            del seed["milestones"], seed["fingerprint"]
            for point in seed["curve"]:
                del point["samples"]
    assert from_plain(document) == mixed
    assert "Held equal" not in render_table(from_plain(document))
    assert "Reliability of this comparison" not in render_page(from_plain(document))


def test_pairs_and_what_was_held_equal_are_in_the_document(judged):
    document = json.loads(to_json(judged))
    assert list(document) == ["schema", "designs", "pairs", "fairness"]
    assert document["fairness"]["strict"] is True
    assert from_plain(document) == judged
    for name in ("time_ratio", "energy_ratio", "confidence", "same_training", "seeds_needed"):
        del document["pairs"][0][name]
    older = from_plain(document)
    assert older.pairs[0].time_ratio is None
    assert not older.pairs[0].is_decided
    assert "1 of 5" not in render_table(older)
    schema = SCHEMA
    assert problems(document, schema, schema) == []


@pytest.mark.parametrize(
    "data", [None, [], {}, {"schema": 1, "designs": []}, {"schema": 2, "designs": [{"name": "x"}]}]
)
def test_something_else_is_refused(data):
    with pytest.raises(ConfigError, match="not a valid comparison of designs"):
        from_plain(data)


def test_the_published_schema_is_current():
    title = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "presilicon evaluate --json"}
    assert json.loads(msgspec.json.encode(title | msgspec.json.schema(EvaluateDocument))) == SCHEMA


def test_documents_fit_the_published_schema(comparison, mixed):
    schema = SCHEMA
    for each in (comparison, mixed, Comparison(designs=())):
        assert problems(json.loads(to_json(each)), schema, schema) == []


def test_the_check_against_the_schema_can_fail(comparison):
    schema = SCHEMA
    document = json.loads(to_json(comparison))
    del document["designs"][1]["reached"]
    document["designs"][0]["time_to_accuracy_s"]["low"] = "soon"
    document["schema"] = 1
    assert len(problems(document, schema, schema)) == 3


@pytest.mark.parametrize(
    "words",
    [
        ("bf16-systolic", "--workload", "digits-mlp"),
        ("bf16-systolic", "--workload", "digits-mlp", "--vary", "machine.rows=8,16", "--checkpoint", "2"),
        ("bf16-systolic", "--workload", "digits-mlp", "--times", "step.csv"),
        ("bf16-mesh", "--workload", "digits-mlp"),
        ("caterpillar-large", "--workload", "digits-mlp", "--set", "machine.schedule=pipelined"),
        ("h200", "--workload", "digits-mlp"),
        ("dgx-1", "--workload", "digits-mlp"),
        ("bf16-systolic", "--gemm", "8x8x8"),
        ("h200", "--gemm", "8x8x8", "--vary", "machine.memory_gib=40,80"),
    ],
)
def test_documents_of_simulate_fit_the_published_schema(words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "step.csv").write_text("op,time_s\nstep,1\n")
    with pytest.raises(SystemExit) as ended:
        main(["simulate", *words, "--json"])
    assert ended.value.code == 0
    document = json.loads(capsys.readouterr().out, parse_constant=refuse)
    assert problems(document, STEP_SCHEMA, STEP_SCHEMA) == []
    kinds = ("StepNotes", "Cost") if "--workload" in words else ("ProductNotes",)
    described = set().union(*(STEP_SCHEMA["$defs"][kind]["properties"] for kind in kinds))
    settings = set() if "--workload" in words else {"machine", *load_design("bf16-systolic").machine.describe_product()}
    for design in document["designs"]:
        assert set(design) <= described | settings
        del design["energy_j"]
    assert len(problems(document, STEP_SCHEMA, STEP_SCHEMA)) >= len(document["designs"])
    assert problems(document | {"designs": []}, STEP_SCHEMA, STEP_SCHEMA) == ["$.designs: 0 items"]


def test_the_published_schema_of_simulate_is_current():
    assert json.loads(msgspec.json.encode(simulate_schema())) == STEP_SCHEMA
