import os
import subprocess
import sys
from pathlib import Path

import pytest

from presilicon.records import Interval
from presilicon.runs import commit, config_hash, provenance, versions

SOURCE = Path(provenance.__file__).parents[2]


def git(directory, *arguments):
    identity = ["-c", "user.name=Test", "-c", "user.email=test@example.org"]
    done = subprocess.run(
        ["git", "-C", str(directory), *identity, *arguments], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.fixture
def checkout(tmp_path):
    git(tmp_path, "init", "-q")
    (tmp_path / "file").write_text("one")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "one")
    git(tmp_path, "tag", "v1")
    commit.cache_clear()
    return tmp_path


def test_the_hash_follows_contents_not_order():
    assert config_hash({"a": 1, "b": [1, 2]}) == config_hash({"b": (1, 2), "a": 1})
    assert config_hash({"a": 1}) != config_hash({"a": 2})
    assert config_hash(Interval(1.0, 1.0, 2.0)) == config_hash({"median": 1.0, "low": 1.0, "high": 2.0})
    assert config_hash({"bandwidth": float("inf")}) != config_hash({"bandwidth": None})


def test_the_hash_is_the_same_in_every_process():
    program = "from presilicon.runs import config_hash; print(config_hash({'b': {'z': 1, 'é': 2.5}, 'a': None}))"
    found = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONPATH": str(SOURCE), "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()
        for seed in "12"
    }
    assert found == {config_hash({"a": None, "b": {"é": 2.5, "z": 1}})}


def test_the_commit_and_whether_files_differ_from_it(checkout):
    head = git(checkout, "rev-parse", "HEAD")
    assert commit(checkout) == head
    commit.cache_clear()
    (checkout / "file").write_text("two")
    assert commit(checkout) == f"{head}-dirty"


def test_no_checkout_and_no_git_have_no_commit(tmp_path, monkeypatch):
    commit.cache_clear()
    assert commit(tmp_path) is None
    commit.cache_clear()
    monkeypatch.setenv("PATH", "")
    assert commit() is None
    commit.cache_clear()


def test_a_package_inside_somebody_elses_checkout_has_no_commit(checkout, monkeypatch):
    site = checkout / "site-packages" / "presilicon"
    site.mkdir(parents=True)
    (site / "__init__.py").touch()
    monkeypatch.setattr(provenance, "_ROOT", site)
    assert commit() is None
    commit.cache_clear()


def test_versions_name_what_is_absent(monkeypatch):
    def absent(name):
        raise provenance.metadata.PackageNotFoundError(name)

    assert versions()["numpy"]
    monkeypatch.setattr(provenance.metadata, "version", absent)
    monkeypatch.setattr(provenance, "_version", provenance._version.__wrapped__)  # without its cache
    assert versions()["numba"] is None
    assert versions()["presilicon"]


def test_importing_the_room_is_light():
    heavy = ["torch", "numpy", "rich", "matplotlib", "numba"]
    program = f"import sys, presilicon.runs; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout.strip() == "[]"
