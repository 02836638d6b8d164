"""A file that begins from a base and gives path = value is the base with --set path=value."""

from random import Random

import pytest
from msgspec.structs import replace

from presilicon.base import ConfigError, to_toml
from presilicon.designs import Hardware, Instrument, design_names, load_design, load_recipe, load_system, recipe_names
from presilicon.designs.design import flat_fields

ROLES = {"weight": "e5m2", "error": "int8", "gradient": "bfloat16", "master": "float16"}


def changes(design) -> dict[str, object]:
    """Paths with another value than the design's own: roles as texts and as tables, numbers and switches."""
    found: dict[str, object] = {f"numerics.{role}": text for role, text in ROLES.items()}
    found |= {"numerics.error.rounding": "stochastic", "numerics.weight.format": "e4m3"}
    for path, value in flat_fields(design.to_plain()).items():
        if path.startswith("machine.matrix"):  # a list of units replaces that of the base (docs/gpus.md)
            continue
        if isinstance(value, bool) and path.startswith(("machine.", "numerics.")):
            found[path] = not value
        elif isinstance(value, int) and "[" not in path and path.startswith("machine."):
            found[path] = value + 8
    return found


def nested(path: str, value: object) -> dict[str, object]:
    for key in reversed(path.split(".")):
        value = {key: value}
    return value


def spelled(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@pytest.mark.parametrize("base", design_names())
def test_a_path_in_a_file_equals_the_same_path_set(base: str, tmp_path) -> None:
    own = load_design(base)
    candidates = changes(own)
    chosen = [*[f"numerics.{role}" for role in ROLES], "numerics.error.rounding", "numerics.weight.format"]
    chosen += Random(base).sample(sorted(set(candidates) - set(chosen)), k=min(6, len(set(candidates) - set(chosen))))
    for path in chosen:
        file = tmp_path / "relative.toml"
        file.write_text(to_toml({"name": "relative", "base": base, **nested(path, candidates[path])}))
        outcomes = []
        for load in (
            lambda f=file: load_design(f),
            lambda p=path: load_design(base, [f"{p}={spelled(candidates[p])}"]),
        ):
            try:
                plain = load().to_plain()
                outcomes.append({key: value for key, value in plain.items() if key not in ("name", "description")})
            except Exception as error:
                outcomes.append(type(error).__name__)
        assert outcomes[0] == outcomes[1], path


def test_a_relative_keeps_the_other_roles_of_a_recipe(tmp_path) -> None:
    file = tmp_path / "relative.toml"
    file.write_text(
        'name = "relative"\nbase = "h200"\n[numerics]\nerror = { format = "bfloat16", rounding = "stochastic" }\n'
    )
    base, relative = load_design("h200").numerics, load_design(file).numerics
    assert (relative.weight, relative.activation, relative.gradient) == (base.weight, base.activation, base.gradient)
    assert relative.error.is_stochastic


@pytest.mark.parametrize("base", recipe_names())
def test_recipes_inherit_roles_as_designs_do(base: str, tmp_path) -> None:
    file = tmp_path / "relative.toml"
    file.write_text(f'base = "{base}"\nerror = {{ rounding = "stochastic" }}\n')
    own, relative = load_recipe(base).numerics, load_recipe(file).numerics
    assert relative.error.format == own.error.format
    assert relative.error.is_stochastic
    assert relative.weight == own.weight


def test_a_recipe_over_a_table_replaces_it(tmp_path) -> None:
    file = tmp_path / "relative.toml"
    file.write_text('name = "relative"\nbase = "edge-fp8"\nnumerics = "bf16"\n')
    assert load_design(file).numerics == load_recipe("bf16").numerics


@pytest.mark.parametrize("seed", range(24))
def test_a_design_written_and_read_is_the_design(seed: int, tmp_path) -> None:
    random = Random(seed)
    base = random.choice(design_names())
    candidates = changes(load_design(base))
    settings = [f"{path}={spelled(candidates[path])}" for path in random.sample(sorted(candidates), k=4)]
    try:
        design = load_design(base, settings)
    except ConfigError:  # fields that do not go together
        design = load_design(base)
    if random.random() < 0.5:
        functions = random.sample(Hardware().alu, k=random.randrange(len(Hardware().alu)))
        hardware = replace(Hardware(), alu=tuple(functions), reduce=tuple(random.sample(Hardware().reduce, k=1)))
        design = replace(design, instrument=Instrument(taps=(), hardware=hardware))
    file = tmp_path / "written.toml"
    file.write_text(to_toml(design.to_plain(), design))
    assert load_design(file) == design


@pytest.mark.parametrize(
    ("load", "base", "keys"),
    [
        (load_design, "bf16-systolic", ("name", "base")),
        (load_recipe, "bf16", ("base", "description", "source")),
        (load_system, "v100-3xs10", ("name", "base")),
    ],
)
def test_an_unknown_key_is_answered_with_every_key_that_a_file_may_have(load, base: str, keys, tmp_path) -> None:
    """Those, too, that are read before the rest."""
    path = tmp_path / "mine.toml"
    given = "".join(f'{key} = "{base}"\n' for key in keys)
    path.write_text(given)
    load(path)
    path.write_text(f"{given}zebra = 1\n")
    with pytest.raises(ConfigError, match='unknown key "zebra"') as raised:
        load(path)
    assert set(keys) <= set(str(raised.value).partition("Allowed: ")[2].split(", "))
    path.write_text(given.replace("base", "bsae", 1))
    with pytest.raises(ConfigError, match='unknown key "bsae": did you mean "base"'):
        load(path)
