"""A replay trains, repeats itself to the bit, and is refused where machines could differ."""

import json

import pytest
from click.testing import CliRunner

from presilicon.base import ConfigError
from presilicon.cli.main import cli
from presilicon.designs import load_numerics
from presilicon.study import replay, replaying


@pytest.mark.parametrize("recipe", ["bf16", "fp8-hybrid"])
def test_a_replay_repeats_itself_and_depends_on_its_seed(recipe: str) -> None:
    numerics = load_numerics(recipe)
    first, second, other = (replay(numerics, steps=12, every=6, seed=seed) for seed in (0, 0, 1))
    assert [point.step for point in first.points] == [6, 12]
    assert first == second
    assert first.points[-1].sha256 != other.points[-1].sha256
    assert first.points[0].sha256 != first.points[1].sha256


def test_the_network_learns() -> None:
    assert replay(load_numerics("bf16"), steps=60, every=60).points[-1].correct > 0.8


@pytest.mark.parametrize("recipe", ["fp32", "int8"])
def test_operands_without_an_instruction_are_refused(recipe: str) -> None:
    with pytest.raises(ConfigError, match="needs operands that tensor cores multiply"):
        replay(load_numerics(recipe), steps=1)


def test_the_command_prints_hashes() -> None:
    result = CliRunner().invoke(cli, ["replay", "bf16", "--steps", "2", "--every", "1", "--json"])
    document = json.loads(result.stdout)
    assert [point["step"] for point in document["replay"]["points"]] == [1, 2]
    assert document["replay"]["device"] == "cpu"


def test_a_device_without_modelled_tensor_cores_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replaying, "has_tensor_cores", lambda device: device.type != "cuda")
    monkeypatch.setattr(replaying.torch.cuda, "get_device_name", lambda device: f"an older {device}")
    with pytest.raises(ConfigError, match="the tensor cores of an older cuda are not modelled"):
        replay(load_numerics("bf16"), steps=1, device="cuda")
