"""Training loops that nobody here wrote: stopped and resumed from their own checkpoints they give the same bits.

Gradients are accumulated over two micro-batches, rounding is stochastic and the formats change at step 3.
"""

import logging
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from presilicon.designs import Change, Numerics, RoleFormat
from presilicon.emulation import emulate_, emulate_optimizer_, emulation_of
from presilicon.emulation.state import ENTRY
from presilicon.formats import parse

RANDOM = RoleFormat(parse("e4m3"), "stochastic")
NUMERICS = Numerics(
    weight=RANDOM, activation=RANDOM, error=RANDOM, master=RoleFormat(parse("bfloat16"), "stochastic"),
    schedule=(Change(layers="*", from_step=3, weight="e5m2"),),
)  # fmt: skip
STEPS, SAVED = 5, 2
pytestmark = pytest.mark.filterwarnings("ignore")

Trained = tuple[int, str, list[Tensor]]


def trained(model: nn.Module) -> Trained:
    emulation = emulation_of(model)
    return emulation.step, emulation.stream, [parameter.detach().clone() for parameter in model.parameters()]


def train_with_transformers(folder: Path, checkpoint: Path | None) -> Trained:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        transformers = pytest.importorskip("transformers")
        pytest.importorskip("accelerate")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=32, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=16,
    )  # fmt: skip
    model = emulate_(transformers.LlamaForCausalLM(config), NUMERICS, seed=3)
    rows = torch.randint(0, 32, (16, 8), generator=torch.Generator().manual_seed(0))
    arguments = transformers.TrainingArguments(
        output_dir=str(folder), per_device_train_batch_size=2, gradient_accumulation_steps=2, max_steps=STEPS,
        save_steps=SAVED, learning_rate=1e-2, lr_scheduler_type="constant", report_to=[], use_cpu=True,
        disable_tqdm=True, logging_strategy="no",
    )  # fmt: skip
    trainer = transformers.Trainer(model, arguments, train_dataset=[{"input_ids": row, "labels": row} for row in rows])
    emulate_optimizer_(trainer.create_optimizer(), NUMERICS, model=model, seed=3)
    trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
    return trained(model)


def remove_from_safetensors(checkpoint: Path) -> None:
    from safetensors.torch import load_file, save_file

    file = checkpoint / "model.safetensors"
    state = load_file(file)
    del state[ENTRY]
    save_file(state, file, {"format": "pt"})


def train_with_lightning(folder: Path, checkpoint: Path | None) -> Trained:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        lightning = pytest.importorskip("lightning")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))

        def training_step(self, batch: list[Tensor], number: int) -> Tensor:
            return self.net(batch[0]).square().mean()

        def configure_optimizers(self) -> torch.optim.Optimizer:
            optimizer = torch.optim.Adam(self.parameters(), lr=1e-2)
            return emulate_optimizer_(optimizer, NUMERICS, model=self, seed=3)

    torch.manual_seed(0)
    model = emulate_(Module(), NUMERICS, seed=3)
    # A checkpoint of Lightning does not contain the position inside an epoch, so that SAVED steps are an epoch.
    loader = DataLoader(TensorDataset(torch.randn(4 * SAVED, 8)), batch_size=2)
    saving = lightning.pytorch.callbacks.ModelCheckpoint(
        dirpath=folder, every_n_train_steps=SAVED, save_top_k=-1, filename="checkpoint-{step}",
        auto_insert_metric_name=False,
    )  # fmt: skip
    trainer = lightning.Trainer(
        max_steps=STEPS, accumulate_grad_batches=2, default_root_dir=folder, logger=False, enable_progress_bar=False,
        enable_model_summary=False, accelerator="cpu", callbacks=[saving],
    )  # fmt: skip
    trainer.fit(model, loader, ckpt_path=None if checkpoint is None else checkpoint.with_suffix(".ckpt"))
    return trained(model)


def remove_from_lightning(checkpoint: Path) -> None:
    file = checkpoint.with_suffix(".ckpt")
    saved = torch.load(file, weights_only=True)
    del saved["state_dict"][ENTRY]
    torch.save(saved, file)


@pytest.mark.parametrize(
    ("train", "remove"),
    [(train_with_transformers, remove_from_safetensors), (train_with_lightning, remove_from_lightning)],
)
def test_a_resumed_trainer_gives_the_same_bits(
    train: Callable[[Path, Path | None], Trained], remove: Callable[[Path], None], tmp_path: Path
) -> None:
    step, stream, expected = train(tmp_path / "whole", None)
    assert (step, stream) == (STEPS - 1, "pass1/")
    checkpoint = tmp_path / "whole" / f"checkpoint-{SAVED}"
    again = train(tmp_path / "again", checkpoint)
    assert again[:2] == (step, stream)
    assert all(map(torch.equal, expected, again[2]))
    remove(checkpoint)
    lost = train(tmp_path / "lost", checkpoint)
    assert not any(torch.equal(a, b) for a, b in zip(expected, lost[2], strict=True) if a.dim() > 1)
