"""Scalars for the loggers of other packages, which are recognised by their methods."""

from collections.abc import Mapping
from typing import Any

from presilicon.base import ConfigError


def log_scalars(writer: Any, scalars: Mapping[str, float], step: int) -> None:
    """Write scalars of a step to TensorBoard (`add_scalar`), Lightning (`log_metrics`) or W&B (`log`).

    Raises:
        ConfigError: the writer has none of these methods.
    """
    if hasattr(writer, "add_scalar"):
        for name, value in scalars.items():
            writer.add_scalar(name, value, step)
    elif hasattr(writer, "log_metrics"):
        writer.log_metrics(dict(scalars), step)
    elif hasattr(writer, "log"):
        writer.log(dict(scalars), step=step)
    else:
        raise ConfigError(
            f"a writer must have add_scalar (TensorBoard's SummaryWriter), log_metrics (a logger of Lightning) or log "
            f"(a W&B run), and {type(writer).__name__} has none"
        )
