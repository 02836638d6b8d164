"""Technology tables on the command line."""

from importlib.resources import files

from presilicon.designs import technology_names

HOROWITZ = (files("presilicon.designs") / "technologies" / "horowitz-45nm.toml").read_text()


def test_list_technologies(invoke) -> None:
    rows = invoke("list", "technologies", "--json").document["technologies"]
    assert [row["name"] for row in rows] == technology_names()
    assert rows[0]["node"] == "45 nm"
    assert "Horowitz" in rows[0]["source"]
    text = invoke("list", "technologies").out
    assert "tpuv4i-7nm" in text
    assert "energy and area" in text


def test_validate_reports_what_is_wrong_in_a_table_of_ones_own(invoke, tmp_path) -> None:
    arguments = ["design", "validate", "fp32-systolic", "--set", "machine.technology=mine.toml"]
    (tmp_path / "mine.toml").write_text(HOROWITZ)
    assert invoke(*arguments).out == "fp32-systolic: ok (fp32-systolic)\n"
    for old, new, words in [
        ("sram_64bit", "sram64", ["mine.toml, line 22, $.sram64", 'did you mean "sram_64bit"']),
        ("pj = 3.7", 'pj = "much"', ["mine.toml, line 6, $.float_multiply[1].pj", "much"]),
        ("[leakage]", "[leekage]", ['did you mean "leakage"']),
        (HOROWITZ, "name = ", ["mine.toml: not valid TOML"]),
    ]:
        (tmp_path / "mine.toml").write_text(HOROWITZ.replace(old, new))
        found = invoke(*arguments)
        assert found.code == 2
        assert "$.machine.technology: mine.toml" in found.err
        for word in words:
            assert word in found.err
