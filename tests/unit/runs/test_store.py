import pytest

from presilicon.base import ConfigError
from presilicon.runs import create_run, list_runs, load_run, remove_run


@pytest.fixture
def root(tmp_path):
    for kind in ("evaluate", "simulate", "evaluate"):
        with create_run(tmp_path, kind, {}, seed=0):
            pass
    return tmp_path


def test_runs_are_listed_oldest_first(root):
    runs = list_runs(root)
    assert [run.record.kind for run in runs] == ["evaluate", "simulate", "evaluate"]
    assert [run.status for run in runs] == ["finished"] * 3


def test_nothing_there_is_an_empty_list(tmp_path):
    assert list_runs(tmp_path) == ()
    assert list_runs(tmp_path / "none") == ()


def test_a_root_that_is_a_file_is_an_error(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot read runs"):
        list_runs(tmp_path / "file")


def test_foreign_directories_are_left_out(root):
    (root / "notes").mkdir()
    (root / "stray.txt").touch()
    (root / "directory").mkdir()
    (root / "directory" / "run.json").mkdir()
    (root / "dangling").symlink_to(root / "nowhere")
    assert len(list_runs(root)) == 3


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe\x00", b'{"schema": 2}', b'{"kind": 7}'])
def test_a_broken_record_is_listed_as_unreadable(root, content):
    broken = root / "2020-01-01T00-00-00-evaluate"
    broken.mkdir()
    (broken / "run.json").write_bytes(content)
    found = load_run(root, broken.name)
    assert found.status == "unreadable"
    assert found.record is None
    assert found.problem.startswith("run.json: ")
    assert found.events() == ()
    assert found.comparison() is None
    remove_run(root, broken.name)
    assert len(list_runs(root)) == 3


def test_a_run_is_found_by_name_beginning_and_age(root):
    first, second, third = list_runs(root)
    assert load_run(root, second.name) == second
    assert load_run(root, "latest") == third
    remove_run(root, first.name)
    remove_run(root, second.name)
    assert load_run(root, third.name[:12]) == third


def test_an_exact_name_wins_over_longer_ones(tmp_path):
    names = [create_run(tmp_path, "evaluate", {}, seed=0).name for _ in range(3)]
    assert load_run(tmp_path, names[0]).name == names[0]


def test_an_ambiguous_beginning_is_an_error(root):
    with pytest.raises(ConfigError, match="beginning of 3 runs"):
        load_run(root, "20")


def test_an_unknown_run_proposes_a_near_one(root):
    name = list_runs(root)[1].name
    with pytest.raises(ConfigError, match=f'did you mean "{name}"'):
        load_run(root, name.replace("simulate", "simulat-"))
    for bad in ("", "../x", "/", "zebra"):
        with pytest.raises(ConfigError, match="unknown run"):
            load_run(root, bad)


def test_no_runs_at_all_says_so(tmp_path):
    with pytest.raises(ConfigError, match="there are no runs"):
        load_run(tmp_path, "latest")


def test_a_running_run_is_removed_only_by_force(tmp_path):
    run = create_run(tmp_path, "evaluate", {}, seed=0)
    with pytest.raises(ConfigError, match="still running"):
        remove_run(tmp_path, run.name)
    assert remove_run(tmp_path, run.name, force=True).name == run.name
    assert list_runs(tmp_path) == ()


def test_removing_a_link_leaves_what_it_points_to(root, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    with create_run(elsewhere, "evaluate", {}, seed=0) as run:
        pass
    (root / "linked").symlink_to(run.path)
    remove_run(root, "linked")
    assert (run.path / "run.json").exists()
    assert not (root / "linked").exists()
