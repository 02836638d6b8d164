"""The axes of a study: parameters with the values that they may have."""

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

from msgspec import Struct, ValidationError, convert, field

from presilicon.base import ConfigError, located

_SPAN_KEYS = {"from", "to", "step", "times", "log"}
MOST_POINTS = 1_000_000
"""The most points that a grid may have."""


class ValueSpan(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Numbers from a lowest to a highest: `{ from = 16, to = 256, step = 16 }`.

    With `times = 2` each is twice the one before. Without either, every number between them (every whole number, if
    both ends are) may be drawn, evenly on a logarithmic scale with `log = true`.
    """

    low: int | float = field(name="from")
    high: int | float = field(name="to")
    step: int | float | None = None
    times: int | float | None = None
    log: bool = False

    def check(self) -> None:
        """Refuse ends and steps that make no sense."""
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            raise ConfigError(f"from must be below to, not {self.low} and {self.high}")
        if self.step is not None and self.times is not None:
            raise ConfigError("give step or times, not both")
        if self.step is not None and not self.step > 0:
            raise ConfigError(f"step must be above 0, not {self.step}")
        if self.times is not None and not (self.times > 1 and self.low > 0):
            raise ConfigError(f"times must be above 1 and from above 0, not {self.times} and {self.low}")
        if self.log and self.low <= 0:
            raise ConfigError(f"from must be above 0 for log = true, not {self.low}")

    @property
    def whole(self) -> bool:
        """Whether it has whole numbers only."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    def values(self) -> tuple[int | float, ...]:
        """All of its numbers, if they are given by a step or a factor; none otherwise.

        >>> ValueSpan(low=16, high=64, times=2).values()
        (16, 32, 64)
        """
        if self.step is not None:
            count = math.floor((self.high - self.low) / self.step + 1e-9) + 1
            return tuple(self.low + index * self.step for index in range(min(count, MOST_POINTS)))
        if self.times is not None:
            count = math.floor(math.log(self.high / self.low, self.times) + 1e-9) + 1
            numbers = [self.low * self.times**index for index in range(min(count, MOST_POINTS))]
            return tuple(dict.fromkeys(map(round, numbers))) if self.whole else tuple(numbers)
        return ()

    def draw(self, generator: random.Random) -> int | float:
        """A number between the ends."""
        if self.log:
            number = math.exp(generator.uniform(math.log(self.low), math.log(self.high)))
            return min(max(round(number), int(self.low)), int(self.high)) if self.whole else number
        return (
            generator.randint(int(self.low), int(self.high)) if self.whole else generator.uniform(self.low, self.high)
        )


class Axis(NamedTuple):
    """A parameter with its values, or with a span of numbers that has no step."""

    path: str
    values: tuple[Any, ...]
    span: ValueSpan | None = None

    @property
    def title(self) -> str:
        """The last part of its path, for the head of a column."""
        return self.path.rpartition(".")[2]

    def draw(self, generator: random.Random) -> Any:
        """One of its values."""
        return self.span.draw(generator) if self.span is not None else generator.choice(self.values)

    def samples(self) -> tuple[Any, ...]:
        """All values, or the ends of a span."""
        return self.values if self.span is None else (self.span.low, self.span.high)


def read_axes(vary: Mapping[str, Any], where: str = "vary") -> tuple[Axis, ...]:
    """The axes of a `[vary]` table: lists, spans, single values, and tables of these (`machine.rows` is nested).

    Raises:
        ConfigError: an axis has no values or one twice, or a span makes no sense.

    >>> read_axes({"machine": {"rows": [32, 64], "cols": {"from": 8, "to": 32, "times": 2}}})[1]
    Axis(path='machine.cols', values=(8, 16, 32), span=None)
    """
    axes: list[Axis] = []
    for key, value in vary.items():
        path = f"{where}.{key}" if where != "vary" else key
        if isinstance(value, Mapping) and not _SPAN_KEYS & set(value):
            if not value:
                raise ConfigError(f"vary.{path}: a table of parameters must not be empty")
            axes += read_axes(value, path)
        elif isinstance(value, Mapping):
            axes.append(_span_axis(path, value))
        else:
            axes.append(_list_axis(path, value if isinstance(value, list | tuple) else [value]))
    return tuple(axes)


def _list_axis(path: str, values: Sequence[Any]) -> Axis:
    if not values:
        raise ConfigError(f"vary.{path}: give at least one value")
    for index, value in enumerate(values):
        if any(value == other and type(value) is type(other) for other in values[:index]):
            raise ConfigError(f"vary.{path}: {value!r} is there twice; give it once")
    return Axis(path, tuple(values))


def _span_axis(path: str, table: Mapping[str, Any]) -> Axis:
    with located(f"vary.{path}"):
        try:
            span = convert(table, ValueSpan)
        except ValidationError as error:
            text = str(error).replace("`", "").replace("Object", "a span")
            raise ConfigError(f"{text}; write it as {{ from = 16, to = 256, step = 16 }}") from None
        span.check()
        values = span.values()
        return Axis(path, values) if values else Axis(path, (), span)


def grid_size(axes: Sequence[Axis]) -> int | None:
    """Number of combinations; None if an axis has a span without a step."""
    return None if any(axis.span is not None for axis in axes) else math.prod(len(axis.values) for axis in axes)


def grid(axes: Sequence[Axis]) -> Iterator[tuple[Any, ...]]:
    """Every combination of values, the last axis changing fastest."""
    return product(*(axis.values for axis in axes))


def draw(axes: Sequence[Axis], count: int, seed: int) -> Iterator[tuple[Any, ...]]:
    """That many random combinations, each once; all of them if there are no more."""
    generator, size = random.Random(seed), grid_size(axes)
    if size is not None:
        for number in generator.sample(range(size), min(count, size)):
            values = []
            for axis in reversed(axes):
                number, index = divmod(number, len(axis.values))
                values.append(axis.values[index])
            yield tuple(reversed(values))
        return
    drawn: set[str] = set()
    for _ in range(100 * count):  # a span of few whole numbers may run out of new ones
        values = [axis.draw(generator) for axis in axes]
        if repr(values) not in drawn:
            drawn.add(repr(values))
            yield tuple(values)
        if len(drawn) == count:
            return
