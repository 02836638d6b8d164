"""The roofline machine: hand-computed kernels, what frameworks fuse, and the timeline of host and chip."""

from itertools import pairwise
from math import log
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec import json
from msgspec.structs import replace
from torch import Tensor, nn
from torch.nn import functional

from presilicon.base import ConfigError
from presilicon.designs import Design, RooflineMachine, StepFormats, load_design
from presilicon.records import Gemm, Op, StepFacts, StepGraph, TensorRef
from presilicon.simulation import simulate, simulate_gemm
from presilicon.simulation.execution import executed_ops
from presilicon.simulation.roofline.efficiency import (
    REACHABLE,
    TRANSFER,
    Efficiency,
    KernelGroup,
    MeasuredLayers,
    Peaks,
    load_efficiency,
)
from presilicon.simulation.roofline.features import features_of_move
from presilicon.simulation.roofline.kernels import OpKernel, make_kernels, product_seconds
from presilicon.simulation.roofline.machine import HostTimes
from presilicon.workloads import capture


def design(*settings: str, numerics: str = "fp32") -> Design:
    return load_design("h200", settings, numerics=numerics)


def machine(chosen: Design) -> RooflineMachine:
    assert isinstance(chosen.machine, RooflineMachine)
    return chosen.machine


def kernels_of(graph: StepGraph, chosen: Design) -> list[OpKernel]:
    formats = StepFormats(chosen.numerics, StepFacts())
    executed = executed_ops(graph, formats, StepFacts())
    return make_kernels(executed, machine(chosen), formats)


def double(elements: int, role: str = "activation") -> StepGraph:
    op = Op(
        index=0,
        name="double",
        kind="elementwise",
        operator="aten.mul.Tensor",
        phase="forward",
        layer="",
        inputs=(TensorRef(0, (elements,), role),),
        outputs=(TensorRef(1, (elements,), role),),
        flops=elements,
    )
    return StepGraph(name="double", batch_size=1, ops=(op,))


PEAKS = Peaks(memory_gb_s=4800.0, issue=132 * 1.98, tflops={"float32": 67.0})
IDEAL = "machine.measured="
"""No table of measured layers: every op reaches its limit."""


def test_a_memory_bound_op_takes_its_latency_and_its_traffic() -> None:
    chosen = design(IDEAL)
    cost = simulate(double(10**8), chosen)
    assert cost.time_s == pytest.approx(machine(chosen).latency_us * 1e-6 + 8e8 / 4.8e12)
    assert cost.ops[0].bound == "memory"


def test_a_table_gives_a_fixed_time_and_a_share_of_the_limit(tmp_path: Path) -> None:
    shape = tuple(features_of_move(double(10**8).ops[0], "elementwise", 32, "contiguous").shape)
    bell = KernelGroup(fixed_us=5.0, reached=0.5, scales=(1.0,) * 4, points=(shape,), weights=(log(3.0),))
    table = MeasuredLayers(schema=2, device="", source="", peaks=PEAKS, groups={"mul.32": bell})
    path = tmp_path / "mine.json"
    path.write_bytes(json.encode(table))
    chosen = design(f"machine.measured={path}")
    limit_s = 8e8 / 4.8e12
    assert simulate(double(10**8), chosen).time_s == pytest.approx(3 * (5e-6 + 2 * limit_s))
    # Far from the measured shape, only the line remains.
    assert simulate(double(10), chosen).time_s == pytest.approx(5e-6 + 2 * 80 / 4.8e12)


def test_energy_is_static_busy_and_traffic() -> None:
    chosen = design(IDEAL)
    energy, power = machine(chosen).energy, machine(chosen).power_w
    assert energy is not None
    cost = simulate(double(10**8), chosen)
    busy_s = cost.time_s - machine(chosen).latency_us * 1e-6
    busy = energy.busy["other"] * busy_s
    expected = power * (energy.static * cost.time_s + busy) + 8e8 * energy.pj_per_byte * 1e-12
    assert cost.energy_j == pytest.approx(expected)
    assert cost.energy_j == pytest.approx(sum(op.energy_j for op in cost.ops))


def test_a_step_beyond_the_power_cap_runs_at_a_lower_clock() -> None:
    product = Gemm(m=8192, k=8192, n=8192)
    free, capped = (simulate_gemm(product, design(f"machine.cap_w={watts}", IDEAL)) for watts in (5000, 500))
    assert free.energy_j / free.time_s > 500
    assert 495 < capped.energy_j / capped.time_s <= 500
    assert capped.time_s > free.time_s
    # Memory does not follow the clock of the cores, and a cap that is not reached changes nothing.
    slow, far, none = (simulate(double(10**8), design(f"machine.cap_w={watts}", IDEAL)) for watts in (550, 650, 5000))
    assert slow.time_s == far.time_s == none.time_s
    assert slow.energy_j < far.energy_j == none.energy_j
    with pytest.raises(ConfigError, match=r"cap_w must be at least \d+ W for this step, not 100 W"):
        simulate(double(10**8), design("machine.cap_w=100", IDEAL))


@pytest.mark.parametrize("launch", ["graph", "eager", "compile"])
def test_empty_products_take_their_launch(launch: str) -> None:
    class Experts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(8, 4), nn.Linear(8, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.cat([self.first(x), self.second(x[:0])])  # no token for the second one

    cost = simulate(capture(Experts(), torch.empty(6, 8)), design(f"machine.launch={launch}"))
    assert all(op.time_s > 0 for op in cost.ops if op.name.startswith("second.forward"))


def test_the_sum_of_gradients_counts_towards_the_power_cap() -> None:
    graph = capture(nn.Linear(8192, 8192, bias=False), torch.empty(8192, 8192, device="meta"))
    for link_gb_s in (1e2, 1e9):  # chips that wait for their link, and ones that send everything at once
        chips = "machine.chips=8", f"machine.link_gb_s={link_gb_s:g}", "machine.cap_w=600"
        cost = simulate(graph, design(*chips, numerics="bf16"))
        assert cost.energy_j / cost.time_s / 8 <= 600
    # A quiet sum lets the products run at the full clock.
    small = capture(nn.Linear(8192, 8192, bias=False), torch.empty(64, 8192, device="meta"))
    slow = simulate(small, design("machine.chips=8", "machine.link_gb_s=10", "machine.cap_w=200", numerics="bf16"))
    assert slow.energy_j / slow.time_s / 8 < 200


def test_watts_of_a_chip_that_waits_count_towards_the_cap() -> None:
    graph = capture(nn.Linear(8192, 8192, bias=False), torch.empty(8192, 8192, device="meta"))
    alone_s = simulate(graph, design(numerics="bf16")).time_s
    for share in range(80, 121, 5):  # of the time of the chip, in which the host launches the step
        waits = ("machine.launch=eager", f"machine.host.step_us={share / 100 * alone_s * 1e6}")
        cost = simulate(graph, design(*waits, numerics="bf16"))
        assert cost.energy_j / cost.time_s <= 700


def test_tiles_are_made_in_waves() -> None:
    chip = replace(machine(design()), cores=4, tile=128)
    core_s = 2 * 128 * 128 * 256 / (1e12 / 4)
    assert product_seconds(Gemm(m=512, k=256, n=128), chip, 1.0) == (pytest.approx(core_s), 1.0)
    assert product_seconds(Gemm(m=640, k=256, n=128), chip, 1.0)[0] == pytest.approx(2 * core_s)


def test_a_product_of_few_tiles_splits_its_reduction() -> None:
    chip = replace(machine(design()), cores=4, tile=128)
    seconds, fill = product_seconds(Gemm(m=128, k=2048, n=128), chip, 1.0)
    partial_sums_s = 4 * 8 * 128 * 128 / 4.8e12
    assert seconds == pytest.approx(2 * 128 * 128 * 512 / (1e12 / 4) + partial_sums_s)
    assert fill == 1.0


def test_a_longer_reduction_has_no_lower_limit() -> None:
    chip = machine(design())
    limits = [product_seconds(Gemm(m=512, k=k, n=512), chip, 989.0)[0] for k in range(64, 4096, 24)]
    assert limits == sorted(limits)


def test_rows_that_are_not_aligned_slow_a_product_down() -> None:
    aligned, odd = (simulate_gemm(Gemm(m=8192, k=4096, n=n), design(numerics="bf16")).time_s for n in (4096, 4095))
    assert odd > 1.5 * aligned


def test_a_product_runs_on_the_fastest_unit_that_holds_its_operands() -> None:
    chosen = machine(design())
    from presilicon.formats import parse

    assert chosen.rate(parse("bfloat16"), parse("e4m3"))[0] == "bfloat16"
    assert chosen.rate(parse("e4m3fn"), parse("e5m2"))[1].tflops == 1979
    assert chosen.rate(parse("float16"), parse("float16"))[0] == "float16"
    assert chosen.rate(parse("tf32"), parse("bfloat16"))[0] == "tf32"
    assert chosen.rate(parse("float32"), parse("bfloat16"))[0] == "float32"
    with pytest.raises(ConfigError, match="none of them holds float32 times float32"):
        machine(load_design("tpu-v2")).rate(parse("float32"), parse("float32"))


class Attends(nn.Module):
    def __init__(self, causal: bool = False) -> None:
        super().__init__()
        self.qkv, self.causal = nn.Linear(64, 192), causal

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).view(2, 128, 3, 4, 16).permute(2, 0, 3, 1, 4)
        return functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)


class AttendsByHand(Attends):
    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).view(2, 128, 3, 4, 16).permute(2, 0, 3, 1, 4)
        return torch.softmax(q @ k.transpose(-1, -2) / 4, dim=-1) @ v


def test_fused_attention_never_stores_its_scores() -> None:
    graph = capture(Attends(), torch.empty(2, 128, 64))
    kernels = kernels_of(graph, design())
    products = [kernel for kernel in kernels if kernel.activity == "attention"]
    assert len(products) == 6  # two forward, four backward
    assert sum(kernel.op.flops for kernel in products) == 6 * 2 * 2 * 4 * 128 * 128 * 16
    each = 2 * 4 * 128 * 16 * 4
    assert all(kernel.size_bytes <= 2 * each for kernel in products)
    assert not [kernel for kernel in kernels if kernel.launches and kernel.op.kind == "softmax"]
    unfused = kernels_of(graph, design("machine.fused_attention=false"))
    assert sum(kernel.size_bytes for kernel in unfused) > 2 * sum(kernel.size_bytes for kernel in kernels)


def test_a_causal_mask_halves_the_work() -> None:
    flops = []
    for causal in (False, True):
        kernels = kernels_of(capture(Attends(causal), torch.empty(2, 128, 64)), design())
        flops.append(sum(kernel.flops for kernel in kernels if kernel.activity == "attention"))
    assert flops[1] == flops[0] / 2


def test_attention_written_by_hand_is_not_fused() -> None:
    kernels = kernels_of(capture(AttendsByHand(), torch.empty(2, 128, 64)), design())
    assert not [kernel for kernel in kernels if kernel.activity == "attention"]
    assert [kernel for kernel in kernels if kernel.op.kind == "softmax"]


class Recurs(nn.Module):
    def __init__(self, layer: nn.Module | None = None) -> None:
        super().__init__()
        self.cell = layer or nn.LSTM(32, 64, batch_first=True)

    def forward(self, x: Tensor) -> Any:
        return self.cell(x)


def test_a_recurrent_layer_multiplies_its_inputs_at_once() -> None:
    graph = capture(Recurs(), torch.empty(8, 20, 32))
    launched = [kernel for kernel in kernels_of(graph, design()) if kernel.launches and kernel.op.gemm]
    by_phase = {phase: [k for k in launched if k.op.phase == phase] for phase in ("forward", "weight_grad")}
    assert len(by_phase["forward"]) == 1 + 20  # all inputs, then the state step by step
    assert len(by_phase["weight_grad"]) <= 3
    flops = sum(op.flops for op in graph.ops if op.gemm and op.phase in by_phase)
    assert sum(kernel.flops for group in by_phase.values() for kernel in group) == flops


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_a_recurrent_layer_that_is_the_whole_model_takes_as_long_as_one_in_a_wrapper(kind: Any) -> None:
    layer = kind(32, 64, batch_first=True)
    alone, wrapped = (simulate(capture(model, torch.empty(8, 20, 32)), design()) for model in (layer, Recurs(layer)))
    assert alone.time_s == pytest.approx(wrapped.time_s)
    assert sum(op.time_s > 0 for op in alone.ops) == sum(op.time_s > 0 for op in wrapped.ops)


@pytest.mark.parametrize(
    ("changes", "counts", "inputs"),
    [
        ({}, [1] * 5, 1),
        ({"num_layers": 3}, [1, 2, 3, 3, 3, 2, 1], 3),  # a layer follows the one below it by a time step
        ({"bidirectional": True}, [2] * 5, 2),  # directions run side by side
        ({"num_layers": 2, "bidirectional": True}, [2, 4, 4, 4, 4, 2], 4),
    ],
)
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_layers_of_a_recurrent_stack_overlap(kind: Any, changes: Any, counts: list[int], inputs: int) -> None:
    graph = capture(kind(32, 64, **changes), torch.empty(5, 8, 32))  # five time steps, eight examples
    gates = {nn.LSTM: 4, nn.GRU: 3, nn.RNN: 1}[kind]
    forward = [k for k in kernels_of(graph, design()) if k.launches and k.op.phase == "forward" and k.format]
    links = [kernel for kernel in forward if kernel.activity == "recurrent"]
    assert [kernel.flops for kernel in links] == [count * 2 * 8 * 64 * gates * 64 for count in counts]
    assert [kernel.calls for kernel in links] == counts
    weights, states = 64 * gates * 64, 8 * 64 + 8 * gates * 64
    assert links[0].size_bytes == counts[0] * 4 * (weights + states)
    assert len(forward) - len(links) == inputs
    assert sum(kernel.flops for kernel in forward) == graph.flops("forward", matrix_only=True)
    backward = [k for k in kernels_of(graph, design()) if k.features.keys[:1] == ("recurrent.input_grad.float32",)]
    assert len(backward) == len(links) - 1  # the first state needs no gradient


class SharesItsLayer(nn.Module):
    """One layer again and again, as in ALBERT: the library does not know that it is the same one."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(6):
            x = self.layer(x).tanh()
        return x


@pytest.mark.parametrize("model", [nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8)), SharesItsLayer()])
def test_a_model_without_a_recurrent_layer_launches_every_op(model: nn.Module) -> None:
    assert all(kernel.launches for kernel in kernels_of(capture(model, torch.empty(4, 8)), design()))


def test_mixed_precision_converts_weights_gradients_and_normalized_activations() -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64), nn.Linear(64, 64))
    kernels = kernels_of(capture(model, torch.empty(32, 64)), design(numerics="bf16"))
    casts = [(k.op.layer, k.op.phase) for k in kernels for extra in k.extras if extra.is_cast]
    assert ("0", "forward") in casts  # the batch comes in float32
    assert ("1", "forward") in casts  # normalization is in float32 ...
    assert ("2", "forward") in casts  # ... and the product after it is not
    assert casts.count(("2", "weight_grad")) >= 1  # gradients of weights go to the optimizer in float32
    assert not [k for k in kernels_of(capture(model, torch.empty(32, 64)), design()) for _ in k.extras]


def test_depthwise_convolutions_leave_the_matrix_unit() -> None:
    model = nn.Conv2d(16, 16, 3, groups=16, bias=False)
    kernels = kernels_of(capture(model, torch.empty(2, 16, 8, 8)), design())
    assert not [kernel for kernel in kernels if kernel.format]


def test_efficiency_of_images_is_looked_up_by_their_layout() -> None:
    model = nn.Sequential(nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8), nn.Conv2d(8, 8, 3, groups=8))
    for layout in ("contiguous", "channels-last"):
        kernels = kernels_of(capture(model, torch.empty(2, 8, 9, 9)), design(f"machine.layout={layout}"))
        keys = {kernel.op.layer: kernel.features.keys[0] for kernel in kernels if kernel.op.phase == "forward"}
        assert keys["0"] == f"convolution2d.forward.float32.{layout}"
        assert keys["1"] == f"native_batch_norm.32.{layout}"
        assert keys["2"] == f"depthwise2d.forward.float32.{layout}"


class NormalizesTransposed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x.mT) + x.mT


def test_strided_tensors_are_copied_for_rows_and_slow_elementwise_ops_down() -> None:
    graph = capture(NormalizesTransposed(), torch.empty(2, 8, 16), training=False)
    norm, added = kernels_of(graph, design())[:2]
    [copy] = norm.extras
    assert (copy.features.keys[0], copy.size_bytes) == ("clone.strided.32", 2 * 4 * 2 * 8 * 16)
    assert added.features.keys[:2] == ("add.32.strided", "add.32")


def test_a_slow_host_holds_the_chip_up_and_a_fast_one_does_not() -> None:
    graph = capture(nn.Sequential(*(nn.Linear(64, 64) for _ in range(4))), torch.empty(32, 64))
    chosen = design()
    in_graph = simulate(graph, chosen)
    slow = replace(machine(chosen), launch="eager", host=HostTimes(step_us=100, forward_us=50, backward_us=50))
    held_up = simulate(graph, replace(chosen, machine=slow))
    launches = sum(op.phase != "update" for op in graph.ops)
    updates = sum(op.phase == "update" for op in graph.ops)
    assert held_up.time_s == pytest.approx((100 + 50 * launches + slow.host.update_us * updates) * 1e-6)
    none = HostTimes(step_us=0, forward_us=0, backward_us=0, update_us=0, cast_us=0)
    fast = simulate(graph, replace(chosen, machine=replace(slow, host=none)))
    assert fast.time_s == pytest.approx(in_graph.time_s)
    assert held_up.ops[-1].end_s <= held_up.time_s * (1 + 1e-9)
    pairs = zip(held_up.ops, held_up.ops[1:], strict=False)
    assert all(before.end_s <= after.start_s + 1e-12 for before, after in pairs)


def test_several_chips_add_up_their_gradients_around_a_ring() -> None:
    graph = capture(nn.Linear(1000, 1000), torch.empty(32, 1000))
    one, eight = (simulate(graph, load_design(name, numerics="fp16-mixed")) for name in ("v100", "dgx-1"))
    sent = 2 * 7 / 8 * graph.parameter_elements * 4
    assert eight.time_s - one.time_s == pytest.approx(sent / 150e9)
    assert eight.energy_j > 8 * one.energy_j


@pytest.mark.parametrize("name", ["p100", "v100", "a100", "h200", "tpu-v1", "tpu-v2", "tpu-v3", "dgx-1", "gaudi-hls-1"])
def test_every_chip_prices_a_step_and_says_where_its_figures_come_from(name: str) -> None:
    chosen = load_design(name)
    cost = simulate(capture(nn.Linear(64, 64), torch.empty(32, 64)), chosen)
    assert cost.time_s > 0
    assert cost.energy_j > 0
    assert machine(chosen).figures


def test_scale_sim_has_no_count_of_a_chip() -> None:
    with pytest.raises(ConfigError, match="systolic arrays"):
        simulate(double(8), design(), convention="scale-sim")


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("machine.matrix={}", "matrix is empty"),
        ("machine.matrix.bfloat17.tflops=1", "matrix.bfloat17"),
        ("machine.energy.busy.elementwize=0.5", 'no class "elementwize"'),
        ("machine.measured=h300", 'no table "h300"; shipped: h200'),
        ("machine.memory_gb_s=0", "memory_gb_s: given 0"),
        ("machine.chips=0", "chips: given 0"),
    ],
)
def test_impossible_chips_are_refused(setting: str, words: str) -> None:
    with pytest.raises(ConfigError) as error:
        load_design("h200", [setting])
    assert words in str(error.value) or "required key" in str(error.value)


def test_kernels_far_from_their_limit_come_closer_to_it_on_a_chip_with_less_of_it() -> None:
    slow, fast = KernelGroup(fixed_us=1.0, reached=0.2), KernelGroup(fixed_us=1.0, reached=0.95)
    efficiency = Efficiency(
        MeasuredLayers(schema=2, device="", source="", peaks=PEAKS, groups={"slow": slow, "fast": fast})
    )
    same = efficiency.transferred(5.0, PEAKS, "")
    half_memory = efficiency.transferred(5.0, replace(PEAKS, memory_gb_s=2400.0), "")
    assert same == 5.0
    assert half_memory == pytest.approx(5.0 * 0.5**TRANSFER)
    assert efficiency.transferred(1.05, replace(PEAKS, memory_gb_s=100.0), "") == 1.05  # it reached its limit before
    assert efficiency.transferred(5.0, replace(PEAKS, memory_gb_s=1.0), "") == pytest.approx(1 / REACHABLE)
    assert efficiency.transferred(5.0, replace(PEAKS, issue=0.0), "") == 5.0  # the clock is not known
    half_arithmetic = replace(PEAKS, tflops={"float32": 33.5})
    assert efficiency.transferred(5.0, half_arithmetic, "float32") == pytest.approx(5.0 * 0.5**TRANSFER)


def _perceptron(*sizes: int, batch: int = 512) -> StepGraph:
    model = nn.Sequential(*(nn.Linear(*pair) for pair in pairwise(sizes)))
    return capture(model.to("meta"), torch.empty(batch, sizes[0], device="meta"))


def test_a_step_says_how_much_of_it_was_measured_and_how_far_such_steps_were_off() -> None:
    known, other = (simulate(_perceptron(*sizes), design()).measured for sizes in ((1024, 1024, 1024), (333, 777, 111)))
    assert known is not None
    assert other is not None
    assert (known.device, known.known, other.known) == ("NVIDIA H200", 1.0, 0.0)
    assert known.checks is not None
    assert other.checks is not None
    assert known.checks.mean_error < other.checks.mean_error
    assert known.text.startswith("100% of the time of products is in layers that were measured on NVIDIA H200; ")
    assert "`characterize-gpu --workload`, or `-cpu`, measures the others" in other.text


@pytest.mark.parametrize("name", ["h200", "dgx-1"])
@pytest.mark.parametrize("numerics", ["fp32", "tf32", "bf16", "fp16-mixed", "fp8-tensorwise", "mxfp8", "fp8-hybrid"])
def test_only_products_in_measured_formats_count_as_measured(name: str, numerics: str) -> None:
    graph = _perceptron(1024, 1024, 1024)
    try:
        basis = simulate(graph, load_design(name, numerics=numerics)).measured
    except ConfigError:  # the chip has no unit for them
        return
    assert basis is not None
    exact = numerics in ("fp32", "tf32", "bf16")
    assert basis.known == (1.0 if exact else 0.0)
    assert (basis.checks is not None) == (exact and name == "h200")
    assert (basis.unmeasured == ()) == exact
    assert ("FP8 is not measured here" in basis.text) == ("fp8" in numerics and name == "h200")


def test_a_depthwise_convolution_in_an_unmeasured_format_was_not_measured() -> None:
    graph = capture(nn.Conv2d(64, 64, 3, groups=64, padding=1).to("meta"), torch.empty(8, 64, 56, 56, device="meta"))
    for numerics, unmeasured in (("bf16", ()), ("fp16-mixed", ("float16",))):
        basis = simulate(graph, design(numerics=numerics)).measured
        assert basis is not None
        assert basis.unmeasured == unmeasured


@pytest.mark.parametrize("launch", ["eager", "compile"])
def test_a_processor_has_no_host_that_launches_or_compiles(launch: str) -> None:
    with pytest.raises(ConfigError, match=f'launch = "{launch}" is for a chip beside its host'):
        load_design("xeon-8t", [f"machine.launch={launch}"])
    load_design("h200", [f"machine.launch={launch}"])


def test_units_whose_arithmetic_has_no_energy_are_named() -> None:
    def remarks(name: str) -> str:
        chip = load_design(name)
        return "; ".join(chip.machine.numerics_remarks(chip.numerics))

    assert "no energy of arithmetic in float32, tf32, bfloat16, float16 is given" in remarks("a100")
    assert "no energy of arithmetic" not in remarks("h200") + remarks("xeon-8t")


def test_the_share_of_measured_layers_is_one_of_time() -> None:
    cost = simulate(_perceptron(1024, 1024, 777), design())
    products = [op for op in cost.ops if op.kind == "gemm"]
    first = sum(op.time_s for op in products if op.layer == "0")
    assert cost.measured is not None
    assert cost.measured.known == pytest.approx(first / sum(op.time_s for op in products))


def test_errors_of_steps_are_stated_only_for_the_chip_and_the_launch_that_were_measured() -> None:
    graph = _perceptron(1024, 1024, 1024)
    slower = simulate(graph, design("machine.memory_gb_s=2000")).measured
    assert slower is not None
    assert slower.is_transferred
    assert slower.checks is None
    assert "carried over to this chip" in slower.text
    compiled = simulate(graph, design("machine.launch=compile")).measured
    assert compiled is not None
    assert compiled.checks is None
    assert "whole steps were not compared with measured ones" in compiled.text
    assert simulate(graph, design("machine.measured=")).measured is None
    assert simulate(double(64), design()).measured is None


def test_the_errors_in_the_shipped_table_cover_all_shares() -> None:
    layers = load_efficiency("h200").layers
    assert layers is not None
    shares = [alike.known for alike in layers.checks]
    assert shares == sorted(shares, reverse=True)
    assert shares[-1] == 0.0
    assert sum(alike.steps for alike in layers.checks) == 403


def test_another_rated_power_of_a_measured_chip_is_remarked() -> None:
    def remarks(*settings: str) -> str:
        chosen = design(*settings)
        return " ".join(machine(chosen).numerics_remarks(chosen.numerics))

    assert "a limit on the power of the same chip is cap_w" in remarks("machine.power_w=300")
    assert "cap_w" not in remarks("machine.cap_w=300") + remarks("machine.power_w=300", "machine.memory_gb_s=3000")
