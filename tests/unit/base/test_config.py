from typing import Annotated, ClassVar, Literal

import pytest
from msgspec import Meta, Struct

from presilicon.base import ConfigError, Source, apply_settings, decode_config, parse_toml, read_toml, to_plain, to_toml


class Part(Struct, frozen=True, forbid_unknown_fields=True):
    shorthand: ClassVar[str] = "size"
    size: Annotated[int, Meta(ge=1)]
    colour: Literal["red", "green"] = "red"


class Square(Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="square"):
    side: float


class Circle(Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="circle"):
    radius: float


class Whole(Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    part: Part
    parts: tuple[Part, ...] = ()
    shape: Square | Circle | None = None

    def check(self) -> None:
        if self.name == "forbidden":
            raise ConfigError("this name is taken")


GOOD = """
name = "a"
parts = [1, { size = 2, colour = "green" }]

[part]
size = 3
"""


def load(text: str, *settings: str) -> Whole:
    data, source = parse_toml(text, "a.toml")
    return decode_config(apply_settings(data, settings, Whole, source), Whole, source)


def test_reads_shorthands_and_tables_alike() -> None:
    whole = load(GOOD)
    assert whole == Whole(name="a", part=Part(3), parts=(Part(1), Part(2, "green")))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (GOOD.replace("size = 3", "sise = 3"), ["a.toml, line 6", "$.part.sise", 'did you mean "size"']),
        (GOOD.replace("size = 3", "size = -3"), ["line 6", "$.part.size", "given -3", ">= 1"]),
        (GOOD.replace("size = 3", 'size = "3"'), ["$.part.size", "given '3'", "int"]),
        (GOOD.replace("size = 3", "size = true"), ["$.part.size", "given True", "int"]),
        (GOOD.replace('"green"', '"gren"'), ["$.parts[1].colour", "'gren'", 'did you mean "green"', "red"]),
        (GOOD.replace('name = "a"', ""), ['required key "name" is missing']),
        (GOOD.replace('name = "a"', 'name = "forbidden"'), ["this name is taken"]),
        (GOOD + '\n[shape]\nkind = "squar"\nside = 1\n', ["$.shape.kind", 'did you mean "square"']),
        (GOOD + "\n[shape]\nside = 1\n", ["$.shape", '"kind" is missing', "circle"]),
        (GOOD + '\n[shape]\nkind = "square"\nside = inf\n', ["$.shape.side", "finite"]),
        (GOOD + '\n[shape]\nkind = "square"\nside = nan\n', ["$.shape.side", "finite"]),
        (GOOD + '\n[shape]\nkind = "square"\nradius = 1\n', ["$.shape.radius", "Allowed: side"]),
    ],
)
def test_an_error_says_where_what_and_what_instead(text: str, words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        load(text)
    for word in words:
        assert word in str(caught.value)


def test_settings_override_any_field_with_the_same_checks() -> None:
    assert load(GOOD, "part.size=7").part.size == 7
    assert load(GOOD, "part=9").part.size == 9
    assert load(GOOD, "part.colour=green", "name=b").part.colour == "green"
    assert load(GOOD, 'shape={kind="circle", radius=2}').shape == Circle(2)
    for setting, word in [
        ("part.size=0", "given 0"),
        ("part.sise=1", 'did you mean "size"'),
        ("part.size", "write a path and a value"),
        ("=3", "write a path and a value"),
        ("name.first=a", "a single value"),
        ("part.size=many", "given 'many'"),
    ]:
        with pytest.raises(ConfigError, match=word.replace(".", r"\.")):
            load(GOOD, setting)


def test_a_shorthand_can_be_refined_by_a_setting() -> None:
    text = GOOD.replace("[part]\nsize = 3", "").replace('name = "a"', 'name = "a"\npart = 3')
    assert load(text, "part.colour=green").part == Part(3, "green")


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"", "empty"),
        (b"  \n", "empty"),
        (b"\xff\xfe\x00\x80", "not a text file"),
        (b"name = ", "not valid TOML"),
        (b"[part\nsize=3", "not valid TOML"),
        (b"\x00\x01", "not valid TOML"),
    ],
)
def test_files_that_cannot_be_read(tmp_path, content: bytes, word: str) -> None:
    path = tmp_path / "a.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=word):
        read_toml(path)


def test_missing_files_and_directories(tmp_path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        read_toml(tmp_path / "none.toml")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_toml(tmp_path)


def test_plain_and_toml_round_trip() -> None:
    whole = load(GOOD + '\n[shape]\nkind = "square"\nside = 1.5\n')
    text = to_toml(to_plain(whole))
    assert load(text) == whole


def test_place_names_the_nearest_line() -> None:
    source = Source("a.toml", 'x = 1\n[a.b]\nc = { d = 2 }\n[[e]]\nf = "g"\n')
    assert source.locate("$.a.b.c.d") == "a.toml, line 3, $.a.b.c.d"
    assert source.locate("$.e[0].f") == "a.toml, line 4, $.e[0].f"
    assert source.locate("$.nothing") == "a.toml, $.nothing"
