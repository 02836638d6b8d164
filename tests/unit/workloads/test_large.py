"""Workloads of real size: networks, data, and what is said where the data are not installed."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch

from presilicon import ConfigError, load_workload
from presilicon.base import MissingToolError
from presilicon.designs import Numerics
from presilicon.emulation import train
from presilicon.workloads import capture_workload, python_source
from presilicon.workloads.fashion import VARIABLE, shift_and_flip


@pytest.mark.parametrize(
    ("name", "parameters", "output"),
    [
        ("fashion-resnet18", 11_172_810, (10,)),
        ("fashion-vit", 2_684_170, (10,)),
        ("python-gpt", 9_619_712, (256, 2048)),
        ("diabetes-mlp", 4_929, (1,)),
    ],
)
def test_the_networks_have_their_sizes(name: str, parameters: int, output: tuple[int, ...]) -> None:
    workload = load_workload(name)
    with torch.device("meta"):
        model = workload.model()
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters
    inputs, _ = workload.batch(2)
    assert model(inputs).shape == (2, *output)


@pytest.mark.parametrize("name", ["fashion-resnet18", "fashion-vit"])
def test_without_its_data_a_workload_can_be_simulated_but_not_trained(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "subset")
    workload = load_workload(name)
    assert capture_workload(workload, batch_size=2).batch_size == 2
    with pytest.raises(MissingToolError, match="apt-get install dataset-fashion-mnist"):
        train(workload, Numerics())


def test_augmented_images_are_shifted_and_mirrored() -> None:
    generator = torch.Generator().manual_seed(1)
    images = torch.arange(200 * 2 * 6 * 5, dtype=torch.float32).reshape(200, 2, 6, 5)
    changed = shift_and_flip(images, generator, pixels=1)
    padded = torch.nn.functional.pad(images, (1, 1, 1, 1), mode="replicate")
    seen = set()
    for image, result in zip(padded, changed, strict=True):
        views = {
            (down, right, mirrored): (view.flip(2) if mirrored else view)
            for down in range(3)
            for right in range(3)
            for mirrored in (False, True)
            for view in [image[:, down : down + 6, right : right + 5]]
        }
        matches = [key for key, view in views.items() if torch.equal(view, result)]
        assert len(matches) == 1
        seen.add(matches[0])
    assert len(seen) == 18


def test_augmentation_depends_on_its_generator_only() -> None:
    images = torch.rand(8, 1, 28, 28)
    one, other = (shift_and_flip(images, torch.Generator().manual_seed(seed)) for seed in (3, 3))
    assert torch.equal(one, other)
    assert not torch.equal(one, shift_and_flip(images, torch.Generator().manual_seed(4)))
    assert one.is_contiguous()


def test_patients_are_in_one_split_and_normalized() -> None:
    splits = load_workload("diabetes-mlp").data()
    inputs, targets = splits.train
    assert [len(part[0]) for part in (splits.train, splits.validation, splits.test)] == [266, 88, 88]
    assert inputs.mean(0) == pytest.approx(torch.zeros(10), abs=1e-5)
    assert targets.std(correction=0) == pytest.approx(1.0, abs=1e-5)
    rows = [tuple(row.tolist()) for part in (splits.train, splits.validation, splits.test) for row in part[0]]
    assert len(set(rows)) == 442


def test_the_table_is_learned_to_its_target_where_lower_is_better() -> None:
    workload = load_workload("diabetes-mlp")
    trace = train(workload, Numerics(), seed=0)
    assert trace.ending == "target"
    assert all(point.value <= 0.65 for point in trace.evaluations[-3:])
    assert trace.evaluations[0].value > 0.65


@pytest.fixture
def few_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Path, ...]]:
    """Forty files with a text of their own each, in place of the standard library."""
    files = tuple(tmp_path / f"module{number:02}.py" for number in range(40))
    for number, file in enumerate(files):
        file.write_text(f"value{number} = {number}  # number {number}\n" * 200, encoding="utf-8")
    monkeypatch.setattr(python_source, "source_files", lambda: files)
    python_source.source_digest.cache_clear()
    python_source.load_python_source.cache_clear()
    yield files
    python_source.source_digest.cache_clear()
    python_source.load_python_source.cache_clear()


def test_source_is_split_by_file(few_files: tuple[Path, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    learned: list[bytes] = []
    original = python_source.learn_merges

    def learn(texts: list[bytes], vocabulary: int) -> list[tuple[int, int]]:
        learned.extend(texts)
        return original(texts, vocabulary)

    monkeypatch.setattr(python_source, "learn_merges", learn)
    splits = python_source.load_python_source(python_source.source_digest())
    texts = [file.read_bytes() for file in few_files]
    assert learned == [text for number, text in enumerate(texts) if number not in (0, 1, 20, 21)]
    tokenizer = python_source.Tokenizer(original(learned, python_source.VOCABULARY))
    inputs, targets = splits.validation
    assert torch.equal(inputs.flatten()[1:], targets.flatten()[:-1])
    assert inputs.shape[1] == 256
    expected = b"\n".join((texts[0], texts[20]))
    assert expected.startswith(tokenizer.decode(inputs.flatten().tolist()))
    assert len(splits.test[0]) >= 1


def test_the_provenance_has_a_hash_of_the_source(few_files: tuple[Path, ...]) -> None:
    before = load_workload("python-gpt").describe()["data"]
    few_files[3].write_text("changed = True\n", encoding="utf-8")
    python_source.source_digest.cache_clear()
    after = load_workload("python-gpt").describe()["data"]
    assert before != after
    with pytest.raises(ConfigError, match="the standard library's source has changed"):
        python_source.load_python_source("0123456789abcdef")


def test_a_python_without_source_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python_source.source_files.cache_clear()
    monkeypatch.setattr(python_source.sysconfig, "get_paths", lambda: {"stdlib": str(tmp_path)})
    with pytest.raises(MissingToolError, match="apt-get install libpython3-stdlib"):
        python_source.source_files()
    python_source.source_digest.cache_clear()
    with pytest.raises(MissingToolError):
        load_workload("python-gpt").require_data()
    monkeypatch.undo()
    python_source.source_digest.cache_clear()
    assert len(python_source.source_files()) > 300


def test_a_smaller_transformer_learns_the_source(few_files: tuple[Path, ...]) -> None:
    workload = load_workload("python-gpt")
    smaller = partial(workload.model, layers=1, width=24, heads=2)  # type: ignore[arg-type]
    workload = replace(workload, model=smaller, batch_size=2, max_steps=2, evaluate_every=1, sustain=1)
    trace = train(workload, Numerics(), seed=0)
    assert trace.evaluations[0].value == pytest.approx(torch.tensor(trace.evaluations[0].loss).exp().item(), rel=1e-4)
    assert trace.evaluations[-1].loss < trace.evaluations[0].loss
