"""The instrument's section of a design file."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from presilicon.base import ConfigError, to_toml
from presilicon.designs import Hardware, Instrument, Tap, load_design

EXAMPLE = Path(__file__).parents[3] / "examples" / "watched.toml"


def test_the_example_and_what_design_show_makes_of_it(tmp_path: Path) -> None:
    design = load_design(EXAMPLE)
    assert design.instrument is not None
    assert [tap.name for tap in design.instrument.taps] == ["into", "slope"]
    assert design.instrument.taps[0] == Tap(name="into", layers="*", aggregation="summary")
    shown = tmp_path / "shown.toml"
    shown.write_text(to_toml(design.to_plain()))
    assert load_design(shown) == design


def test_a_design_without_one_says_nothing_of_it() -> None:
    assert "instrument" not in load_design("bf16-systolic").to_plain()


def test_one_tap_still_has_a_stream() -> None:
    assert not Hardware().flushes
    assert Instrument().built.flushes
    several = Instrument(hardware=Hardware(taps=2))
    assert several.built is several.hardware


def test_ranges_that_are_left_out_fit_the_lanes(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(EXAMPLE.read_text().replace("lanes = 32\nranges = 32", "lanes = 8"))
    found = load_design(file).instrument
    assert found is not None
    assert (found.hardware.lanes, found.hardware.ranges) == (8, 8)
    assert (Hardware().ranges, Hardware(lanes=256).ranges, replace(Hardware(), lanes=64).ranges) == (32, 32, 32)
    with pytest.raises(ConfigError, match="ranges must be at most 8, the number of lanes"):
        Hardware(lanes=8, ranges=16).check()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("[instrument]", "[instrument]\nclock = 3"), 'unknown key "clock": did you mean "clock_mhz"'),
        (('role = "gradient"', 'role = "slope"'), "Allowed: activation, error, gradient, weight"),
        (('name = "slope"', 'name = "into"'), 'two are called "into"'),
        (('name = "slope"', 'name = " "'), "must be printable text"),
        (('layers = "*"', 'layers = ""'), "layers must be printable text"),
        (("every = 10", "every = 0"), "every"),
        (("lanes = 32", "lanes = 12"), "lanes must be a power of two, not 12"),
        (("taps = 8", 'taps = 1\nflush = "never"'), "a stream needs results at the end of every frame"),
        (('element = "bfloat16"', 'element = "posit(8, 1)"'), "the instrument does not support"),
    ],
)
def test_what_is_wrong_is_said_at_its_place(tmp_path: Path, change: tuple[str, str], said: str) -> None:
    text = EXAMPLE.read_text()
    assert change[0] in text
    file = tmp_path / "mine.toml"
    file.write_text(text.replace(*change))
    with pytest.raises(ConfigError, match=r"mine\.toml, .*instrument") as found:
        load_design(file)
    assert said in str(found.value)
