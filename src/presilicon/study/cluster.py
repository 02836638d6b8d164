"""The workers of a Dask cluster: a scheduler by its address, results on a file system that all share."""

import re
import secrets
import socket
import threading
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path

from presilicon.base import ConfigError, MissingToolError, RunFailedError, describe_processor, meaning
from presilicon.runs import versions
from presilicon.study.pool import TaskBatch, TaskOutcome, attempt, registrations

TIMEOUT_S = 10
LOOK_S = 5.0
"""Seconds between two looks at whether there are workers."""


class NoWorkersWarning(UserWarning):
    """The scheduler has lost all of its workers."""


def _reach(address: str) -> None:
    """Refuse an address that is none, or where nothing listens: Dask itself would try again for a long time."""
    match = re.fullmatch(r"(?:tcp|tls|ucx|wss?)://(\[[0-9a-fA-F:]+\]|[^\s:/]+):(\d{1,5})", address)
    if match is None:
        raise ConfigError(f"--on {address[:80]}: write the address of a Dask scheduler as tcp://HOST:PORT")
    try:
        socket.create_connection((match[1].strip("[]"), int(match[2])), TIMEOUT_S).close()
    except (OSError, OverflowError) as error:
        raise _no_answer(address, error) from None


def _no_answer(address: str, error: Exception) -> ConfigError:
    text = " ".join(str(getattr(error, "strerror", None) or error).split())[:200]
    return ConfigError(f'--on {address}: no Dask scheduler answers there ({text}); start one with "dask scheduler"')


class DaskPool:
    """Runs tasks on the workers of a scheduler; one whose worker dies runs again on another.

    Checked before the first task: the scheduler answers, it has workers, they have the same versions of the packages
    that compute numbers, and they see the directory of the runs.

    Raises:
        ConfigError: one of these does not hold.
        MissingToolError: Dask is not installed here.
    """

    def __init__(self, address: str, out: Path, kind: Mapping[str, str] | None = None) -> None:
        """`kind` is that of the processor which all workers must have, where it decides bits."""
        try:
            from distributed import Client
        except ImportError:
            raise MissingToolError("--on needs Dask: pip install 'presilicon[search]'") from None
        _reach(address)
        try:
            self._client = Client(address, timeout=TIMEOUT_S, set_as_default=False)
        except (OSError, ValueError, TimeoutError) as error:
            raise _no_answer(address, error) from None
        try:
            self._check(address, out)
            self._check_processors(address, kind)
        except BaseException:
            self.close()
            raise

    @property
    def workers(self) -> int:
        """Threads of all workers; a worker trains one at a time."""
        return max(1, sum(map(int, self._client.nthreads().values())))

    def _check(self, address: str, out: Path) -> None:
        if not self._client.nthreads():
            raise ConfigError(f'--on {address}: the scheduler has no workers; start some with "dask worker {address}"')
        # Lambdas travel by value, so that this works on a worker without the package too.
        there = self._client.run(
            lambda: (
                __import__("presilicon.runs").runs.versions()
                | {"meaning": getattr(__import__("presilicon.base").base, "meaning", dict)()}
                if __import__("importlib.util").util.find_spec("presilicon")
                else {}
            )
        )
        here = versions() | {"meaning": meaning()}
        for worker, installed in there.items():
            different = [
                f"{name} {installed.get(name)}, here {version}"
                for name, version in here.items()
                if installed.get(name) != version
            ]
            if different:
                has = f"has {', '.join(different)}" if installed else "has no presilicon"
                raise ConfigError(f"--on {address}: worker {worker} {has}; install the same versions there")
        self._check_directory(address, out)

    def _check_processors(self, address: str, kind: Mapping[str, str] | None) -> None:
        """All workers must be of the same kind as this process, unless any may train."""
        if kind is None:
            return
        device = "cuda" if "gpu" in kind else "cpu"
        there = self._client.run(lambda name: __import__("presilicon.base").base.processor(name), device)
        for worker, other in there.items():
            if other != kind:
                raise ConfigError(
                    f"--on {address}: worker {worker} is {describe_processor(other)}, and this is "
                    f"{describe_processor(kind)}: their trainings differ in bits; use workers of one kind, or set "
                    "any_processor = true in [train] (--any-processor), which marks the result"
                )

    def _check_directory(self, address: str, out: Path) -> None:
        """Every worker must see a file that is written here."""
        try:
            out.mkdir(parents=True, exist_ok=True)
            token = out.resolve() / f".seen-{secrets.token_hex(8)}"
            token.touch()
        except OSError as error:
            raise ConfigError(f"cannot write runs to {out}: {error.strerror}. Choose another directory") from None
        try:
            seen = self._client.run(lambda path: __import__("os").path.exists(path), str(token))
        finally:
            token.unlink(missing_ok=True)
        blind = [worker for worker, sees in seen.items() if not sees]
        if blind:
            raise ConfigError(
                f"--on {address}: worker {blind[0]} does not see {out}; give --out a directory on a file system that "
                "all of them share"
            )

    def run(self, work: TaskBatch) -> Iterator[TaskOutcome]:
        """Outcomes as tasks finish; the scheduler gives those of a worker that died to another. Events stay there."""
        import cloudpickle  # type: ignore[import-untyped]
        from distributed import CancelledError, KilledWorker, as_completed

        registered = registrations(cloudpickle.dumps)  # functions of the main program travel by value
        futures = {
            self._client.submit(attempt, work.function, task, registered, pure=False): number
            for number, task in enumerate(work.tasks)
        }
        has_ended = threading.Event()
        threading.Thread(target=self._watch, args=(has_ended,), daemon=True).start()
        try:
            for future in as_completed(futures, loop=self._client.loop):
                number = futures[future]
                try:
                    yield TaskOutcome(number, work.tasks[number], *future.result())
                except KilledWorker:
                    failure = RunFailedError("its workers died (out of memory, perhaps)")
                    yield TaskOutcome(number, work.tasks[number], failure=failure, is_lost=True)
                except CancelledError:
                    raise RunFailedError(
                        "the Dask scheduler went away; the same command continues when it is back"
                    ) from None
                future.release()
        finally:
            has_ended.set()
            self._client.cancel(list(futures))

    def _watch(self, has_ended: threading.Event) -> None:
        """Warn when the last worker goes; tasks wait for new ones."""
        had_workers = True
        while not has_ended.wait(LOOK_S):
            has_workers = bool(self._client.nthreads())
            if had_workers and not has_workers:
                message = 'the Dask scheduler has no workers any more; waiting for new ones, from "dask worker ADDRESS"'
                warnings.warn(message, NoWorkersWarning, stacklevel=1)
            had_workers = has_workers

    def close(self) -> None:
        """Leave the cluster, which goes on without us."""
        self._client.close(timeout=TIMEOUT_S)
