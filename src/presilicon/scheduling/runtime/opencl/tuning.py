"""Kernel configurations by op and size: the shipped table, those stored for a device, and the search for better ones.

Compilers of OpenCL abort on some configurations and never return from others. So a configuration is tried in another
process, which is restarted when it dies or takes too long, and the reason is recorded.
"""

import json
import os
import random
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from presilicon.base import ConfigError, cache_directory, unknown, write_atomically
from presilicon.scheduling.runtime.opencl.boards import BoardInfo

SIZES = ("small", "medium", "large")
LIMITS = (1 << 24, 1 << 31)
"""Multiply-adds from which an op is medium, and from which it is large."""
FINALISTS, TURNS = 5, 4
"""Configurations that are timed again to choose the best, and how often all are timed."""
TIMEOUT_S = 20.0
"""Longest time for building, checking and timing one configuration."""


class Config(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, order=True):
    """Build parameters of a product's kernel."""

    units: int
    """Compute units: work groups that share the tiles of the result."""
    simd: int
    """Floats per vector."""
    group: int
    """Work items of a work group."""
    unroll: int
    rows: int
    """Rows of the register tile of a work item."""
    columns: int
    """Vectors in a row of the register tile."""
    direct: bool = False
    """Read operands where they are, instead of packing them into panels."""
    staged: bool = False
    """Copy panels of the right operand into local memory."""

    @property
    def wide(self) -> int:
        """Columns of a tile."""
        return self.simd * self.columns

    @property
    def defines(self) -> dict[str, int]:
        """Macros of matmul.cl."""
        return {
            "UNITS": self.units, "SIMD": self.simd, "GROUP": self.group, "UNROLL": self.unroll, "TM": self.rows,
            "TN": self.columns, "STAGED": int(self.staged),
        }  # fmt: skip


class Tuned(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The kernels of a device."""

    device: str
    source: str
    kernels: dict[str, dict[str, Config]]
    """Configurations by op and size."""

    def choose(self, op: str, work: int) -> Config:
        """The configuration for an op of that many multiply-adds."""
        return self.kernels[op][size_of_work(work)]


TUNED_OPS = ("MatMul", "Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter")


def size_of_work(work: int) -> str:
    """`small`, `medium` or `large`.

    >>> size_of_work(64**3), size_of_work(1024**3), size_of_work(2048**3)
    ('small', 'medium', 'large')
    """
    return SIZES[sum(work >= limit for limit in LIMITS)]


def stored_path(info: BoardInfo) -> Path:
    """Where the tuned kernels of a device are stored."""
    identity = "\0".join((info.device, info.platform, info.version, str(info.compute_units)))
    return cache_directory("opencl") / f"tuned-{sha256(identity.encode()).hexdigest()[:16]}.json"


@cache
def shipped() -> Tuned:
    """The table that comes with the package, tuned for PoCL on a CPU with AVX2."""
    return msgspec.json.decode((files(__package__) / "kernels" / "tuned.json").read_bytes(), type=Tuned)


def load_tuned(info: BoardInfo) -> Tuned:
    """The stored table of a device, else the shipped one."""
    try:
        return msgspec.json.decode(stored_path(info).read_bytes(), type=Tuned)
    except FileNotFoundError:
        return shipped()
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigError(f"{stored_path(info)} cannot be read ({error}); delete it, or tune again") from None


def save_tuned(tuned: Tuned, path: Path) -> None:
    """Store a table."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, msgspec.json.format(msgspec.json.encode(tuned), indent=1))


class Trial(Struct, frozen=True, kw_only=True):
    """The outcome of trying a configuration."""

    op: str
    config: Config
    times_s: dict[str, float] = {}
    """Seconds by shape; empty if it was refused."""
    refused: str = ""
    """Why it was refused: the compiler died or hung, or the results are wrong."""


class Worker:
    """A process that tries configurations; it is started again when one kills it."""

    def __init__(self, device: str, command: Sequence[str] | None = None) -> None:
        module = "presilicon.scheduling.runtime.opencl.trial"
        self.command = [*(command or (sys.executable, "-m", module)), device]
        self.process: subprocess.Popen[bytes] | None = None

    def ask(self, request: dict[str, Any], timeout_s: float = TIMEOUT_S) -> dict[str, Any]:
        """The answer to a request; `refused` says why there is none."""
        if self.process is None:
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0
            )
            ready = self._line(60.0)  # importing takes a while, and is not the configuration's fault
            if ready is None or "ready" not in ready:
                self.close()
                return {"refused": "the process that tries kernels does not start"}
        process = self.process
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps(request).encode() + b"\n")
            answer = self._line(timeout_s)
        except BrokenPipeError:
            answer = None
        if answer is not None:
            return answer
        died = process.poll()
        self.close()
        if died is None:
            return {"refused": f"no answer within {timeout_s:g} s (the compiler or the kernel hangs)"}
        return {"refused": f"the process died with {'signal' if died < 0 else 'code'} {abs(died)}"}

    def _line(self, timeout_s: float) -> dict[str, Any] | None:
        assert self.process is not None
        assert self.process.stdout is not None
        stream, deadline, text = self.process.stdout, time.monotonic() + timeout_s, b""
        while not text.endswith(b"\n"):
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([stream], [], [], left)[0]:
                return None
            piece = os.read(stream.fileno(), 1 << 16)
            if not piece:
                self.process.wait(5)
                return None
            text += piece
        answer: dict[str, Any] = json.loads(text.splitlines()[-1])
        return answer

    def close(self) -> None:
        """End the process."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            for stream in (self.process.stdin, self.process.stdout):
                if stream is not None:
                    stream.close()
            self.process = None


def attempt(
    worker: Worker, op: str, configs: Iterable[Config], shapes: Sequence[Sequence[int]], timeout_s: float = TIMEOUT_S
) -> Iterator[Trial]:
    """Try configurations on shapes of an op, as `trial.py` describes them; each is checked against torch first."""
    for config in configs:
        request = {"op": op, "config": msgspec.to_builtins(config), "shapes": [list(shape) for shape in shapes]}
        answer = worker.ask(request, timeout_s)
        refused = answer.get("refused", "")
        times = {} if refused else {"x".join(map(str, s)): t for s, t in zip(shapes, answer["times_s"], strict=True)}
        yield Trial(op=op, config=config, times_s=times, refused=refused)


def space(count: int, seed: int = 0, *, direct: bool | None = None, largest_tile: int = 28) -> list[Config]:
    """That many different configurations at random; register tiles beyond any CPU's registers are left out."""
    source, chosen = random.Random(seed), dict[Config, None]()
    for _ in range(200 * count):
        simd, rows, columns = (
            source.choice((1, 2, 4, 8, 16)),
            source.choice((1, 2, 4, 6, 8, 12)),
            source.choice((1, 2, 3)),
        )
        config = Config(
            units=source.choice((1, 2, 4, 8, 16)), simd=simd, group=source.choice((1, 2, 4, 8, 16, 32)),
            unroll=source.choice((1, 2, 4, 8)), rows=rows, columns=columns,
            direct=source.random() < 0.3 if direct is None else direct, staged=source.random() < 0.15,
        )  # fmt: skip
        if rows * columns <= largest_tile and not (config.direct and config.staged):
            chosen[config] = None
        if len(chosen) == count:
            break
    return list(chosen)


SHAPES: dict[str, dict[str, tuple[int, ...]]] = {
    "MatMul": {"small": (160, 160, 160), "medium": (768, 768, 768), "large": (3072, 768, 1024)},
    **{
        name: {
            "small": (8, 16, 14, 14, 32, 3, 3),
            "medium": (16, 64, 28, 28, 64, 3, 3),
            "large": (32, 64, 56, 56, 64, 3, 3),
        }
        for name in TUNED_OPS[1:]
    },
}  # fmt: skip
"""Example of each size; as in `presilicon schedule kernels`: MxKxN, and the output of a convolution."""


def tune(
    info: BoardInfo, ops: Sequence[str] = TUNED_OPS, *, configs: int = 60, seed: int = 0, timeout_s: float = TIMEOUT_S,
    worker: Worker | None = None, report: Callable[[Trial], None] = lambda trial: None,
) -> tuple[Tuned, list[Trial]]:  # fmt: skip
    """Search for the fastest kernel of each op and size on a device.

    All configurations run the small and the medium shape; only the fastest of the medium one run the large one. The
    finalists of each shape run several times in turns, so that other programs disturb all of them alike. Convolutions
    share the kernels of MatMul, so they try its fastest eight, and a few that read their operands directly.

    Raises:
        ConfigError: an op is not known, or no configuration works.
    """
    for op in ops:
        if op not in SHAPES:
            raise unknown("op", op, SHAPES)
    known = load_tuned(info).kernels
    worker = Worker(info.name) if worker is None else worker
    trials: list[Trial] = []
    kernels = {op: dict(known[op]) for op in known}
    seeds = space(configs, seed)
    for op in ops:
        start = list(dict.fromkeys((*known[op].values(), *seeds)))
        results: dict[str, dict[Config, float]] = {size: {} for size in SIZES}
        for size in SIZES:
            times = results[size]
            tried = start if size != "large" else _best(results["medium"], FINALISTS)
            for turn in range(TURNS):
                for trial in attempt(
                    worker, op, tried if turn == 0 else _best(times, FINALISTS), [SHAPES[op][size]], timeout_s
                ):
                    trials.append(trial)
                    report(trial)
                    if not trial.refused:
                        time_s = next(iter(trial.times_s.values()))
                        times[trial.config] = min(time_s, times.get(trial.config, time_s))
            if size == "small":
                start = _best(results["small"], len(start))  # those that work
            if not results[size]:
                raise ConfigError(f"{info.name}: no configuration of {op} works; the first: {trials[0].refused}")
            kernels[op][size] = _best(results[size], 1)[0]
        if op == "MatMul":
            direct = [config for config in seeds if config.direct][:4]
            seeds = list(dict.fromkeys((*_best(results["small"], 4), *_best(results["medium"], 4), *direct)))
    worker.close()
    return Tuned(device=info.device, source=f"measured with {configs} configurations", kernels=kernels), trials


def _best(times: dict[Config, float], count: int) -> list[Config]:
    return sorted(times, key=lambda config: (times[config], config))[:count]
