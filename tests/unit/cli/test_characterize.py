"""`presilicon characterize-gpu`: from measured layers to a design that can be simulated."""

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec import json, structs

from presilicon.cards import benches, characterizing
from presilicon.cards.benches import CpuBench
from presilicon.cards.characterizing import CardTimes, characterize_card, layers_for_power, read_card
from presilicon.cards.measuring import LayerTime
from presilicon.cards.suite import suite
from presilicon.designs import RooflineMachine, load_design

H200 = Path(__file__).parents[3] / "evidence/cards/data/h200_layers.json"


@pytest.fixture(scope="module")
def few() -> CardTimes:
    """Linear layers and ReLU of the H200."""
    card, layers = read_card(H200), suite()
    chosen = [i for i, layer in enumerate(layers) if layer.name == "linear" and layer.flops < 1e9][:12]
    chosen += [i for i, layer in enumerate(layers) if layer.arguments.get("name") == "relu"]
    return structs.replace(
        card,
        times=tuple(row for row in card.times if row.layer in chosen),
        powers=tuple(row for row in card.powers if layers[row.layer].name in ("linear", "function")),
    )


def test_a_design_is_fitted_to_times_and_can_be_simulated(few: CardTimes, tmp_path: Path, invoke: Any) -> None:
    (tmp_path / "times.json").write_bytes(json.encode(few))
    printed = invoke(
        "characterize-gpu", "h200", "--out", str(tmp_path / "card"), "--times", str(tmp_path / "times.json")
    ).out
    assert "NVIDIA H200" in printed
    assert "design.toml" in printed
    text = invoke("simulate", str(tmp_path / "card/design.toml"), "--gemm", "512x512x512").out
    assert "time" in text


def test_errors_say_what_to_give(tmp_path: Path, invoke: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    missing = invoke("characterize-gpu", "h200", "--out", str(tmp_path))
    assert missing.code == 3
    assert "no CUDA device is seen" in missing.err
    for damaged in (b"{}", b'{"device": "\xff"}'):
        (tmp_path / "broken.json").write_bytes(damaged)
        broken = invoke("characterize-gpu", "h200", "--out", str(tmp_path), "--times", str(tmp_path / "broken.json"))
        assert broken.code == 2
        assert "has no measured layers" in broken.err
    # A design that will not do is refused before anything is measured.
    systolic = invoke("characterize-gpu", "bf16-systolic", "--out", str(tmp_path))
    assert systolic.code == 2
    assert "kind roofline" in systolic.err
    lacks = invoke("characterize-gpu", "p100", "--out", str(tmp_path))
    assert "gives no rate of tf32, bfloat16" in lacks.err


@pytest.mark.parametrize(
    ("times", "text"),
    [
        ((), "0 times of layers are too few"),
        (
            (LayerTime(layer=1 << 20, precision="fp32", phase="forward", time_us=4.0),),
            f"times[0]: layer must be from 0 to {len(suite()) - 1}",
        ),
        ((LayerTime(layer=0, precision="fp32", phase="forward", time_us=-4.0),), "time_us more than 0, not 0 and -4"),
    ],
)
def test_times_that_cannot_be_fitted_are_refused(
    times: tuple[LayerTime, ...], text: str, few: CardTimes, tmp_path: Path, invoke: Any
) -> None:
    path = tmp_path / "times.json"
    path.write_bytes(json.encode(structs.replace(few, times=times)))
    refused = invoke("characterize-gpu", "h200", "--out", str(tmp_path), "--times", str(path))
    assert refused.code == 2
    assert text in refused.err


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (
            {"powers": [{"layer": 99999, "precision": "fp32", "phase": "forward", "time_us": 1.0}]},
            "powers[0]: layer must",
        ),
        (
            {"powers": [{"layer": 1, "precision": "fp32", "phase": "forward", "time_us": 1.0, "power_w": -3.0}]},
            "power_w must be more than 0, not -3",
        ),
        (
            {"powers": [{"layer": 1, "precision": "fp32", "phase": "forward", "time_us": 1.0}]},
            "power_w must be more than 0, not None",
        ),
        ({"schema": 9}, "$.schema"),
        ({"static_w": -5.0}, "$.static_w"),
        (
            {"own": [{"name": "linear", "arguments": {"in_features": -4, "out_features": 4}, "shapes": [[4, 4]]}]},
            "cannot be built: Trying to create tensor with negative dimension",
        ),
        ({"own": [{"name": "nosuch", "shapes": [[4, 4]]}]}, 'a layer "nosuch"'),
        ({"own": [{"name": "linear", "arguments": {"in_features": 4}, "shapes": [[4, 4]]}]}, "cannot be built"),
    ],
)
def test_other_bad_parts_of_a_file_are_named(
    change: dict[str, Any], text: str, few: CardTimes, tmp_path: Path, invoke: Any
) -> None:
    path = tmp_path / "times.json"
    path.write_bytes(json.encode(json.decode(json.encode(few)) | change))
    refused = invoke("characterize-gpu", "h200", "--out", str(tmp_path), "--times", str(path))
    assert refused.code == 2
    assert text in refused.err


def test_tables_of_other_versions_are_refused(tmp_path: Path, invoke: Any) -> None:
    path = tmp_path / "old.json"
    path.write_text('{"schema":1,"device":"","source":"","peaks":{"memory_gb_s":1,"issue":1,"tflops":{}},"groups":{}}')
    refused = invoke("simulate", "h200", "--gemm", "8x8x8", "--set", f"machine.measured={path}")
    assert refused.code == 2
    assert "has schema 1, and this version reads 2" in refused.err


@pytest.mark.parametrize(
    ("part", "damaged", "text"),
    [
        ('"reached":0.5', '"reached":0', "> 0.0 - at `$.groups[...].reached`"),
        ('"weights":[0.1]', '"weights":[]', "1 points, 0 weights and 2 scales do not match"),
        ('"points":[[1,2]]', '"points":[[1]]', "every point must have 2 axes"),
        ('"scales":[1,1]', '"scales":[1,0]', "> 0.0 - at `$.groups[...].scales[1]`"),
        ("[[5,0.2]]", "[]", "known: a layer must have at least one batch size"),
        ('"weights":[0.3]', '"weights":[]', "1 points and 0 weights do not match"),
        ('"32","gelu","forward",""', '"32"', "every point must have 5 labels"),
        ('"memory_gb_s":1', '"memory_gb_s":0', "> 0.0 - at `$.peaks.memory_gb_s`"),
        ('"device":"', '"device":"\xff', "can't decode byte 0xff"),
    ],
)
def test_damaged_tables_are_refused_with_the_place(
    part: str, damaged: str, text: str, tmp_path: Path, invoke: Any
) -> None:
    table = (
        '{"schema":2,"device":"","source":"","peaks":{"memory_gb_s":1,"issue":1,"tflops":{}},"groups":{"gelu.32":'
        '{"fixed_us":1,"reached":0.5,"scales":[1,1],"points":[[1,2]],"weights":[0.1],"known":{"a":[[5,0.2]]}}},'
        '"powers":{"points":[[["other","32","gelu","forward",""],0,0]],"weights":[0.3],"lowest":-1,"highest":1}}'
    )
    assert part in table
    for content, code in ((table, 0), (table.replace(part, damaged, 1), 2)):
        path = tmp_path / f"table{code}.json"
        path.write_bytes(content.encode("latin1"))
        printed = invoke("simulate", "h200", "--gemm", "8x8x8", "--set", f"machine.measured={path}")
        assert printed.code == code
    assert text in printed.err


def test_files_without_an_end_are_refused(tmp_path: Path, invoke: Any) -> None:
    os.mkfifo(tmp_path / "pipe")
    table = invoke("simulate", "h200", "--gemm", "8x8x8", "--set", f"machine.measured={tmp_path / 'pipe'}")
    assert table.code == 2
    assert "no table" in table.err
    times = invoke("characterize-gpu", "h200", "--out", str(tmp_path), "--times", "/dev/zero")
    assert times.code == 2
    assert "not a regular file" in times.err


def test_a_card_is_measured_in_two_parts(few: CardTimes, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, float]] = []

    class FakeNvml:
        def slowed_by(self) -> tuple[str, ...]:
            return ()

        def driver(self) -> str:
            return "1.0"

    class FakeBench:
        nvml, waiting_w = FakeNvml(), 100.0

    def measure(
        bench: Any, layers: Any, chosen: Any, precisions: Any, *, window_s: float = 0.0, **_: Any
    ) -> list[LayerTime]:
        assert isinstance(bench, FakeBench)
        assert precisions == ("fp32", "tf32", "bf16")
        asked.append((len(list(chosen)), window_s))
        return list(few.powers if window_s else few.times)

    monkeypatch.setattr(characterizing, "measure", measure)
    monkeypatch.setattr(characterizing, "CudaBench", FakeBench)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a card")
    machine = load_design("h200").machine
    assert isinstance(machine, RooflineMachine)
    card = characterize_card(machine)
    assert (card.device, card.static_w, card.times) == ("a card", 100.0, few.times)
    assert asked[0] == (len(suite()), 0.0)
    assert asked[1] == (len(list(layers_for_power(suite(), few.times))), characterizing.WINDOW_S)
    assert asked[1][0] == 4  # three linear layers and one ReLU


def test_power_is_measured_on_layers_that_leave_the_cache() -> None:
    layers, card = suite(), read_card(H200)
    chosen = [layers[index] for index in layers_for_power(layers, card.times)]
    dense = [layer for layer in chosen if layer.kind[:3] == ("convolution", "2", "") and not layer.channels_last]
    assert len(dense) == 3
    assert all(layer.elements >= 1 << 25 for layer in dense)


@pytest.fixture
def processor(tmp_path: Path) -> Path:
    path = tmp_path / "processor.toml"
    path.write_text(
        'name = "processor"\nnumerics = "fp32"\n[machine]\nkind = "roofline"\nmemory_gb_s = 20.0\nmemory_gib = 16.0\n'
        "cores = 2\npower_w = 65.0\n[machine.matrix.float32]\ntflops = 0.2\n"
    )
    return path


def keep_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide other programs of this machine, and leave the memory of this one alone."""
    monkeypatch.setattr(benches, "keep_memory", lambda: None)
    monkeypatch.setattr(os, "getloadavg", lambda: (0.1, 0.1, 0.1))
    monkeypatch.setattr(CpuBench, "probe", lambda bench: 1.0)


def test_a_processor_is_measured_and_simulated(
    processor: Path, tmp_path: Path, invoke: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_quiet(monkeypatch)
    layers = suite()
    small = [layer for layer in layers if layer.flops < 3e7 and layer.elements < 1 << 19]
    few = [layer for layer in small if layer.name in ("linear", "parameters", "layer-norm")][:14]
    few += [layer for layer in small if layer.arguments.get("name") == "relu"]
    monkeypatch.setattr(characterizing, "suite", lambda: few)
    out = tmp_path / "out"
    printed = invoke("characterize-cpu", str(processor), "--out", str(out), "--threads", "1").out
    assert "1 threads" in printed
    card = json.decode((out / "times.json").read_bytes(), type=CardTimes)
    assert {row.precision for row in card.times} == {"fp32"}
    assert {row.phase for row in card.times} >= {"forward", "input_grad", "weight_grad", "backward"}
    assert not card.powers
    text = invoke("simulate", str(out / "design.toml"), "--gemm", "64x64x64", "--numerics", "fp32").out
    compiled = invoke("simulate", str(out / "design.toml"), "--gemm", "64x64x64", "--set", "machine.launch=compile")
    assert "is for a chip beside its host" in compiled.err
    assert "time" in text


def test_what_an_interrupted_run_measured_can_be_fitted(
    processor: Path, tmp_path: Path, invoke: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_quiet(monkeypatch)
    small = [layer for layer in suite() if layer.flops < 3e7 and layer.elements < 1 << 19]
    few = [layer for layer in small if layer.name == "linear"][:40]
    monkeypatch.setattr(characterizing, "suite", lambda: few)
    count = 0

    def timed(bench: CpuBench, run: Any, window_s: float) -> dict[str, Any]:
        nonlocal count
        count += 1
        if count > 60:  # in the second group of layers
            raise KeyboardInterrupt
        return {"time_us": 10.0 + count % 7}

    monkeypatch.setattr(CpuBench, "timed", timed)
    out = tmp_path / "out"
    assert invoke("characterize-cpu", str(processor), "--out", str(out)).code == 130
    times = out / "times.json"
    assert len(json.decode(times.read_bytes(), type=CardTimes).times) == 16 * 3
    assert "48 times" in invoke("characterize-cpu", str(processor), "--out", str(out), "--times", str(times)).out


def test_a_busy_processor_is_refused(
    processor: Path, tmp_path: Path, invoke: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (3.0, 2.0, 1.0))
    refused = invoke("characterize-cpu", str(processor), "--out", str(tmp_path))
    assert refused.code == 2
    assert "a load of 3.0" in refused.err


def test_layers_of_a_network_are_measured_beside_what_was(
    processor: Path, tmp_path: Path, invoke: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its layers get negative places, are measured once, and then take exactly their measured time."""
    keep_quiet(monkeypatch)
    small = [layer for layer in suite() if layer.flops < 3e7 and layer.elements < 1 << 19]
    few = [layer for layer in small if layer.name in ("linear", "parameters")][:14]
    monkeypatch.setattr(characterizing, "suite", lambda: few)
    first, second, third = (tmp_path / name for name in ("first", "second", "third"))
    invoke("characterize-cpu", str(processor), "--out", str(first), "--threads", "1")
    asked = ("--threads", "1", "--workload", "digits-mlp@48")
    invoke("characterize-cpu", str(processor), "--out", str(second), "--times", str(first / "times.json"), *asked)
    before, card = (json.decode((out / "times.json").read_bytes(), type=CardTimes) for out in (first, second))
    assert card.times[: len(before.times)] == before.times
    added = card.times[len(before.times) :]
    assert {row.layer for row in added} == set(range(-len(card.own), 0))
    invoke("characterize-cpu", str(processor), "--out", str(third), "--times", str(second / "times.json"), *asked)
    assert json.decode((third / "times.json").read_bytes(), type=CardTimes).times == card.times
    # What an interrupted run left out is measured now.
    partial = structs.replace(card, times=card.times[: len(before.times) + 3])
    (third / "partial.json").write_bytes(json.encode(partial))
    invoke("characterize-cpu", str(processor), "--out", str(third), "--times", str(third / "partial.json"), *asked)
    again = json.decode((third / "times.json").read_bytes(), type=CardTimes)
    assert len(again.times) >= len(card.times)
    layer = card.own[0]
    [measured] = [row.time_us for row in added if row.layer == -1 and row.phase == "forward"]
    sides = f"{layer.shapes[0][0]}x{layer.arguments['in_features']}x{layer.arguments['out_features']}"
    printed = invoke("simulate", str(second / "design.toml"), "--gemm", sides, "--numerics", "fp32", "--json").design
    assert printed["time_s"] * 1e6 == pytest.approx(measured, rel=0.02)


@pytest.mark.parametrize("batch", ["many", "", "0", "99999999999999999999"])
def test_a_batch_size_must_be_a_number(batch: str, processor: Path, tmp_path: Path, invoke: Any) -> None:
    wrong = invoke("characterize-cpu", str(processor), "--out", str(tmp_path), "--workload", f"digits-mlp@{batch}")
    assert wrong.code == 2
    assert f'a batch size must be a number from 1 to 1073741824, not "{batch}"' in wrong.err


def test_a_folder_that_cannot_be_made_is_named(processor: Path, invoke: Any) -> None:
    refused = invoke("characterize-cpu", str(processor), "--out", str(processor / "out"))
    assert refused.code == 2
    assert "cannot make this folder: Not a directory" in refused.err
