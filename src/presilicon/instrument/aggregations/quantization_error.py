"""Signal to rounding noise of a tensor and its quantized twin."""

import math
from typing import Any

from presilicon.designs import Hardware
from presilicon.instrument.aggregations.aggregation import Aggregation
from presilicon.instrument.aggregations.pairs import clear_row, send_total, sum_first, sum_second
from presilicon.instrument.aggregations.parts import AggregationCode, FrameContents, Values, decode_named
from presilicon.instrument.firmware.language import Firmware
from presilicon.records import ReadingFigure


def build(hardware: Hardware) -> AggregationCode:
    """The energy of q - x and of x, for x and q that alternate."""
    x, error, errors, signal = range(4)
    fw = Firmware()
    clear_row(fw, errors)
    with fw.chain():
        fw.cache(x, "first")
    with fw.chain():  # q - x with q; what comes with x is not used
        fw.sub(x)
        fw.cache(error)
        fw.save()
    with fw.chain():
        fw.load()
        fw.mul(error)
        fw.save()
    sum_second(fw, errors)
    with fw.chain():  # x squared with x
        fw.mul(x)
        fw.save()
    sum_first(fw, signal)
    send_total(fw, signal)
    return AggregationCode(fw, _decode)


def _decode(values: Values, contents: FrameContents) -> dict[str, Any]:
    error, signal = decode_named(["error", "signal"])(values, contents).values()
    ratio = None if signal is None or not error else _decibels(signal / error)
    return {"squared_error": error, "squared_signal": signal, "signal_to_noise_db": ratio}


def _decibels(ratio: float) -> float:
    """A ratio of energies in dB; -inf for 0."""
    return 10 * math.log10(ratio) if ratio else -math.inf


QUANTIZATION_ERROR = Aggregation(
    gives="energy of the error and signal to noise of a tensor and its quantised twin, in alternating frames",
    build=build,
    pairs="rounding",
    figures=(ReadingFigure("signal_to_noise_db", "Signal to rounding noise, dB"),),
)
