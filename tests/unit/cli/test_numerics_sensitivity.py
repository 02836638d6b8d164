"""`presilicon numerics sensitivity`: the table and the document of the Python call."""

from presilicon.designs import Numerics
from presilicon.emulation import workload_sensitivity
from presilicon.workloads import load_workload

COMMAND = ("numerics", "sensitivity", "digits-mlp", "--format", "bfloat16", "--format", "e4m3fn")


def test_the_table_and_the_document_are_those_of_the_python_call(invoke) -> None:
    expected = workload_sensitivity(load_workload("digits-mlp"), ["bfloat16", "e4m3fn"], Numerics())
    assert invoke(*COMMAND).out == f"{expected}\n"
    document = invoke(*COMMAND, "--json").document["sensitivity"]
    assert [trial["gradient_error"] for trial in document["trials"]] == [t.gradient_error for t in expected.trials]


def test_every_option_has_an_effect(invoke) -> None:
    def layers(*options: str) -> list[dict]:
        return invoke(*COMMAND, *options, "--json").document["sensitivity"]["layers"]

    plain = layers()
    assert len(layers("--layers", "first")) == 1 < len(plain)
    assert {layer["role"] for layer in layers("--by-role")} == {"weight", "activation", "error"}
    assert {layer["narrowest"] for layer in layers("--threshold", "10")} == {"e4m3fn"}
    assert layers("--numerics", "mxfp8") != plain


def test_an_unknown_layer_is_explained(invoke) -> None:
    outcome = invoke(*COMMAND, "--layers", "hiden1")
    assert outcome.code == 2
    assert '"hiden1" matches none' in outcome.err
    assert '"hidden1"' in outcome.err
