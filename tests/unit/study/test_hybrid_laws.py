"""Laws of executed schedules: the power that a meter is read at, and which ops of a step get a size class."""

import random
from types import SimpleNamespace

import pytest

from presilicon.scheduling import PowerMeter
from presilicon.study import capture_steps, hybrid_context
from presilicon.study.hybrid_context import _power_reader
from presilicon.study.scheduling import to_graph


def test_power_is_the_energy_since_the_last_reading_over_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(2)
    now_s, energy_j, read_s, read_j, power_w = 50.0, 1000.0, 50.0, 1000.0, 0.0
    monkeypatch.setattr(hybrid_context, "time", SimpleNamespace(perf_counter=lambda: now_s))
    read = _power_reader(PowerMeter("counter", lambda: energy_j))
    assert read() == 0.0  # nothing is known before the first reading after the start
    for _ in range(200):
        now_s += draw.choice([0.0, 0.0004, 0.002, 1.5])
        energy_j = draw.choice([energy_j, energy_j + draw.uniform(0.0, 90.0), 3.0])  # counters begin again
        if now_s - read_s > 1e-3:  # the counter moves once in a millisecond
            power_w = max(energy_j - read_j, 0.0) / (now_s - read_s)
            read_s, read_j = now_s, energy_j
        assert read() == pytest.approx(power_w)


def test_a_meter_of_power_is_read_as_it_is() -> None:
    assert _power_reader(PowerMeter("power", None, power_w=lambda: 12.5))() == 12.5
    assert _power_reader(PowerMeter("both", lambda: 1.0, power_w=lambda: 12.5))() == 12.5
    assert _power_reader(PowerMeter("given", None, given_w=7.5))() == 7.5


def test_only_kinds_of_the_table_get_a_size_class_whatever_lists_them() -> None:
    [step] = capture_steps("digits-mlp", 16)
    plain = to_graph(step, sizing="tensor")
    kinds = sorted({op.kind for op in plain.ops})
    assert all(op.size for op in plain.ops)
    for known in (kinds[:2], kinds[1:], [], kinds):
        for listed in (known, frozenset(known), iter(known), (kind for kind in known)):
            graph = to_graph(step, sizing="tensor", kinds=listed)
            assert [op.size for op in graph.ops] == [op.size if op.kind in known else "" for op in plain.ops]
    assert not any(op.size for op in to_graph(step, kinds=kinds).ops)
