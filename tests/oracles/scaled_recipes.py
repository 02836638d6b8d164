"""The quantizers of FP8 and FP4 training software, tile by tile in NumPy, from their published arithmetic.

Each takes the largest magnitude of its own tile and returns the dequantized tile and the number that it was multiplied
by. ml_dtypes does the casts to 8 and 4 bits.
"""

from collections.abc import Callable, Iterator

import ml_dtypes
import numpy as np

Array = np.ndarray
Quantizer = Callable[[Array], tuple[Array, np.float32]]

_F32 = np.float32
_LARGEST = np.finfo(np.float32).max
_TYPES = {"e4m3fn": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2}
_TOPS = {"e4m3fn": _F32(448), "e5m2": _F32(57344)}


def over_tiles(x: Array, rows: int, columns: int, quantize: Quantizer) -> tuple[Array, Array]:
    """Each tile of a matrix quantized alone: the values, and the scales in the order of the tiles."""
    values, scales = np.empty_like(x), []
    for window in _windows(x.shape, rows, columns):
        values[window], scale = quantize(x[window])
        scales.append(scale)
    return values, np.array(scales, dtype=np.float32)


def _windows(shape: tuple[int, ...], rows: int, columns: int) -> Iterator[tuple[slice, slice]]:
    for top in range(0, shape[0], rows):
        for left in range(0, shape[1], columns):
            yield slice(top, top + rows), slice(left, left + columns)


def _cast(x: Array, element: str) -> Array:
    return np.clip(x, -_TOPS[element], _TOPS[element]).astype(_TYPES[element]).astype(np.float32)


def transformer_engine(element: str = "e4m3fn", power_of_two: bool = False, margin: int = 0) -> Quantizer:
    """`compute_scale_from_amax` of Transformer Engine, and its cast: the scale is a multiplier before the cast.

    `margin` is that of its delayed scaling.
    """

    def quantize(x: Array) -> tuple[Array, np.float32]:
        amax = np.abs(x).max()
        scale = _F32(1)
        if amax > 0:
            with np.errstate(over="ignore"):
                scale = _TOPS[element] / amax / _F32(2**margin)
            scale = _LARGEST if np.isinf(scale) else scale
            if power_of_two:  # the exponent field alone
                scale = (np.array(scale).view(np.uint32) & np.uint32(0xFF800000)).view(np.float32)[()]
        inverse = _F32(1) / scale
        with np.errstate(over="ignore"):
            return _cast(x * scale, element) * inverse, inverse

    return quantize


def deepseek(x: Array) -> tuple[Array, np.float32]:
    """`act_quant` and `weight_dequant` of DeepSeek-V3's inference code; not for tiles of zeros."""
    scale = np.abs(x).max() / _F32(448)
    return _cast(x / scale, "e4m3fn") * scale, scale


def deepgemm(ue8m0: bool = False) -> Quantizer:
    """`per_token_cast_to_fp8` and `per_block_cast_to_fp8` of DeepGEMM."""

    def quantize(x: Array) -> tuple[Array, np.float32]:
        scale = np.maximum(np.abs(x).max(), _F32(1e-4)) / _F32(448)
        if ue8m0:
            scale = _F32(2.0 ** np.ceil(np.log2(np.float64(scale))))
        return _cast(x * (_F32(1) / scale), "e4m3fn") * scale, scale

    return quantize


def transformer_engine_nvfp4(tensor_amax: np.float32) -> Quantizer:
    """`NVFP4QuantizerRef` of Transformer Engine, with the scale of the tensor in the returned number."""
    encoding = np.minimum(_F32(2688) / tensor_amax, _LARGEST)
    decoding = _F32(1) / encoding

    def quantize(x: Array) -> tuple[Array, np.float32]:
        scale = np.minimum(np.abs(x).max() / _F32(6) * encoding, _F32(448))
        scale = scale.astype(ml_dtypes.float8_e4m3fn).astype(np.float32)
        whole = scale * decoding
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            forward = np.minimum(_F32(1) / whole, _LARGEST)
            units = np.clip(x * forward, -6, 6).astype(ml_dtypes.float4_e2m1fn).astype(np.float32)
        return units * whole, whole

    return quantize
