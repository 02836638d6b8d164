"""On-chip debug: firmware, bit-exact models, the host side of the live stream.

`FastModel` is imported when it is first used: it loads numpy and numba.
"""

from typing import TYPE_CHECKING

from presilicon.base import deferred
from presilicon.instrument.aggregations.aggregation import (
    AGGREGATIONS,
    Aggregation,
    BuiltAggregation,
    RunningAverage,
    aggregation,
    describe_aggregations,
)
from presilicon.instrument.aggregations.parts import AggregationCode, FrameContents, accumulate, decode_named
from presilicon.instrument.firmware.compiler import compile_firmware
from presilicon.instrument.firmware.disassembly import chain_text, disassemble
from presilicon.instrument.firmware.files import read_chains, read_firmware, read_hardware, read_vectors
from presilicon.instrument.firmware.image import Chain, Image, ImageRefusedError, read_image
from presilicon.instrument.firmware.instructions import Instruction
from presilicon.instrument.firmware.language import Firmware
from presilicon.instrument.firmware.ranges import RangeRow
from presilicon.instrument.host.control import (
    CONTROL_FILE,
    Answer,
    Command,
    Commands,
    Repeated,
    Resumed,
    program_tap,
    set_learning_rate,
    set_ranges,
    set_sampling,
)
from presilicon.instrument.host.host import Host, check_taps
from presilicon.instrument.host.link import FileLink, connect
from presilicon.instrument.host.listener import Listener
from presilicon.instrument.host.lockstep import Agreement, LockstepEngine, compare_streams
from presilicon.instrument.host.stream import PACKET_OVERHEAD, REFUSALS, Status, StreamWriter
from presilicon.instrument.host.taps import wire_taps
from presilicon.instrument.host.token import TOKEN_FILE, TOKEN_VARIABLE, client_token
from presilicon.instrument.host.training import CommandSource, TrainingInstrument
from presilicon.instrument.host.watch_view import render_watch
from presilicon.instrument.model.engine import InstrumentEngine, PackedBlock, Settings, check_feed, check_tap
from presilicon.instrument.model.reference import Reference
from presilicon.instrument.model.words import to_words, values_of

if TYPE_CHECKING:
    from presilicon.instrument.model.fast import FastModel

__getattr__ = deferred(__name__)

__all__ = [
    "AGGREGATIONS",
    "CONTROL_FILE",
    "PACKET_OVERHEAD",
    "REFUSALS",
    "TOKEN_FILE",
    "TOKEN_VARIABLE",
    "Aggregation",
    "AggregationCode",
    "Agreement",
    "Answer",
    "BuiltAggregation",
    "Chain",
    "Command",
    "CommandSource",
    "Commands",
    "FastModel",
    "FileLink",
    "Firmware",
    "FrameContents",
    "Host",
    "Image",
    "ImageRefusedError",
    "Instruction",
    "InstrumentEngine",
    "Listener",
    "LockstepEngine",
    "PackedBlock",
    "RangeRow",
    "Reference",
    "Repeated",
    "Resumed",
    "RunningAverage",
    "Settings",
    "Status",
    "StreamWriter",
    "TrainingInstrument",
    "accumulate",
    "aggregation",
    "chain_text",
    "check_feed",
    "check_tap",
    "check_taps",
    "client_token",
    "compare_streams",
    "compile_firmware",
    "connect",
    "decode_named",
    "describe_aggregations",
    "disassemble",
    "program_tap",
    "read_chains",
    "read_firmware",
    "read_hardware",
    "read_image",
    "read_vectors",
    "render_watch",
    "set_learning_rate",
    "set_ranges",
    "set_sampling",
    "to_words",
    "values_of",
    "wire_taps",
]
