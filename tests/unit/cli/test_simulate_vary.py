"""`presilicon simulate --vary`: several designs from one file."""

import pytest

STEP = ("simulate", "bf16-systolic", "--workload", "digits-mlp")
GEMM = ("simulate", "bf16-systolic", "--gemm", "64x64x64")
ROWS = ("--vary", "machine.rows=32,64")


@pytest.mark.parametrize("command", [STEP, GEMM])
def test_each_document_is_that_of_the_design_alone(invoke, command) -> None:
    several = invoke(*command, *ROWS, "--json").document
    assert list(several) == ["schema", "designs", "remarks"]
    for rows, document in zip((32, 64), several["designs"], strict=True):
        alone = invoke(*command, "--set", f"machine.rows={rows}", "--json").design
        assert document == alone | {"design": f"bf16-systolic[machine.rows={rows}]"}


@pytest.mark.parametrize(
    ("command", "idle"), [(STEP, "machine.cores.parallel=data,tile"), (GEMM, "machine.fusion=none,ops")]
)
def test_a_field_without_effect_is_named(invoke, command, idle) -> None:
    remark = f"{idle.partition('=')[0]} has no effect here: designs that differ in nothing else cost the same"
    assert remark in invoke(*command, "--vary", idle).out
    outcome = invoke(*command, "--vary", idle, "--json")
    assert outcome.document["remarks"] == [remark]
    assert remark in outcome.err


def test_text_has_a_part_for_each_design(invoke) -> None:
    text = invoke(*STEP, *ROWS, "--ops", "1").out
    assert text.startswith("bf16-systolic[machine.rows=32]: one training step of digits-mlp")
    assert "\n\nbf16-systolic[machine.rows=64]: one training step of digits-mlp" in text


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((*STEP, *ROWS, "--trace", "t.json"), "--trace is for one design"),
        ((*STEP, *ROWS, "--times", "t.csv"), "--times is for one design"),
        ((*GEMM, *ROWS, "--frames", "f.json"), "--frames is for one design"),
        ((*GEMM, *ROWS, "--array", "8x8"), "machine.rows is set or varied already"),
        ((*GEMM, "--vary", "machine.rows=32,32"), "are the same design"),
    ],
)
def test_what_needs_a_single_design_is_refused(invoke, arguments, sentence) -> None:
    outcome = invoke(*arguments)
    assert outcome.code == 2
    assert sentence in outcome.err
