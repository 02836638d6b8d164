"""Inputs that exercise every branch of a rounding: shared by the comparisons."""

import numpy as np
import torch


def bfloat16_patterns() -> torch.Tensor:
    """Every bfloat16 bit pattern, upcast to float32."""
    bits = np.arange(1 << 16, dtype=np.uint32) << np.uint32(16)
    return torch.from_numpy(bits.view(np.float32))


def random_patterns(count: int, seed: int = 0) -> torch.Tensor:
    """Uniformly random float32 bit patterns: NaN, infinities and subnormals included."""
    bits = np.random.default_rng(seed).integers(0, 1 << 32, count, dtype=np.uint32)
    return torch.from_numpy(bits.view(np.float32))


def near_ties(values: np.ndarray) -> torch.Tensor:
    """The midpoints of neighbouring values, the values themselves, and the float32 on each side of both."""
    finite = np.unique(values[np.isfinite(values)].astype(np.float64))
    middle = (finite[1:] + finite[:-1]) / 2
    points = np.concatenate([finite, middle]).astype(np.float32)
    around = [points, np.nextafter(points, np.float32(np.inf)), np.nextafter(points, np.float32(-np.inf))]
    return torch.from_numpy(np.concatenate(around))


def same_bits(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Where two float32 tensors hold the same bits, any NaN being equal to any other."""
    return (a.view(torch.int32) == b.view(torch.int32)) | (a.isnan() & b.isnan())
