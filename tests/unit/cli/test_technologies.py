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


def test_evaluate_with_sensitivity(invoke) -> None:
    arguments = ["evaluate", "fp32-systolic", "fp8-systolic", "--workload", "digits-mlp", "--seeds", "1", "--jobs", "1"]
    # Fused, the two are close: so small a step moves little but master weights, which both have in float32.
    arguments += ["--max-steps", "40", "--target", "0.3", "--set", "machine.fusion=none"]
    document = invoke(*arguments, "--sensitivity", "--json").document
    assert [ranking["quantity"] for ranking in document["sensitivity"]["rankings"]] == [
        "energy_to_accuracy_j",
        "area_mm2",
    ]
    assert all(ranking["survives"] for ranking in document["sensitivity"]["rankings"])
    text = invoke(*arguments, "--sensitivity").out
    assert "sensitivity: the 32 figures of horowitz-45nm, one at a time, times 2 and 1/2" in text
    assert "fp8-systolic < fp32-systolic: survives" in text
    assert "sensitivity" in invoke("runs", "show").out
    plain = invoke(*arguments, "--json").document
    assert "sensitivity" not in plain
    assert plain["designs"][0]["area_mm2"] > plain["designs"][1]["area_mm2"]


def test_sensitivity_needs_two_designs(invoke, tmp_path) -> None:
    found = invoke("evaluate", "fp32-systolic", "--workload", "digits-mlp", "--sensitivity")
    assert found.code == 2
    assert "give at least two" in found.err
    assert not (tmp_path / "runs").exists()
