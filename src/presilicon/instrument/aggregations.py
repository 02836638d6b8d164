"""Ready-made firmware, each with the host's part: what is computed on the chip, and what is made of the words it sends.

An outer frame is one tensor, cut by `tensors.cut_tensor`; two tensors of an aggregation of pairs by `cut_pair`. Lanes
beyond the last node are 0: `decode` takes them out of its results if it is told the nodes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from presilicon.base.errors import ConfigError, did_you_mean, unknown
from presilicon.designs import Hardware
from presilicon.instrument.aggregation_bins import bin_rows, distribution, invalidity, norm_check
from presilicon.instrument.aggregation_pairs import correlation, quantization_error, update_ratio
from presilicon.instrument.aggregation_parts import Cut, Decoder, Made
from presilicon.instrument.aggregation_values import (
    gradient_norm,
    pass_through,
    predictiveness,
    sparsity,
    summary,
    vector_change,
)
from presilicon.instrument.counts import Counted, Doubt, doubt
from presilicon.instrument.firmware import Firmware
from presilicon.instrument.histograms import tracking_boundaries
from presilicon.instrument.ranges import RangeRow
from presilicon.instrument.words import count_limit, values_of


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
    counts: Counted | None = None
    """What one of its words may have to count all of."""

    def doubt(self, count: int, nodes: int) -> Doubt | None:
        """Whether counts of a tensor of that size may be too large for the words; None where they are not."""
        return None if self.counts is None else doubt(self.hardware, self.counts, count, nodes)

    def decode(self, words: Any, *, count: int | None = None, nodes: int | None = None) -> dict[str, Any]:
        """The results of one outer frame, by their names.

        `words` are all words of the frame, one block after the other. `count` is the number of elements of the tensor
        (of one of them, in pairs) and `nodes` its last dimension.

        A figure that saturated, or a count that need not be exact because words of this width round there, is None,
        and `notes` says so; they also name sums of more vectors than a float's significant bits can add up.

        Raises:
            ConfigError: there are more or fewer words than such a frame has.
        """
        import numpy as np

        values = values_of(self.hardware, np.asarray(words, dtype=np.int64).ravel())
        cut = Cut(self.hardware, count, nodes)
        result = self.decoder(values, cut)
        notes = [_too_narrow(self.hardware, cut.lost)] if cut.lost else []
        notes += [_too_rough(self.hardware, cut.rough)] if cut.rough else []
        return result | ({"notes": notes} if notes else {})

    def tracking_rows(self, counts: Sequence[float]) -> dict[int, RangeRow]:
        """Range rows that follow a distribution of which these counts were seen: what NormCheck sends back."""
        step = 2.0**-self.hardware.fraction_bits if not self.hardware.is_float else 2.0**-12
        return bin_rows(tracking_boundaries(self.boundaries, counts, least=len(counts) * step), self.hardware)

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
    return Aggregation(
        name, hardware, made.firmware, kind.gives, kind.pairs, made.decoder, made.boundaries, made.counts
    )


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


def _too_narrow(hardware: Hardware, names: Sequence[str]) -> str:
    limit = f"counts are exact below {count_limit(hardware):g}"
    return (
        f"{', '.join(dict.fromkeys(names))}: too large for words of {hardware.word_bits} bits ({limit}); "
        "set a larger accumulator_bits in [instrument.hardware], or offer fewer vectors"
    )


def _too_rough(hardware: Hardware, names: Sequence[str]) -> str:
    return (
        f"{', '.join(names)}: may be far off, since floats of {hardware.word_mantissa + 1} significant bits add up so "
        "many vectors; set a larger accumulator_bits in [instrument.hardware], or offer fewer vectors"
    )


@dataclass(frozen=True)
class _Kind:
    make: Callable[..., Made]
    gives: str
    options: tuple[str, ...] = ()
    pairs: bool = False


_BIN_OPTIONS = ("bins", "low", "high", "boundaries")
AGGREGATIONS = {
    "distribution": _Kind(
        distribution, "how many elements lie in each bin; the outer ones take what lies beyond", _BIN_OPTIONS
    ),
    "sparsity": _Kind(sparsity, "which elements are zero, and how many", ("each",)),
    "summary": _Kind(summary, "sum, zeros, elements, smallest and largest"),
    "norm_check": _Kind(norm_check, "the 15th, 50th and 85th percentiles, by bins that follow", _BIN_OPTIONS),
    "predictiveness": _Kind(predictiveness, "the largest mean of a node; the host averages over time"),
    "invalidity": _Kind(invalidity, "NaN, infinities and subnormals; in fixed point elements at the ends"),
    "vector_change": _Kind(vector_change, "how much a vector differs from the one before: sum and largest"),
    "correlation": _Kind(correlation, "of two tensors in turns: sums, squares, Pearson's coefficient", pairs=True),
    "gradient_norm": _Kind(gradient_norm, "the sum of squares and its root"),
    "update_ratio": _Kind(update_ratio, "of updates and weights in turns: the ratio of their norms", pairs=True),
    "quantization_error": _Kind(
        quantization_error,
        "of a tensor and its quantised twin in turns: the error's energy, signal to noise",
        pairs=True,
    ),
    "pass_through": _Kind(pass_through, "every element as it is"),
}
