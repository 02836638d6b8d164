"""Signal to rounding noise of a tensor and its quantized twin."""

import math
from typing import Any

from presilicon.designs import Hardware
from presilicon.instrument.aggregations.aggregation import Aggregation
from presilicon.instrument.aggregations.pairs import send_total, sum_first
from presilicon.instrument.aggregations.parts import AggregationCode, FrameContents, Values, accumulate, decode_named
from presilicon.instrument.firmware.language import Firmware
from presilicon.records import ReadingFigure


def build(hardware: Hardware) -> AggregationCode:
    """The energy of q - x and of x, for x and q that alternate."""
    x, error, errors, signal, copy = range(5)
    fw = Firmware()
    with fw.chain():
        fw.cache(x, "first")
    with fw.chain():  # 0 with x, q - x with q
        fw.sub(x)
        fw.cache(error)
        fw.save()
    with fw.chain():
        fw.load()
        fw.mul(error)
        fw.save()
    with fw.chain():
        fw.load()
        accumulate(fw, errors)
    with fw.chain():  # x squared with x
        fw.mul(x)
        fw.save()
    sum_first(fw, signal)
    with fw.chain():
        fw.cache(copy)
    send_total(fw, copy, signal)
    return AggregationCode(fw, _decode)


def _decode(values: Values, contents: FrameContents) -> dict[str, Any]:
    error, signal = decode_named(["error", "signal"])(values, contents).values()
    ratio = 10 * math.log10(signal / error) if error and signal and min(error, signal) > 0 else None
    return {"squared_error": error, "squared_signal": signal, "signal_to_noise_db": ratio}


QUANTIZATION_ERROR = Aggregation(
    gives="energy of the error and signal to noise of a tensor and its quantised twin, in alternating frames",
    build=build,
    pairs="rounding",
    figures=(ReadingFigure("signal_to_noise_db", "Signal to rounding noise, dB"),),
)
