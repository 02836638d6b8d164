"""Eight plays of Shakespeare: 1.06 million characters, 80 different ones."""

from __future__ import annotations

import lzma
from functools import partial
from importlib import resources

from presilicon.base import torch
from presilicon.workloads.published import from_networks
from presilicon.workloads.reading.splits import Splits
from presilicon.workloads.workload import Workload, adamw

VOCABULARY = 80
CONTEXT = 64
"""Characters in a window."""
HELD_OUT = 0.05
"""Fraction of each play in the test split (its end), and in the validation split (just before that)."""


def read_plays() -> tuple[str, ...]:
    """The plays in the package."""
    packed = (resources.files(__package__) / "data" / "shakespeare.txt.xz").read_bytes()
    return tuple(lzma.decompress(packed).decode("ascii").split("\f"))


def load_shakespeare() -> Splits:
    """Adjacent windows of 64 characters, and the next character for each position, as indices.

    Indices are in ASCII order. The first 90% of each play are in the training split, the next 5% in validation and the
    end in test, so that no window is in two splits.
    """
    plays = read_plays()
    number = {character: index for index, character in enumerate(sorted(set("".join(plays))))}
    coded = [[number[character] for character in play] for play in plays]
    ends = [(round(len(play) * (1 - 2 * HELD_OUT)), round(len(play) * (1 - HELD_OUT)), len(play)) for play in plays]
    train = [play[:end] for play, (end, _, _) in zip(coded, ends, strict=True)]
    validation = [play[start:end] for play, (start, end, _) in zip(coded, ends, strict=True)]
    test = [play[start:] for play, (_, start, _) in zip(coded, ends, strict=True)]
    return Splits(_windows(train), _windows(validation), _windows(test))


def _windows(texts: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    """All windows of all texts, and the same windows one character later; incomplete windows are dropped."""
    inputs, targets = [], []
    for text in texts:
        count = (len(text) - 1) // CONTEXT
        indices = torch.tensor(text[: count * CONTEXT + 1], dtype=torch.int64)
        inputs.append(indices[:-1].view(count, CONTEXT))
        targets.append(indices[1:].view(count, CONTEXT))
    return torch.cat(inputs), torch.cat(targets)


SHAKESPEARE_GPT = Workload(
    name="shakespeare-gpt",
    description="a transformer of two layers that predicts the next character of Shakespeare's plays",
    model=partial(from_networks, "character.CharacterGpt", vocabulary=VOCABULARY, places=CONTEXT),
    data=load_shakespeare,
    # docs/workloads.md says how target and budget were chosen.
    target=0.42,
    loss=partial(from_networks, "transformer.token_loss"),
    optimizer=partial(adamw, learning_rate=3e-3),
    batch_size=32,
    evaluate_every=50,
    sustain=3,
    max_steps=2000,
)
