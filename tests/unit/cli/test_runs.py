"""`presilicon runs list`, `tag` and `compare` on runs of the command line."""

TRAIN = ["--workload", "digits-mlp", "--seeds", "2", "--max-steps", "40", "--target", "0.3", "--jobs", "1"]


def test_runs_are_named_tagged_listed_and_compared(invoke) -> None:
    assert invoke("evaluate", "fp8-systolic", *TRAIN, "--name", "first", "--tag", "night", "--tag", "sweep").code == 0
    assert invoke("evaluate", "bf16-systolic", *TRAIN, "--lr", "0.1").code == 0
    assert invoke("runs", "tag", "latest", "sweep", "--name", "second").out.endswith(": second #sweep\n")

    table = invoke("runs", "list", "--tag", "sweep", "--sort", "energy_j").out.splitlines()
    assert len(table) == 3
    assert "first #night #sweep" in "".join(table)
    (run,) = invoke("runs", "list", "--design", "fp8*", "--where", "accuracy>=0.1", "--json").document["runs"]
    assert (run["label"], run["tags"], run["results"][0]["seeds"]) == ("first", ["night", "sweep"], 2)
    assert invoke("runs", "list", "--where", "accuracy>1").out == "none of the 2 runs in runs matches\n"
    assert "label        first" in invoke("runs", "show", "first").out

    text = invoke("runs", "compare", "first", "second").out
    for words in ("design.numerics.weight.format", "workload.optimizer", "energy to acc.", "B/A on paired seeds"):
        assert words in text
    document = invoke("runs", "compare", "first", "second", "--json").document
    assert document["a"]["label"] == "first"
    (design,) = document["designs"]
    assert design["pair"]["seeds"] == 2
    area = design["metrics"]["area_mm2"]
    assert area["difference"] == area["b"] - area["a"] > 0
    assert invoke("evaluate", "--resume", "first", "--name", "x").code == 2
    for arguments, words in (
        (["compare", "first", "secnd"], 'unknown run "secnd": did you mean "second"'),
        (["compare", "second", "latest"], "are the same run"),
        (["tag", "first"], "give a TAG"),
        (["tag", "first", "a b"], "up to 60 letters"),
        (["list", "--where", "acc>1"], "unknown metric"),
    ):
        refused = invoke("runs", *arguments)
        assert refused.code == 2
        assert words in refused.err
        assert len(refused.err.strip().splitlines()) == 1


def test_a_run_that_misses_its_target_says_what_was_found_first(invoke, tmp_path) -> None:
    coarse = ["--set", "numerics.activation=fixed(1, 4)", "--seeds", "1", "--max-steps", "40", "--target", "0.999"]
    evaluated = invoke("evaluate", "fp32-systolic", "--workload", "digits-mlp", "--jobs", "1", *coarse)
    shown, document = invoke("runs", "show").out, invoke("runs", "show", "--json").document
    (first, *_) = document["result"]["designs"][0]["seeds"][0]["findings"]
    assert first["step"] == 0
    sentence = f"fp32-systolic, seed 0: first finding, at step 0: {first['message']}."
    assert sentence in evaluated.out
    assert sentence in shown
    (page,) = (tmp_path / "runs").glob("*/report.html")
    assert "fp32-systolic, seed 0: first finding, at step 0" in page.read_text().replace("\N{NO-BREAK SPACE}", " ")


def test_a_bad_name_is_refused_before_anything_is_trained(invoke, tmp_path) -> None:
    refused = invoke("evaluate", "fp8-systolic", *TRAIN, "--name", "a b")
    assert refused.code == 2
    assert "up to 60 letters" in refused.err
    assert not (tmp_path / "runs").exists()


def test_runs_without_results_are_compared_by_configuration(invoke, tmp_path) -> None:
    from presilicon.runs import create_run

    names = []
    for number in range(2):
        run = create_run(tmp_path / "runs", "reproduce-x", {"reproduction": number}, seed=None)
        run.end("failed")
        names.append(run.name)
    text = invoke("runs", "compare", *names).out
    assert "reproduction  0 -> 1" in text
    assert "no results to compare" in text
