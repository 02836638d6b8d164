"""What cannot be simulated is refused with one message: where, what was given, what is allowed, what to try."""

import sys

import pytest

STEP = ["simulate", "bf16-systolic", "--workload", "digits-mlp"]
GEMM = ["simulate", "bf16-systolic", "--gemm", "1000x1000x1000"]


def complaint(invoke, *arguments: str) -> str:
    found = invoke(*arguments)
    assert (found.code, found.out) == (2, ""), found.err
    assert len(found.err.strip().splitlines()) == 1
    assert "Traceback" not in found.err
    assert "unexpected" not in found.err
    assert len(found.err) < 600
    return found.err


@pytest.mark.parametrize("command", [STEP, GEMM], ids=["step", "product"])
@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("machine.dram_gb_s=0", ["$.machine.dram_gb_s", "given 0", ">="]),
        ("machine.dram_gb_s=-1", ["$.machine.dram_gb_s", "given -1"]),
        ("machine.dram_gb_s=nan", ["$.machine.dram_gb_s", "nan", "finite"]),
        ("machine.clock_ghz=inf", ["$.machine.clock_ghz", "inf", "finite"]),
        ("machine.sram_kib=0", ["$.machine.sram_kib", "given 0", ">= 1"]),
        ("machine.vector_lanes=0", ["$.machine.vector_lanes", "given 0", ">= 1"]),
        ("machine.rows=0", ["$.machine.rows", "given 0", ">= 1"]),
        ("machine.dataflow.forward=no-stationary", ["no-stationary", "did you mean"]),
        ("machine.technology=none-5nm", ["none-5nm"]),
        ("machine.cores.count=0", ["$.machine.cores.count", "given 0", ">= 1"]),
        ("machine.cores.network=torus", ["$.machine.cores.network", "torus", "mesh"]),
        ("machine.sparsity.zeros=4:2", ["N:M", "4:2"]),
        ("machine.sparsity.weight=zip", ["$.machine.sparsity.weight", "zip", "bitmap"]),
    ],
)
def test_impossible_machines(invoke, command, setting, words) -> None:
    found = complaint(invoke, *command, "--set", setting)
    for word in words:
        assert word in found


def test_a_buffer_smaller_than_one_tile_says_how_large_it_must_be(invoke) -> None:
    found = complaint(invoke, *GEMM, "--set", "machine.sram_kib=2")
    assert "machine.sram_kib" in found
    assert "1 x 128 x 128" in found
    assert "at least 66 KiB" in found
    assert invoke(*GEMM, "--set", "machine.sram_kib=66").code == 0
    assert "at least 66 KiB" in complaint(invoke, *GEMM, "--set", "machine.sram_kib=65")
    # A smaller array is the other way out.
    assert invoke(*GEMM, "--set", "machine.sram_kib=2", "--array", "8x8").code == 0
    assert "machine.sram_kib" in complaint(invoke, *STEP, "--set", "machine.sram_kib=1")


@pytest.mark.parametrize("phase", ["forward", "input_grad"])
def test_a_dataflow_that_in_place_transposition_cannot_use(invoke, phase) -> None:
    settings = ["--set", "machine.transpose=in-place", "--set", f"machine.dataflow.{phase}=output-stationary"]
    found = complaint(invoke, *STEP, *settings)
    assert f"dataflow.{phase}" in found
    assert '"weight-stationary"' in found
    assert '"transposer"' in found


def test_what_scale_sim_does_not_know(invoke) -> None:
    assert "columns" in complaint(invoke, *STEP, "--convention", "scale-sim", "--set", "machine.reduction=columns")
    assert "overlap" in complaint(invoke, *STEP, "--convention", "scale-sim", "--fold-overlap")


@pytest.mark.parametrize("size", ["0", "-1", "1.5", "many", "9" * 30])
def test_batch_sizes_that_are_none(invoke, size) -> None:
    assert "--batch" in complaint(invoke, *STEP, "--batch", size)


@pytest.mark.parametrize("option", ["--trace", "--roofline-plot", "--memory-plot"])
def test_files_that_cannot_be_written(invoke, tmp_path, option) -> None:
    if "plot" in option:
        pytest.importorskip("matplotlib")
    name = "step.json" if option == "--trace" else "step.svg"
    assert f"none/{name}" in complaint(invoke, *STEP, option, f"none/{name}")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / name).mkdir()
    assert name in complaint(invoke, *STEP, option, name)


@pytest.mark.parametrize("option", ["--roofline-plot", "--memory-plot"])
def test_figures_without_matplotlib(invoke, monkeypatch, option) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    found = invoke(*STEP, option, "step.svg")
    assert found.code == 3
    assert "pip install 'presilicon[plot]'" in found.err


def test_shapes_of_any_kind_have_a_tiling(invoke) -> None:
    """Nothing fits the array: lines, columns, primes and giants are all priced."""
    for shape in ("1x1x1", "1x1000003x1", "1000003x1x1", "1x1x1000003", "127x129x131", f"{1 << 30}x1x{1 << 30}"):
        document = invoke("simulate", "bf16-systolic", "--gemm", shape, "--json").design
        assert document["cycles"] > 0
        assert document["bytes_dram"] > 0
