"""Facets of the machine kinds that come with the package."""

import pytest

import presilicon.designs
from presilicon.base import ConfigError
from presilicon.designs import MACHINES, load_design
from presilicon.records import Gemm
from presilicon.simulation import CaterpillarMachine, RooflineMachine, SystolicMachine


def machine(design: str, *settings: str):
    return load_design(design, settings).machine


def test_kinds_are_found_by_name() -> None:
    kinds = {"systolic": SystolicMachine, "caterpillar": CaterpillarMachine, "roofline": RooflineMachine}
    assert MACHINES.members() == kinds
    assert all(kind.summary() for kind in kinds.values())
    assert {type(machine(name)) for name in ("bf16-systolic", "caterpillar-small", "h200")} == set(kinds.values())


def test_names_of_the_kinds_can_be_imported_from_designs() -> None:
    assert presilicon.designs.SystolicMachine is SystolicMachine
    with pytest.raises(AttributeError, match="SystolicMachin"):
        _ = presilicon.designs.SystolicMachin


@pytest.mark.parametrize(
    ("design", "setting", "samples", "delays"),
    [
        ("bf16-systolic", "machine.rows=128", 32, (0, 0, 0)),
        ("caterpillar-small", "machine.schedule=minibatch", 32, (0, 0, 0)),
        ("caterpillar-small", "machine.schedule=sgd", 1, (0, 0, 0)),
        ("caterpillar-small", "machine.schedule=pipelined", 1, (4, 2, 0)),
        ("dgx-1", "machine.chips=8", 32, (0, 0, 0)),
    ],
)
def test_an_update_uses_the_samples_of_its_schedule(design, setting, samples, delays) -> None:
    rule = machine(design, setting).update_rule
    assert rule.samples_per_update(32) == samples
    assert rule.staleness(3) == delays


@pytest.mark.parametrize("design", ["bf16-systolic", "caterpillar-small"])
def test_a_machine_of_units_names_its_technology_and_clock(design) -> None:
    kind = machine(design, "machine.clock_ghz=0.75")
    assert (kind.technology, kind.dram_kind, kind.clock_ghz) == ("horowitz-45nm", "ddr3", 0.75)
    assert kind.memory_gib is None


def test_a_roofline_has_figures_of_its_own_and_a_memory() -> None:
    kind = machine("h200", "machine.memory_gib=100")
    assert (kind.technology, kind.dram_kind, kind.clock_ghz) == (None, None, None)
    assert kind.memory_gib == 100


@pytest.mark.parametrize("design", ["caterpillar-small", "h200"])
def test_only_a_systolic_machine_has_an_array(design) -> None:
    kind = machine(design)
    with pytest.raises(ConfigError, match="no systolic array"):
        kind.array_settings((4, 4), None, None)
    with pytest.raises(ConfigError, match="cells of a systolic array"):
        kind.play_product(Gemm(2, 2, 2))
    assert kind.for_product() == kind
    assert kind.describe_product() == {"machine": kind.kind}
