"""Every flag of `presilicon simulate` that writes a file, takes one in, or changes the step."""

import gzip
import json
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[3] / "examples"
STEP = ["simulate", "bf16-systolic", "--workload", "digits-mlp"]


def test_a_trace_for_perfetto(invoke, tmp_path) -> None:
    found = invoke(*STEP, "--trace", "step.json.gz", "--repeat", "7", "--json")
    assert "trace: step.json.gz" in found.err
    trace = json.loads(gzip.decompress((tmp_path / "step.json.gz").read_bytes()))
    assert trace["otherData"]["steps"] == 7
    assert trace["otherData"]["time_s"] == pytest.approx(7 * found.design["time_s"])
    assert invoke(*STEP, "--trace", "step.txt").code == 2
    assert "--repeat is for --trace" in invoke(*STEP, "--repeat", "3").err


def test_cores_and_micro_batches(invoke) -> None:
    cores = [*STEP, "--batch", "64", "--accumulate", "4", "--set", "machine.cores.count=4"]
    text = invoke(*cores, "--set", "machine.cores.parallel=layer", "--set", "machine.fusion=none").out
    assert ", by layers: " in text or "one alone" in text
    found = invoke(*cores, "--set", "machine.cores.parallel=data", "--json")
    use = found.design["cores"]
    assert (use["count"], use["network"], use["parallel"]) == (4, "2 x 2 mesh", "data")
    assert use["bytes_noc"] == pytest.approx(sum(op["bytes_noc"] for op in found.design["ops"]))
    assert found.design["energy_by_component_j"]["network"] > 0
    uneven = invoke(*STEP, "--batch", "64", "--accumulate", "5")
    assert (uneven.code, uneven.out) == (2, "")
    assert "64 by 5" in uneven.err
    product = invoke("simulate", "bf16-systolic", "--gemm", "4x4x4", "--accumulate", "2")
    assert "--accumulate is for --workload" in product.err


def test_chips_share_a_batch_over_links_that_are_named(invoke) -> None:
    step = ["simulate", "h200", "--workload", "digits-mlp", "--set", "machine.chips=8"]
    found = invoke(*step, "--batch", "64", "--json")
    fields = ("batch_size", "chips", "batch_per_chip", "samples_per_update", "link_gb_s")
    assert [found.design[field] for field in fields] == [64, 8, 8, 64, 100.0]
    assert "the link between chips is a guess of 100 GB/s" in found.err
    known = invoke(*step, "--batch", "64", "--set", "machine.link_gb_s=450")
    assert "batch 64 (8 on each of 8 chips)" in known.out
    assert "links of 450 GB/s" in known.out
    assert "guess" not in known.out
    uneven = invoke(*step, "--batch", "60")
    assert (uneven.code, uneven.out) == (2, "")
    assert "try --batch 56 or 64" in uneven.err


def test_zeros_that_nobody_has_measured_are_mentioned(invoke) -> None:
    found = invoke(*STEP, "--set", "machine.sparsity.zeros=2:4", "--json")
    assert "not known to be 2:4" in found.err


def test_a_roofline(invoke, tmp_path) -> None:
    pytest.importorskip("matplotlib")
    found = invoke(*STEP, "--roofline-plot", "roof.svg")
    assert found.code == 0
    assert "roofline plot: roof.svg" in found.out
    assert "digits-mlp, batch 32, on bf16-systolic" in (tmp_path / "roof.svg").read_text()
    assert "figure format" in invoke(*STEP, "--roofline-plot", "roof.jpg").err


def test_frames_of_a_small_product(invoke, tmp_path) -> None:
    arguments = ["simulate", "bf16-systolic", "--gemm", "4x5x3", "--array", "4x4", "--frames", "cells.json"]
    found = invoke(*arguments, "--json")
    document = json.loads((tmp_path / "cells.json").read_text())
    assert document["schema"] == 2
    assert document["cycles"] == len(document["frames"]) == found.design["cycles"]
    product = [[0.0] * 3 for _ in range(4)]
    for frame in document["frames"]:
        assert set(frame["registers"]) == {"stationary", "loading", "moving", "sum"}
        for i, j, value in frame["out"]:
            product[i][j] += value
    assert product == document["result"]
    other = [*arguments, "--dataflow", "output-stationary", "--fold-overlap", "--set", "machine.reduction=columns"]
    assert invoke(*other).code == 0
    document = json.loads((tmp_path / "cells.json").read_text())
    assert (document["dataflow"], document["reduction"], document["fold_overlap"]) == (
        "output-stationary",
        "columns",
        True,
    )
    large = invoke("simulate", "bf16-systolic", "--gemm", "4x4x4", "--frames", "cells.json")
    assert (large.code, large.out) == (2, "")
    assert "too many to play" in large.err
    assert "--frames is for --gemm" in invoke(*STEP, "--frames", "cells.json").err
    assert "cannot write" in invoke(*arguments[:-1], "none/cells.json").err


def test_checkpointing(invoke) -> None:
    arguments = ["simulate", "bf16-systolic", "--workload", "resnet18", "--batch", "16"]
    plain, root = invoke(*arguments, "--json").design, invoke(*arguments, "--checkpoint", "sqrt", "--json").design
    assert root["checkpointing"]["segments"] == 3
    assert root["checkpointing"]["memory_bytes_without"] == plain["memory_bytes"] > root["memory_bytes"]
    assert root["checkpointing"]["time_s_without"] == plain["time_s"] < root["time_s"]
    assert any(op["name"].endswith(".again") for op in root["ops"])
    more = invoke(*arguments, "--checkpoint", "6", "--json").design
    assert more["checkpointing"]["segments"] == 6
    text = invoke(*arguments, "--checkpoint", "6").out
    assert "checkpointing in 6 segments" in text
    # Never more than one forward pass again, a third of the products.
    assert plain["flops"] < more["flops"] < 4 / 3 * plain["flops"]


def test_checkpoints_that_save_nothing_say_so(invoke, tmp_path) -> None:
    found = invoke(*STEP, "--checkpoint", "2")
    assert "it saves nothing here" in found.out
    assert invoke(*STEP, "--checkpoint", "2", "--json").design["checkpointing"]["saves_memory"] is False
    short = invoke("simulate", "bf16-systolic", "--workload", "lstm", "--batch", "2", "--checkpoint", "sqrt").out
    assert "checkpointing in 1 segment," in short
    assert "it saves nothing here: so short a chain gets one segment" in short
    (tmp_path / "step.csv").write_text("op,time_s\nstep,1\n")
    given = invoke(*STEP, "--checkpoint", "2", "--times", "step.csv").out.partition("checkpointing in")[2]
    assert "time  " not in given
    assert "energy  " not in given
    assert "times and energies are not compared" in given
    document = invoke(*STEP, "--checkpoint", "2", "--times", "step.csv", "--json").design
    assert set(document["checkpointing"]) == {"segments", "memory_bytes_without", "flops_without", "saves_memory"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([*STEP, "--checkpoint", "1"], ["--checkpoint '1'", "at least 2"]),
        ([*STEP, "--checkpoint", "root"], ["--checkpoint 'root'", "sqrt"]),
        ([*STEP, "--checkpoint", "99"], ["layers cannot be cut into 99 segments", "give 2 to 5"]),
        ([*STEP, "--trace", "t.json", "--repeat", "1000000001"], ["--repeat", "1000000"]),
        ([*STEP, "--clock-ghz", "1"], ["--clock-ghz is for --times"]),
        ([*STEP, "--times", "none.csv"], ["none.csv", "no such file"]),
        (["simulate", "bf16-systolic", "--gemm", "4x4x4", "--checkpoint", "sqrt"], ["--checkpoint is for --workload"]),
        (["simulate", "bf16-systolic", "--gemm", "4x4x4", "--times", "t.csv"], ["--times is for --workload"]),
        (["simulate", "bf16-systolic", "--gemm", "4x4x4", "--trace", "t.json"], ["--trace is for --workload"]),
        (["simulate", "bf16-systolic", "--gemm", "4x4x4", "--roofline-plot", "t.svg"], ["--roofline-plot is for"]),
    ],
)
def test_bad_usage(invoke, arguments, words) -> None:
    found = invoke(*arguments)
    assert (found.code, found.out) == (2, "")
    assert len(found.err.strip().splitlines()) == 1
    for word in words:
        assert word in found.err


def test_times_of_another(invoke, tmp_path) -> None:
    ours = invoke(*STEP, "--json").design
    (tmp_path / "times.csv").write_text("op,cycles,energy_j\nhidden1.forward.addmm,5000,1e-3\n")
    theirs = invoke(*STEP, "--times", "times.csv", "--json").design
    op = theirs["ops"][0]
    assert (op["name"], op["cycles"], op["bound"]) == ("hidden1.forward.addmm", 5000, "given")
    assert op["time_s"] == pytest.approx(5000 / 0.5e9)  # the design's own clock
    assert theirs["time_s"] == pytest.approx(ours["time_s"] - ours["ops"][0]["time_s"] + 1e-5)
    assert theirs["times"]["ops_given"] == 1
    slower = invoke(*STEP, "--times", "times.csv", "--clock-ghz", "0.1", "--json").design
    assert slower["ops"][0]["time_s"] == pytest.approx(5e-5)
    text = invoke(*STEP, "--times", "times.csv").out
    assert "times of 1 of 45 ops are from times.csv (presilicon)" in text
    (tmp_path / "times.csv").write_text("op,time_s\nhidden1.forward.adm,1\n")
    wrong = invoke(*STEP, "--times", "times.csv")
    assert wrong.code == 2
    assert (
        'times.csv line 2: the step has no op "hidden1.forward.adm": did you mean "hidden1.forward.addmm"?' in wrong.err
    )


@pytest.mark.parametrize(
    "step",
    [
        ["h200"],
        ["h200", "--set", "machine.launch=eager"],
        ["dgx-1"],
        ["bf16-mesh"],
        ["caterpillar-large", "--set", "machine.schedule=pipelined"],
        ["bf16-systolic", "--checkpoint", "2"],
    ],
)
def test_what_we_wrote_comes_back_unchanged(invoke, tmp_path, step) -> None:
    command = ["simulate", *step, "--workload", "digits-mlp"]
    ours = invoke(*command, "--json")
    (tmp_path / "ours.json").write_text(ours.out)
    theirs = invoke(*command, "--times", "ours.json", "--trace", "t.json", "--json").design
    assert theirs.pop("times")["ops_given"] == len(theirs["ops"])
    document = ours.design
    kept = theirs.pop("checkpointing", {}), document.pop("checkpointing", {})
    assert kept[0].items() <= kept[1].items()  # without the time of another tool's step that keeps all
    assert theirs == document


def test_a_clock_must_be_one_and_have_times(invoke, tmp_path) -> None:
    (tmp_path / "step.csv").write_text("op,cycles\nstep,1000\n")
    for clock in ("0", "-1", "nan"):
        for command in (STEP, ["evaluate", *STEP[1:]]):
            found = invoke(*command, "--times", "step.csv", "--clock-ghz", clock)
            assert (found.code, found.out) == (2, "")
            assert "a number of GHz above 0" in found.err
    found = invoke("evaluate", *STEP[1:], "--clock-ghz", "2")
    assert (found.code, "--clock-ghz converts the cycles" in found.err) == (2, True)


def test_evaluate_takes_times_of_each_design(invoke, tmp_path) -> None:
    (tmp_path / "step.csv").write_text("op,cycles\nstep,1000000\n")
    quick = ["--workload", "digits-mlp", "--seeds", "1", "--max-steps", "30", "--target", "0.1", "--json"]
    one = invoke("evaluate", "bf16-systolic", *quick, "--times", "step.csv").document["designs"][0]
    assert one["time_per_step_s"] == pytest.approx(2e-3)
    assert one["provenance"]["times"]["source"] == "step.csv"
    both = invoke(
        "evaluate", "bf16-systolic", "fp8-systolic", *quick, "--times", "fp8-systolic=step.csv", "--clock-ghz", "1"
    ).document["designs"]
    assert both[0]["provenance"]["times"] == "simulated"
    assert both[1]["time_per_step_s"] == pytest.approx(1e-3)
    several = ["evaluate", "bf16-systolic", "fp8-systolic", *quick]
    for options, word in [
        (["--times", "step.csv"], "name the design"),
        (["--times", "fp8-systolic=step.csv", "--times", "fp8-systolic=step.csv"], "two files"),
        (["--times", "fp8-systolic=none.csv"], "no such file"),
        (["--times", "fp8-systolic=step.csv", "--sensitivity"], "cannot be combined with --times"),
    ]:
        found = invoke(*several, *options)
        assert found.code == 2
        assert word in found.err


def test_the_example_file_is_read_as_the_page_says(invoke) -> None:
    document = invoke(*STEP, "--times", str(EXAMPLES / "digits-mlp-times.csv"), "--json").design
    assert [op["time_s"] for op in document["ops"] if op["bound"] == "given"] == [1.1e-6, 1.1e-6, 4e-7]
    assert (document["times"]["ops_given"], document["times"]["energies_given"]) == (3, 2)
    assert document["energy_by_component_j"]["given"] == pytest.approx(1e-5)


def test_a_topology_for_scale_sim(invoke, tmp_path) -> None:
    found = invoke(*STEP, "--topology", "products.csv", "--json")
    assert "topology: products.csv" in found.err
    lines = (tmp_path / "products.csv").read_text().splitlines()
    assert lines[:2] == ["Layer,M,N,K,", "hidden1_forward_addmm,32,64,64,"]
    assert len(lines) == 1 + sum(op["unit"] == "array" for op in found.design["ops"])
    assert "cannot write" in invoke(*STEP, "--topology", "none/products.csv").err
    assert (
        "--topology is for --workload"
        in invoke("simulate", "bf16-systolic", "--gemm", "4x4x4", "--topology", "t.csv").err
    )


def test_a_step_without_a_chain_has_nothing_to_cut() -> None:
    from presilicon.base import ConfigError
    from presilicon.cli.simulate_outputs import _segments
    from presilicon.records import StepGraph

    for wanted in ("sqrt", "2"):
        with pytest.raises(ConfigError, match=f"--checkpoint {wanted}: none has no blocks"):
            _segments(StepGraph(name="none", batch_size=1, ops=()), wanted)


def test_a_step_before_numerics_change_is_named(invoke) -> None:
    command = ("simulate", "edge-fp8", "--workload", "digits-mlp", "--ops", "0", "--set")
    later = invoke(*command, 'numerics.schedule=[{layers="*", from_step=5, weight="float32"}]')
    assert "Numerics change at later steps; this is a step before they have changed." in later.out
    assert (
        "Numerics change" not in invoke(*command, 'numerics.schedule=[{layers="*", from_step=0, weight="float32"}]').out
    )
