"""Parts of a design that are emulated are in its price, or a remark says that they are not."""

import pytest

from presilicon.designs import load_design
from presilicon.simulation import area, simulate

SMALL = ["machine.rows=4", "machine.cols=4"]
CHUNKED = [f"numerics.mac.{part}" for part in ("accumulate=float16", "order=chunked", "chunk=64")]


@pytest.mark.parametrize("name", ["bf16-systolic", "caterpillar-small"])
def test_sums_inside_chunks_are_priced_as_wide_as_they_are(linear_step, name: str) -> None:
    small = SMALL if name == "bf16-systolic" else []
    wide = [*small, *CHUNKED, "numerics.mac.accumulate=float32"]
    designs = [load_design(name, settings) for settings in ([*small, *CHUNKED, "numerics.mac.partial=float32"], wide)]
    given, expected = (simulate(linear_step(), design) for design in designs)
    assert given.energy_by_component_j == expected.energy_by_component_j
    assert given.time_s == expected.time_s
    assert area(designs[0]) == area(designs[1])
