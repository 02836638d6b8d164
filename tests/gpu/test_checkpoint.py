"""A run on a GPU that was broken off goes on to the same bits. By hand, as the other tests here."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import presilicon as ps
from presilicon.emulation import Checkpoint, train
from presilicon.records import Evaluation

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device is seen"),
]


@pytest.mark.parametrize("name", ["fashion-mlp", "fashion-resnet", "shakespeare-gpt"])
@pytest.mark.parametrize("design", ["fp32-systolic", "fp8-systolic"])
def test_a_run_goes_on_to_the_same_bits(tmp_path: Path, name: str, design: str) -> None:
    workload = replace(ps.load_workload(name), target=1.0, max_steps=60, evaluate_every=10)
    numerics = ps.load_design(design).numerics
    unbroken = [train(workload, numerics, device="cuda") for _ in range(2)]
    if unbroken[0] != unbroken[1]:
        pytest.skip("this network's kernels do not repeat themselves on this device")
    kept = Checkpoint(tmp_path / "seed.safetensors", every=2)

    def stop(point: Evaluation) -> None:
        if point.step == 50:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        train(workload, numerics, device="cuda", on_evaluation=stop, checkpoint=kept)
    assert train(workload, numerics, device="cuda", checkpoint=kept) == unbroken[0]
