import msgspec
import pytest

from presilicon.base import ConfigError
from presilicon.designs import load_design, load_technology
from presilicon.records import LayerFact, StepFacts
from presilicon.simulation import area, gemm_cycles, simulate

ALONE = "machine.fusion=none"
DESIGN = load_design("fp32-systolic", [ALONE, "machine.rows=4", "machine.cols=4", "machine.clock_ghz=1"])


def test_cost_of_a_linear_layer_by_hand(linear_step) -> None:
    m, k, n = 4, 6, 3
    cost = simulate(linear_step(m, k, n), DESIGN)
    forward = cost.ops[0]
    assert forward.cycles == 2 * 1 * (2 * 4 + 4 + m - 2)
    assert forward.utilization == pytest.approx(m * k * n / (forward.cycles * 16))
    assert forward.bytes_dram == 4 * (m * k + k * n + m * n)
    # k = 6 on 4 rows is two folds: the partial sums are written, read and written again. All that crosses DRAM passes
    # the buffer besides.
    assert forward.bytes_sram == 4 * (m * k + k * n + 3 * m * n) + forward.bytes_dram
    assert forward.bound == "compute"
    assert forward.time_s == pytest.approx(forward.cycles * 1e-9)
    technology = load_technology("horowitz-45nm")
    mac = m * k * n * (3.7 + 0.9)
    sram = forward.bytes_sram * DESIGN.machine.buffer.bit_pj(technology) * 8
    register = m * k * n * 64 * 0.009
    leakage = 12e-3 * (area(DESIGN).mm2 or 0.0) * forward.time_s
    dynamic = mac + register + sram + forward.bytes_dram * 1950 / 8
    assert forward.energy_j == pytest.approx(dynamic * 1e-12 + leakage)


def test_totals_are_the_sum_of_the_ops_and_the_timeline_has_no_gaps(linear_step) -> None:
    cost = simulate(linear_step(), DESIGN)
    assert cost.time_s == pytest.approx(sum(op.time_s for op in cost.ops))
    assert cost.energy_j == pytest.approx(sum(op.energy_j for op in cost.ops))
    assert cost.energy_j == pytest.approx(sum(cost.energy_by_component_j.values()))
    assert sum(cost.time_by_phase_s().values()) == pytest.approx(cost.time_s)
    ends = [0.0] + [op.end_s for op in cost.ops]
    assert [op.start_s for op in cost.ops] == pytest.approx(ends[:-1])
    assert 0 < cost.utilization < 1
    assert [name for name, _, _ in cost.timeline] == [op.name for op in cost.ops]


def test_simulate_is_pure(linear_step) -> None:
    assert simulate(linear_step(), DESIGN) == simulate(linear_step(), DESIGN)


def test_bytes_and_energy_follow_the_numerics(linear_step) -> None:
    wide = simulate(linear_step(), DESIGN)
    narrow = simulate(linear_step(), load_design("fp8-systolic", [ALONE, "machine.rows=4", "machine.cols=4"]))
    assert narrow.ops[0].bytes_dram == wide.ops[0].bytes_dram / 4
    assert narrow.ops[0].energy_j < wide.ops[0].energy_j
    assert narrow.ops[0].cycles == wide.ops[0].cycles
    assert narrow.memory_bytes < wide.memory_bytes


def test_each_phase_uses_its_own_dataflow(linear_step) -> None:
    graph = linear_step()
    for phase, op in [("forward", 0), ("weight_grad", 2), ("input_grad", 3)]:
        for dataflow in ("weight-stationary", "input-stationary", "output-stationary"):
            design = load_design("fp32-systolic", [f"machine.dataflow.{phase}={dataflow}", "machine.rows=4"])
            expected = gemm_cycles(graph.ops[op].gemm, 4, 128, dataflow).cycles
            assert simulate(graph, design).ops[op].cycles == expected


def test_a_slow_memory_binds(linear_step) -> None:
    design = load_design("fp32-systolic", [ALONE, "machine.rows=4", "machine.cols=4", "machine.dram_gb_s=0.001"])
    op = simulate(linear_step(), design).ops[0]
    assert op.bound == "memory"
    assert op.time_s == pytest.approx(op.bytes_dram / 1e6)


def test_a_small_buffer_costs_traffic(linear_step) -> None:
    graph = linear_step(512, 512, 512)
    large = simulate(graph, load_design("fp32-systolic", [ALONE, "machine.sram_kib=65536"])).ops[0]
    small = simulate(graph, load_design("fp32-systolic", [ALONE, "machine.sram_kib=1024"])).ops[0]
    operand = 512 * 512 * 4
    assert large.bytes_dram == 3 * operand
    # 512 KiB in use: sums of 256 x 256 take half, tiles of 256 x 128 and 128 x 256 the rest. Both are read twice.
    assert small.bytes_dram == (2 + 2 + 1) * operand
    # The sums stay, so each of the 16 folds comes twice, for two pieces of the stream: 128 + 254 cycles more each.
    assert small.cycles - large.cycles == 16 * (128 + 254)


def test_a_buffer_smaller_than_a_tile_is_refused(linear_step) -> None:
    design = load_design("fp32-systolic", [ALONE, "machine.sram_kib=64"])
    with pytest.raises(ConfigError, match=r"machine\.sram_kib.*32 KiB.*1 x 128 x 128.*at least 130 KiB"):
        simulate(linear_step(512, 512, 512), design)
    # A layer that is smaller than the array needs no whole tile.
    assert simulate(linear_step(4, 6, 3), design).ops[0].bytes_dram == 4 * (4 * 6 + 6 * 3 + 4 * 3)


def test_facts_change_the_step(linear_step) -> None:
    graph = linear_step()
    whole = simulate(graph, DESIGN)
    no_update = simulate(graph, DESIGN, StepFacts(update_skipped=True))
    assert [op.name for op in no_update.ops] == [op.name for op in whole.ops[:4]]
    no_backward = simulate(graph, DESIGN, StepFacts(backward_skipped=True))
    assert {op.phase for op in no_backward.ops} == {"forward", "update"}
    narrow = simulate(graph, DESIGN, StepFacts(layers=(LayerFact(layer="fc", role="weight", format="e5m2"),)))
    assert narrow.ops[0].bytes_dram == whole.ops[0].bytes_dram - 3 * 18
    sparse = simulate(graph, DESIGN, StepFacts(layers=(LayerFact(layer="fc", role="weight", density=0.1),)))
    assert sparse == whole


def test_peak_memory_by_hand(linear_step) -> None:
    m, k, n = 4, 6, 3
    cost = simulate(linear_step(m, k, n), DESIGN)
    # While the weight gradient is made: w, x, e, dw; while the input gradient is: w, e, dx, and dw for the update.
    assert cost.memory_bytes == 4 * (k * n + m * n + m * k + k * n)
    assert simulate(linear_step(m, k, n), DESIGN, StepFacts(backward_skipped=True)).memory_bytes < cost.memory_bytes


def test_a_rounded_copy_of_the_weights_is_held_and_written(linear_step) -> None:
    m, k, n = 4, 6, 3
    settings = [ALONE, "machine.rows=4", "machine.cols=4"]
    mixed = simulate(linear_step(m, k, n), load_design("fp32-systolic", [*settings, "numerics.weight=e5m2"]))
    plain = simulate(linear_step(m, k, n), load_design("fp32-systolic", settings))
    assert mixed.memory_bytes == plain.memory_bytes + k * n
    assert mixed.ops[-1].name == "update.round_weights"
    assert mixed.ops[-1].bytes_dram == 5 * k * n
    assert len(mixed.ops) == len(plain.ops) + 1
    narrow = load_design("fp32-systolic", [*settings, "numerics.weight=e5m2", "numerics.master=e5m2"])
    assert simulate(linear_step(m, k, n), narrow).memory_bytes == plain.memory_bytes - 3 * k * n


def test_facts_about_unknown_layers_are_refused(linear_step) -> None:
    facts = StepFacts(layers=(LayerFact(layer="fcc", role="weight", format="e5m2"),))
    with pytest.raises(ConfigError, match='did you mean "fc"'):
        simulate(linear_step(), DESIGN, facts)


def test_passes_stretch_the_streaming(linear_step) -> None:
    settings = [
        "machine.rows=4",
        "machine.cols=4",
        "numerics.weight=bfp(mantissa=4)",
        "numerics.activation=bfp(mantissa=4)",
    ]
    whole = simulate(linear_step(), load_design("fp32-systolic", settings)).ops[0]
    sliced = simulate(linear_step(), load_design("fp32-systolic", [*settings, "numerics.mac.slice_bits=2"])).ops[0]
    assert whole.cycles == 2 * (4 + (4 + 4 + 4 - 2))
    assert sliced.cycles == 2 * (4 + 4 * (4 + 4 + 4 - 2))


def test_integer_operands_use_the_integer_multiplier(linear_step) -> None:
    settings = ["machine.rows=4", "machine.cols=4", "machine.dram_gb_s=100"]
    names = ["numerics.weight=int8", "numerics.activation=int8"]
    technology = msgspec.structs.replace(load_technology("horowitz-45nm"), leakage=None, register_bit=None)
    cost = simulate(linear_step(), load_design("fp32-systolic", [*settings, *names]), technology=technology)
    forward = simulate(linear_step(), load_design("fp32-systolic", settings), technology=technology).ops[0]
    saved = 4 * 6 * 3 * (3.7 - 0.2) * 1e-12
    bytes_saved = forward.bytes_dram - cost.ops[0].bytes_dram, forward.bytes_sram - cost.ops[0].bytes_sram
    traffic = (bytes_saved[0] * 1950 + bytes_saved[1] * 64 * DESIGN.machine.buffer.bit_pj(technology)) / 8 * 1e-12
    assert forward.energy_j - cost.ops[0].energy_j == pytest.approx(saved + traffic)
