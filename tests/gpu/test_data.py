"""Data, augmentation, accumulation and schedules on a GPU."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import TensorDataset

from presilicon import Splits, Workload, load_workload
from presilicon.designs import Numerics
from presilicon.emulation import Checkpoint, train
from presilicon.workloads.fashion import shift_and_flip

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device is seen"),
]

OWN = load_workload("fashion-cnn")


def as_data_set() -> Splits:
    assert OWN.data is not None
    splits = OWN.data()
    return Splits(TensorDataset(*splits.train), splits.validation, splits.test)


def short(**changes: Any) -> Workload:
    return replace(
        OWN, max_steps=30, evaluate_every=10, target=1.0, augment=partial(shift_and_flip, pixels=2), **changes
    )


def test_a_data_set_gives_the_bits_of_its_tensors() -> None:
    assert train(short(), Numerics(), device="cuda") == train(short(data=as_data_set), Numerics(), device="cuda")


@pytest.mark.parametrize("data", [OWN.data, as_data_set])
def test_augmented_training_resumes_to_the_same_bits(data: Any, tmp_path: Path) -> None:
    workload = short(data=data, schedule="cosine(warmup=5)", accumulate=2)
    whole = train(workload, Numerics(), device="cuda")
    checkpoint = Checkpoint(tmp_path / "run", every=1)

    class StoppedError(Exception):
        pass

    def stop(point: Any) -> None:
        if point.step == 20:
            raise StoppedError

    with pytest.raises(StoppedError):
        train(workload, Numerics(), device="cuda", checkpoint=checkpoint, on_evaluation=stop)
    assert train(workload, Numerics(), device="cuda", checkpoint=checkpoint) == whole


def test_accumulation_equals_one_batch_to_the_order_of_additions() -> None:
    whole, parts = (train(short(accumulate=count), Numerics(), device="cuda") for count in (1, 4))
    assert parts.losses[:20] == pytest.approx(whole.losses[:20], rel=1e-3)


def test_images_are_augmented_where_they_are() -> None:
    images = torch.rand(64, 1, 28, 28, device="cuda")
    one, other = (shift_and_flip(images, torch.Generator("cuda").manual_seed(3)) for _ in range(2))
    assert one.is_cuda
    assert torch.equal(one, other)
