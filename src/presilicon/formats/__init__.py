"""Number formats: how numbers are stored and rounded, bit for bit.

>>> import torch
>>> from presilicon.formats import parse, quantize
>>> quantize(torch.tensor([3.14159]), parse("bfloat16"))
tensor([3.1406])
"""

from presilicon.formats.codes import decode, encode
from presilicon.formats.float import Float
from presilicon.formats.format import Format
from presilicon.formats.grammar import NAMED_FORMATS, parse, parse_rounding
from presilicon.formats.quantization import quantize
from presilicon.formats.rounding import Key, Rounding, Stochastic

__all__ = [
    "NAMED_FORMATS",
    "Float",
    "Format",
    "Key",
    "Rounding",
    "Stochastic",
    "decode",
    "encode",
    "parse",
    "parse_rounding",
    "quantize",
]
