"""Ready-made firmware, each with the host's part: what is computed on the chip, and what is made of the words it sends.

An outer frame is one tensor, cut by `tensors.cut_tensor`; two tensors of an aggregation of pairs by `cut_pair`. Lanes
beyond the last node are 0: `decode` takes them out of its results if it is told the nodes.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from presilicon.base.errors import ConfigError, did_you_mean, unknown
from presilicon.designs import Hardware
from presilicon.formats import Fixed, Integer
from presilicon.instrument.firmware import Firmware
from presilicon.instrument.histograms import percentiles, tracking_boundaries
from presilicon.instrument.ranges import RangeRow
from presilicon.instrument.words import CLASSES, values_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Decoder = Callable[["NDArray[np.float64]", "Cut"], dict[str, Any]]
PERCENTILES = (15, 50, 85)
_FRESH = "notfirst@1"
_END = "last@1"


@dataclass(frozen=True)
class Cut:
    """What the host knows of the tensor behind a frame; None where it does not."""

    hardware: Hardware
    count: int | None = None
    nodes: int | None = None

    @property
    def padding(self) -> int:
        """Zeros that stand where there are no nodes; 0 where nothing is known."""
        if self.nodes is None or self.count is None:
            return 0
        return -self.nodes % self.hardware.lanes * (self.count // self.nodes)


@dataclass(frozen=True)
class Aggregation:
    """Firmware and what the host makes of its words."""

    name: str
    hardware: Hardware
    firmware: Firmware
    gives: str
    pairs: bool
    """Whether frames are two tensors in turns."""
    decoder: Decoder
    boundaries: tuple[float, ...] = ()
    """Of the bins, where it has any."""

    def decode(self, words: Any, *, count: int | None = None, nodes: int | None = None) -> dict[str, Any]:
        """The results of one outer frame, by their names.

        `words` are all words of the frame, one block after the other. `count` is the number of elements of the tensor
        (of one of them, in pairs) and `nodes` its last dimension.

        Raises:
            ConfigError: there are more or fewer words than such a frame has.
        """
        import numpy as np

        values = values_of(self.hardware, np.asarray(words, dtype=np.int64).ravel())
        return self.decoder(values, Cut(self.hardware, count, nodes))

    def tracking_rows(self, counts: Sequence[float]) -> dict[int, RangeRow]:
        """Range rows that follow a distribution of which these counts were seen: what NormCheck sends back."""
        step = 2.0**-self.hardware.fraction_bits if not self.hardware.is_float else 2.0**-12
        return _bin_rows(tracking_boundaries(self.boundaries, counts, least=len(counts) * step), self.hardware)

    def with_boundaries(self, boundaries: Sequence[float]) -> "Aggregation":
        """The same with other bins."""
        return aggregation(self.name, self.hardware, boundaries=list(boundaries))


def aggregation(name: str, hardware: Hardware, **options: Any) -> Aggregation:
    """The aggregation of a name for a hardware.

    >>> shown = aggregation("summary", Hardware(lanes=4, ranges=4))
    >>> print(shown.firmware)
    chain 1: vv_add(0, notfirst@1) v_cache(0) v_reduce(sum) v_commit(1, last@1)
    chain 2: vv_filter(0) m_reduce(N) vv_add(1, notfirst@1) v_cache(1) v_reduce(sum) v_commit(1, last@1)
    chain 3: vv_filter(1) m_reduce(N) vv_add(2, notfirst@1) v_cache(2) v_reduce(sum) v_commit(1, last@1)
    chain 4: vv_min(3, notfirst@1) v_cache(3) v_reduce(min) v_commit(1, last@1)
    chain 5: vv_max(4, notfirst@1) v_cache(4) v_reduce(max) v_commit(1, last@1)

    Raises:
        ConfigError: there is no such aggregation, or no such option, or a value that cannot be.
    """
    if name not in AGGREGATIONS:
        raise unknown("aggregation", str(name), AGGREGATIONS)
    kind = AGGREGATIONS[name]
    for option in options:
        if option not in kind.options:
            allowed = did_you_mean(option, kind.options) if kind.options else "it has none"
            raise ConfigError(f'aggregation {name}: unknown option "{option}": {allowed}')
    try:
        made = kind.make(hardware, **options)
    except ConfigError as error:
        raise ConfigError(f"aggregation {name}: {error}") from None
    return Aggregation(name, hardware, made.firmware, kind.gives, kind.pairs, made.decoder, made.boundaries)


def describe_aggregations(hardware: Hardware) -> list[dict[str, Any]]:
    """Every aggregation with its chains and cycles on a hardware, or why it cannot run there."""
    from presilicon.instrument.compiler import compile_firmware

    rows = []
    for name, kind in AGGREGATIONS.items():
        row: dict[str, Any] = {"name": name, "gives": kind.gives, "pairs": kind.pairs, "options": list(kind.options)}
        row |= {"chains": None, "initiation_interval": None, "refused": None}
        try:
            image = compile_firmware(aggregation(name, hardware).firmware, hardware)
            row |= {"chains": len(image.chains or ()), "initiation_interval": image.initiation_interval(0)}
        except ConfigError as error:
            row["refused"] = str(error)
        rows.append(row)
    return rows


@dataclass(frozen=True)
class _Made:
    firmware: Firmware
    decoder: Decoder
    boundaries: tuple[float, ...] = ()


@dataclass(frozen=True)
class _Kind:
    make: Callable[..., _Made]
    gives: str
    options: tuple[str, ...] = ()
    pairs: bool = False


def _accumulate(fw: Firmware, row: int, size: int | str = 1) -> None:
    """Add to a row from frame's begin to end, and send it then."""
    fw.add(row, _FRESH)
    fw.cache(row)
    if size == 1:
        fw.total()
    fw.commit(size, _END)


def _named(names: Sequence[str]) -> Decoder:
    """A decoder of words that are results as they are."""

    def decode(values: "NDArray[np.float64]", cut: Cut) -> dict[str, Any]:
        _expect(values, len(names))
        return dict(zip(names, map(float, values), strict=True))

    return decode


def _expect(values: "NDArray[np.float64]", wanted: int) -> None:
    if values.size != wanted:
        raise ConfigError(f"{values.size} words, but this aggregation sends {wanted} for an outer frame")


def _bin_rows(boundaries: Sequence[float], hardware: Hardware) -> dict[int, RangeRow]:
    """Bins in rows of M; a last row that is not full is filled with empty ranges."""
    size = hardware.ranges
    rows = {}
    for number, begin in enumerate(range(0, len(boundaries) - 1, size)):
        part = list(boundaries[begin : begin + size + 1])
        rows[number] = RangeRow.of_boundaries(part + [part[-1]] * (size + 1 - len(part)))
    return rows


def _bins(hardware: Hardware, bins: int, low: float, high: float, boundaries: Sequence[Any] | None) -> list[float]:
    """Boundaries as they were given, or even ones between low and high with everything else in the outer bins."""
    if boundaries is not None:
        given = list(RangeRow.of_boundaries(boundaries).boundaries)
        if len(given) < 2 or any(math.isnan(value) for value in given) or given != sorted(given):
            raise ConfigError("boundaries are at least two numbers that never decrease")
        return given
    if isinstance(bins, bool) or not isinstance(bins, int) or not 1 <= bins <= 4096:
        raise ConfigError(f"bins is {bins!r}, expected 1 to 4096")
    if not (isinstance(low, int | float) and isinstance(high, int | float) and low < high):
        raise ConfigError(f"low is {low!r} and high {high!r}, expected two numbers, the smaller first")
    inner = [low + (high - low) * place / bins for place in range(1, bins)]
    return [-math.inf, *inner, math.inf]


def _distribution(
    hardware: Hardware, bins: int = 64, low: float = -1.0, high: float = 1.0, boundaries: Sequence[Any] | None = None
) -> _Made:
    edges = _bins(hardware, bins, low, high, boundaries)
    fw = Firmware()
    fw.rows |= _bin_rows(edges, hardware)
    for row in fw.rows:
        with fw.chain():
            fw.filter(row)
            fw.reduce("M")
            _accumulate(fw, row, "M")

    def decode(values: "NDArray[np.float64]", cut: Cut) -> dict[str, Any]:
        _expect(values, len(fw.rows) * hardware.ranges)
        counts = [float(value) for value in values[: len(edges) - 1]]
        for place in range(len(counts)):
            if edges[place] < 0 <= edges[place + 1]:
                counts[place] -= cut.padding
        return {"counts": counts, "boundaries": edges}

    return _Made(fw, decode, tuple(edges))


def _norm_check(
    hardware: Hardware, bins: int = 64, low: float = -1.0, high: float = 1.0, boundaries: Sequence[Any] | None = None
) -> _Made:
    made = _distribution(hardware, bins, low, high, boundaries)

    def decode(values: "NDArray[np.float64]", cut: Cut) -> dict[str, Any]:
        result = made.decoder(values, cut)
        found = percentiles(made.boundaries, result["counts"], PERCENTILES)
        return result | {f"p{which}": value for which, value in zip(PERCENTILES, found, strict=True)}

    return _Made(made.firmware, decode, made.boundaries)


def _sparsity(hardware: Hardware, each: str = "vector") -> _Made:
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
        zeros = values.reshape(-1, hardware.lanes)
        if cut.nodes is not None:
            groups = -(-cut.nodes // hardware.lanes)
            if len(zeros) % groups:
                raise ConfigError(f"{values.size} words are not those of {cut.nodes} nodes")
            from presilicon.instrument.tensors import join_tensor

            zeros = join_tensor(zeros, len(zeros) // groups, cut.nodes)
        if each == "vector":
            return {"is_zero": zeros, "zeros": float(zeros.sum())}
        return {"zeros_by_node": zeros.ravel(), "zeros": float(zeros.sum())}

    return _Made(fw, decode)


def _summary(hardware: Hardware) -> _Made:
    fw = Firmware()
    fw.class_row(0, ["zero"])
    fw.class_row(1, [CLASSES if hardware.is_float else ("zero", "normal")])
    with fw.chain():
        _accumulate(fw, 0)
    for row in (0, 1):
        with fw.chain():
            fw.filter(row)
            fw.reduce("N")
            _accumulate(fw, row + 1)
    ends = [name for name in ("min", "max") if name in hardware.alu and name in hardware.reduce]
    for name in ends:
        row = 3 if name == "min" else 4
        with fw.chain():
            (fw.min if name == "min" else fw.max)(row, _FRESH)
            fw.cache(row)
            fw.reduce_to(name)
            fw.commit(1, _END)
    names = ["sum", "zeros", "elements", *ends]

    def decode(values: "NDArray[np.float64]", cut: Cut) -> dict[str, Any]:
        result: dict[str, Any] = _named(names)(values, cut)
        for name in ("zeros", "elements"):
            result[name] -= cut.padding
        for name in ends:
            if cut.padding and result[name] == 0:
                result[name] = None  # the zeros of lanes without nodes hide it
        result["mean"] = result["sum"] / result["elements"] if result["elements"] else None
        return result

    return _Made(fw, decode)


def _predictiveness(hardware: Hardware) -> _Made:
    fw = Firmware()
    with fw.chain():
        fw.add(0, "notfirst")
        fw.cache(0)
        fw.reduce_to("max")
        fw.commit(1, "last")

    def decode(values: "NDArray[np.float64]", cut: Cut) -> dict[str, Any]:
        if not values.size:
            raise ConfigError("no words, but this aggregation sends one for each group of nodes")
        largest = float(values.max())
        samples = cut.count // cut.nodes if cut.count is not None and cut.nodes else None
        return {"largest_sum": largest, "largest_mean": largest / samples if samples else None}

    return _Made(fw, decode)


def _invalidity(hardware: Hardware) -> _Made:
    if not hardware.is_float:
        return _saturation(hardware)
    names = CLASSES[:4]
    fw = Firmware()
    for row, begin in enumerate(range(0, len(names), hardware.ranges)):
        fw.class_row(row, names[begin : begin + hardware.ranges])
        with fw.chain():
            fw.filter(row)
            fw.reduce("M")
            _accumulate(fw, row, "M")

    def decode(values: "NDArray[np.float64]", cut: Cut) -> dict[str, Any]:
        _expect(values, len(fw.rows) * hardware.ranges)
        result = dict(zip(names, map(float, values), strict=False))
        return result | {"total": sum(result.values())}

    return _Made(fw, decode)


def _saturation(hardware: Hardware) -> _Made:
    """Fixed point has no NaN and no infinities: elements at the ends of its range are what has gone wrong."""
    element = hardware.element
    assert isinstance(element, Fixed | Integer)
    step = 2.0**-hardware.fraction_bits
    largest = ((1 << hardware.element_bits - 1) - 1) * step
    made = _distribution(hardware, boundaries=[-math.inf, -largest - step, largest - step, math.inf])

    def decode(values: "NDArray[np.float64]", cut: Cut) -> dict[str, Any]:
        low, _, high = made.decoder(values, cut)["counts"]
        return {"saturated_low": low, "saturated_high": high, "total": low + high}

    return _Made(made.firmware, decode)


def _vector_change(hardware: Hardware) -> _Made:
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
        _accumulate(fw, 1)
    names = ["sum"]
    if "max" in hardware.alu and "max" in hardware.reduce:
        names.append("max")
        with fw.chain():
            fw.load()
            fw.max(2, _FRESH)
            fw.cache(2)
            fw.reduce_to("max")
            fw.commit(1, _END)
    return _Made(fw, _named(names))


def _square(fw: Firmware, row: int) -> None:
    """The carried vector becomes the square of the input, which goes through a row."""
    with fw.chain():
        fw.cache(row)
    with fw.chain():
        fw.mul(row)
        fw.save()


def _clear(fw: Firmware, copy: int, row: int) -> None:
    """Put zeros in a row at the begin of an outer frame; `copy` holds the input."""
    with fw.chain():
        fw.sub(copy)
        fw.cache(row, "first@1")


def _second(fw: Firmware, row: int, *, carried: bool = True) -> None:
    """Sum up what comes with the second vector of each pair, in a row that was cleared."""
    with fw.chain():
        if carried:
            fw.load()
        fw.add(row)
        fw.cache(row, "last")
        fw.total()
        fw.commit(1, _END)


def _first(fw: Firmware, row: int) -> None:
    """Sum up the carried vector with the first vector of each pair."""
    with fw.chain():
        fw.load()
        fw.add(row, _FRESH)
        fw.cache(row, "first")


def _send(fw: Firmware, copy: int, row: int) -> None:
    """Send the total of a row at the end: zero plus the row."""
    with fw.chain():
        fw.sub(copy)
        fw.save()
    with fw.chain():
        fw.load()
        fw.add(row)
        fw.total()
        fw.commit(1, _END)


def _correlation(hardware: Hardware) -> _Made:
    x, both, y, xy, yy, copy, squares = range(7)
    fw = Firmware()
    with fw.chain():
        fw.cache(x, "first")
    with fw.chain():
        fw.cache(copy)
    for row in (y, xy, yy):
        _clear(fw, copy, row)
    with fw.chain():
        fw.mul(x)
        fw.save()
    with fw.chain():
        _accumulate(fw, both)
    _second(fw, y, carried=False)
    _second(fw, xy)
    with fw.chain():
        fw.mul(copy)
        fw.save()
    with fw.chain():
        fw.load()
        _accumulate(fw, squares)
    _second(fw, yy)

    def decode(values: "NDArray[np.float64]", cut: Cut) -> dict[str, Any]:
        _expect(values, 5)
        of_both, of_y, of_xy, of_squares, of_yy = map(float, values)
        sums = {"x": of_both - of_y, "y": of_y, "xy": of_xy, "xx": of_squares - of_yy, "yy": of_yy}
        result: dict[str, Any] = {f"sum_{name}": value for name, value in sums.items()}
        return result | {"correlation": None if cut.count is None else _pearson(sums, cut.count)}

    return _Made(fw, decode)


def _pearson(sums: dict[str, float], count: int) -> float | None:
    """Pearson's coefficient; None where one of the two does not vary."""
    x = count * sums["xx"] - sums["x"] ** 2
    y = count * sums["yy"] - sums["y"] ** 2
    if not (x > 0 and y > 0):
        return None
    return (count * sums["xy"] - sums["x"] * sums["y"]) / math.sqrt(x * y)


def _gradient_norm(hardware: Hardware) -> _Made:
    fw = Firmware()
    _square(fw, 0)
    with fw.chain():
        fw.load()
        _accumulate(fw, 1)

    def decode(values: "NDArray[np.float64]", cut: Cut) -> dict[str, Any]:
        total = _named(["squares"])(values, cut)["squares"]
        return {"sum_of_squares": total, "norm": math.sqrt(total)}

    return _Made(fw, decode)


def _update_ratio(hardware: Hardware) -> _Made:
    copy, update, weight = range(3)
    fw = Firmware()
    with fw.chain():
        fw.cache(copy)
    _clear(fw, copy, weight)
    with fw.chain():
        fw.mul(copy)
        fw.save()
    _first(fw, update)
    _second(fw, weight)
    _send(fw, copy, update)

    def decode(values: "NDArray[np.float64]", cut: Cut) -> dict[str, Any]:
        of_weight, of_update = _named(["weight", "update"])(values, cut).values()
        norms = {"update_norm": math.sqrt(of_update), "weight_norm": math.sqrt(of_weight)}
        return norms | {"ratio": norms["update_norm"] / norms["weight_norm"] if of_weight else None}

    return _Made(fw, decode)


def _quantization_error(hardware: Hardware) -> _Made:
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
        _accumulate(fw, errors)
    with fw.chain():  # x squared with x
        fw.mul(x)
        fw.save()
    _first(fw, signal)
    with fw.chain():
        fw.cache(copy)
    _send(fw, copy, signal)

    def decode(values: "NDArray[np.float64]", cut: Cut) -> dict[str, Any]:
        of_error, of_signal = _named(["error", "signal"])(values, cut).values()
        ratio = 10 * math.log10(of_signal / of_error) if of_error > 0 and of_signal > 0 else None
        return {"squared_error": of_error, "squared_signal": of_signal, "signal_to_noise_db": ratio}

    return _Made(fw, decode)


def _pass_through(hardware: Hardware) -> _Made:
    fw = Firmware()
    with fw.chain():
        fw.commit("N")

    def decode(values: "NDArray[np.float64]", cut: Cut) -> dict[str, Any]:
        from presilicon.instrument.tensors import join_tensor

        vectors = values.reshape(-1, hardware.lanes)
        if cut.nodes is None or cut.count is None:
            return {"vectors": vectors}
        return {"vectors": vectors, "tensor": join_tensor(vectors, cut.count // cut.nodes, cut.nodes)}

    return _Made(fw, decode)


_BIN_OPTIONS = ("bins", "low", "high", "boundaries")
AGGREGATIONS = {
    "distribution": _Kind(_distribution, "how many elements lie in each bin", _BIN_OPTIONS),
    "sparsity": _Kind(_sparsity, "which elements are zero, and how many", ("each",)),
    "summary": _Kind(_summary, "sum, zeros, elements, smallest and largest"),
    "norm_check": _Kind(_norm_check, "the 15th, 50th and 85th percentiles, by bins that follow", _BIN_OPTIONS),
    "predictiveness": _Kind(_predictiveness, "the largest mean of a node; the host averages over time"),
    "invalidity": _Kind(_invalidity, "NaN, infinities and subnormals; in fixed point elements at the ends"),
    "vector_change": _Kind(_vector_change, "how much a vector differs from the one before: sum and largest"),
    "correlation": _Kind(_correlation, "of two tensors in turns: sums, squares, Pearson's coefficient", pairs=True),
    "gradient_norm": _Kind(_gradient_norm, "the sum of squares and its root"),
    "update_ratio": _Kind(_update_ratio, "of updates and weights in turns: the ratio of their norms", pairs=True),
    "quantization_error": _Kind(
        _quantization_error,
        "of a tensor and its quantised twin in turns: the error's energy, signal to noise",
        pairs=True,
    ),
    "pass_through": _Kind(_pass_through, "every element as it is"),
}
