"""Technology tables: labels, curves, kinds of DRAM, scaling."""

import pytest

from presilicon.base import ConfigError, decode_config, parse_toml, to_plain, to_toml
from presilicon.designs import Technology, curve_um2, figure_name, load_design, load_technology, technology_names

MINIMAL = """
name = "mine"
node_nm = 28
source = "measured"
float_multiply = [{ size = 11, pj = 1, label = "assumed" }, { size = 24, pj = 4, label = "assumed" }]
float_add = [{ size = 16, pj = 1, label = "assumed" }, { size = 32, pj = 2, label = "assumed" }]
int_multiply = [{ size = 8, pj = 1, label = "assumed" }, { size = 32, pj = 16, label = "assumed" }]
int_add = [{ size = 8, pj = 1, label = "assumed" }, { size = 32, pj = 4, label = "assumed" }]
sram_64bit = [{ size = 8, pj = 1, label = "assumed" }, { size = 32, pj = 2, label = "assumed" }]
dram = { lpddr5 = { pj = 300, label = "assumed" } }
"""


def read(text: str) -> Technology:
    data, source = parse_toml(text, "mine.toml")
    return decode_config(data, Technology, source)


@pytest.mark.parametrize("name", technology_names())
def test_every_figure_says_where_it_comes_from(name: str) -> None:
    technology = load_technology(name)
    assert technology.name == name
    assert technology.source
    for line, figure in zip(technology.figures(), technology.entries().values(), strict=True):
        assert f" {figure.unit} ({figure.label})" in line
        assert figure.source or figure.label != "assumed", f"{line}: an assumption says what it rests on"


def test_areas_and_leakage_may_be_left_out() -> None:
    technology = read(MINIMAL)
    assert technology.area is None
    assert technology.leakage is None
    assert technology.register_bit is None


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('name = "mine"', "", ['"name" is missing']),
        ("size = 8, pj = 1", "size = 80, pj = 1", ["sizes of int_multiply must rise"]),
        ("pj = 300", "pj = -300", ["mine.toml, line 10, $.dram.lpddr5.pj: given -300, expected float > 0"]),
        ("{ pj = 300,", "{", ['$.dram.lpddr5: the required key "pj" is missing']),
        ('300, label = "assumed"', '300, label = "guessed"', ["given 'guessed'", "verified"]),
        ("dram = {", "drams = {", ['unknown key "drams"', 'did you mean "dram"']),
        ("dram = {", 'leakage = { mw_mm2 = 1, label = "assumed" }\ndram = {', ["no areas", "add [area]"]),
    ],
)
def test_wrong_tables_are_explained(old: str, new: str, words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        read(MINIMAL.replace(old, new, 1))
    for word in words:
        assert word in str(caught.value)


def test_a_kind_of_dram_that_the_table_lacks_is_refused() -> None:
    with pytest.raises(ConfigError, match=r'unknown kind of DRAM in technology horowitz-45nm "hbm2".*Allowed: ddr3'):
        load_design("fp32-systolic", ["machine.dram_kind=hbm2"])
    design = load_design("fp32-systolic", ["machine.technology=tpuv4i-7nm", "machine.dram_kind=hbm2"])
    assert design.technology is not None
    assert design.technology.dram_figure("hbm2").pj == 350


def test_scaling_changes_one_figure_and_nothing_else() -> None:
    technology = load_technology("horowitz-45nm")
    for path, figure in technology.entries().items():
        scaled = technology.scaled(path, 2)
        changed = {key: value for key, value in scaled.entries().items() if value != technology.entries()[key]}
        assert list(changed) == [path]
        assert changed[path].value == 2 * figure.value
        assert scaled.scaled(path, 0.5) == technology
    assert figure_name(technology, ("dram", "ddr3")) == "dram.ddr3"


def test_area_curves_pass_through_their_figures() -> None:
    table = load_technology("horowitz-45nm").area
    assert table is not None
    assert curve_um2(table.int_add, 16) == pytest.approx(67)
    assert curve_um2(table.float_multiply, 24) == pytest.approx(7700)


def test_a_file_is_looked_for_beside_the_design_and_else_from_here(tmp_path, monkeypatch) -> None:
    folder = tmp_path / "study"
    folder.mkdir()
    (folder / "mine.toml").write_text(MINIMAL)
    preset = to_toml(load_design("fp32-systolic").to_plain())
    (folder / "design.toml").write_text(
        preset.replace('technology = "horowitz-45nm"', 'technology = "mine.toml"').replace("ddr3", "lpddr5")
    )
    monkeypatch.chdir(tmp_path)
    beside = load_design("study/design.toml").technology
    assert beside == load_technology("study/mine.toml") == read(MINIMAL)
    assert load_design(folder / "design.toml").technology == beside
    settings = ["machine.technology=study/mine.toml", "machine.dram_kind=lpddr5"]
    assert load_design("fp32-systolic", settings).technology == beside
    with pytest.raises(ConfigError, match=r"\$\.machine\.technology: mine\.toml: there is no such file"):
        load_design("fp32-systolic", ["machine.technology=mine.toml"])


def test_a_file_that_was_changed_is_read_again(tmp_path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(MINIMAL)
    assert load_technology(str(path)).node_nm == 28
    path.write_text(MINIMAL.replace("node_nm = 28", "node_nm = 5"))
    assert load_technology(str(path)).node_nm == 5


@pytest.mark.parametrize(
    ("entry", "settings", "complaint"),
    [
        (
            "mux_bit",
            "sparsity.zeros=2:4",
            r'sparsity.zeros = "2:4" selects operands, but technology \S+ has no mux_bit',
        ),
        ("area.mux_bit", "sparsity.zeros=pairs", r"has no area\.mux_bit: add it to the table"),
        (
            "area.edram",
            'memories=[{ name = "buffer", kib = 512, kind = "edram", retention_us = 40 }]',
            r'memory "buffer" is embedded DRAM, but technology \S+ has no area\.edram',
        ),
        ("wire", "cores.count=4", r"cores have links without pj_bit_hop, but technology \S+ has no wire"),
    ],
)
def test_a_design_needs_the_figures_of_its_parts(tmp_path, entry, settings, complaint):
    table = to_plain(load_technology("horowitz-45nm"))
    path, _, name = entry.rpartition(".")
    del (table[path] if path else table)[name]
    file = tmp_path / "bare.toml"
    file.write_text(to_toml(table))
    load_design("fp32-systolic", [f"machine.technology={file}"])
    load_design("fp32-systolic", [f"machine.{settings}"])
    with pytest.raises(ConfigError, match=complaint):
        load_design("fp32-systolic", [f"machine.technology={file}", f"machine.{settings}"])
