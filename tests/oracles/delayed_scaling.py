"""Transformer Engine's delayed scaling of one tensor, in NumPy, from its documentation: no code is shared with ours.

A history of `length` magnitudes, the running pass first. After a pass: amax from the history (the largest, or that of
the pass), scale = largest / amax / 2^margin unless amax is zero or not finite, then the history rolls by one to the
left and its first entry becomes zero. Values are multiplied by the scale, clamped, cast to FP8, and divided back by
multiplication with the reciprocal of the scale.
"""

import numpy as np
import torch


class Delayed:
    def __init__(self, dtype: torch.dtype, length: int, margin: int = 0, rule: str = "max") -> None:
        self.dtype, self.margin, self.rule = dtype, margin, rule
        self.largest = np.float32(torch.finfo(dtype).max)
        self.history = np.zeros(length, np.float32)
        self.scale = np.float32(1)

    def cast(self, x: np.ndarray) -> np.ndarray:
        self.history[0] = max(self.history[0], np.abs(x).max())
        scaled = torch.from_numpy(np.clip(x * self.scale, -self.largest, self.largest))
        return scaled.to(self.dtype).float().numpy() * (np.float32(1) / self.scale)

    def end_pass(self) -> None:
        amax = self.history.max() if self.rule == "max" else self.history[0]
        if np.isfinite(amax) and amax > 0:
            self.scale = self.largest / amax / np.float32(2**self.margin)
        self.history = np.roll(self.history, -1)
        self.history[0] = 0
