"""Aggregations of the values of one tensor."""

import math
from typing import TYPE_CHECKING, Any

from presilicon.base.errors import ConfigError
from presilicon.designs import Hardware
from presilicon.instrument.aggregation_parts import END, FRESH, Cut, Made, accumulate, expect, named
from presilicon.instrument.firmware import Firmware
from presilicon.instrument.tensors import join_tensor
from presilicon.instrument.words import CLASSES

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def sparsity(hardware: Hardware, each: str = "vector") -> Made:
    """A 1 for each element that is zero, or with `each` = "group" how many a node had in all samples."""
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

    def decode(values: "NDArray[np.float64]", cut: Cut) -> dict[str, Any]:
        zeros = _joined(values, cut)
        if each == "vector":
            is_zero = (zeros != 0).astype(zeros.dtype)
            return {"is_zero": is_zero, "zeros": float(is_zero.sum())}
        if cut.counted("zeros_by_node", float(values.max(initial=0.0))) is None:
            return {"zeros_by_node": None, "zeros": None}
        return {"zeros_by_node": zeros.ravel(), "zeros": float(zeros.sum())}

    return Made(fw, decode, counts="samples" if each == "group" else None)


def summary(hardware: Hardware) -> Made:
    """Sum, zeros, elements, and the ends where the chip has max and min."""
    fw = Firmware()
    fw.class_row(0, ["zero"])
    fw.class_row(1, [CLASSES if hardware.is_float else ("zero", "normal")])
    with fw.chain():
        accumulate(fw, 0)
    for row in (0, 1):
        with fw.chain():
            fw.filter(row)
            fw.reduce("N")
            accumulate(fw, row + 1)
    ends = [name for name in ("min", "max") if name in hardware.alu and name in hardware.reduce]
    for name in ends:
        row = 3 if name == "min" else 4
        with fw.chain():
            (fw.min if name == "min" else fw.max)(row, FRESH)
            fw.cache(row)
            fw.reduce_to(name)
            fw.commit(1, END)
    names = ["sum", "zeros", "elements", *ends]

    def decode(values: "NDArray[np.float64]", cut: Cut) -> dict[str, Any]:
        expect(values, len(names))
        total, zeros, elements, *found = map(float, values)
        counted = cut.count if cut.count is not None else cut.counted("elements", elements)
        result: dict[str, Any] = {"sum": cut.held("sum", total), "zeros": cut.counted("zeros", zeros, cut.padding)}
        result["elements"] = None if counted is None else float(counted)
        for name, value in zip(ends, found, strict=True):
            # Where it is 0 and no element is, it is the zeros of lanes without nodes, which hide it.
            result[name] = None if cut.padding and value == 0 and not result["zeros"] else value
        result["mean"] = result["sum"] / counted if counted and result["sum"] is not None else None
        return result

    return Made(fw, decode, counts="elements")


def predictiveness(hardware: Hardware) -> Made:
    """For each group the largest sum of a node over the samples."""
    fw = Firmware()
    with fw.chain():
        fw.add(0, "notfirst")
        fw.cache(0)
        fw.reduce_to("max")
        fw.commit(1, "last")

    def decode(values: "NDArray[np.float64]", cut: Cut) -> dict[str, Any]:
        if not values.size:
            raise ConfigError("no words, but this aggregation sends one for each group of nodes")
        largest = cut.held("largest_sum", float(values.max()))
        if cut.padding and largest == 0 and not (values[:-1] == 0).any():
            largest = None  # lanes of the last group without nodes hide sums that are all negative
        samples = cut.count // cut.nodes if cut.count is not None and cut.nodes else None
        return {"largest_sum": largest, "largest_mean": largest / samples if samples and largest is not None else None}

    return Made(fw, decode)


def vector_change(hardware: Hardware) -> Made:
    """|x(t) - x(t-1)| of a group's samples, summed, and the largest."""
    fw = Firmware()
    with fw.chain():  # a group's first vector has not changed
        fw.cache(0, "first")
    with fw.chain():
        fw.sub(0)
        fw.save()
    with fw.chain():
        fw.cache(0)
    with fw.chain():
        fw.load()
        fw.abs()
        fw.save()
    with fw.chain():
        fw.load()
        accumulate(fw, 1)
    names = ["sum"]
    if "max" in hardware.alu and "max" in hardware.reduce:
        names.append("max")
        with fw.chain():
            fw.load()
            fw.max(2, FRESH)
            fw.cache(2)
            fw.reduce_to("max")
            fw.commit(1, END)
    return Made(fw, named(names))


def gradient_norm(hardware: Hardware) -> Made:
    """The sum of squares."""
    fw = Firmware()
    with fw.chain():
        fw.cache(0)
    with fw.chain():
        fw.mul(0)
        fw.save()
    with fw.chain():
        fw.load()
        accumulate(fw, 1)

    def decode(values: "NDArray[np.float64]", cut: Cut) -> dict[str, Any]:
        total = named(["squares"])(values, cut)["squares"]
        return {"sum_of_squares": total, "norm": None if total is None else math.sqrt(total)}

    return Made(fw, decode)


def pass_through(hardware: Hardware) -> Made:
    """Every element as it is."""
    fw = Firmware()
    with fw.chain():
        fw.commit("N")

    def decode(values: "NDArray[np.float64]", cut: Cut) -> dict[str, Any]:
        tensor = _joined(values, cut)
        return {"tensor": tensor, "vectors": values.reshape(-1, hardware.lanes)}

    return Made(fw, decode)


def _joined(values: "NDArray[np.float64]", cut: Cut) -> "NDArray[np.float64]":
    """Vectors as they came, or as the tensor they were cut from if its nodes are known."""
    lanes = cut.hardware.lanes
    groups = 1 if cut.nodes is None else -(-cut.nodes // lanes)
    if values.size % (groups * lanes):
        nodes = "" if cut.nodes is None else f" and {cut.nodes} nodes"
        raise ConfigError(f"{values.size} words are no whole vectors of {lanes} lanes{nodes}")
    return join_tensor(values.reshape(-1, lanes), values.size // (groups * lanes), cut.nodes or lanes)
