"""`presilicon simulate --gemm`: one test for each flag, and for what is not a product."""

import pytest

from presilicon.designs import load_design
from presilicon.records import Gemm
from presilicon.simulation import gemm_cycles

GEMM = ("--gemm", "512x256x128")
SHAPE = Gemm(m=512, k=256, n=128)


@pytest.fixture
def price(invoke):
    def call(*arguments: str, gemm=GEMM):
        found = invoke("simulate", "bf16-systolic", *gemm, *arguments, "--json")
        assert found.code == 0, found.err
        return found.design

    return call


def test_json_document(price) -> None:
    document = price()
    assert document["design"] == "bf16-systolic"
    assert document["gemm"] == {"m": 512, "k": 256, "n": 128}
    assert (document["array"], document["dataflow"], document["convention"]) == (
        "128x128",
        "weight-stationary",
        "exact",
    )
    assert document["cycles"] == gemm_cycles(SHAPE, 128, 128, "weight-stationary").cycles
    assert document["utilization"] == pytest.approx(512 * 256 * 128 / (document["cycles"] * 128 * 128))
    assert document["bytes_dram"] == 2 * (512 * 256 + 256 * 128 + 512 * 128)
    machine = load_design("bf16-systolic").machine
    compute_s, memory_s = document["cycles"] / machine.clock_ghz / 1e9, document["bytes_dram"] / machine.dram_gb_s / 1e9
    assert document["time_s"] == pytest.approx(max(compute_s, memory_s))
    assert document["bound"] == "memory"
    assert 0 < document["energy_j"] < 1e-3
    assert (document["fold_overlap"], document["reduction"]) == (False, "rows")


def test_m_k_and_n_are_not_mixed_up(price) -> None:
    document = price("--array", "32x16", gemm=("--gemm", "5x70x33"))
    assert document["cycles"] == 3 * 3 * (2 * 32 + 16 + 5 - 2)


def test_array(price) -> None:
    document = price("--array", "32x16")
    assert document["array"] == "32x16"
    assert document["cycles"] == 8 * 8 * (2 * 32 + 16 + 512 - 2)


@pytest.mark.parametrize("dataflow", ["weight-stationary", "output-stationary", "input-stationary"])
def test_dataflow(price, dataflow) -> None:
    document = price("--array", "32x32", "--dataflow", dataflow)
    assert document["dataflow"] == dataflow
    assert document["cycles"] == gemm_cycles(SHAPE, 32, 32, dataflow).cycles


def test_dataflow_and_a_design_that_transposes_in_place(price) -> None:
    plain = price("--dataflow", "output-stationary")
    assert price("--set", "machine.transpose=in-place", "--dataflow", "output-stationary") == plain


def test_fold_overlap(price) -> None:
    apart, overlap = price("--array", "32x32"), price("--array", "32x32", "--fold-overlap")
    assert overlap["fold_overlap"] is True
    assert apart["cycles"] - overlap["cycles"] == (8 * 4 - 1) * 32
    settings = ("--array", "32x32", "--set", "machine.fold_overlap=true")
    assert price(*settings)["cycles"] == overlap["cycles"]


def test_convention(price) -> None:
    exact, theirs = (price("--array", "32x32", "--convention", name) for name in ("exact", "scale-sim"))
    assert theirs["convention"] == "scale-sim"
    assert exact["cycles"] - theirs["cycles"] == 1
    output = [
        price("--dataflow", "output-stationary", "--convention", name)["cycles"] for name in ("exact", "scale-sim")
    ]
    assert output[0] - output[1] == 4 * 1 * 128 + 1


def test_reduction_on_columns(price) -> None:
    columns = price("--array", "256x64", "--set", "machine.reduction=columns", gemm=("--gemm", "1024x512x64"))
    assert columns["cycles"] == 8 * (2 * 256 + 64 + 1024 - 2)


def test_text(invoke) -> None:
    found = invoke("simulate", "bf16-systolic", *GEMM)
    assert found.code == 0
    assert "C[512, 128] = A[512, 256] B[256, 128]" in found.out
    assert "1,788 of compute" in found.out


def test_the_flags_change_a_workload_too(invoke) -> None:
    arguments = ["simulate", "bf16-systolic", "--workload", "digits-mlp", "--json", "--array", "16x16"]
    whole = invoke(*arguments).design["cycles"]
    assert whole != invoke(*arguments[:-2]).design["cycles"]
    for flags in (["--dataflow", "input-stationary"], ["--fold-overlap"], ["--convention", "scale-sim"]):
        assert invoke(*arguments, *flags).design["cycles"] != whole


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], ["--workload", "--gemm"]),
        ([*GEMM, "--workload", "digits-mlp"], ["--workload", "--gemm"]),
        (["--gemm", "512x256"], ["512x256", "MxKxN"]),
        (["--gemm", "0x1x1"], ["0x1x1", "between 1 and"]),
        (["--gemm", "axbxc"], ["axbxc", "MxKxN"]),
        (["--gemm", ""], ["MxKxN"]),
        (["--gemm", "-1x2x3"], ["MxKxN"]),
        (["--gemm", "1x1x1e3"], ["MxKxN"]),
        (["--gemm", "1x1x" + "9" * 30], ["between 1 and"]),
        (["--gemm", "1x1x" + "9" * 9000], ["MxKxN"]),
        ([*GEMM, "--array", "32"], ["--array", "ROWSxCOLUMNS"]),
        ([*GEMM, "--array", "0x32"], ["--array", "between 1 and"]),
        ([*GEMM, "--array", "32x99999999"], ["--array", "between 1 and 1048576"]),
        ([*GEMM, "--dataflow", "no-stationary"], ["no-stationary", "input-stationary"]),
        ([*GEMM, "--dataflow", "row-stationary"], ["row-stationary", 'needs memories with per = "cell"']),
        ([*GEMM, "--convention", "timeloop"], ["timeloop", "scale-sim"]),
        ([*GEMM, "--convention", "scale-sim", "--fold-overlap"], ["SCALE-Sim", "fold overlap"]),
        ([*GEMM, "--batch", "4"], ["--batch", "--workload"]),
        ([*GEMM, "--ops", "4"], ["--ops", "--workload"]),
    ],
)
def test_bad_usage(invoke, arguments, words) -> None:
    found = invoke("simulate", "bf16-systolic", *arguments)
    assert found.code == 2
    assert found.out == ""
    assert len(found.err.strip().splitlines()) == 1
    assert len(found.err) < 400
    for word in words:
        assert word in found.err


def test_the_largest_product_is_priced(price) -> None:
    side = 1 << 30
    document = price(gemm=("--gemm", f"{side}x{side}x{side}"))
    assert document["cycles"] > side
    assert document["time_s"] > 1e6


def test_what_the_price_of_a_product_leaves_out_is_said(invoke) -> None:
    assert "MAC unit" in invoke("simulate", "h200", *GEMM, "--set", "numerics.mac.accumulate=float16").out
    assert "computed densely" in invoke("simulate", "bf16-systolic", *GEMM, "--set", "machine.sparsity.zeros=2:4").out


@pytest.mark.parametrize(
    "arguments",
    [
        ("--set", "machine.rows=-1"),
        ("--array", "32x32", "--set", "numerics.weight=float7"),
        ("--dataflow", "row-stationary"),
        ("--dataflow", "output-stationary", "--fold-overlap", "--array", "8x8", "--method", "fast"),
    ],
)
def test_an_error_names_no_setting_that_was_not_typed(invoke, arguments) -> None:
    found = invoke("simulate", "bf16-systolic", *GEMM, *arguments)
    assert found.code == 2
    with_settings = found.err.partition(": ")[2].partition(",")[0].partition(" with ")[2]
    assert with_settings
    for word in with_settings.replace("with ", "").split():
        assert word in arguments
