"""`presilicon evaluate --strict`."""

import pytest

ARGUMENTS = ["evaluate", "fp32-systolic", "--workload", "digits-mlp", "--strict"]


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (["--seeds", "2"], "best of n: 2 seeds"),
        (["--seed", "3"], "seeds picked by hand: 3 to 7"),
        (["--evaluate-every", "2"], "finer evaluation: every 2 steps in place of the workload's 10"),
        (["--target", "0.9"], "a chosen threshold: target 0.9"),
        (["--max-steps", "90"], "a threshold out of reach: 90 steps"),
        (["--stop-hopeless"], "runs given up early"),
    ],
)
def test_a_cheat_is_refused_with_its_name(invoke, options: list[str], word: str) -> None:
    outcome = invoke(*ARGUMENTS, *options)
    assert outcome.code == 2
    assert f"this is not a strict comparison:\n  - {word}" in outcome.err


def short_workload(folder, **changes: float) -> str:
    """A file with a short workload: strict rules are those of the file."""
    fields = ", ".join(f"{name}={value}" for name, value in changes.items())
    source = "from dataclasses import replace\nfrom presilicon import load_workload\n"
    (folder / "short.py").write_text(f'{source}workload = replace(load_workload("digits-mlp"), {fields})\n')
    return "short.py"


def test_what_is_strict_is_said_in_table_and_document(invoke, tmp_path) -> None:
    workload = short_workload(tmp_path, target=0.5, max_steps=200)
    designs = ["evaluate", "fp32-systolic", "fp8-systolic", "--jobs", "1"]
    outcome = invoke(*designs, "--workload", workload, "--strict", "--evaluate-every", "20")
    assert outcome.code == 0
    assert "an evaluation every 640 samples" in outcome.out
    assert outcome.out.rstrip().splitlines()[-2].endswith("The strict rules hold.")
    [page] = tmp_path.glob("runs/*/report.html")
    assert "The strict rules hold." in page.read_text()


def test_a_design_that_never_arrives_fails_with_its_result_kept(invoke, tmp_path) -> None:
    poor = [f"numerics.{role}=fp4_e2m1" for role in ("weight", "activation", "error", "gradient", "master")]
    settings = [word for each in poor for word in ("--set", each)]
    workload = short_workload(tmp_path, max_steps=60)
    outcome = invoke("evaluate", "fp32-systolic", "--workload", workload, "--strict", "--jobs", "1", *settings)
    assert outcome.code == 1
    assert "a threshold out of reach: no seed of fp32-systolic held 0.97" in outcome.err
    assert "0/5" in outcome.out
    assert len(list(tmp_path.glob("runs/*/result.json"))) == 1
