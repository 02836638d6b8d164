"""The input gradient's transposed weights: in place, by a transposer, or for nothing."""

import msgspec
import pytest

from presilicon.base import ConfigError
from presilicon.designs import load_design
from presilicon.records import Gemm, StepGraph
from presilicon.simulation import gemm_cycles, simulate, transposer_cycles

M, K, N = 16, 6, 12
FORWARD, LOSS, WEIGHT_GRAD, INPUT_GRAD = 0, 1, 2, 3


def design(*settings: str):
    return load_design(
        "fp32-systolic",
        ["machine.fusion=none", "machine.rows=4", "machine.cols=8", *(f"machine.{text}" for text in settings)],
    )


def in_order(graph: StepGraph, *order: int) -> StepGraph:
    return msgspec.structs.replace(graph, ops=tuple(graph.ops[index] for index in order))


def priced(graph: StepGraph, *settings: str):
    return {op.name: op for op in simulate(graph, design(*settings)).ops}


def test_in_place_takes_the_folds_of_the_forward_layout(linear_step) -> None:
    graph = linear_step(M, K, N)
    free = priced(graph)["fc.input_grad"]
    in_place = priced(graph, "transpose=in-place")["fc.input_grad"]
    # W is 6 x 12: on 4 x 8 cells two by two folds as it lies, and three by one transposed.
    assert free.cycles == 3 * 1 * (4 + M + 4 + 8 - 2)
    assert in_place.cycles == 2 * 2 * (4 + M + 4 + 8 - 2)
    forward = priced(graph, "transpose=in-place")["fc.forward"]
    assert forward.cycles == in_place.cycles


def test_a_tile_that_is_still_in_the_array_is_not_loaded_again(linear_step) -> None:
    graph = linear_step(M, K, N)
    used_between = priced(graph, "transpose=in-place")["fc.input_grad"]
    kept = priced(in_order(graph, FORWARD, LOSS, INPUT_GRAD, WEIGHT_GRAD), "transpose=in-place")["fc.input_grad"]
    assert used_between.cycles - kept.cycles == 4
    # The last of the two by two tiles is two by four numbers of float32.
    assert used_between.bytes_dram - kept.bytes_dram == 4 * (2 * 4)
    assert used_between.bytes_sram - kept.bytes_sram == 2 * 4 * (2 * 4)  # into the buffer, and to the array
    for transpose in ("free", "transposer"):
        settings = f"transpose={transpose}"
        again = priced(in_order(graph, FORWARD, LOSS, INPUT_GRAD, WEIGHT_GRAD), settings)["fc.input_grad"]
        assert again.cycles == priced(graph, settings)["fc.input_grad"].cycles


def test_weights_that_fit_the_array_are_read_once(linear_step) -> None:
    graph = in_order(linear_step(M, 4, 8), FORWARD, LOSS, INPUT_GRAD, WEIGHT_GRAD)
    found = priced(graph, "transpose=in-place")["fc.input_grad"]
    assert found.cycles == M + 4 + 8 - 2
    assert found.bytes_dram == 4 * (M * 8 + M * 4)


def test_an_update_of_the_weights_in_between_costs_a_reload(linear_step) -> None:
    graph = linear_step(M, 4, 8)
    update = 4
    kept = simulate(in_order(graph, FORWARD, FORWARD), design()).ops[1]
    changed = simulate(in_order(graph, FORWARD, update, FORWARD), design()).ops[2]
    assert changed.cycles - kept.cycles == 4


def test_another_layer_in_between_costs_a_reload(linear_step) -> None:
    graph = linear_step(M, 4, 8)
    first = graph.ops[FORWARD]
    other = msgspec.structs.replace(
        first, name="other", inputs=(first.inputs[0], msgspec.structs.replace(first.inputs[1], id=99))
    )
    both = msgspec.structs.replace(graph, ops=(first, other, first, first))
    cycles = [op.cycles for op in simulate(both, design()).ops]
    assert cycles == [cycles[0]] * 3 + [cycles[0] - 4]


def test_a_part_of_a_storage_is_not_taken_for_another_part(linear_step) -> None:
    graph = linear_step(M, 4, 8)
    larger = msgspec.structs.replace(graph.parameters[0], shape=(3, 4, 8))
    both = msgspec.structs.replace(graph, ops=(graph.ops[FORWARD], graph.ops[FORWARD]), parameters=(larger,))
    first, second = simulate(both, design()).ops
    assert first.cycles == second.cycles


def test_a_transposer_costs_cycles_and_a_copy(linear_step) -> None:
    graph = linear_step(M, K, N)
    free = priced(graph)["fc.input_grad"]
    copied = priced(graph, "transpose=transposer")["fc.input_grad"]
    assert copied.cycles - free.cycles == transposer_cycles(K, N, 4, 8) == 2 * 2 * (4 + 8)
    assert copied.bytes_sram - free.bytes_sram == 2 * 4 * K * N
    assert copied.bytes_dram == free.bytes_dram
    assert copied.energy_j > free.energy_j
    for name in ("fc.forward", "fc.weight_grad", "loss", "fc.update"):
        assert priced(graph, "transpose=transposer")[name].cycles == priced(graph)[name].cycles


def test_a_copy_that_does_not_fit_goes_to_dram(linear_step) -> None:
    graph = linear_step(M, 64, 64)
    free = priced(graph, "sram_kib=8")["fc.input_grad"]
    copied = priced(graph, "sram_kib=8", "transpose=transposer")["fc.input_grad"]
    assert copied.bytes_dram - free.bytes_dram == 2 * 4 * 64 * 64


@pytest.mark.parametrize("phase", ["forward", "input_grad"])
def test_in_place_needs_the_weights_in_the_array(phase) -> None:
    with pytest.raises(ConfigError, match=rf"\$\.machine.*dataflow\.{phase}.*weight-stationary"):
        design("transpose=in-place", f"dataflow.{phase}=output-stationary")


@pytest.mark.parametrize("reduction", ["rows", "columns"])
@pytest.mark.parametrize("fold_overlap", ["true", "false"])
def test_orientation_and_overlap_reach_every_product(linear_step, reduction, fold_overlap) -> None:
    settings = (f"reduction={reduction}", f"fold_overlap={fold_overlap}")
    cost = priced(linear_step(M, K, N), *settings)
    for name, gemm, dataflow in [
        ("fc.forward", Gemm(M, K, N), "weight-stationary"),
        ("fc.weight_grad", Gemm(K, M, N), "output-stationary"),
        ("fc.input_grad", Gemm(M, N, K), "weight-stationary"),
    ]:
        expected = gemm_cycles(gemm, 4, 8, dataflow, reduction=reduction, fold_overlap=fold_overlap == "true")
        assert cost[name].cycles == expected.cycles


def test_a_unit_has_the_length_of_a_tile_along_the_sums_of_its_product() -> None:
    orders = [f"numerics.{unit}.order=systolic" for unit in ("mac", "input_grad.mac")]

    def load(rows: int, cols: int, *settings: str) -> None:
        lengths = [f"numerics.mac.rows={rows}", f"numerics.input_grad.mac.rows={cols}"]
        load_design("fp32-systolic", ["machine.rows=4", "machine.cols=8", *orders, *lengths, *settings])

    load(4, 8, "machine.transpose=in-place")
    load(4, 4)
    load(8, 4, "machine.transpose=in-place", "machine.reduction=columns", "numerics.weight_grad.mac.order=sequential")
    with pytest.raises(ConfigError, match=r"8 cols along the sums of input_grad: set rows = 8 in \[numerics.input_gr"):
        load(4, 4, "machine.transpose=in-place")
    with pytest.raises(ConfigError, match="4 rows along the sums of forward"):
        load(8, 8)
