"""Images over a link that loses and garbles them: each is taken in the end, and nobody is told what did not happen."""

import random
from collections import deque

import pytest

from presilicon.designs import Hardware
from presilicon.instrument.host.sender import RESEND_S, Sender
from presilicon.instrument.host.stream import Status

CODE = {"garbled": 4, "bad": 2}


class Bench:
    """A chip behind a link: copies arrive in order, late, garbled or never, and some of its answers are lost."""

    def __init__(self, seed: int, loses: bool = True) -> None:
        self.loses = loses
        self.draw = random.Random(seed)
        self.now = 0.0
        self.sender = Sender(Hardware(), clock=lambda: self.now)
        self.under_way: deque[bytes] = deque()
        self.bad: set[bytes] = set()
        self.program, self.taken, self.refused, self.code = 0, 0, 0, 0
        self.outcomes: list = []

    def tick(self, image: bytes) -> None:
        self.now += self.draw.choice((0.3, 1.0, RESEND_S))
        data = self.sender.take()
        self.under_way.extend([image] * data.count(image))
        assert not data.replace(image, b"").strip(b"\0")
        while self.under_way and self.draw.random() < 0.6:
            # Of a copy that is lost in part, the padding of the next makes a refusal.
            fate = self.draw.choice(
                ("taken", "taken", "garbled", "lost" if self.loses and image not in self.bad else "garbled")
            )
            self.arrive(self.under_way.popleft(), fate)

    def arrive(self, image: bytes, fate: str) -> None:
        if fate == "lost":
            return
        if fate == "taken" and image not in self.bad:
            self.taken += 1
            self.program = int.from_bytes(image[-4:], "little")
        else:
            self.refused, self.code = self.refused + 1, CODE["bad" if fate == "taken" else "garbled"]
        if not self.loses or self.draw.random() < 0.8:
            was_waiting = self.sender.is_waiting
            status = Status(self.program, self.taken & 0xFFFF, self.refused & 0xFFFF, self.code, ())
            outcome = self.sender.take_status(status)
            assert not outcome.foreign
            assert was_waiting or not (outcome.taken or outcome.refusal), "nothing was under way"
            assert not (outcome.taken and outcome.refusal)
            assert outcome.is_garbled is (outcome.refusal is not None and self.code == CODE["garbled"])
            self.outcomes.append(outcome)


@pytest.mark.parametrize("seed", range(40))
def test_every_image_is_taken_once_and_a_bad_one_is_refused(seed: int) -> None:
    bench = Bench(seed)
    # The first status of a chip says what it did before; it did nothing.
    bench.sender.take_status(Status(0, 0, 0, 0, ()))
    for number in range(8):
        image = b"image" + bytes([number + 1] * 7)
        is_bad = bench.draw.random() < 0.2
        bench.bad |= {image} if is_bad else set()
        before = bench.program
        for _ in range(500):
            if not bench.sender.is_waiting:
                bench.outcomes.clear()
                bench.sender.send(image, is_program=True)
            bench.tick(image)
            told = [outcome for outcome in bench.outcomes if outcome.taken or outcome.refusal]
            if told and (told[-1].taken or not told[-1].is_garbled):
                break
        assert told[-1].taken is not is_bad
        assert len(told) == 1
        expected = before if is_bad else int.from_bytes(image[-4:], "little")
        assert bench.program == expected
        assert (bench.sender.in_force or 0) == expected
        while bench.under_way:  # late copies of the same image change nothing
            bench.arrive(bench.under_way.popleft(), bench.draw.choice(("taken", "garbled")))
        assert len([outcome for outcome in bench.outcomes if outcome.taken or outcome.refusal]) == 1


@pytest.mark.parametrize("seed", range(20))
def test_where_every_copy_is_answered_an_image_of_another_host_is_told(seed: int) -> None:
    bench = Bench(seed, loses=False)
    bench.sender.take_status(Status(0, 0, 0, 0, ()))
    for number in range(3):
        image = b"image" + bytes([number + 1] * 7)
        bench.sender.send(image, is_program=True)
        while bench.sender.is_waiting or bench.under_way:
            if not bench.sender.is_waiting and bench.outcomes[-1].is_garbled:
                bench.sender.send(image, is_program=True)
            bench.tick(image)
    assert not any(outcome.foreign for outcome in bench.outcomes)
    assert bench.sender.take_status(Status(99, bench.taken + 1, bench.refused, bench.code, ())).foreign
    assert bench.sender.take_status(Status(bench.program, bench.taken + 2, bench.refused, bench.code, ())).foreign
