"""Lockstep: two executions of one firmware on the same steps, compared frame by frame.

Training may fail for reasons of the design (a format too narrow, a learning rate too high); then both sides show the
same. If they differ, one of them has a bug.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from presilicon.designs import Hardware
from presilicon.instrument.firmware.image import Image
from presilicon.instrument.host.decoder import Decoder, Frame
from presilicon.instrument.model.engine import InstrumentEngine, PackedBlock

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Difference(Struct, frozen=True, kw_only=True):
    """The first difference of two executions."""

    tap: int
    name: str
    """Name of the tap; its number if it has none."""
    step: int
    """The training step, which is the number of the tap's outer frame."""
    element: int
    """Index of the word in the frame's results; of the first surplus word if only the lengths differ."""
    here: float | None
    """The value; None if this side has no such word."""
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
    """Result of a comparison."""

    compared: int
    """Frames that both sides have."""
    only_here: int
    """Frames that the other side dropped or lost, which is not a bug by itself."""
    only_there: int
    difference: Difference | None
    """The first difference in the order of steps."""


def compare_frames(
    here: Iterable[Frame],
    there: Iterable[Frame],
    hardware: Hardware,
    *,
    names: Mapping[int, str] | None = None,
    first_step: int = 0,
) -> Agreement:
    """Compare the frames that two streams of an instrument have in common, up to the first difference."""
    here_frames = {(frame.number, frame.tap): frame for frame in here}
    there_frames = {(frame.number, frame.tap): frame for frame in there}
    both = sorted(here_frames.keys() & there_frames.keys())
    difference = None
    for key in both:
        here_words, there_words = here_frames[key].words, there_frames[key].words
        if here_words != there_words:
            number, tap = key
            name = (names or {}).get(tap, str(tap))
            difference = _difference(here_words, there_words, hardware, tap, name, first_step + number)
            break
    return Agreement(
        compared=len(both),
        only_here=len(here_frames) - len(both),
        only_there=len(there_frames) - len(both),
        difference=difference,
    )


def compare_streams(
    here: bytes, there: bytes, hardware: Hardware, *, names: Mapping[int, str] | None = None, first_step: int = 0
) -> Agreement:
    """Compare two recorded streams, as `compare_frames` does."""
    return compare_frames(
        frames_of(here, hardware), frames_of(there, hardware), hardware, names=names, first_step=first_step
    )


def frames_of(stream: bytes, hardware: Hardware) -> list[Frame]:
    """The whole frames of a recorded stream."""
    decoder = Decoder(hardware)
    items = decoder.feed(stream) + decoder.finish()
    return [item for item in items if isinstance(item, Frame)]


class LockstepEngine:
    """Two engines as one: both run everything, the results are those of the first, and the first difference is kept.

    Use it as the engine of a `Chip` to train beside a circuit.
    """

    def __init__(
        self, here: InstrumentEngine, there: InstrumentEngine, *, names: Mapping[int, str] | None = None
    ) -> None:
        self.hardware = here.hardware
        self.here, self.there = here, there
        self.names = names or {}
        self.step = 0
        """The training step; the training loop updates it."""
        self.compared = 0
        self.difference: Difference | None = None

    def load(self, image: Image | bytes) -> None:
        """Load an image into both."""
        self.here.load(image)
        self.there.load(image)

    def feed(self, words: Any, last: Any, tap: int = 0) -> Sequence[PackedBlock]:
        """Run vectors on both and compare the results."""
        here, there = self.here.feed(words, last, tap), self.there.feed(words, last, tap)
        self.compared += 1
        if self.difference is None:
            sides = [[word for block in side for word in block.words.tolist()] for side in (here, there)]
            if sides[0] != sides[1]:
                name = self.names.get(tap, str(tap))
                self.difference = _difference(sides[0], sides[1], self.hardware, tap, name, self.step)
        return here

    def break_off(self) -> None:
        """Break the frame off on both."""
        self.here.break_off()
        self.there.break_off()

    @property
    def scratchpad(self) -> "NDArray[np.int64]":
        """Scratchpad of the first engine."""
        return self.here.scratchpad

    @property
    def carried(self) -> "NDArray[np.int64]":
        """Carried vector of the first engine."""
        return self.here.carried

    @property
    def partial(self) -> "NDArray[np.int64]":
        """Words in the packer of the first engine."""
        return self.here.partial

    @property
    def first(self) -> "NDArray[np.bool_]":
        """Frame starts of the first engine."""
        return self.here.first


def _difference(
    here: Sequence[int], there: Sequence[int], hardware: Hardware, tap: int, name: str, step: int
) -> Difference:
    from presilicon.instrument.model.words import values_of

    shorter = min(len(here), len(there))
    element = next((index for index in range(shorter) if here[index] != there[index]), shorter)
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
