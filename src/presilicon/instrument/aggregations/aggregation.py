"""Aggregations: what the instrument can compute from a tensor, each with every facet in one record.

An outer frame is one tensor, cut by `cut_tensor`, or two tensors of an aggregation of pairs, cut by `cut_pair`. Lanes
beyond the last node are 0: `decode` takes them out of its results if it knows the number of nodes.

A package adds an aggregation with an entry point in the group `presilicon.aggregations` that names an `Aggregation`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from presilicon.base import ConfigError, ExtensionPoint, did_you_mean, located, np
from presilicon.designs import Hardware
from presilicon.instrument.aggregations.histograms import tracking_boundaries
from presilicon.instrument.aggregations.pairs import PairSource
from presilicon.instrument.aggregations.parts import AggregationCode, CountWarning, FrameContents, check_counts
from presilicon.instrument.firmware.language import Firmware
from presilicon.instrument.model.words import count_limit, values_of
from presilicon.records import ReadingFigure

WINDOW = "window"
"""Option of aggregations with a running average: the number of looks that it covers."""
DEFAULT_WINDOW = 20


@dataclass(frozen=True)
class RunningAverage:
    """A figure that the host averages over the last looks."""

    figure: str
    """Name of the average."""
    source: str
    """Name of the result that is averaged."""


@dataclass(frozen=True, kw_only=True)
class Aggregation:
    """One aggregation, with every facet that the compiler, the host, reports and lists need.

    Its name is that of the entry point.
    """

    gives: str
    """Description for lists: what it computes."""
    build: Callable[..., AggregationCode]
    """Takes a hardware and options by name; returns firmware and the decoder of its words."""
    options: tuple[str, ...] = ()
    """Options that `build` takes."""
    pairs: PairSource | None = None
    """Source of its two tensors, for an aggregation of pairs."""
    follows: bool = False
    """Whether the host moves the bins after each look to where the numbers are."""
    average: RunningAverage | None = None
    shares: Mapping[str, str] = field(default_factory=dict)
    """Figures that are the share of a count in all elements: the figure's name and that of the count."""
    by_node: Callable[[Mapping[str, Any]], "np.typing.NDArray[Any] | None"] | None = None
    """Takes the results; returns a number per node (or per element), shown as bars."""
    figures: tuple[ReadingFigure, ...] = ()
    """Results that are worth a curve; others show histograms or nodes."""

    @property
    def all_options(self) -> tuple[str, ...]:
        """Options of the firmware and of the host."""
        return self.options if self.average is None else (*self.options, WINDOW)


@dataclass(frozen=True)
class BuiltAggregation:
    """An aggregation for a hardware, with its options applied."""

    name: str
    record: Aggregation
    hardware: Hardware
    code: AggregationCode
    window: int = DEFAULT_WINDOW
    """Looks that a running average covers."""

    @property
    def firmware(self) -> Firmware:
        """Firmware for this hardware."""
        return self.code.firmware

    @property
    def boundaries(self) -> tuple[float, ...]:
        """Bin boundaries; empty for aggregations without bins."""
        return self.code.boundaries

    @property
    def pairs(self) -> PairSource | None:
        """Source of its two tensors; None if frames are single tensors."""
        return self.record.pairs

    def check_counts(self, count: int, nodes: int) -> CountWarning | None:
        """A warning if counts of a tensor of that size may not fit into the words."""
        scope = self.code.counts
        return None if scope is None else check_counts(self.hardware, scope, count, nodes)

    def decode(self, words: Any, *, count: int | None = None, nodes: int | None = None) -> dict[str, Any]:
        """The results of one outer frame, by name.

        `words` are all words of the frame, one block after the other. `count` is the number of elements of the tensor
        (of one of the two, in pairs) and `nodes` its last dimension.

        A sum that saturated, or a count that may be inexact because words of this width round there, is None, and
        `notes` says so. Notes also name sums over more vectors than a float's significant bits can add up.

        Raises:
            ConfigError: there are more or fewer words than such a frame has.
        """
        values = values_of(self.hardware, np.asarray(words, dtype=np.int64).ravel())
        contents = FrameContents(self.hardware, count, nodes)
        result = self.code.decoder(values, contents)
        notes = [_too_narrow(self.hardware, contents.overflowed)] if contents.overflowed else []
        notes += [_too_imprecise(self.hardware, contents.imprecise)] if contents.imprecise else []
        return result | ({"notes": notes} if notes else {})

    def following_boundaries(self, counts: Sequence[float]) -> list[float]:
        """Bin boundaries that follow a distribution with these counts in the present bins."""
        step = 2.0**-12 if self.hardware.is_float else 2.0**-self.hardware.fraction_bits
        return tracking_boundaries(self.boundaries, counts, least=len(counts) * step)

    def with_boundaries(self, boundaries: Sequence[float]) -> "BuiltAggregation":
        """The same aggregation with other bins."""
        return aggregation(self.name, self.hardware, boundaries=list(boundaries))


_HERE = "presilicon.instrument.aggregations"
AGGREGATIONS: ExtensionPoint[Aggregation] = ExtensionPoint(
    "presilicon.aggregations",
    "aggregation",
    {
        name: f"{_HERE}.{name}:{name.upper()}"
        for name in (
            "distribution",
            "sparsity",
            "summary",
            "norm_check",
            "predictiveness",
            "invalidity",
            "vector_change",
            "correlation",
            "gradient_norm",
            "update_ratio",
            "quantization_error",
            "pass_through",
        )
    },
    Aggregation,
)


def aggregation(name: str, hardware: Hardware, **options: Any) -> BuiltAggregation:
    """The aggregation of a name for a hardware.

    >>> built = aggregation("summary", Hardware(lanes=4, ranges=4))
    >>> print(built.firmware)
    chain 1: vv_add(0, notfirst@1) v_cache(0) v_reduce(sum) v_commit(1, last@1)
    chain 2: vv_filter(0) m_reduce(N) vv_add(1, notfirst@1) v_cache(1) v_reduce(sum) v_commit(1, last@1)
    chain 3: vv_filter(1) m_reduce(N) vv_add(2, notfirst@1) v_cache(2) v_reduce(sum) v_commit(1, last@1)
    chain 4: vv_min(3, notfirst@1) v_cache(3) v_reduce(min) v_commit(1, last@1)
    chain 5: vv_max(4, notfirst@1) v_cache(4) v_reduce(max) v_commit(1, last@1)

    Raises:
        ConfigError: there is no such aggregation or option, or an option's value is not allowed.
    """
    record = AGGREGATIONS.load(name)
    for option in options:
        if option not in record.all_options:
            allowed = did_you_mean(option, record.all_options) if record.all_options else "it has none"
            raise ConfigError(f'aggregation {name}: unknown option "{option}": {allowed}')
    with located(f"aggregation {name}"):
        window = _window(options.pop(WINDOW, DEFAULT_WINDOW))
        with AGGREGATIONS.errors_of(name):
            code = record.build(hardware, **options)
    return BuiltAggregation(name, record, hardware, code, window)


def _window(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigError(f"window is {value!r}, expected a whole number of at least 1")
    return value


def describe_aggregations(hardware: Hardware) -> list[dict[str, Any]]:
    """Every aggregation with its chains and cycles on a hardware, or the reason why it cannot run there."""
    from presilicon.instrument.firmware.compiler import compile_firmware

    rows = []
    for name, record in AGGREGATIONS.members().items():
        row: dict[str, Any] = {"name": name, "gives": record.gives, "pairs": record.pairs is not None}
        row |= {"options": list(record.all_options), "chains": None, "initiation_interval": None, "refused": None}
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


def _too_imprecise(hardware: Hardware, names: Sequence[str]) -> str:
    return (
        f"{', '.join(names)}: may be far off, since floats of {hardware.word_mantissa + 1} significant bits add up so "
        "many vectors; set a larger accumulator_bits in [instrument.hardware], or offer fewer vectors"
    )
