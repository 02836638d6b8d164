"""Scalars in the files of TensorBoard and W&B, read back."""

from pathlib import Path
from typing import Any

import pytest
import torch
import wandb
from lightning.pytorch.loggers import CSVLogger
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import nn
from torch.utils.tensorboard import SummaryWriter

import presilicon as ps
from presilicon.base import ConfigError
from presilicon.emulation import emulate_

Logged = list[tuple[int, dict[str, float]]]


def train(writer: Any, **options: Any) -> Logged:
    """Six steps of which every second is monitored; returns the scalars that should be logged, by step."""
    model = emulate_(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)), ps.load_numerics("mxfp8"))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    expected: Logged = []
    with ps.monitor(model, every=2) as monitor:
        for step in range(6):
            optimizer.zero_grad()
            model(torch.randn(8, 4)).square().mean().backward()
            optimizer.step()
            logged = monitor.log_to(writer, **options)
            assert logged == (step % 2 == 0)
            if logged:
                expected.append((step, monitor.scalars(options.get("prefix", ""))))
    return expected


def test_tensorboard_reads_back_what_was_logged(tmp_path: Path) -> None:
    with SummaryWriter(str(tmp_path)) as writer:
        expected = train(writer, prefix="numerics/")
    events = EventAccumulator(str(tmp_path)).Reload()
    tags = events.Tags()["scalars"]
    assert "numerics/2/activation/sqnr_db" in tags
    assert set(tags) == {name for _, scalars in expected for name in scalars}
    for tag in tags:
        read = [(event.step, event.value) for event in events.Scalars(tag)]
        assert read == [(step, pytest.approx(scalars[tag], rel=1e-6)) for step, scalars in expected if tag in scalars]


def test_wandb_takes_them_under_the_same_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with wandb.init(mode="disabled", dir=str(tmp_path)) as run:
        calls: Logged = []
        log = run.log
        monkeypatch.setattr(run, "log", lambda data, step: (calls.append((step, data)), log(data, step=step)))
        assert calls == [] != (expected := train(run))
        assert calls == expected


@pytest.mark.slow
def test_wandb_offline_has_the_last_step_in_its_summary(tmp_path: Path) -> None:
    with wandb.init(mode="offline", dir=str(tmp_path), settings=wandb.Settings(silent=True)) as run:
        expected = train(run)
        run.log({}, commit=True)
        summary = dict(run.summary)
    assert {name: summary[name] for name in expected[-1][1]} == pytest.approx(expected[-1][1])


def test_a_logger_of_lightning_and_steps_of_ones_own(tmp_path: Path) -> None:
    logger = CSVLogger(str(tmp_path))
    expected = train(logger, step=7)
    assert [row["step"] for row in logger.experiment.metrics] == [7, 7, 7]
    assert [row["2/weight/sqnr_db"] for row in logger.experiment.metrics] == [
        scalars["2/weight/sqnr_db"] for _, scalars in expected
    ]


def test_a_writer_without_a_method_is_explained() -> None:
    with pytest.raises(ConfigError, match=r"a writer must have add_scalar .* and object has none"):
        train(object())
