"""Monitors inside the trainers of transformers and Lightning, whose own loggers receive the scalars."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from torch import nn

from presilicon.base import ConfigError
from presilicon.emulation.attach import emulated_part, emulation_of
from presilicon.emulation.monitoring.monitor import Monitor, monitor

_PRINTERS = ("PrinterCallback", "ProgressCallback", "NotebookProgressCallback")
"""Callbacks of transformers that print all logs on the console, where hundreds of scalars are in the way."""


def monitor_trainer(trainer: Any, *, prefix: str = "numerics/", **options: Any) -> "TrainerMonitor":
    """Monitor the emulated model of a `transformers.Trainer` or `lightning.Trainer` while it trains.

    After each monitored step the scalars go to the trainer's own loggers: those of `report_to` (TensorBoard, W&B, ...)
    and other callbacks of transformers, the `loggers` of Lightning. Micro-batches that are accumulated count as one
    step.

    Args:
        trainer: the trainer, before it trains.
        prefix: begins the names of the scalars.
        options: those of `monitor`: `every`, `layers`, `roles`, `start`, `stop`, `what_if`, `limits`.

    Raises:
        ConfigError: the trainer is neither, or, when training begins, its model is not emulated or an option is wrong.
    """
    if hasattr(trainer, "callback_handler") and hasattr(trainer, "add_callback"):
        callback = _transformers_callback(trainer, prefix, options)
        trainer.add_callback(callback)
    elif hasattr(trainer, "callbacks") and hasattr(trainer, "fit_loop"):
        callback = _lightning_callback(trainer, prefix, options)
        trainer.callbacks.insert(0, callback)
    else:
        raise ConfigError(
            f"monitor_trainer takes a transformers.Trainer or a lightning.Trainer, not a {type(trainer).__name__}; "
            "in a loop of your own call monitor(model) and log_to(writer)"
        )
    return callback


class TrainerMonitor:
    """The monitor of a trainer's model, from the beginning of its training."""

    def __init__(self, prefix: str, options: Mapping[str, Any]) -> None:
        self._prefix, self._options = prefix, options
        self._model: nn.Module | None = None
        self._monitor: Monitor | None = None

    @property
    def monitor(self) -> Monitor:
        """The monitor, for its report and first failure.

        Raises:
            ConfigError: training has not begun.
        """
        if self._monitor is None:
            raise ConfigError("this trainer has not begun to train, so nothing is monitored yet")
        return self._monitor

    def _begin(self, model: nn.Module) -> None:
        self._end()
        self._model = emulated_part(model) or model
        self._monitor = monitor(self._model, **self._options)

    def _log(self, writer: Any, step: int) -> None:
        """Log a monitored step when its update has ended it."""
        emulation = None if self._model is None else emulation_of(self._model)
        if self._monitor is not None and emulation is not None and emulation.count.updates:
            self._monitor.log_to(writer, step, self._prefix)

    def _end(self) -> None:
        if self._monitor is not None:
            self._monitor.close()


def _transformers_callback(trainer: Any, prefix: str, options: Mapping[str, Any]) -> TrainerMonitor:
    base: Any = import_module("transformers").TrainerCallback

    class Callback(TrainerMonitor, base):  # type: ignore[misc]
        """A callback of `transformers.Trainer`."""

        def on_train_begin(self, args: Any, state: Any, control: Any, model: nn.Module, **kwargs: Any) -> None:
            self._begin(model)

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self._log(_Reporters(self, trainer, args, state, control, kwargs), state.global_step)

        def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self._end()

    return Callback(prefix, options)


class _Reporters:
    """The other callbacks of a `transformers.Trainer` as one writer."""

    def __init__(self, own: TrainerMonitor, trainer: Any, args: Any, state: Any, control: Any, kwargs: Any) -> None:
        callbacks = trainer.callback_handler.callbacks
        self._callbacks = [
            callback for callback in callbacks if callback is not own and type(callback).__name__ not in _PRINTERS
        ]
        self._event, self._kwargs = (args, state, control), kwargs

    def log_metrics(self, metrics: dict[str, float], step: int) -> None:
        """Pass scalars to each; they log them under the trainer's step."""
        for callback in self._callbacks:
            callback.on_log(*self._event, logs=dict(metrics), **self._kwargs)


def _lightning_callback(trainer: Any, prefix: str, options: Mapping[str, Any]) -> TrainerMonitor:
    homes = [kind.__module__ for kind in type(trainer).__mro__]
    is_older = any(home.startswith("pytorch_lightning.") for home in homes)  # the older package of the same makers
    base: Any = import_module("pytorch_lightning" if is_older else "lightning.pytorch").Callback

    class Callback(TrainerMonitor, base):  # type: ignore[misc]
        """A callback of `lightning.Trainer`."""

        def on_train_start(self, trainer: Any, pl_module: nn.Module) -> None:
            self._begin(pl_module)

        def on_train_batch_end(self, trainer: Any, pl_module: nn.Module, *batch: Any) -> None:
            self._log(_Loggers(trainer), trainer.global_step)

        def on_train_end(self, trainer: Any, pl_module: nn.Module) -> None:
            self._end()

        def on_exception(self, trainer: Any, pl_module: nn.Module, exception: BaseException) -> None:
            self._end()

    return Callback(prefix, options)


class _Loggers:
    """The loggers of a `lightning.Trainer` as one writer."""

    def __init__(self, trainer: Any) -> None:
        self._loggers = trainer.loggers

    def log_metrics(self, metrics: dict[str, float], step: int) -> None:
        """Pass scalars to each."""
        for logger in self._loggers:
            logger.log_metrics(metrics, step)
