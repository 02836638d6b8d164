"""What a critical reader found, so that it does not come back."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from presilicon.base import ConfigError
from presilicon.designs import load_design
from presilicon.records import Gemm
from presilicon.simulation import simulate, simulate_gemm
from presilicon.simulation.area import area
from presilicon.study import evaluate, step_sensitivity
from presilicon.workloads import capture, capture_workload, load_workload


def test_area_follows_the_widest_layer() -> None:
    wide = ["numerics.weight=float(exponent=6, mantissa=9)", "numerics.activation=float(exponent=6, mantissa=9)"]
    wide += ["numerics.error=float(exponent=6, mantissa=9)"]
    chunked = area(load_design("bf16-systolic", numerics="fp8-chunked"))
    everywhere = area(load_design("bf16-systolic", wide, numerics="fp8-chunked"))
    assert chunked.mm2 == pytest.approx(everywhere.mm2)


class Unused(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.used, self.unused = nn.Linear(8, 8), nn.Linear(1000, 1000)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.used(x)
        return out


@pytest.mark.parametrize("name", ["bf16-systolic", "dgx-1"])
def test_weights_that_get_no_gradient_are_neither_rounded_nor_sent(name: str) -> None:
    lean, laden = (simulate(capture(m, torch.empty(4, 8)), load_design(name)) for m in (nn.Linear(8, 8), Unused()))
    assert laden.time_s == pytest.approx(lean.time_s)


@pytest.mark.parametrize("workload", ["alexnet", "vgg16"])
def test_no_unit_is_used_beyond_its_peak(workload: str) -> None:
    graph = capture_workload(load_workload(workload), batch_size=16)
    assert max(op.utilization for op in simulate(graph, load_design("h200", numerics="fp32")).ops) <= 1.0


def test_a_product_of_one_number_has_a_price() -> None:
    settings = ["machine.rows=1", "machine.cols=1", "machine.dataflow.forward=output-stationary"]
    assert simulate_gemm(Gemm(1, 1, 1), load_design("bf16-systolic", settings), convention="scale-sim").cycles == 0


def test_an_empty_batch_is_refused() -> None:
    with pytest.raises(ConfigError, match="at least one example"):
        capture(nn.Linear(8, 8), torch.empty(0, 8))


def test_several_chips_are_evaluated_on_their_joint_batch() -> None:
    workload = replace(load_workload("digits-mlp"), target=0.2, max_steps=40, sustain=1)
    result = evaluate("dgx-1", workload, seeds=1)
    [seed] = result.seeds
    assert seed.curve[0].samples == 10 * 32
    assert seed.updates_to_accuracy == seed.steps_to_accuracy == pytest.approx((seed.samples_to_accuracy or 0) / 32)
    provenance = [result.provenance[name] for name in ("chips", "batch_per_chip", "samples_per_update", "link_gb_s")]
    assert provenance == [8, 4, 32, 150.0]
    energy, measured, shared = result.remarks  # and none on the learning rate
    assert "no energy of arithmetic" in energy
    assert "measured on NVIDIA H200" in measured
    assert "8 with 4 samples each" in shared
    with pytest.raises(ConfigError, match=r"8 chips cannot share a batch of 36 samples .* try --batch 32 or 40"):
        evaluate("dgx-1", replace(workload, batch_size=36), seeds=1)


def test_sensitivity_of_designs_without_tables_is_refused() -> None:
    graph = capture(nn.Linear(8, 8), torch.empty(4, 8))
    with pytest.raises(ConfigError, match="none of these designs"):
        step_sensitivity(graph, [load_design("h200"), load_design("a100")])
