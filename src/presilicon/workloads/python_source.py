"""Python source: the modules of the standard library of the Python that is running, about 9 MB."""

from __future__ import annotations

import os
import sysconfig
from functools import cache, partial
from hashlib import sha256
from pathlib import Path

from presilicon.base import ConfigError, MissingToolError, torch
from presilicon.workloads.published import from_networks, sequences
from presilicon.workloads.reading.splits import Splits
from presilicon.workloads.settings.metrics import load_metric
from presilicon.workloads.tokenizer import Tokenizer, learn_merges
from presilicon.workloads.workload import Workload, adamw

VOCABULARY = 2048
CONTEXT = 256
"""Tokens in a window."""
HELD_OUT = 20
"""One file in so many is in the validation split, and another in the test split."""
FEWEST_BYTES = 2_000_000
"""A Python with less source has been stripped of it."""

_SKIPPED = {"test", "tests", "idlelib", "encodings", "pydoc_data", "site-packages", "dist-packages", "__pycache__"}
"""Folders of tests, tables and other packages."""


@cache
def source_files() -> tuple[Path, ...]:
    """The modules, sorted by name.

    Raises:
        MissingToolError: this Python was installed without its source.
    """
    root = Path(sysconfig.get_paths()["stdlib"])
    files: list[Path] = []
    for folder, inner, names in os.walk(root):
        inner[:] = [name for name in inner if name not in _SKIPPED and not name.startswith("config-")]
        # A build's configuration has the paths of the machine it was built on.
        modules = [name for name in names if name.endswith(".py") and not name.startswith("_sysconfigdata")]
        files += [Path(folder, name) for name in modules]
    files.sort(key=lambda file: file.relative_to(root).as_posix())
    if sum(file.stat().st_size for file in files) < FEWEST_BYTES:
        raise MissingToolError(
            f"{root} has no source of the standard library; install it with: apt-get install libpython3-stdlib"
        )
    return tuple(files)


@cache
def source_digest() -> str:
    """A hash of all modules, which differ from version to version of Python."""
    digest = sha256()
    for file in source_files():
        content = file.read_bytes()
        digest.update(f"{file.name} {len(content)}\0".encode() + content)
    return digest.hexdigest()[:16]


@cache
def load_python_source(digest: str) -> Splits:
    """Adjacent windows of 256 tokens, and the next token for each position; split by file.

    Every twentieth file is in the validation split and the one after it in the test split, so no file is in two. The
    tokenizer has learned from the training files only.

    Raises:
        ConfigError: the source of this Python has another `digest`.
    """
    if digest != source_digest():
        raise ConfigError(f"the standard library's source has changed: its hash is {source_digest()}, not {digest}")
    texts = [file.read_bytes() for file in source_files()]
    parts: tuple[list[bytes], list[bytes], list[bytes]] = ([], [], [])
    for number, text in enumerate(texts):
        parts[{0: 1, 1: 2}.get(number % HELD_OUT, 0)].append(text)
    tokenizer = Tokenizer(learn_merges(parts[0], VOCABULARY))
    return Splits(*(_windows(tokenizer.encode(b"\n".join(part))) for part in parts))


def _windows(tokens: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    count = (len(tokens) - 1) // CONTEXT
    indices = torch.tensor(tokens[: count * CONTEXT + 1], dtype=torch.int64)
    return indices[:-1].view(count, CONTEXT), indices[1:].view(count, CONTEXT)


def require_source() -> None:
    """Check that there is something to train on.

    Raises:
        MissingToolError: there is not, with the command that installs it.
    """
    source_files()


def python_gpt() -> Workload:
    """A GPT of 9.6 million parameters on Python source."""
    try:
        digest = source_digest()
    except MissingToolError:
        digest = ""
    return Workload(
        name="python-gpt",
        description="a transformer of 9.6 million parameters that predicts the next token of Python source; for a GPU",
        model=partial(
            from_networks, "character.CharacterGpt", vocabulary=VOCABULARY, layers=6, width=336, heads=6, places=CONTEXT
        ),
        data=partial(load_python_source, digest=digest),
        installed=require_source,
        example=partial(sequences, tokens=CONTEXT),
        metric=load_metric("perplexity"),
        # docs/workloads.md says how target and budget were chosen.
        target=25.0,
        loss=partial(from_networks, "transformer.token_loss"),
        optimizer=partial(adamw, learning_rate=1e-3, betas=(0.9, 0.95), weight_decay=0.1),
        schedule="cosine(warmup=100, final=0.1)",
        clip_norm=1.0,
        batch_size=32,
        evaluate_every=50,
        evaluation_batch=32,
        sustain=3,
        max_steps=2000,
    )
