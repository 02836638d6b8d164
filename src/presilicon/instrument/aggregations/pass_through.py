"""Every element as it is."""

from collections.abc import Mapping
from typing import Any

from presilicon.designs import Hardware
from presilicon.instrument.aggregations.aggregation import Aggregation
from presilicon.instrument.aggregations.parts import MAX_NUMBERS, AggregationCode, FrameContents, Values, join_vectors
from presilicon.instrument.firmware.language import Firmware


def build(hardware: Hardware) -> AggregationCode:
    """Every vector, unchanged."""
    fw = Firmware()
    with fw.chain():
        fw.commit("N")

    def decode(values: Values, contents: FrameContents) -> dict[str, Any]:
        return {"tensor": join_vectors(values, contents), "vectors": values.reshape(-1, hardware.lanes)}

    return AggregationCode(fw, decode)


def _elements(result: Mapping[str, Any]) -> Any:
    return result["tensor"].ravel()[:MAX_NUMBERS]


PASS_THROUGH = Aggregation(gives="every element as it is", build=build, by_node=_elements)
