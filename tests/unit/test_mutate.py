"""The tool that makes mistakes in the code: each kind of mistake, where none is made, and a survivor that it prints."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def _load(name: str):
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


imports, mutants, mutate = _load("imports"), _load("mutants"), _load("mutate")

DEFINITIONS = """
def scaled(x, factor=1, offset=0): ...
class Price:
    time_s: float
    area_mm2: float = 0.0
"""


def changed(kind: str, source: str) -> set[str]:
    """The lines that mutants of a kind put in the place of the last line."""
    defaults = mutants.defaults_of([DEFINITIONS, source])
    found = mutants.mutants_of(source, defaults, range(2, 9))[kind]
    return {mutant.apply(source).removeprefix(source[: source.rindex("\n") + 1]) for mutant in found}


@pytest.mark.parametrize(
    ("kind", "line", "becomes"),
    [
        ("dropped term", "    return a * (b + c)",
         {"    return a", "    return (b + c)", "    return a * (b)", "    return a * (c)"}),
        ("dropped term", "    a += b", {"    a = b"}),
        ("swapped role", "    return f(a, b)", {"    return f(b, a)", "    return f(b, b)", "    return f(a, a)"}),
        ("swapped role", '    return by["forward"]', {'    return by["backward"]'}),
        ("swapped role", "    return max(c, d)", set()),
        ("swapped role", "    return np.maximum(c, d)", set()),
        ("ignored argument", "    return c + d", {"    return 7 + d", "    return c + 'x'"}),
        ("missing copy", "    return list(a), b.clone()", {"    return a, b.clone()", "    return list(a), b"}),
        ("comparison off by one", "    return a < b >= c", {"    return a <= b >= c", "    return a < b > c"}),
        ("comparison off by one", "    return draw.random() < 0.25", set()),
        ("min for max", "    return min(a, b)", {"    return max(a, b)"}),
        ("first for last", "    return a[0], b[1:]", {"    return a[-1], b[1:]", "    return a[0], b[:-1]"}),
        ("changed constant", "    return 0", {"    return 1"}),
        ("changed constant", "    return 5, True", {"    return 4, True", "    return 6, True", "    return 5, False"}),
        ("changed condition", "    return a if c else b",
         {"    return a if not c else b", "    return a if True else b", "    return a if False else b"}),
        ("changed condition", "    return [x for x in a if x]",
         {"    return [x for x in a if not x]", "    return [x for x in a if True]"}),
        ("changed condition", "    return a and b", {"    return (a)", "    return (b)"}),
        ("early exit", "    for x in a:\n        print(x)", {"        print(x)\n        break"}),
        ("sum for mean", "    return x.sum()", {"    return x.mean()"}),
        ("and for or", "    return a and b or c", {"    return (a or b) or c", "    return ((a and b) and c)"}),
        ("omitted keyword", "    return scaled(a, factor=2, offset=b)",
         {"    return scaled(a, offset=b)", "    return scaled(a, factor=2)"}),
        ("omitted keyword", "    return Price(time_s=a, area_mm2=b)", {"    return Price(time_s=a)"}),
        ("short key", "    return cache[a, b]", {"    return cache[(b,)]", "    return cache[(a,)]"}),
    ],
)  # fmt: skip
def test_each_kind_of_mistake_changes_one_place(kind: str, line: str, becomes: set[str]) -> None:
    assert changed(kind, f"def f(a, b, c=7, d='x'):\n{line}") == becomes


def test_what_came_in_may_be_returned_as_it_was() -> None:
    source = "def drop(facts: Facts, count: int) -> Facts:\n    return replace(facts, count)"
    assert changed("unchanged return", source) == {"    return facts"}


def test_a_sum_becomes_the_mean_that_it_says() -> None:
    source = "total = sum(x for x in (1.0, 2.0, 6.0))"
    [mutant] = mutants.mutants_of(source, {})["sum for mean"]
    scope: dict[str, float] = {}
    exec(mutant.apply(source), scope)
    assert scope["total"] == 3.0


@pytest.mark.parametrize(
    "line",
    [
        '"""Adds 1 to 2."""',
        'raise ConfigError("at most 5", 1 + 2)',
        "from a import b",
        "x: Literal[1, 2] = y",
        'warn("at least 1" + x, stacklevel=2)',
        "@lru_cache(maxsize=16)\ndef f(): ...",
        'path.open(encoding="utf-8", errors="strict")',
        "if TYPE_CHECKING:\n    a = 1 + 2",
        '__all__ = ["a", "b"]',
    ],
)
def test_lines_that_decide_nothing_are_left_alone(line: str) -> None:
    assert not any(mutants.mutants_of(line, {}).values())


def test_only_the_asked_lines_are_changed() -> None:
    source = "a = 1 + b\nc = 2 + d\n"
    found = mutants.mutants_of(source, {}, [2])
    assert {mutant.line for group in found.values() for mutant in group} == {2}


def test_a_mutant_that_is_no_python_or_no_change_is_not_tried() -> None:
    same = mutants.Mutant("and for or", 1, 0, 1, "(a)")
    broken = mutants.Mutant("and for or", 1, 0, 1, "a b")
    assert [mutant.changes("a = 1") for mutant in (same, broken)] == [False, False]


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A package with a function that a test judges and one that no test calls."""
    package, tests = tmp_path / "src" / "presilicon" / "study", tmp_path / "tests" / "unit" / "study"
    for folder in (package, tests):
        folder.mkdir(parents=True)
    (package.parent / "__init__.py").write_text("")
    (package / "__init__.py").write_text("from presilicon.study.sums import total, worst\n")
    (package / "sums.py").write_text("def total(p, q):\n    return p - q\n\n\ndef worst(p, q):\n    return max(p, q)\n")
    (package / "rates.py").write_text("from presilicon.study import total\n\n\ndef rate(a):\n    return total(a, 1)\n")
    (tests / "test_sums.py").write_text(
        "from presilicon.study import total, worst\n\n\ndef test_fails_anyway():\n    assert worst(1, 1) == 3\n\n\n"
        "def test_total():\n    assert total(2, 3) == -1\n\n\ndef test_worst():\n    assert worst(4, 4) == 4\n"
    )
    (tests / "test_rates.py").write_text(
        "from presilicon.study.rates import rate\n\n\ndef test_rate():\n    assert rate(1) == 0\n"
    )
    for command in (["init", "-q", "-b", "main"], ["add", "."],
                    ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "Begin"]):  # fmt: skip
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    monkeypatch.setattr(mutate, "ROOT", tmp_path)
    monkeypatch.setattr(mutate, "EQUIVALENTS", tmp_path / "equivalents.toml")
    (tmp_path / "equivalents.toml").write_text("")
    return tmp_path


def test_tests_come_nearest_first_and_through_a_rooms_init(tree) -> None:
    graph = imports.ImportGraph(tree)
    assert graph.tests_of("src/presilicon/study/sums.py") == [
        "tests/unit/study/test_sums.py",
        "tests/unit/study/test_rates.py",
    ]
    assert graph.tests_of("src/presilicon/study/rates.py") == ["tests/unit/study/test_rates.py"]


def test_tests_that_name_the_function_come_before_others_of_the_room(tree) -> None:
    folder = tree / "tests" / "unit" / "study"
    for name, function in (("aa", "total"), ("zz", "worst")):
        (folder / f"test_{name}.py").write_text(f"from presilicon.study import {function}\n")
    graph = imports.ImportGraph(tree)
    orders = [graph.tests_of("src/presilicon/study/sums.py", name) for name in ("total", "_worst")]
    assert [[Path(test).stem for test in order[:2]] for order in orders] == [
        ["test_sums", "test_aa"], ["test_sums", "test_zz"],
    ]  # fmt: skip
    assert sorted(orders[0]) == sorted(orders[1])
    source = "a = 1\n\n\ndef outer():\n    def inner():\n        return 1\n    return 2\n"
    assert [mutants.function_at(source, line) for line in (1, 4, 6, 7)] == ["", "outer", "inner", "outer"]


def test_a_survivor_is_printed_and_a_noticed_mutant_says_how(tree, capsys) -> None:
    before = {path: path.read_text() for path in tree.rglob("*.py")}
    assert mutate.main(["study/sums.py", "--count", "9", "--least", "100", "--limit", "60"]) == 1
    printed = capsys.readouterr().out
    # Only `worst` was judged with equal numbers; the test that fails anyway is no judge.
    assert "SURVIVES  src/presilicon/study/sums.py:6: min for max: 2 files of tests pass" in printed
    assert "    -     return max(p, q)\n    +     return min(p, q)\n" in printed
    assert (
        "noticed   src/presilicon/study/sums.py:2: dropped term: fails tests/unit/study/test_sums.py::test_total"
        in (printed)
    )
    assert "test_fails_anyway" not in printed
    assert printed.endswith("1 of 2 mutants noticed (50%)\n")
    assert {path: path.read_text() for path in before} == before


def test_the_lines_that_a_branch_changed_are_those_of_its_files_as_they_are_now(tree) -> None:
    path = tree / "src" / "presilicon" / "study" / "sums.py"
    subprocess.run(["git", "checkout", "-qb", "branch"], cwd=tree, check=True)
    path.write_text(path.read_text().replace("return max(p, q)", "larger = max(p, q)\n    return larger"))
    assert mutate.changed_lines(tree, "main") == {"src/presilicon/study/sums.py": {6, 7}}
    found = mutate.sites_in(["study"], mutate.changed_lines(tree, "main"))
    assert [str(site) for sites in found.values() for site in sites] == ["src/presilicon/study/sums.py:6: min for max"]
    with pytest.raises(SystemExit, match="nothing in common with nowhere"):
        mutate.changed_lines(tree, "nowhere")


def test_at_most_one_of_twenty_mutants_is_taken_for_equivalent(tree, capsys) -> None:
    path = tree / "src" / "presilicon" / "study" / "sums.py"
    path.write_text("".join(f"def f{number}(p, q):\n    return max(p, q)\n\n\n" for number in range(40)))
    (tree / "equivalents.toml").write_text(
        '[[equivalent]]\nfile = "study/sums.py"\nbefore = "return max(p, q)"\nafter = "return min(p, q)"\n'
        'reason = "p is q"\n'
    )
    for count, excused in ((40, 2), (39, 1), (19, 0)):
        assert mutate.main(["study/sums.py", "--count", str(count), "--list"]) == 0
        assert capsys.readouterr().out.count("is equivalent: p is q") == excused


def test_the_same_seed_draws_the_same_mutants_and_no_mutant_twice(tree) -> None:
    sites = mutate.sites_in(["study"], None)
    draws = [list(mutate.draw(sites, 9, seed)) for seed in (1, 1)]
    assert draws[0] == draws[1]
    assert len(set(draws[0])) == len(draws[0])


def test_members_of_extension_points_and_imports_of_written_programs_are_followed(tree) -> None:
    package, tests = tree / "src" / "presilicon", tree / "tests" / "unit" / "study"
    (package / "kinds").mkdir()
    (package / "kinds" / "__init__.py").write_text("from presilicon.kinds.first import First\n")
    (package / "kinds" / "first.py").write_text("class First: ...\n")
    (package / "study" / "choice.py").write_text('KINDS = {"first": "presilicon.kinds:First"}\n')
    (tests / "test_choice.py").write_text("from presilicon.study.choice import KINDS\n")
    (tests / "test_script.py").write_text('SCRIPT = """\nimport sys\nfrom presilicon.kinds import First, other\n"""\n')
    graph = imports.ImportGraph(tree)
    found = graph.tests_of("src/presilicon/kinds/first.py")
    assert [Path(test).stem for test in found] == ["test_script", "test_choice"]


def test_a_module_that_is_imported_by_its_name_as_text_has_the_tests_that_name_it(tree) -> None:
    (tree / "src" / "presilicon" / "study" / "late_rates.py").write_text("def late():\n    return 1\n")
    (tree / "tests" / "unit" / "study" / "test_named.py").write_text('NAME = "late-rates"\n')
    graph = imports.ImportGraph(tree)
    assert graph.tests_of("src/presilicon/study/late_rates.py") == ["tests/unit/study/test_named.py"]


def test_laws_of_the_room_come_before_other_tests_of_the_folder(tree) -> None:
    unit, cross = tree / "tests" / "unit" / "study", tree / "tests" / "cross" / "study" / "sub"
    cross.mkdir(parents=True)
    (unit / "test_aa.py").write_text("from presilicon.study.rates import rate\n")
    (cross / "test_some_laws.py").write_text("from presilicon.study.rates import rate\n")
    graph = imports.ImportGraph(tree)
    order = [Path(test).stem for test in graph.tests_of("src/presilicon/study/sums.py")]
    assert order == ["test_sums", "test_some_laws", "test_aa", "test_rates"]


@pytest.mark.slow
def test_a_test_that_hangs_or_cannot_run_anyway_is_no_judge_and_one_that_the_mutant_hangs_is(
    tree, capsys, monkeypatch
) -> None:
    monkeypatch.setattr(mutate, "TEST_LIMIT_S", 6)
    tests = tree / "tests" / "unit" / "study"
    (tests / "test_sums.py").unlink()
    (tests / "test_rates.py").write_text(
        "import os, time\n\nfrom presilicon.study.sums import total\n\n\n"
        "def test_crashes_anyway():\n    os._exit(3)\n\n\n"
        "def test_hangs_anyway():\n    time.sleep(30)\n\n\n"
        "def test_counts_down():\n    left = 3\n    while left > 0:\n        left = total(left, 1)\n"
    )
    (tests / "test_aa.py").write_text("from presilicon.study import total\nfrom nowhere import anything\n")
    assert mutate.main(["study/sums.py", "--count", "9", "--limit", "90"]) == 0
    printed = capsys.readouterr().out
    assert "hangs in tests/unit/study/test_rates.py::test_counts_down" in printed
    assert "anyway" not in printed


def test_the_limit_grows_with_the_load_of_the_machine(monkeypatch) -> None:
    monkeypatch.setattr(mutate.os, "cpu_count", lambda: 4)
    for load, factor in ((0.5, 1.0), (4.0, 1.0), (10.0, 2.5)):
        monkeypatch.setattr(mutate.os, "getloadavg", lambda load=load: (load, 0.0, 0.0))
        assert mutate.crowding() == factor
