"""Two executions of one firmware on the same steps, side by side: the first frame that differs is a structural bug.

The numbers that the circuit trains with may be wrong for reasons of the design's own (a format too narrow, a learning
rate too high); then both sides show the same. Where they differ, one of them does not do what it was built to do.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from presilicon.designs import Hardware
from presilicon.instrument.firmware.image import Image
from presilicon.instrument.host.decoder import Decoder, Frame
from presilicon.instrument.model.engine import Block, Engine

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Difference(Struct, frozen=True, kw_only=True):
    """Where two executions part."""

    tap: int
    name: str
    """Of the tap; its number where it has no name."""
    step: int
    """The training step, which is the number of the tap's outer frame."""
    element: int
    """The place of the word in the frame's results; that of the first word too many where lengths differ."""
    here: float | None
    """The value; None where this side has no such word."""
    there: float | None
    here_word: int | None
    there_word: int | None

    def __str__(self) -> str:
        sides = [
            f"{side} {'nothing' if word is None else f'{value:g} (word {word:#x})'}"
            for side, value, word in (("here", self.here, self.here_word), ("there", self.there, self.there_word))
        ]
        return f"tap {self.name}, step {self.step}, element {self.element}: {', '.join(sides)}"


class Agreement(Struct, frozen=True, kw_only=True):
    """What came of a comparison."""

    compared: int
    """Frames that both sides have."""
    only_here: int
    """Frames that the other side dropped or lost; no bug by themselves."""
    only_there: int
    difference: Difference | None
    """The first, in the order of steps."""


def compare_frames(
    here: Iterable[Frame],
    there: Iterable[Frame],
    hardware: Hardware,
    *,
    names: Mapping[int, str] | None = None,
    first_step: int = 0,
) -> Agreement:
    """The first frame in which two streams of an instrument differ, of those that both have."""
    mine = {(frame.number, frame.tap): frame for frame in here}
    theirs = {(frame.number, frame.tap): frame for frame in there}
    both = sorted(mine.keys() & theirs.keys())
    difference = None
    for key in both:
        if mine[key].words != theirs[key].words:
            number, tap = key
            name = (names or {}).get(tap, str(tap))
            difference = _difference(mine[key].words, theirs[key].words, hardware, tap, name, first_step + number)
            break
    return Agreement(
        compared=len(both),
        only_here=len(mine) - len(both),
        only_there=len(theirs) - len(both),
        difference=difference,
    )


def compare_streams(
    here: bytes,
    there: bytes,
    hardware: Hardware,
    *,
    names: Mapping[int, str] | None = None,
    first_step: int = 0,
) -> Agreement:
    """As `compare_frames`, of two recorded streams."""
    return compare_frames(
        frames_of(here, hardware), frames_of(there, hardware), hardware, names=names, first_step=first_step
    )


def frames_of(stream: bytes, hardware: Hardware) -> list[Frame]:
    """The whole frames of a recorded stream."""
    decoder = Decoder(hardware)
    found = decoder.feed(stream) + decoder.finish()
    return [frame for frame in found if isinstance(frame, Frame)]


class LockstepEngine:
    """Two engines as one: both run everything, the first has the word, and the first difference is kept.

    Put it into a `Chip` in the place of the fast model to train beside a circuit.
    """

    def __init__(self, here: Engine, there: Engine, *, names: Mapping[int, str] | None = None) -> None:
        self.hardware = here.hardware
        self.here, self.there = here, there
        self.names = names or {}
        self.step = 0
        """The training step; whoever trains keeps it up to date."""
        self.compared = 0
        self.difference: Difference | None = None

    def load(self, image: Image | bytes) -> None:
        """Both take the image."""
        self.here.load(image)
        self.there.load(image)

    def feed(self, words: Any, last: Any, tap: int = 0) -> Sequence[Block]:
        """Both run the vectors."""
        mine, theirs = self.here.feed(words, last, tap), self.there.feed(words, last, tap)
        self.compared += 1
        if self.difference is None:
            ours, others = ([word for block in side for word in block.words.tolist()] for side in (mine, theirs))
            if ours != others:
                name = self.names.get(tap, str(tap))
                self.difference = _difference(ours, others, self.hardware, tap, name, self.step)
        return mine

    def break_off(self) -> None:
        """Both break the frame off."""
        self.here.break_off()
        self.there.break_off()

    @property
    def scratchpad(self) -> "NDArray[np.int64]":
        """Of the first."""
        return self.here.scratchpad

    @property
    def carried(self) -> "NDArray[np.int64]":
        """Of the first."""
        return self.here.carried

    @property
    def partial(self) -> "NDArray[np.int64]":
        """Of the first."""
        return self.here.partial

    @property
    def first(self) -> "NDArray[np.bool_]":
        """Of the first."""
        return self.here.first


def _difference(
    here: Sequence[int], there: Sequence[int], hardware: Hardware, tap: int, name: str, step: int
) -> Difference:
    from presilicon.instrument.model.words import values_of

    shorter = min(len(here), len(there))
    element = next((place for place in range(shorter) if here[place] != there[place]), shorter)
    words = [side[element] if element < len(side) else None for side in (here, there)]
    values = [None if word is None else float(values_of(hardware, [word])[0]) for word in words]
    return Difference(
        tap=tap,
        name=name,
        step=step,
        element=element,
        here=values[0],
        there=values[1],
        here_word=words[0],
        there_word=words[1],
    )
