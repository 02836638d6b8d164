import subprocess
import sys
from hashlib import sha256
from importlib import resources
from pathlib import Path

import numpy
import pytest
import torch

from presilicon import ConfigError, load_workload
from presilicon.base import MissingToolError
from presilicon.workloads import fashion
from presilicon.workloads.fashion import VARIABLE, load_fashion, read_full, read_subset, subset_of


@pytest.fixture(autouse=True)
def _nothing_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(fashion, "INSTALLED", tmp_path / "nowhere")


def test_the_subset_comes_with_the_package_and_holds_every_class_alike() -> None:
    parts = read_subset()
    assert [len(part.labels) for part in parts] == [12000, 2000, 2000]
    for part in parts:
        assert part.images.shape == (len(part.labels), 28, 28)
        assert len(set(numpy.bincount(part.labels, minlength=10))) == 1
    # Train and validation share pictures as far as the data set itself has some twice.
    digests = [{sha256(image.tobytes()).digest() for image in part.images} for part in parts]
    assert all(len(one & other) < 10 for one, other in [digests[:2], digests[1:], digests[::2]])


def test_the_subset_is_what_it_was() -> None:
    content = b"".join(part.images.tobytes() + part.labels.tobytes() for part in read_subset())
    assert sha256(content).hexdigest() == "120086500f18d7411a374450adda62470039d62f5d0d9ef55ad7ba3ddfa72caa"


def test_inputs_are_normalised_by_the_training_split() -> None:
    splits = load_fashion(image=True, full=False)
    assert splits.train[0].shape == (12000, 1, 28, 28)
    assert abs(float(splits.train[0].double().mean())) < 1e-5
    assert abs(float(splits.train[0].double().std(correction=0)) - 1) < 1e-5
    flat = load_fashion(image=False, full=False)
    assert torch.equal(flat.test[0], splits.test[0].flatten(1))


def _write_idx(path: Path, array: numpy.ndarray) -> None:
    head = bytes([0, 0, 8, array.ndim]) + b"".join(length.to_bytes(4, "big") for length in array.shape)
    path.write_bytes(head + array.tobytes())


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    """A set of the same make with 3,000 and 2,500 pictures, whose pixels tell which picture it is."""
    folder = tmp_path / "whole"
    folder.mkdir()
    for name, count in (("train", 3000), ("t10k", 2500)):
        numbers = numpy.arange(count)
        images = numpy.zeros((count, 28, 28), numpy.uint8)
        images[:, 0, 0], images[:, 0, 1] = numbers % 256, numbers // 256
        _write_idx(folder / f"{name}-images-idx3-ubyte", images)
        _write_idx(folder / f"{name}-labels-idx1-ubyte", (numbers % 10).astype(numpy.uint8))
    return folder


def test_the_whole_set_is_used_where_it_is(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "full=False" in load_workload("fashion-mlp").describe()["data"]
    monkeypatch.setattr(fashion, "INSTALLED", whole)
    assert load_workload("fashion-mlp").describe()["data"].endswith("load_fashion(image=False, full=True)")
    assert len(load_workload("fashion-cnn").data().train[0]) == 1000
    # Asked for by name, the subset is used all the same.
    monkeypatch.setenv(VARIABLE, "subset")
    assert "full=False" in load_workload("fashion-mlp").describe()["data"]
    monkeypatch.setattr(fashion, "INSTALLED", whole / "nowhere")
    monkeypatch.setenv(VARIABLE, str(whole))
    splits = load_fashion(image=True, full=True)
    assert (len(splits.validation[0]), len(splits.test[0])) == (2000, 2500)


def test_validation_is_the_end_of_each_class(whole: Path) -> None:
    train, validation, _ = read_full(whole)
    number = lambda part: part.images[:, 0, 0].astype(int) + 256 * part.images[:, 0, 1].astype(int)  # noqa: E731
    assert number(train).tolist() == list(range(1000))
    assert number(validation).tolist() == list(range(1000, 3000))
    first, same, test = subset_of(read_full(whole))
    assert (first.labels.tolist(), len(same.labels)) == (sorted(train.labels.tolist()), 2000)
    assert number(test)[:3].tolist() == [0, 10, 20]


def test_a_set_that_is_not_there_or_cut_off_is_explained(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(MissingToolError, match="dataset-fashion-mnist, or set PRESILICON_FASHION_MNIST"):
        load_fashion(image=True, full=True)
    (whole / "train-labels-idx1-ubyte").write_bytes(b"\0\0\x08\x01\0\0\0\x09abc")
    with pytest.raises(ConfigError, match="train-labels-idx1-ubyte: not an idx file of bytes, or truncated"):
        read_full(whole)
    (whole / "train-labels-idx1-ubyte").unlink()
    with pytest.raises(ConfigError, match=r"train-labels-idx1-ubyte\.gz: there is no such file"):
        read_full(whole)
    monkeypatch.setenv(VARIABLE, "/no/such/place")
    with pytest.raises(ConfigError, match="PRESILICON_FASHION_MNIST is '/no/such/place'"):
        load_workload("fashion-mlp")


def test_loading_imports_no_scikit_learn() -> None:
    code = (
        "import sys; from presilicon.workloads import load_workload;"
        "[load_workload(name).data() for name in ('digits-mlp', 'fashion-mlp', 'shakespeare-gpt')];"
        "print('sklearn' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_the_licences_come_with_the_data() -> None:
    text = (resources.files("presilicon.workloads") / "data" / "LICENSES.md").read_text(encoding="utf-8")
    assert "Zalando SE" in text
    assert "Creative Commons Attribution 2.5" in text


@pytest.mark.parametrize(("name", "parameters"), [("mlp", 118282), ("cnn", 105866), ("resnet", 77754)])
def test_the_networks_have_their_sizes(name: str, parameters: int) -> None:
    workload = load_workload(f"fashion-{name}")
    model = workload.model()
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters
    assert model(workload.data().validation[0][:2]).shape == (2, 10)
