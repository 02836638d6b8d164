"""Continuous propagation of a perceptron, slot by slot: layers that exchange messages, each with its own weights.

In a slot every layer takes the activation that the layer before it sent in the last slot, and the error that the layer
after it sent. It computes its output with the weights it has, then its gradient and the error for the layer before it,
and updates its weights at once. No layer knows anything about the others. NumPy, float64; products may use weights that
are rounded.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np


class Layer:
    """A linear layer with a ReLU behind it, unless it is the last, and SGD with momentum."""

    def __init__(
        self,
        weight: np.ndarray,
        bias: np.ndarray,
        rate: float,
        momentum: float,
        is_last: bool,
        rounded: Callable[[np.ndarray], np.ndarray] = lambda weight: weight,
    ) -> None:
        self._rounded = rounded
        self.weight, self.bias, self.is_last = weight.copy(), bias.copy(), is_last
        self._rate, self._momentum = rate, momentum
        self._speeds = [np.zeros_like(weight), np.zeros_like(bias)]
        self._waiting: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        self.updates, self.ages = 0, []
        self._seen: dict[int, int] = {}

    def forward(self, sample: int, activation: np.ndarray) -> np.ndarray:
        """The output for a sample; its input and its sign wait for the error."""
        result = self._rounded(self.weight) @ activation + self.bias
        self._waiting[sample] = activation, result > 0
        self._seen[sample] = self.updates
        return result if self.is_last else np.maximum(result, 0.0)

    def backward(self, sample: int, error: np.ndarray) -> np.ndarray:
        """The error for the layer before; the weights are updated."""
        activation, is_positive = self._waiting.pop(sample)
        self.ages.append(self.updates - self._seen.pop(sample))
        if not self.is_last:
            error = error * is_positive
        passed_on = self._rounded(self.weight).T @ error
        for index, (value, gradient) in enumerate([(self.weight, np.outer(error, activation)), (self.bias, error)]):
            self._speeds[index] = self._momentum * self._speeds[index] + gradient
            value -= self._rate * self._speeds[index]
        self.updates += 1
        return passed_on


def run_slots(layers: Sequence[Layer], samples: Iterator[tuple[np.ndarray, int]]) -> None:
    """All samples through the pipeline, until it is empty again."""
    count = len(layers)
    forward: dict[int, tuple[int, np.ndarray]] = {}
    backward: dict[int, tuple[int, np.ndarray]] = {}
    labels: dict[int, int] = {}
    number, is_open = 0, True
    while is_open or forward or backward:
        entering = next(samples, None)
        is_open = entering is not None
        if entering is not None:
            forward[0] = number, entering[0]
            labels[number] = entering[1]
            number += 1
        next_forward: dict[int, tuple[int, np.ndarray]] = {}
        next_backward: dict[int, tuple[int, np.ndarray]] = {}
        for position, layer in enumerate(layers):
            if position in forward:
                sample, activation = forward[position]
                result = layer.forward(sample, activation)
                if position == count - 1:
                    backward[position] = sample, _loss_error(result, labels.pop(sample))
                else:
                    next_forward[position + 1] = sample, result
            if position in backward:
                sample, error = backward[position]
                passed_on = layer.backward(sample, error)
                if position:
                    next_backward[position - 1] = sample, passed_on
        forward, backward = next_forward, next_backward


def _loss_error(scores: np.ndarray, label: int) -> np.ndarray:
    """Gradient of the cross-entropy."""
    powers = np.exp(scores - scores.max())
    error = powers / powers.sum()
    error[label] -= 1.0
    return error
