"""Formats and processing units that a program registers, in the workers of a study."""

import importlib
import textwrap

import pytest

from presilicon.base import ConfigError
from presilicon.formats import NAMED_FORMATS, NAMED_UNITS, ProcessingUnit, UserFormat
from presilicon.ops import enter, withdraw
from presilicon.study.pool import LocalPool, TaskBatch, attempt, registrations


@pytest.fixture
def register(monkeypatch):
    def register(function):
        fmt = UserFormat("travels8", fields=(("s", 1), ("m", 7)), as_float=function)
        unit = ProcessingUnit("travels8x4", fmt, lanes=4)
        monkeypatch.setitem(NAMED_FORMATS, fmt.name, fmt)
        monkeypatch.setitem(NAMED_UNITS, unit.name, unit)

    return register


def test_workers_know_what_was_registered_here(register, tmp_path, monkeypatch):
    (tmp_path / "travelling.py").write_text(
        textwrap.dedent("""
            from presilicon.formats import parse, parse_unit

            def as_float(code):
                return (code & 127) / 8 * (-1.0 if code & 128 else 1.0)

            def names(task):
                return parse("travels8").name, parse_unit("travels8x4").lanes
        """)
    )
    monkeypatch.syspath_prepend(tmp_path)
    travelling = importlib.import_module("travelling")
    register(travelling.as_float)
    outcomes = list(LocalPool(2).run(TaskBatch(travelling.names, [1, 2], trains=False)))
    assert [(outcome.result, outcome.error) for outcome in outcomes] == [(("travels8", 4), "")] * 2


def test_entries_of_the_op_table_are_known_in_workers(tmp_path, monkeypatch):
    (tmp_path / "bessel.py").write_text(
        textwrap.dedent("""
            from presilicon.ops import entry_named, function

            def one_more(x):
                return x + 1

            ENTRY = function("i0e", backward="", formula=one_more, results=12)

            def results(task):
                entry = entry_named("i0e")
                return None if entry is None else (entry.forward.results, entry.forward.formula.__name__)
        """)
    )
    monkeypatch.syspath_prepend(tmp_path)
    bessel = importlib.import_module("bessel")
    enter(bessel.ENTRY)
    try:
        outcomes = list(LocalPool(2).run(TaskBatch(bessel.results, [1, 2], trains=False)))
        assert [outcome.result for outcome in outcomes] == [(12, "one_more")] * 2
        sent = registrations()
    finally:
        withdraw("i0e")
    assert [attempt(bessel.results, 1, each)[0] for each in (b"", sent, b"")] == [None, (12, "one_more"), None]


def test_what_cannot_be_sent_to_workers_is_refused(register):
    register(lambda code: code / 8)
    with pytest.raises(ConfigError, match=r"cannot be sent to workers .*: define their functions at the top level"):
        registrations()


def test_only_workers_that_train_begin_with_torch(tmp_path, monkeypatch):
    (tmp_path / "looking.py").write_text("import sys\n\n\ndef has_torch(task):\n    return 'torch' in sys.modules\n")
    monkeypatch.syspath_prepend(tmp_path)
    looking = importlib.import_module("looking")
    for trains in (True, False):
        outcomes = list(LocalPool(2).run(TaskBatch(looking.has_torch, [1, 2], trains=trains)))
        assert [outcome.result for outcome in outcomes] == [trains] * 2
