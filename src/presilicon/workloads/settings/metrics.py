"""Ready-made metrics, by name."""

from __future__ import annotations

from math import exp, inf

from presilicon.base import torch, unknown
from presilicon.workloads.settings.metric import Metric
from presilicon.workloads.workload import argmax_accuracy


def error_rate(output: torch.Tensor, target: torch.Tensor) -> float:
    """One minus the accuracy."""
    return 1 - argmax_accuracy(output, target)


def macro_f1(output: torch.Tensor, target: torch.Tensor) -> float:
    """The mean over all classes of the F1 score, 2 TP / (2 TP + FP + FN), 0 for a class that never occurs.

    The classes are those of the scores; NaN scores count as wrong.
    """
    classes = output.shape[-1]
    expected = target.flatten()
    guess = output.reshape(-1, classes).argmax(dim=-1)
    # A row with a NaN counts as a miss of its class and as a guess of none.
    guess = torch.where(output.reshape(-1, classes).isnan().any(dim=-1), classes, guess)
    right = torch.bincount(expected[guess == expected], minlength=classes)
    guessed = torch.bincount(guess, minlength=classes + 1)[:classes]
    total = guessed + torch.bincount(expected, minlength=classes)
    return float((2 * right / total.clamp(min=1)).double().mean())


def root_mean_square(output: torch.Tensor, target: torch.Tensor) -> float:
    """The root of the mean squared difference of outputs and targets."""
    difference = output.double().flatten() - target.double().flatten()
    return float((difference * difference).mean().sqrt())


def determination(output: torch.Tensor, target: torch.Tensor) -> float:
    """The coefficient of determination: one minus the squared error over the variance of the targets."""
    expected = target.double().flatten()
    error = ((output.double().flatten() - expected) ** 2).sum()
    return float(1 - error / ((expected - expected.mean()) ** 2).sum())


def perplexity(loss: float) -> float:
    """The exponential of a mean cross-entropy in nats."""
    try:
        return exp(loss)
    except OverflowError:
        return inf


METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric(name="accuracy", compute=argmax_accuracy, better="higher", low=0, high=1),
        Metric(name="error rate", compute=error_rate, better="lower", low=0, high=1),
        Metric(name="macro F1", compute=macro_f1, better="higher", over="split", low=0, high=1),
        Metric(name="loss", compute=float, better="lower", over="loss"),
        Metric(name="perplexity", compute=perplexity, better="lower", over="loss", low=1),
        Metric(name="RMSE", compute=root_mean_square, better="lower", over="split", low=0),
        Metric(name="R2", compute=determination, better="higher", over="split", high=1),
    )
}


def load_metric(name: str) -> Metric:
    """A ready-made metric.

    Raises:
        ConfigError: there is none of that name.

    >>> load_metric("RMSE").better
    'lower'
    """
    if name not in METRICS:
        raise unknown("metric", name, METRICS)
    return METRICS[name]
