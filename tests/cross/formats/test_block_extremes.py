"""Groups at both ends of float32, where a scaled grid can no longer simply be moved: compiled against plain torch."""

import pytest
import torch

from presilicon.formats import Key, Stochastic, parse, quantize
from presilicon.formats.kernels.torch_kernels import draw_words, round_blocks

KEY = Key(seed=1)
FORMATS = [
    "bfp(mantissa=4, group=16)",
    "bfp(mantissa=1, group=4)",
    "bfp(mantissa=23, group=8)",
    "mxint8",
    "mxfp8_e5m2",
    "mxfp8_e4m3",
    "mxfp6_e2m3",
    "mxfp4(scale=rceil)",
    "mxfp6_e3m2(scale=even)",
]
MODES = ["nearest-even", "nearest-away", "toward-zero", "up", "down", Stochastic()]


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("scale", [1e-45, 1e-41, 3e-39, 1e-38, 3e-38, 1e-36, 1.0, 1e36, 3e37, 1e38])
def test_compiled_blocks_equal_plain_torch(name: str, scale: float) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(20, 64, generator=generator).clamp(-3.3, 3.3) * scale
    fmt = parse(name)
    for mode in MODES:
        expected = round_blocks(x, fmt, mode, draw_words(x, mode, KEY))
        found = quantize(x, fmt, rounding=mode, key=KEY)
        assert torch.equal(found.view(torch.int32), expected.view(torch.int32)), mode
