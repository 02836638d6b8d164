"""Number formats: how numbers are stored and rounded, bit for bit.

>>> import torch
>>> from presilicon.formats import parse, quantize
>>> quantize(torch.tensor([3.14159]), parse("bfloat16"))
tensor([3.1406])
"""

from presilicon.formats.codes import BlockCodes, decode, encode
from presilicon.formats.describe import Description, describe, special_results
from presilicon.formats.families.block import BlockFloat
from presilicon.formats.families.fixed import Fixed
from presilicon.formats.families.float import Float
from presilicon.formats.families.integer import Integer
from presilicon.formats.families.logarithmic import Logarithmic
from presilicon.formats.families.mx import Mx
from presilicon.formats.families.nvfp import Nvfp4
from presilicon.formats.families.posit import Posit
from presilicon.formats.families.scaled import Scaled
from presilicon.formats.families.table import Table
from presilicon.formats.families.user import UserFormat
from presilicon.formats.format import Format
from presilicon.formats.grammar import (
    FAMILIES,
    NAMED_FORMATS,
    named_formats,
    parse,
    parse_rounding,
    register,
    short_name,
)
from presilicon.formats.kernels.passes import has_numba, has_triton, key_bank
from presilicon.formats.kernels.reference import quantize_value
from presilicon.formats.kernels.user_steps import exact_step, function_behind, user_step
from presilicon.formats.mac.factored import Factored, code_format, factored
from presilicon.formats.mac.matmul import matmul
from presilicon.formats.mac.patches import Patches
from presilicon.formats.mac.processing import NAMED_UNITS, ProcessingUnit, VectorUnit, parse_unit, register_unit
from presilicon.formats.mac.tensor_core import has_tensor_cores, tensor_core, typed_operand
from presilicon.formats.mac.unit import MacUnit
from presilicon.formats.quantization import quantize, quantize_all_
from presilicon.formats.rounder import rounder
from presilicon.formats.rounding import Key, Rounding, Stochastic, random_word

__all__ = [
    "FAMILIES",
    "NAMED_FORMATS",
    "NAMED_UNITS",
    "BlockCodes",
    "BlockFloat",
    "Description",
    "Factored",
    "Fixed",
    "Float",
    "Format",
    "Integer",
    "Key",
    "Logarithmic",
    "MacUnit",
    "Mx",
    "Nvfp4",
    "Patches",
    "Posit",
    "ProcessingUnit",
    "Rounding",
    "Scaled",
    "Stochastic",
    "Table",
    "UserFormat",
    "VectorUnit",
    "code_format",
    "decode",
    "describe",
    "encode",
    "exact_step",
    "factored",
    "function_behind",
    "has_numba",
    "has_tensor_cores",
    "has_triton",
    "key_bank",
    "matmul",
    "named_formats",
    "parse",
    "parse_rounding",
    "parse_unit",
    "quantize",
    "quantize_all_",
    "quantize_value",
    "random_word",
    "register",
    "register_unit",
    "rounder",
    "short_name",
    "special_results",
    "tensor_core",
    "typed_operand",
    "user_step",
]
