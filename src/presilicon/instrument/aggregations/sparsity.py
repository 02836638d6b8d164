"""Which elements are zero."""

from collections.abc import Mapping
from typing import Any

from presilicon.base import ConfigError
from presilicon.designs import Hardware
from presilicon.instrument.aggregations.aggregation import Aggregation
from presilicon.instrument.aggregations.parts import AggregationCode, FrameContents, Values, join_vectors
from presilicon.instrument.firmware.language import Firmware
from presilicon.records import ReadingFigure

SHARE_OF_ZEROS = ReadingFigure("sparsity", "Share of zeros", percent=True)


def build(hardware: Hardware, each: str = "vector") -> AggregationCode:
    """A 1 for each element that is zero, or with `each` = "group" the number of zeros per node over all samples."""
    if each not in ("vector", "group"):
        raise ConfigError(f'each is {each!r}, expected "vector" or "group"')
    fw = Firmware()
    fw.class_row(0, ["zero"])
    with fw.chain():
        fw.filter(0)
        fw.reduce("N")
        if each == "group":
            fw.add(0, "notfirst")
            fw.cache(0)
        fw.commit("N", *(["last"] if each == "group" else []))

    def decode(values: Values, contents: FrameContents) -> dict[str, Any]:
        zeros = join_vectors(values, contents)
        if each == "vector":
            is_zero = (zeros != 0).astype(zeros.dtype)
            return {"is_zero": is_zero, "zeros": float(is_zero.sum())}
        if contents.check_count("zeros_by_node", float(values.max(initial=0.0))) is None:
            return {"zeros_by_node": None, "zeros": None}
        return {"zeros_by_node": zeros.ravel(), "zeros": float(zeros.sum())}

    return AggregationCode(fw, decode, counts="samples" if each == "group" else None)


def _zeros_by_node(result: Mapping[str, Any]) -> Any:
    return result["is_zero"].mean(axis=0) if "is_zero" in result else result["zeros_by_node"]


SPARSITY = Aggregation(
    gives="which elements are zero, and how many",
    build=build,
    options=("each",),
    shares={"sparsity": "zeros"},
    by_node=_zeros_by_node,
    figures=(SHARE_OF_ZEROS,),
)
