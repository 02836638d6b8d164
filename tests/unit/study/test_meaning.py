"""Results under other numbers of meaning are neither resumed nor reused, and compared with a warning only.

    python -m tests.unit.study.test_meaning

prints what `tests/data/meaning.json` has to hold after a number has risen, or a recipe or preset was added.
"""

import json
from hashlib import sha256
from pathlib import Path

import pytest
import torch
from msgspec.structs import replace as replaced

import presilicon as ps
from presilicon.base import ConfigError, meaning, to_plain
from presilicon.designs import design_names, load_design, load_recipe, recipe_names
from presilicon.emulation import Checkpoint
from presilicon.formats import Key, MacUnit, matmul, parse, quantize
from presilicon.report import changes_to_json, print_run, render_changes
from presilicon.runs import create_run, load_run, resume_run
from presilicon.simulation import simulate
from presilicon.study.search.file import read_study
from presilicon.study.search.sweep import SweepOptions, carry_out_sweep
from presilicon.workloads import capture_workload, load_workload


@pytest.fixture
def raise_number(monkeypatch):
    """Raises TRAINING or PRICE by one, as a change of what is trained or priced does."""

    def raise_it(name: str) -> None:
        from presilicon.base import meanings

        monkeypatch.setattr(meanings, name, getattr(meanings, name) + 1)

    return raise_it


@pytest.fixture
def short():
    from dataclasses import replace

    return replace(ps.load_workload("digits-mlp"), max_steps=6, evaluate_every=2)


@pytest.mark.parametrize("name", ["TRAINING", "PRICE"])
def test_both_numbers_are_part_of_the_hash_of_runs_and_results(name, raise_number, short, tmp_path):
    def hashes():
        result = ps.evaluate("fp32-systolic", short, seeds=1)
        return create_run(tmp_path, "evaluate", {}, seed=0).state.config_hash, result.provenance["config_hash"]

    before = hashes()
    assert hashes() == before
    raise_number(name)
    assert not set(before) & set(hashes())


def test_a_new_training_discards_checkpoints_and_a_new_price_does_not(raise_number, short, tmp_path):
    checkpoint = Checkpoint(tmp_path / "seed0.safetensors")
    numerics = ps.load_design("bf16-systolic").numerics
    trace = ps.train(short, numerics, seed=0, checkpoint=checkpoint)
    raise_number("PRICE")
    assert ps.train(short, numerics, seed=0, checkpoint=checkpoint) == trace
    raise_number("TRAINING")
    with pytest.raises(ConfigError, match="a different meaning of training"):
        ps.train(short, numerics, seed=0, checkpoint=checkpoint)


@pytest.mark.parametrize("name", ["TRAINING", "PRICE"])
def test_a_run_of_another_meaning_is_not_resumed(name, raise_number, tmp_path):
    create_run(tmp_path, "evaluate", {"seeds": 1}, seed=0).end("interrupted")
    stored = load_run(tmp_path, "latest")
    resume_run(stored.path, stored.record, {"seeds": 1}).end("interrupted")
    number = meaning()[name.lower()]
    raise_number(name)
    with pytest.raises(ConfigError, match=f"the meaning of {name.lower()} {number}, now {number + 1}; start a new run"):
        resume_run(stored.path, stored.record, {"seeds": 1})


def test_a_study_of_another_meaning_is_not_reused(raise_number, tmp_path):
    file = tmp_path / "study.toml"
    file.write_text(
        'designs = ["bf16-systolic"]\nworkloads = ["digits-mlp"]\nobjectives = ["time_per_step_s"]\n'
        '[vary]\n"machine.rows" = [8, 16]\n'
    )
    paths = [carry_out_sweep(read_study(file), tmp_path / "runs", SweepOptions(jobs=1)).path for _ in range(2)]
    assert paths[0] == paths[1]
    raise_number("PRICE")
    assert carry_out_sweep(read_study(file), tmp_path / "runs", SweepOptions(jobs=1)).path != paths[0]


def test_comparing_and_showing_runs_of_two_meanings_says_so(raise_number, tmp_path, capsys):
    first = create_run(tmp_path, "evaluate", {}, seed=0)
    raise_number("PRICE")
    second = create_run(tmp_path, "evaluate", {}, seed=0)
    older, newer = (load_run(tmp_path, run.name) for run in (first, second))
    warning = "the meaning of price changed between these runs"
    assert warning in render_changes(older, newer, [], [])
    assert warning in changes_to_json(older, newer, [], [])
    assert warning not in render_changes(newer, newer, [], [])
    print_run(older)
    assert "another meaning of price" in capsys.readouterr().out
    print_run(newer)
    assert "another meaning" not in capsys.readouterr().out


def test_runs_from_before_the_numbers_were_recorded_count_as_another_meaning(tmp_path):
    create_run(tmp_path, "evaluate", {}, seed=0).end("interrupted")
    stored = load_run(tmp_path, "latest")
    with pytest.raises(ConfigError, match="the meaning of training None, now"):
        resume_run(stored.path, replaced(stored.record, meaning={}), {})


DIGESTS = Path(__file__).parents[2] / "data" / "meaning.json"


def digest(values: object) -> str:
    return sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]


def priced() -> str:
    """A digest of the costs of steps on all presets, to nine digits."""
    costs = {}
    for workload in ("digits-mlp", "digits-cnn"):
        graph = capture_workload(load_workload(workload))
        for name in design_names():
            cost = simulate(graph, load_design(name))
            costs[f"{workload} on {name}"] = [f"{x:.8e}" for x in (cost.time_s, cost.energy_j, cost.memory_bytes)]
    return digest(costs)


def trained() -> str:
    """A digest of what decides trainings and can be told on any processor: recipes, roundings, sums in an order."""
    facts: dict[str, object] = {name: to_plain(load_recipe(name).numerics) for name in recipe_names()}
    x = torch.arange(-200, 200, dtype=torch.float32).reshape(20, 20) * 0.0371
    for text in ("e4m3", "e5m2", "mxfp8_e4m3", "nvfp4", "int8", "bfp(mantissa=4, group=4)", "posit(8, 1)", "lns(3, 3)"):
        for mode in ("nearest-even", "stochastic"):
            rounded = quantize(x, parse(text), rounding=mode, key=Key(3, 5, "x"))
            facts[f"{text} {mode}"] = [f"{value:.8e}" for value in rounded.flatten().tolist()]
    mac = MacUnit(accumulate=parse("bfloat16"), chunk=8)
    facts["matmul"] = [f"{value:.8e}" for value in matmul(x, x.T, mac=mac).flatten().tolist()]
    return digest(facts)


@pytest.mark.parametrize(("what", "compute"), [("price", priced), ("training", trained)])
def test_what_a_design_means_changes_with_its_number_only(what: str, compute) -> None:
    """If it fails and the change is meant, raise the number in base/meanings.py and write the new digest beside it.

    A new recipe or preset alone changes the digest and not the number: nothing that could be written before it means
    something else.
    """
    kept = json.loads(DIGESTS.read_text())[what]
    assert (meaning()[what], compute()) == (kept["number"], kept["digest"])


if __name__ == "__main__":
    digests = {"price": priced(), "training": trained()}
    print(json.dumps({what: {"number": meaning()[what], "digest": found} for what, found in digests.items()}, indent=2))
