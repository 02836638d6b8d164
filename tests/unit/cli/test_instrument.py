"""`presilicon instrument run | compile | disassemble | list`: what they print, and every kind of bad input."""

import json
from pathlib import Path

import pytest

CONFIG = {
    "lanes": 8,
    "ranges": 4,
    "range_rows": 2,
    "scratchpad_rows": 8,
    "chains": 8,
    "element": "fixed(16,16)",
    "blocks": ["filter_reduce", "vector_alu", "scalar_reduce"],
    "range_boundaries": [["-inf", -1, 0, 1, "inf"]],
}
FIRMWARE = [
    [
        {"op": "vv_filter", "addr": 0},
        {"op": "m_reduce", "axis": "M"},
        {"op": "vv_add", "addr": 0, "conditions": ["notfirst"]},
        {"op": "v_cache", "addr": 0},
        {"op": "v_commit", "size": 4, "conditions": ["last"]},
    ],
    [
        {"op": "vv_mul", "addr": 1, "conditions": ["notfirst"]},
        {"op": "v_cache", "addr": 1},
        {"op": "v_reduce"},
        {"op": "v_commit", "size": "N", "conditions": ["last@1"]},
    ],
]
VECTOR = [1, 2, -3, 0.5, 0, -0.25, 1.5, -1]
VECTORS = [
    {"vector": VECTOR, "last": [False, False]},
    {"vector": VECTOR},
    {"vector": [*VECTOR[:7], 1e9], "last": [True, True]},
]


def write(config=CONFIG, firmware=FIRMWARE, vectors=VECTORS) -> list[str]:
    arguments = []
    for option, name, content in (
        ("--config", "C.json", config),
        ("--firmware", "F.json", firmware),
        ("--input", "V.json", vectors),
    ):
        if content is not None:
            text = content if isinstance(content, str) else json.dumps(content)
            Path(name).write_text(text)
        arguments += [option, name]
    return arguments


@pytest.mark.parametrize("engine", ["reference", "fast"])
def test_run(invoke, engine) -> None:
    found = invoke("instrument", "run", *write(), "--engine", engine, "--json")
    assert found.code == 0, found.err
    document = found.document
    powers = [1, 8, -27, 0.125, 0, -0.015625, 3.375]
    largest = (2**31 - 1) / 2**16
    assert document["packed_vectors"] == [[5, 6, 6, 7, largest, 0, 0, 0]], "saturation is sticky"
    assert document["partial"] == [0] * 4
    assert document["scratchpad"][0] == [5, 6, 6, 7, 0, 0, 0, 0]
    assert document["scratchpad"][1] == [*powers, largest]
    assert document["scratchpad"][2:] == [[0] * 8] * 6
    assert document["initiation_interval"] == 6
    assert all(isinstance(number, int) for number in document["scratchpad"][0])


def test_run_in_words(invoke) -> None:
    found = invoke("instrument", "run", *write())
    assert (found.code, found.err) == (0, "")
    assert "initiation interval 6 cycles" in found.out
    assert "scratchpad 0: 5 6 6 7 0 0 0 0" in found.out


def test_specials_are_printed_by_name(invoke) -> None:
    config = {
        "lanes": 4,
        "ranges": 4,
        "element": "bfloat16",
        "range_boundaries": [{"classes": ["nan", ["+inf", "-inf"]]}],
    }
    firmware = [
        [{"op": "v_commit"}],
        [{"op": "vv_filter"}, {"op": "m_reduce", "axis": "M"}, {"op": "v_commit", "size": "M"}],
    ]
    vectors = [{"vector": ["nan", "inf", "-inf", 1.5]}]
    found = invoke("instrument", "run", *write(config, firmware, vectors), "--json")
    assert found.document["packed_vectors"] == [["nan", "inf", "-inf", 1.5], [1, 2, 0, 0]]


def test_several_taps(invoke) -> None:
    config = {"lanes": 2, "ranges": 2, "element": "int8", "taps": 2}
    vectors = [
        {"vector": [1, 2], "last": [True, True], "tap": 1},
        {"vector": [3, 4], "last": [True, True]},
    ]
    found = invoke("instrument", "run", *write(config, [[{"op": "v_commit"}]], vectors), "--json")
    assert found.document["packed_vectors"] == [[1, 2], [3, 4]]
    assert found.document["taps"] == [1, 0]


def test_no_vectors(invoke) -> None:
    found = invoke("instrument", "run", *write(vectors=[]), "--json")
    assert found.document["packed_vectors"] == []
    assert found.document["partial"] == []


def config(**changes):
    return {**CONFIG, **changes}


def chain(*items):
    return [list(items)]


@pytest.mark.parametrize(
    ("files", "words"),
    [
        # the hardware
        ({"config": config(lane=8)}, ["C.json", "$.lane", 'did you mean "lanes"']),
        ({"config": config(lanes=7)}, ["lanes must be a power of two, not 7"]),
        ({"config": config(lanes="8")}, ["$.lanes", "'8'"]),
        ({"config": config(lanes=0)}, ["$.lanes"]),
        ({"config": config(ranges=16)}, ["ranges must be at most 8"]),
        ({"config": config(element="fixd(16,16)")}, ["$.element", "fixd"]),
        ({"config": config(element="e4m3fn")}, ["element", "IEEE"]),
        ({"config": config(element=16)}, ["$.element"]),
        ({"config": config(blocks=["filter_reduce", "vector_unit"])}, ["$.blocks", "vector_unit"]),
        ({"config": config(blocks=["vector_alu", "vector_alu"])}, ["blocks", "must not repeat an entry"]),
        ({"config": config(accumulator_bits=16)}, ["accumulator_bits must be at least"]),
        ({"config": config(range_boundaries=[[0, 1, 2, 3]])}, ["$.range_boundaries[0]", "4 boundaries, expected 5"]),
        ({"config": config(range_boundaries=[[0, 1, 0, 3, 4]])}, ["$.range_boundaries[0]", "must not decrease"]),
        ({"config": config(range_boundaries=[[0, float("nan"), 1, 3, 4]])}, ["$.range_boundaries[0]", "NaN"]),
        ({"config": config(range_boundaries=[[0, "1", 2, 3, 4]])}, ["$.range_boundaries[0]", '"1"']),
        ({"config": config(range_boundaries=[[0, None, 2, 3, 4]])}, ["$.range_boundaries[0]", "None"]),
        ({"config": config(range_boundaries=[0, 1, 2, 3, 4])}, ["$.range_boundaries[0]", "expected a list"]),
        ({"config": config(range_boundaries={"0": []})}, ["$.range_boundaries", "expected a list of rows"]),
        ({"config": config(range_boundaries=[[0, 1, 2, 3, 4]] * 3)}, ["$.range_boundaries[2]", "2 range rows"]),
        ({"config": config(range_boundaries=[{"classes": ["nan"]}])}, ["$.range_boundaries[0]", "has no nan"]),
        ({"config": config(range_boundaries=[{"classes": "zero"}])}, ["$.range_boundaries[0]", "expected a list"]),
        ({"config": config(range_boundaries=[{"class": []}])}, ["$.range_boundaries[0]", '"class"']),
        ({"config": config(range_boundaries=[{"classes": [3]}])}, ["$.range_boundaries[0]", "3"]),
        ({"config": config(range_boundaries=[{}])}, ["$.range_boundaries[0]", "missing"]),
        ({"config": [1]}, ["C.json", "expected an object"]),
        ({"config": "{"}, ["C.json", "not valid JSON", "line 1"]),
        ({"config": ""}, ["C.json", "empty"]),
        ({"config": None}, ["C.json", "no such file"]),
        # the firmware
        ({"firmware": chain({"op": "vv_ad"})}, ["F.json", "chain 1, instruction 1", 'did you mean "vv_add"']),
        ({"firmware": chain({"op": "vv_add", "addr": 8})}, ["F.json", "(vv_add)", "row 8", "0 to 7"]),
        ({"firmware": chain({"op": "vv_add", "addr": "0"})}, ["(vv_add)", "addr"]),
        ({"firmware": chain({"op": "vv_add", "row": 0})}, ["(vv_add)", '"row"']),
        (
            {"firmware": chain({"op": "v_reduce"}, {"op": "vv_add"})},
            ["instruction 2 (vv_add)", "cannot follow v_reduce"],
        ),
        ({"firmware": chain({"op": "v_commit", "size": 5})}, ["(v_commit)", "size is 5"]),
        ({"firmware": chain({"op": "v_commit", "conditions": ["lst"]})}, ["(v_commit)", 'did you mean "last"']),
        ({"firmware": chain({"op": "v_commit", "conditions": [1]})}, ["(v_commit)", "conditions"]),
        ({"firmware": [[{"op": "v_commit"}]] * 9}, ["F.json", "9 chains"]),
        ({"firmware": []}, ["F.json", "no chains"]),
        ({"firmware": 3}, ["F.json", "expected a list"]),
        ({"firmware": None}, ["F.json", "no such file"]),
        ({"firmware": "[[" * 100_000}, ["F.json", "not valid JSON"]),
        # the vectors
        ({"vectors": [{"vector": [1, 2]}]}, ["V.json", "$[0].vector", "2 numbers", "8"]),
        ({"vectors": [{"vector": ["1"] * 8}]}, ["$[0].vector[0]", '"1"', "a number"]),
        ({"vectors": [{"vector": [True] * 8}]}, ["$[0].vector[0]", "true"]),
        ({"vectors": [{"vector": [None] * 8}]}, ["$[0].vector[0]", "null"]),
        ({"vectors": [{"vector": "12345678"}]}, ["$[0].vector", "expected a list of 8"]),
        ({"vectors": [{"vector": VECTOR}, {"vector": VECTOR, "last": [True]}]}, ["$[1].last", "two of true"]),
        ({"vectors": [{"vector": VECTOR, "last": [0, 1]}]}, ["$[0].last"]),
        ({"vectors": [{"vector": VECTOR, "last": True}]}, ["$[0].last"]),
        ({"vectors": [{"vector": VECTOR, "lst": [True, True]}]}, ["$[0].lst", 'did you mean "last"']),
        ({"vectors": [{"vector": VECTOR, "tap": 1}]}, ["$[0].tap", "0 to 0"]),
        ({"vectors": [{"last": [True, True]}]}, ["$[0]", '"vector" is missing']),
        ({"vectors": [VECTOR]}, ["$[0]", "expected an object"]),
        ({"vectors": {"vector": VECTOR}}, ["V.json", "expected a list"]),
        ({"vectors": "[1,"}, ["V.json", "not valid JSON"]),
        ({"vectors": None}, ["V.json", "no such file"]),
    ],
)
def test_bad_input_is_one_clear_message(invoke, files, words) -> None:
    found = invoke("instrument", "run", *write(**files), "--json")
    assert (found.code, found.out) == (2, ""), (found.err, found.out)
    assert len(found.err.strip().splitlines()) == 1
    assert "unexpected" not in found.err
    assert len(found.err) < 600
    for word in words:
        assert word in found.err, found.err


def test_a_directory_and_bytes_are_no_json(invoke) -> None:
    arguments = write()
    Path("D").mkdir()
    Path("B").write_bytes(b"\xff\xfe\x00")
    for name, words in (("D", "cannot be read"), ("B", "not a text file")):
        found = invoke("instrument", "run", *arguments[:5], name)
        assert found.code == 2
        assert words in found.err


def test_huge_numbers_saturate(invoke) -> None:
    text = json.dumps([{"vector": [0] * 8}]).replace("[0,", "[1" + "0" * 400 + ",")
    found = invoke("instrument", "run", *write(firmware=[[{"op": "v_commit"}]], vectors=text), "--json")
    assert found.document["packed_vectors"][0][0] == (2**31 - 1) / 2**16


def test_compile_and_disassemble(invoke) -> None:
    arguments = write()[:4]
    found = invoke("instrument", "compile", *arguments, "--out", "image.bin")
    assert found.code == 0, found.err
    size = Path("image.bin").stat().st_size
    assert f"image.bin: {size} bytes, initiation interval 6 cycles" in found.out
    assert "4 bubbles before" in found.out
    document = invoke("instrument", "compile", *arguments, "--out", "image.bin", "--json").document
    assert (document["bytes"], document["initiation_interval"]) == (size, 6)
    assert sorted(item["bubbles"] for item in document["chains"]) == [0, 4]
    found = invoke("instrument", "disassemble", "image.bin")
    assert "chain 2: vv_mul(1, notfirst) v_cache(1) v_reduce(sum) v_commit(N, last@1)" in found.out
    assert "ranges 0: low < x <= high between -inf, -1, 0, 1, inf" in found.out
    assert invoke("instrument", "disassemble", "image.bin", "--json").document["text"] == found.out.splitlines()
    data = bytearray(Path("image.bin").read_bytes())
    data[40] ^= 1
    Path("image.bin").write_bytes(data)
    found = invoke("instrument", "disassemble", "image.bin")
    assert (found.code, found.out) == (2, "")
    assert "refused (code 5)" in found.err
    assert invoke("instrument", "disassemble", "none.bin").code == 2
    assert "cannot write" in invoke("instrument", "compile", *arguments, "--out", "none/image.bin").err


def test_list(invoke) -> None:
    write()
    rows = {row["name"]: row for row in invoke("instrument", "list", "--json").document["aggregations"]}
    assert (rows["summary"]["chains"], rows["distribution"]["initiation_interval"]) == (5, 2)
    small = {
        row["name"]: row
        for row in invoke("instrument", "list", "--config", "C.json", "--json").document["aggregations"]
    }
    assert "range row" in small["distribution"]["refused"]
    assert small["gradient_norm"]["initiation_interval"] == 8
    assert "percentiles" in invoke("instrument", "list").out


def test_warnings_are_told(invoke) -> None:
    narrow = config(element="fixed(2, 6)")
    found = invoke("instrument", "run", *write(narrow, [FIRMWARE[0]]))
    assert found.code == 0
    assert "counts above 1 saturate" in found.err


def test_list_aggregations(invoke) -> None:
    rows = {row["name"]: row for row in invoke("list", "aggregations", "--json").document["aggregations"]}
    assert rows["distribution"]["options"] == ["bins", "low", "high", "boundaries"]
    assert "Pearson" in rows["correlation"]["description"]
    assert "norm_check" in invoke("list", "aggregations").out
