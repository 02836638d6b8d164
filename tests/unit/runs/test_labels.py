import pytest

from presilicon.base import ConfigError
from presilicon.runs import create_run, label_run, list_runs, load_run, make_labels, remove_run


@pytest.fixture
def root(tmp_path):
    for _ in range(3):
        with create_run(tmp_path, "evaluate", {}, seed=0):
            pass
    return tmp_path


def test_labels_change_nothing_else_of_a_run(root):
    run = load_run(root, "latest")
    before = (run.path / "run.json").read_bytes()
    label_run(root, "latest", label="night-3", add=["sweep", "b", "sweep"])
    labelled = label_run(root, "night-3", add=["c"], remove=["b"])
    assert labelled == load_run(root, "latest")
    assert labelled.labelled == "night-3 #sweep #c"
    assert (run.path / "run.json").read_bytes() == before


def test_a_run_is_found_by_its_given_name_and_its_beginning(root):
    first, second, third = (run.name for run in list_runs(root))
    label_run(root, first, label="night-1")
    label_run(root, second, label="night-10")
    assert load_run(root, "night-1").name == first, "a whole name goes before a beginning"
    assert load_run(root, "night-10").name == second
    with pytest.raises(ConfigError, match="beginning of 2 runs"):
        load_run(root, "night")
    with pytest.raises(ConfigError, match='did you mean "night-1"'):
        load_run(root, "nigth-1")
    label_run(root, third, label="night-1")
    with pytest.raises(ConfigError, match=rf'"night-1" is the name of 2 runs: {first}, {third}\. Give one of these'):
        load_run(root, "night-1")
    label_run(root, second, label="day")
    with pytest.raises(ConfigError, match="only the beginning"):
        remove_run(root, "da")
    remove_run(root, "day")
    assert [run.name for run in list_runs(root)] == [first, third]


def test_a_directory_goes_before_a_given_name(root):
    first, second, _ = (run.name for run in list_runs(root))
    label_run(root, second, label=first)
    assert load_run(root, first).name == first


@pytest.mark.parametrize("word", ["", "a b", "-x", "latest", "x" * 61, "a/b", "\u00e9", "a\n"])
def test_a_word_that_cannot_be_a_label_is_refused(root, word):
    with pytest.raises(ConfigError, match="up to 60 letters"):
        make_labels(word, [])
    with pytest.raises(ConfigError, match="up to 60 letters"):
        label_run(root, "latest", add=[word])
    assert load_run(root, "latest").labelled == ""


def test_a_tag_that_is_not_there_cannot_be_removed(root):
    label_run(root, "latest", add=["sweep"])
    with pytest.raises(ConfigError, match=r'unknown tag of .* "swep": did you mean "sweep"'):
        label_run(root, "latest", remove=["swep"])


@pytest.mark.parametrize("content", [b"", b"[]", b'{"tags": 3}', b"\xff"])
def test_damaged_labels_are_no_labels(root, content):
    (load_run(root, "latest").path / "labels.json").write_bytes(content)
    assert load_run(root, "latest").labelled == ""
    assert label_run(root, "latest", add=["new"]).labels.tags == ("new",)


def test_an_unreadable_run_keeps_its_labels(root):
    run = label_run(root, "latest", label="mine")
    (run.path / "run.json").write_text("{")
    assert load_run(root, "mine").status == "unreadable"
