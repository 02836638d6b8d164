"""Training loops that nobody here wrote: stopped and resumed from their own checkpoints they give the same bits.

Gradients are accumulated over two micro-batches, rounding is stochastic and the formats change at step 3.
"""

import logging
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from presilicon.base import ConfigError
from presilicon.designs import Change, Numerics, RoleFormat
from presilicon.emulation import emulate_, emulate_optimizer_, emulation_of, monitor_trainer
from presilicon.emulation.state.entry import ENTRY
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


def train_with_transformers(folder: Path, checkpoint: Path | None, watch: bool = False) -> Any:
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
        save_steps=SAVED, learning_rate=1e-2, lr_scheduler_type="constant", use_cpu=True, disable_tqdm=True,
        report_to=["tensorboard"] if watch else [], logging_strategy="no",
    )  # fmt: skip
    trainer = transformers.Trainer(model, arguments, train_dataset=[{"input_ids": row, "labels": row} for row in rows])
    emulate_optimizer_(trainer.create_optimizer(), NUMERICS, model=model, seed=3)
    watched = monitor_trainer(trainer, every=2, layers="*.q_proj", roles=["weight"]) if watch else None
    trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
    return trained(model) if watched is None else watched.monitor


def remove_from_safetensors(checkpoint: Path) -> None:
    from safetensors.torch import load_file, save_file

    file = checkpoint / "model.safetensors"
    state = load_file(file)
    del state[ENTRY]
    save_file(state, file, {"format": "pt"})


def train_with_lightning(folder: Path, checkpoint: Path | None, watch: bool = False) -> Any:
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
        max_steps=STEPS, accumulate_grad_batches=2, default_root_dir=folder, enable_progress_bar=False,
        logger=lightning.pytorch.loggers.TensorBoardLogger(folder) if watch else False,
        enable_model_summary=False, accelerator="cpu", callbacks=[saving],
    )  # fmt: skip
    watched = monitor_trainer(trainer, every=2, layers="net.0", roles=["weight"]) if watch else None
    trainer.fit(model, loader, ckpt_path=None if checkpoint is None else checkpoint.with_suffix(".ckpt"))
    return trained(model) if watched is None else watched.monitor


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


def logged(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """The scalars in the TensorBoard files of a folder."""
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    scalars: dict[str, list[tuple[int, float]]] = {}
    for file in sorted(folder.rglob("events.out.tfevents*")):
        events = accumulator.EventAccumulator(str(file)).Reload()
        for tag in events.Tags()["scalars"]:
            scalars.setdefault(tag, []).extend((event.step, event.value) for event in events.Scalars(tag))
    return scalars


@pytest.mark.parametrize(
    ("train", "name"),
    [
        (train_with_transformers, "train/numerics/model.layers.0.self_attn.q_proj/weight/sqnr_db"),
        (train_with_lightning, "numerics/net.0/weight/sqnr_db"),
    ],
)
def test_a_monitored_trainer_logs_each_step_once_with_its_own_loggers(
    train: Callable[..., Any], name: str, tmp_path: Path
) -> None:
    monitor = train(tmp_path, None, watch=True)
    scalars = logged(tmp_path)
    assert [step for step, _ in scalars[name]] == [1, 3, 5]  # steps 0, 2 and 4, counted when they are over
    own = monitor.scalars("train/numerics/" if name.startswith("train/") else "numerics/")
    assert scalars[name][-1][1] == pytest.approx(own[name])
    assert monitor.report().steps == (0, 2, 4)
    assert monitor.report().roles[0].tensors == 2 * 3  # both micro-batches of each monitored step


def test_other_objects_have_no_monitor() -> None:
    with pytest.raises(ConfigError, match=r"monitor\(model\)"):
        monitor_trainer(nn.Linear(2, 2))
