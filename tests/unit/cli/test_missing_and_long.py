"""Packages that are not there, and values that are longer than a message should be."""

import pytest

LONG = ("x" * 5000, "x y " * 1500)


@pytest.mark.parametrize(
    "command",
    [
        ["evaluate", "fp32-systolic", "--workload", "digits-mlp"],
        ["quantize", "e4m3", "1.5"],
        ["rtl", "mac", "fp8-systolic", "--out", "x"],
    ],
)
def test_without_torch_a_command_says_how_to_get_it(command, python, tmp_path) -> None:
    out = python(
        "import sys\n"
        "sys.modules['torch'] = None\n"
        "from contextlib import redirect_stderr\n"
        "from presilicon.cli.main import main\n"
        "try:\n"
        "    with redirect_stderr(sys.stdout):\n"
        f"        main({command})\n"
        "except SystemExit as ended:\n"
        "    print(ended.code)\n",
        cwd=tmp_path,
    )
    assert "torch is not installed" in out
    assert out.endswith("\n3\n")


def test_doctor_fails_without_what_is_required(invoke, monkeypatch) -> None:
    assert invoke("doctor").code == 0
    monkeypatch.setattr("presilicon.cli.doctor._is_there", lambda module: module != "torch")
    found = invoke("doctor", "--json")
    assert found.code == 3
    assert [part["name"] for part in found.document["parts"] if part["required"] and not part["version"]] == ["torch"]
    monkeypatch.setattr("presilicon.cli.doctor._is_there", lambda module: module != "matplotlib")
    assert invoke("doctor").code == 0


@pytest.mark.parametrize("value", LONG, ids=["one word", "many words"])
@pytest.mark.parametrize(
    "command",
    [
        "{}", "evaluate {}", "evaluate fp32-systolic --seeds {}", "evaluate fp32-systolic --workload {}",
        "evaluate fp32-systolic --vary {}", "evaluate fp32-systolic --workload digits-mlp --optimizer {}",
        "simulate fp32-systolic --set {}=3", "simulate fp32-systolic --set machine.rows={}",
        "simulate fp32-systolic --gemm {}", "quantize {} 1", "quantize e4m3 {}", "runs show {}", "schedule {}",
        "sweep {}", "design show {}", "list {}", "instrument compile {}",
    ],
)  # fmt: skip
def test_a_long_value_is_not_repeated_whole(command, value, invoke) -> None:
    outcome = invoke(*(word.replace("{}", value) for word in command.split()))
    assert outcome.code == 2
    assert 20 < len(outcome.err) < 2000
