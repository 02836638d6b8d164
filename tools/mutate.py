"""Would the tests notice? Makes realistic mistakes in a room and prints those that no test notices.

    python tools/mutate.py ROOM ...              mutants in the lines of rooms, folders or modules (study/join/looks.py)
    python tools/mutate.py [ROOM ...] --changed  in the lines that this branch changed against main

Options: --seed and --count draw kinds and lines; --limit is the time of the tests of one mutant, in seconds on a
machine at rest (more where others use it too); --least exits with 1 below that percentage; --jobs runs several mutants
at a time; --list only prints the mutants.

Each mutant stands in a copy of the tree, never in the tree itself, with caches of its own (what is compiled from
unchanged sources is shared). The tests that import its module run until one fails, nearest first: the module's own
examples and unit test, then tests that import it, then those of its room and the others that reach it. A test that
fails, hangs or crashes without the mutant too proves nothing and is left out. A mutant whose tests hang or crash, or
that cannot be imported, is noticed, and the line says how; one whose tests outlast the limit is not.

A mutant that changes nothing that could be observed is listed with its reason in `tools/equivalents.toml`; at most
5% of those tried are left out for it.
"""

import argparse
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parent))
from imports import PACKAGES, ImportGraph
from mutants import Mutant, defaults_of, function_at, mutants_of

ROOT = Path(__file__).parents[1]
EQUIVALENTS = Path(__file__).with_name("equivalents.toml")
EQUIVALENT_SHARE = 0.05
TEST_LIMIT_S = 120
"""A test that takes longer hangs: without mutants each takes seconds."""
GROUPS = (4, 25)
"""How many test files the first processes run: most mutants are noticed by the nearest, and starting pytest is slow."""
PLUGIN = """
import faulthandler, os
import pytest

STDERR = os.dup(2)  # pytest takes the other one for itself

@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    os.write(STDERR, f"running {item.nodeid}\\n".encode())
    faulthandler.dump_traceback_later(float(os.environ["TEST_LIMIT_S"]), exit=True, file=STDERR)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()
"""


class Site(NamedTuple):
    """A mutant of a file of the tree."""

    path: str
    mutant: Mutant
    source: str

    @property
    def difference(self) -> list[str]:
        return self.mutant.difference(self.source)

    def __str__(self) -> str:
        return f"{self.path}:{self.mutant.line}: {self.mutant.kind}"


class Verdict(NamedTuple):
    """What the tests made of a mutant."""

    site: Site
    noticed: str
    """How; empty if it survives."""
    seconds: float
    remark: str = ""


class Tree:
    """A copy of the working tree in which mutants are tried, one at a time."""

    def __init__(self, root: Path, graph: ImportGraph, folder: Path) -> None:
        self.root, self.graph, self.folder = root, graph, folder
        listed = subprocess.run(["git", "ls-files", "-z", "-co", "--exclude-standard"], cwd=root, capture_output=True,
                                check=True, text=True).stdout  # fmt: skip
        for name in filter(None, listed.split("\0")):
            if (root / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(root / name, folder / name)
        (folder / "mutation_plugin.py").write_text(PLUGIN)
        self.cache = folder / "cache"
        _link_cache(self.cache)
        self.failing: set[str] = set()
        """Tests that fail without a mutant."""
        self.passing: set[str] = set()

    def try_mutant(self, site: Site, limit_s: float) -> Verdict:
        """Run the tests of a module with a mutant in it."""
        file, started = self.folder / site.path, time.monotonic()
        source = file.read_text(encoding="utf-8")
        tests = self.graph.tests_of(site.path, function_at(site.source, site.mutant.line))
        first, second = GROUPS
        limit_s *= crowding()
        groups = [tests[:first], tests[first : first + second], tests[first + second :]]
        ran_out = False
        for group in filter(None, groups):
            while True:
                left_s = limit_s - (time.monotonic() - started)
                outcome = self._mutated(site, source, group, left_s) if left_s > 0 else None
                if outcome is None:
                    ran_out = True
                    break
                noticed, test = outcome
                if not noticed:
                    break
                if not test or self._passes(test):
                    return Verdict(site, noticed, time.monotonic() - started)
            if ran_out:
                break
        remark = f"its tests outlast {limit_s:.0f} s" if ran_out else f"{len(tests)} files of tests pass"
        return Verdict(site, "", time.monotonic() - started, remark if tests else "no test imports it")

    def _mutated(self, site: Site, source: str, tests: list[str], limit_s: float) -> tuple[str, str] | None:
        file = self.folder / site.path
        _write(file, site.mutant.apply(source))
        try:
            return self._run(tests, limit_s, compiles="numba" in source)
        finally:
            _write(file, source)

    def _passes(self, test: str) -> bool:
        """Whether a test that failed passes without the mutant."""
        if test not in self.passing:
            outcome = self._run([test], TEST_LIMIT_S)
            (self.failing if outcome is None or outcome[0] else self.passing).add(test)
        return test in self.passing

    def _run(self, tests: list[str], limit_s: float, compiles: bool = False) -> tuple[str, str] | None:
        """How the tests noticed something (empty if they did not) and which; None if they ran out of time."""
        tests = [test for test in tests if test not in self.failing]  # files that cannot be imported anyway
        if not tests:
            return "", ""
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(map(str, (*_sources(self.folder), self.folder))),
            "PRESILICON_CACHE": str(self.cache),
            "TEST_LIMIT_S": str(TEST_LIMIT_S),
        }
        if compiles:  # what Numba kept of a caller holds the old callee
            environment["NUMBA_CACHE_DIR"] = str(self.cache / "numba")
        command = [sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "--tb=line", "-p", "mutation_plugin"]
        command += ["-p", "no:cacheprovider", "-p", "no:xdist", "-rfE"]
        command += [option for test in self.failing for option in ("--deselect", test)]
        try:
            run = subprocess.run([*command, *tests], cwd=self.folder, env=environment, capture_output=True,
                                 text=True, timeout=limit_s, errors="replace")  # fmt: skip
        except subprocess.TimeoutExpired:
            return None
        finally:
            _forget(self.cache)
        if run.returncode in (0, 5):
            return "", ""
        began = re.findall(r"^running (.*)$", run.stderr, re.MULTILINE)
        last_test = began[-1] if began else ""
        if "Timeout (" in run.stderr:
            return f"hangs in {last_test}", last_test
        failed = re.search(r"^(FAILED|ERROR) (\S+?\.(?:py|md)(?:::.*?)?)(?: - (.*))?$", run.stdout, re.MULTILINE)
        if failed is None:
            last = (run.stdout + run.stderr).strip().splitlines()
            return f"breaks pytest: {last[-1] if last else run.returncode}", last_test
        kind, test, message = failed.groups()
        how = "cannot be imported by" if kind == "ERROR" and "::" not in test else "fails"
        return f"{how} {test}" + (f" ({message[:90]})" if message else ""), test


def _sources(root: Path) -> list[Path]:
    """The folders from which the packages of a tree are imported."""
    return [(root / package).parent for package in PACKAGES]


def _write(file: Path, source: str) -> None:
    """Write a module; Python takes two texts of one length and second for the same, so what it compiled goes."""
    file.write_text(source, encoding="utf-8")
    for compiled in (file.parent / "__pycache__").glob(f"{file.stem}.*.pyc"):
        compiled.unlink()


def _link_cache(cache: Path) -> None:
    """Share what is compiled from sources; what Python code made of tools' output is made again."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "presilicon"
    known = Path(os.environ.get("PRESILICON_CACHE") or home)
    for part in ("graphs", "operators", "opencl", "rtl"):
        (cache / part).mkdir(parents=True)
        for entry in (known / part).glob("*"):
            if entry.name != "synthesis":
                (cache / part / entry.name).symlink_to(entry)


def _forget(cache: Path) -> None:
    """Remove what a mutant left in a cache."""
    for entry in [*cache.glob("*/*"), *cache.glob("numba")]:
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        elif not entry.is_symlink():
            entry.unlink()


def crowding() -> float:
    """How many times as long as on a machine at rest something takes here and now."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def changed_lines(root: Path, base: str) -> dict[str, set[int]]:
    """The lines of each source file that differ from where this branch left `base`."""
    ancestor = subprocess.run(
        ["git", "merge-base", base, "HEAD"], cwd=root, capture_output=True, text=True, check=False
    )
    if ancestor.returncode:
        sys.exit(f"--base: this branch has nothing in common with {base}: {ancestor.stderr.strip()}")
    command = ["git", "diff", "-U0", "--no-color", ancestor.stdout.strip(), "--", *map(str, _sources(root))]
    difference = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout
    lines: dict[str, set[int]] = defaultdict(set)
    path = ""
    for line in difference.splitlines():
        if line.startswith("+++ "):
            path = line.removeprefix("+++ ").removeprefix("b/")
        elif match := re.match(r"@@ \S+ \+(\d+)(?:,(\d+))?", line):
            first, count = int(match[1]), int(match[2] or 1)
            lines[path] |= set(range(first, first + count))
    return lines


def draw(by_kind: Mapping[str, list[Site]], count: int, seed: int) -> Iterator[Site]:
    """Up to `count` sites: kinds are drawn first, so that rare ones are tried as often as common ones."""
    generator, left = random.Random(seed), {kind: list(sites) for kind, sites in by_kind.items() if sites}
    while count and left:
        kind = generator.choice(sorted(left))
        sites = left[kind]
        site = sites.pop(generator.randrange(len(sites)))
        if not sites:
            del left[kind]
        if site.mutant.changes(site.source):
            count -= 1
            yield site


def sites_in(rooms: Iterable[str], lines: Mapping[str, set[int]] | None) -> dict[str, list[Site]]:
    """All mutants in rooms, folders or modules (all of them if none is named), by kind.

    `evidence`, `evidence/reproductions` and the like are those of the package of evidence.
    """
    engine, evidence = (ROOT / package for package in PACKAGES)
    named = list(rooms)
    places = [
        evidence / rest if room == "evidence" else engine / room / rest
        for room, _, rest in (name.partition("/") for name in named)
    ] or [engine, evidence]
    for name, place in zip(named, places, strict=False):
        if not place.exists():
            sys.exit(f"{name} is neither a room nor a module of {PACKAGES[0]}, nor of evidence")
    defaults = defaults_of(path.read_text(encoding="utf-8") for path in engine.rglob("*.py"))
    found: dict[str, list[Site]] = defaultdict(list)
    for place in places:
        for file in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
            path = str(file.relative_to(ROOT))
            if lines is None or path in lines:
                chosen = None if lines is None else lines[path]
                source = file.read_text(encoding="utf-8")
                for kind, mutants in mutants_of(source, defaults, chosen).items():
                    found[kind] += [Site(path, mutant, source) for mutant in mutants]
    return found


def equivalent_reason(site: Site, listed: Iterable[Mapping[str, str]]) -> str:
    """Why a mutant is known to change nothing; empty if it is not listed."""
    difference = [line[2:].strip() for line in site.difference]
    for entry in listed:
        if site.path.endswith(entry["file"]) and [entry["before"], entry["after"]] == difference:
            return entry["reason"]
    return ""


def judge(sites: list[Site], limit_s: float, jobs: int) -> Iterator[Verdict]:
    """The verdicts on the sites, as they come."""
    graph = ImportGraph(ROOT)
    with tempfile.TemporaryDirectory(prefix="mutate-") as folder:
        trees: Queue[Tree] = Queue()
        for job in range(jobs):
            (Path(folder) / str(job)).mkdir()
            trees.put(Tree(ROOT, graph, Path(folder) / str(job)))

        def verdict(site: Site) -> Verdict:
            tree = trees.get()
            try:
                return tree.try_mutant(site, limit_s)
            finally:
                trees.put(tree)

        with ThreadPoolExecutor(jobs) as pool:
            yield from pool.map(verdict, sites)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rooms", nargs="*", metavar="ROOM")
    parser.add_argument("--changed", action="store_true", help="only lines that this branch changed")
    parser.add_argument("--base", default="main", help="the branch that --changed compares with")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=15, help="mutants to try")
    parser.add_argument("--limit", type=float, default=300, metavar="S", help="seconds for the tests of one mutant")
    parser.add_argument("--least", type=float, default=0, metavar="PERCENT", help="exit with 1 below this rate")
    parser.add_argument("--jobs", type=int, default=1, help="mutants at a time")
    parser.add_argument("--list", action="store_true", help="print the mutants and run nothing")
    given = parser.parse_args(arguments)
    if not given.rooms and not given.changed:
        parser.error("name a room, or give --changed")

    lines = changed_lines(ROOT, given.base) if given.changed else None
    sites = list(draw(sites_in(given.rooms, lines), given.count, given.seed))
    listed = (
        tomllib.loads(EQUIVALENTS.read_text(encoding="utf-8")).get("equivalent", []) if EQUIVALENTS.exists() else []
    )
    reasons = {site: reason for site in sites if (reason := equivalent_reason(site, listed))}
    excused = dict(list(reasons.items())[: int(EQUIVALENT_SHARE * len(sites))])
    for site in sites if given.list else excused:
        print(site, f"is equivalent: {excused[site]}" if site in excused else "", flush=True)
        if given.list:
            print(_difference(site))
    tried = [site for site in sites if site not in excused]
    if given.list or not tried:
        return 0

    counts: Counter[bool] = Counter()
    for verdict in judge(tried, given.limit, given.jobs):
        counts[bool(verdict.noticed)] += 1
        if verdict.noticed:
            print(f"noticed   {verdict.site}: {verdict.noticed} [{verdict.seconds:.0f} s]", flush=True)
        else:
            print(f"SURVIVES  {verdict.site}: {verdict.remark} [{verdict.seconds:.0f} s]", flush=True)
            print(_difference(verdict.site), flush=True)
    rate = 100 * counts[True] / len(tried)
    left_out = f", {len(excused)} equivalent left out" if excused else ""
    print(f"{counts[True]} of {len(tried)} mutants noticed ({rate:.0f}%{left_out})")
    return int(rate < given.least)


def _difference(site: Site) -> str:
    return "\n".join(f"    {line}" for line in site.difference)


if __name__ == "__main__":
    sys.exit(main())
