"""The packaged tables of cards are what the fitting code makes of the committed times, stated errors included."""

from pathlib import Path

import msgspec
import pytest

from presilicon import simulation
from presilicon.cards.characterizing import read_card
from presilicon.cards.fitting import fit
from presilicon.designs import RooflineMachine, load_design
from presilicon.simulation import MeasuredLayers

PACKAGED = Path(simulation.__file__).parent / "roofline/cards"
TIMES = Path(__file__).parents[3] / "evidence/cards/data"
ROUNDING = 5e-4
"""Results of linear algebra differ a little between processors, and errors are rounded to four digits."""


@pytest.mark.slow
@pytest.mark.parametrize(("name", "times"), [("xeon-8t", "xeon_layers.json"), ("h200", "h200_layers.json")])
def test_a_packaged_table_states_the_errors_of_all_its_layers(name: str, times: str) -> None:
    table = msgspec.json.decode((PACKAGED / f"{name}.json").read_bytes(), type=MeasuredLayers)
    card, machine = read_card(TIMES / times), load_design(name).machine
    assert isinstance(machine, RooflineMachine)
    fitted = fit(card.layers, card.times, machine, device=card.device, source=table.source)
    assert fitted.groups.keys() == table.groups.keys()
    for key, group in fitted.groups.items():
        stated = table.groups[key]
        assert stated.error == pytest.approx(group.error, abs=ROUNDING), key
        assert stated.set_aside == group.set_aside, key
        assert (stated.fixed_us, stated.reached) == pytest.approx((group.fixed_us, group.reached), rel=1e-3), key
    assert any(group.set_aside for group in table.groups.values())
