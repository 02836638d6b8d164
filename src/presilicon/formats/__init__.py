"""Number formats: how numbers are stored and rounded, bit for bit.

>>> import torch
>>> from presilicon.formats import parse, quantize
>>> quantize(torch.tensor([3.14159]), parse("bfloat16"))
tensor([3.1406])
"""

from presilicon.formats.block import BlockFloat, Mx, Nvfp4
from presilicon.formats.codes import decode, encode
from presilicon.formats.describe import Description, describe
from presilicon.formats.fixed import Fixed, Integer
from presilicon.formats.float import Float
from presilicon.formats.format import Format
from presilicon.formats.grammar import NAMED_FORMATS, parse, parse_rounding, register
from presilicon.formats.listed import Logarithmic, Table
from presilicon.formats.mac import MacUnit
from presilicon.formats.matmul import matmul
from presilicon.formats.posit import Posit
from presilicon.formats.quantization import quantize
from presilicon.formats.rounder import rounder
from presilicon.formats.rounding import Key, Rounding, Stochastic
from presilicon.formats.user import UserFormat

__all__ = [
    "NAMED_FORMATS",
    "BlockFloat",
    "Description",
    "Fixed",
    "Float",
    "Format",
    "Integer",
    "Key",
    "Logarithmic",
    "MacUnit",
    "Mx",
    "Nvfp4",
    "Posit",
    "Rounding",
    "Stochastic",
    "Table",
    "UserFormat",
    "decode",
    "describe",
    "encode",
    "matmul",
    "parse",
    "parse_rounding",
    "quantize",
    "register",
    "rounder",
]
