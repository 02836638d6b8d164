"""Formats and processing units that a program registers, in the workers of a study."""

import importlib
import textwrap

import pytest

from presilicon.base import ConfigError
from presilicon.formats import NAMED_FORMATS, NAMED_UNITS, ProcessingUnit, UserFormat
from presilicon.study.pool import LocalPool, TaskBatch, registrations


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


def test_what_cannot_be_sent_to_workers_is_refused(register):
    register(lambda code: code / 8)
    with pytest.raises(ConfigError, match=r"cannot be sent to workers .*: define their functions at the top level"):
        registrations()
