"""On-chip debug: firmware, bit-exact models, the host side of the live stream.

Names are resolved when they are first used: the models load numpy and numba.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

_HOMES = {
    "Block": "engine",
    "Chain": "image",
    "Engine": "engine",
    "FastModel": "fast",
    "Firmware": "firmware",
    "Image": "image",
    "ImageRefusedError": "image",
    "Instruction": "instructions",
    "RangeRow": "ranges",
    "Reference": "reference",
    "compile_firmware": "compiler",
    "disassemble": "disassembly",
    "read_image": "image",
    "to_words": "words",
    "values_of": "words",
}

__all__ = [
    "Block",
    "Chain",
    "Engine",
    "FastModel",
    "Firmware",
    "Image",
    "ImageRefusedError",
    "Instruction",
    "RangeRow",
    "Reference",
    "compile_firmware",
    "disassemble",
    "read_image",
    "to_words",
    "values_of",
]

if TYPE_CHECKING:
    from presilicon.instrument.compiler import compile_firmware
    from presilicon.instrument.disassembly import disassemble
    from presilicon.instrument.engine import Block, Engine
    from presilicon.instrument.fast import FastModel
    from presilicon.instrument.firmware import Firmware
    from presilicon.instrument.image import Chain, Image, ImageRefusedError, read_image
    from presilicon.instrument.instructions import Instruction
    from presilicon.instrument.ranges import RangeRow
    from presilicon.instrument.reference import Reference
    from presilicon.instrument.words import to_words, values_of


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'presilicon.instrument' has no attribute '{name}'")
    return getattr(import_module(f"presilicon.instrument.{_HOMES[name]}"), name)
