"""Instruments in emulated training: they see what is there, change nothing, and do as they are told."""

import copy
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from msgspec.structs import replace as changed

import presilicon as ps
from presilicon.base import ConfigError
from presilicon.designs import Hardware, Instrument, Override, RoleFormat, Tap
from presilicon.emulation import Checkpoint, train
from presilicon.formats import parse
from presilicon.instrument import Reference, TrainingInstrument
from presilicon.instrument.host.control import Command
from presilicon.instrument.host.host import Host
from presilicon.instrument.host.link import SocketLink
from presilicon.instrument.host.lockstep import LockstepEngine
from presilicon.instrument.host.taps import wire_taps
from presilicon.instrument.host.token import TOKEN_FILE, TOKEN_VARIABLE
from presilicon.records import Event, InstrumentAnswer, InstrumentStarted
from presilicon.runs import EventLog, read_events
from presilicon.study.instrumented import compare_with_stream, stream_file, train_watched
from presilicon.workloads import multiplying_layers
from presilicon_evidence.reproductions.watched import PlannedCommands as Planned

QUICK = replace(ps.load_workload("digits-mlp"), target=1.0, max_steps=30, evaluate_every=10, sustain=3)
HARDWARE = Hardware(
    element=parse("bfloat16"), accumulator_bits=32, taps=4, chains=40, range_rows=16, scratchpad_rows=40
)  # fmt: skip
LAYER = "hidden1"


def design(*taps: Tap, hardware: Hardware = HARDWARE, **options: Any) -> ps.Design:
    instrument = Instrument(hardware=hardware, taps=taps, **({"step_s": 1e-3} | options))
    return changed(ps.load_design("bf16-systolic"), instrument=instrument)


def plain(events: list[dict[str, Any]]) -> Callable[[Event], None]:
    """Appends events to a list as plain data."""
    return lambda event: events.append(msgspec.to_builtins(event))


def watch(watched: ps.Design, **options: Any) -> tuple[Any, list[dict[str, Any]]]:
    events: list[dict[str, Any]] = []
    trace = train_watched(QUICK, watched, emit=plain(events), **options)
    return trace, events


def readings(events: list[dict[str, Any]], tap: str) -> dict[int, dict[str, Any]]:
    return {each["step"]: each["values"] for each in events if each["event"] == "instrument" and each["tap"] == tap}


def layers() -> list[str]:
    from presilicon.workloads import multiplying_layers

    return multiplying_layers(QUICK.model())


class KilledAt:
    """A hook that interrupts a training."""

    is_passive = True

    def __init__(self, step: int) -> None:
        self._step = step

    def before_step(self, step: int) -> None:
        if step == self._step:
            raise KeyboardInterrupt

    def after_step(self, step: int, facts: Any) -> Any:
        return facts


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """As evaluations train; and threads that wait for each other take long on a machine that is busy."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def plain_trace(one_thread: None) -> Any:
    return train(QUICK, ps.load_design("bf16-systolic").numerics)


def test_training_is_not_touched(plain_trace: Any) -> None:
    trace, events = watch(design(Tap(name="in", layers="*"), every_role("gradient"), hardware=wide()))
    assert trace == plain_trace
    assert events[0]["event"] == "instrument_started"
    assert events[-1]["event"] == "instrument_ended"


def wide() -> Hardware:
    return changed(HARDWARE, taps=16)


def every_role(role: Any) -> Tap:
    return Tap(name=role, layers="*", role=role, aggregation="summary")


@pytest.mark.parametrize("role", ["weight", "activation", "error", "gradient"])
def test_figures_are_those_of_the_tensors(role: Any) -> None:
    seen: dict[int, np.ndarray] = {}
    layer = layers()[-1]

    def observer(step: int, name: str, which: str, tensor: Any) -> None:
        if (name, which) == (layer, role) and step not in seen:
            seen[step] = tensor.numpy().copy()

    tap = Tap(name="it", layers=layer, role=role, aggregation="gradient_norm", every=3, vectors="all")
    _, events = watch(design(tap), observers=[observer])
    found = readings(events, "it")
    assert list(found) == list(range(0, 30, 3))
    for step, values in found.items():
        wanted = np.linalg.norm(seen[step].astype(np.float64))
        assert values["norm"] == pytest.approx(wanted, rel=1e-2 if role in ("error", "gradient") else 1e-4)


def test_a_pair_of_update_and_weight() -> None:
    layer = layers()[0]
    before: dict[int, np.ndarray] = {}
    after: dict[int, np.ndarray] = {}

    class Keep:
        def attach(self, model: Any, optimizer: Any, step: int) -> None:
            self.weight = dict(model.named_parameters())[f"{layer}.weight"]

        def before_step(self, step: int) -> None:
            before[step] = self.weight.detach().numpy().copy()

        def after_step(self, step: int, facts: Any) -> Any:
            after[step] = self.weight.detach().numpy().copy()
            return facts

    tap = Tap(name="pace", layers=layer, role="weight", aggregation="update_ratio", every=5, vectors="all")
    _, events = watch(design(tap), hooks=[Keep()])
    found = readings(events, "pace")
    assert list(found) == list(range(0, 30, 5))
    for step, values in found.items():
        update = np.linalg.norm(after[step] - before[step])
        assert values["ratio"] == pytest.approx(update / np.linalg.norm(before[step]), rel=0.02)


def test_a_pair_of_before_and_after_rounding() -> None:
    seen: dict[int, tuple[np.ndarray, np.ndarray]] = {}
    layer = layers()[-1]
    fp8 = changed(ps.load_design("fp8-systolic"), instrument=None)

    class Pairs:
        wants_pairs = True

        def __call__(self, step: int, name: str, role: str, tensor: Any) -> None:
            pass

        def pair(self, step: int, name: str, role: str, before: Any, after: Any) -> None:
            if (name, role) == (layer, "activation"):
                seen[step] = before.numpy().astype(np.float64), after.numpy().astype(np.float64)

    fine = changed(HARDWARE, element=parse("fixed(12, 20)"), accumulator_bits=48)
    tap = Tap(name="noise", layers=layer, aggregation="quantization_error", every=10, vectors="all")
    watched = changed(design(tap, hardware=fine), numerics=fp8.numerics)
    _, events = watch(watched, observers=[Pairs()])
    for step, values in readings(events, "noise").items():
        before, after = seen[step]
        ratio = 10 * np.log10((before**2).sum() / ((after - before) ** 2).sum())
        assert values["signal_to_noise_db"] == pytest.approx(ratio, abs=0.1)
        assert 20 < ratio < 45
    assert len(readings(events, "noise")) == 3


def test_correlation_with_the_look_before() -> None:
    tap = Tap(name="drift", layers=layers()[0], role="weight", aggregation="correlation", every=10, vectors="all")
    _, events = watch(design(tap))
    found = readings(events, "drift")
    assert list(found) == [10, 20], "the first look has none before it"
    assert all(0.5 < values["correlation"] <= 1.001 for values in found.values())


@pytest.mark.parametrize(
    ("tap", "said"),
    [
        (Tap(name="in", layers="nothing.*"), "matches no layer that multiplies"),
        (Tap(name="in", layers="*", aggregation="sumary"), 'did you mean "summary"'),
        (Tap(name="in", layers="*", role="gradient", aggregation="update_ratio"), 'role = "weight"'),
        (Tap(name="in", layers="*", aggregation="distribution", options={"bins": 4096}), "range_rows = "),
    ],
)
def test_what_cannot_be_is_told_before_training(tap: Tap, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        watch(design(tap))


def test_noise_of_the_last_layer_is_that_of_its_own_format() -> None:
    watched = design(Tap(name="noise", layers="output", aggregation="quantization_error", every=10, vectors="all"))
    last = Override(layers="last", activation=RoleFormat(parse("e4m3")))
    _, events = watch(changed(watched, numerics=ps.Numerics(overrides=(last,))))
    assert readings(events, "noise")


def test_rounding_that_does_not_happen() -> None:
    tap = Tap(name="in", layers=layers()[0], aggregation="quantization_error")
    with pytest.raises(ConfigError, match="in float32"):
        watch(changed(design(tap), numerics=ps.load_design("fp32-systolic").numerics))


def test_rounding_that_the_instrument_cannot_see() -> None:
    tap = Tap(name="in", layers=layers()[0], aggregation="quantization_error")
    same = changed(HARDWARE, element=parse("bfloat16"), accumulator_bits=32)
    with pytest.raises(ConfigError, match=r"would show nothing: the instrument's element .* set a finer element"):
        watch(design(tap, hardware=same))


def test_evaluate_checks_the_instrument_first() -> None:
    with pytest.raises(ConfigError, match=r'design "bf16-systolic": instrument: the pattern "nothing"'):
        ps.evaluate(design(Tap(name="in", layers="nothing")), QUICK, seeds=1)


def test_a_learning_rate_takes_effect_at_its_step() -> None:
    class Slow:
        def attach(self, model: Any, optimizer: Any, step: int) -> None:
            self.optimizer = optimizer

        def before_step(self, step: int) -> None:
            if step == 12:
                for group in self.optimizer.param_groups:
                    group["lr"] = 0.03125

        def after_step(self, step: int, facts: Any) -> Any:
            return facts

    wanted = train(QUICK, ps.load_design("bf16-systolic").numerics, hooks=[Slow()])
    trace, events = commanded(12, verb="learning_rate", value=0.03125)
    assert trace == wanted
    (answer,) = [each for each in events if each["event"] == "instrument_answer"]
    assert (answer["ok"], answer["step"]) == (True, 12)


def commanded(step: int, **fields: Any) -> tuple[Any, list[dict[str, Any]]]:
    command = Command(id="it", streams=(), **fields)
    watched = design(Tap(name="in", layers=layers()[0], every=5))
    return watch(watched, commands=lambda stream: Planned({step: command}))


def test_an_aggregation_is_exchanged_while_training_goes_on(plain_trace: Any) -> None:
    trace, events = commanded(12, verb="program", tap="in", aggregation="norm_check")
    assert trace == plain_trace
    seen = {each["step"]: each["aggregation"] for each in events if each["event"] == "instrument"}
    assert seen == {0: "summary", 5: "summary", 10: "summary"} | dict.fromkeys([15, 20, 25], "norm_check")


def test_a_bad_request_changes_nothing(plain_trace: Any) -> None:
    trace, events = commanded(12, verb="program", tap="in", aggregation="norm_chek")
    assert trace == plain_trace
    (answer,) = [each for each in events if each["event"] == "instrument_answer"]
    assert not answer["ok"]
    assert 'did you mean "norm_check"' in answer["message"]
    assert {each["aggregation"] for each in events if each["event"] == "instrument"} == {"summary"}


@pytest.mark.parametrize("value", [1e60, 1e-60, -1.0, None])
def test_a_learning_rate_that_the_register_cannot_hold_changes_nothing(plain_trace: Any, value: float | None) -> None:
    trace, events = commanded(12, verb="learning_rate", value=value)
    assert trace == plain_trace
    (answer,) = [each for each in events if each["event"] == "instrument_answer"]
    assert not answer["ok"]
    assert "learning rate: given" in answer["message"]


def kept_in(directory: Path) -> tuple[Callable[[Event], None], dict[str, Any]]:
    """What writes a training's events into a directory, and the options that keep its checkpoints there."""
    log = EventLog(directory / "events.jsonl")

    def emit(event: Event) -> None:
        log.append(msgspec.structs.replace(event, design="bf16-systolic", seed=0))

    return emit, {"directory": directory, "checkpoint": Checkpoint(directory / "kept.safetensors", 1)}


def test_a_training_that_is_taken_up_again_does_as_it_was_told_before(tmp_path: Path) -> None:
    asked = {
        5: Command(id="1", streams=("s",), verb="program", tap="in", aggregation="norm_check"),
        12: Command(id="2", streams=("s",), verb="learning_rate", value=0.03125),
        23: Command(id="3", streams=("s",), verb="sample", tap="in", every=1),
    }
    watched = design(Tap(name="in", layers=layers()[0], every=5))
    wanted = train_watched(QUICK, watched, commands=lambda stream: Planned(asked))
    emit, options = kept_in(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        train_watched(QUICK, watched, emit=emit, commands=lambda s: Planned(asked), hooks=[KilledAt(27)], **options)
    before = len(list(read_events(tmp_path / "events.jsonl")))
    assert train_watched(QUICK, watched, emit=emit, **options) == wanted
    later = [msgspec.to_builtins(event) for event in read_events(tmp_path / "events.jsonl")][before:]
    answers = [each for each in later if each["event"] == "instrument_answer"]
    assert [(each["command"], each["step"], each["ok"]) for each in answers] == [
        ("1", 20, True), ("2", 20, True), ("3", 23, True),
    ]  # fmt: skip
    assert answers[0]["message"].startswith("as before the run was resumed: in: aggregation norm_check")
    looks = [(each["step"], each["aggregation"]) for each in later if each["event"] == "instrument"]
    assert looks == [(step, "norm_check") for step in (20, *range(23, 30))]


def of_looks(events: list[dict[str, Any]], first: int = 0) -> list[dict[str, Any]]:
    """What every look from a step on showed, without the name of the stream."""
    kept = ("step", "tap", "aggregation", "values", "histogram", "lanes")
    looks = [each for each in events if each["event"] == "instrument" and each["step"] >= first]
    return [{name: each[name] for name in kept if name in each} for each in looks]


@pytest.mark.parametrize("link", [12.5e6, 2e5], ids=["fast", "slow"])
def test_a_resumed_run_shows_what_the_uninterrupted_one_shows(tmp_path: Path, link: float) -> None:
    first, last = layers()[0], layers()[-1]
    taps = [
        Tap(name="norm", layers=first, aggregation="norm_check", every=1),
        Tap(name="predict", layers=last, aggregation="predictiveness", options={"window": 7}, every=3),
        Tap(name="same", layers=first, role="weight", aggregation="correlation", every=4),
        Tap(name="late", layers=last, role="gradient", aggregation="gradient_norm", every=2),
    ]
    asked = {
        5: Command(id="1", streams=(), verb="program", tap="late", aggregation="norm_check"),
        8: Command(id="2", streams=(), verb="sample", tap="norm", every=3),
        20: Command(id="3", streams=(), verb="sample", tap="predict", every=1),
        24: Command(id="4", streams=(), verb="program", tap="norm", aggregation="norm_check"),
    }
    watched = design(*taps, link_bytes_per_s=link, output_bytes=700)
    whole, events = watch(watched, commands=lambda stream: Planned(asked))
    emit, options = kept_in(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        train_watched(QUICK, watched, emit=emit, commands=lambda s: Planned(asked), hooks=[KilledAt(27)], **options)
    resumed: list[dict[str, Any]] = []
    assert train_watched(QUICK, watched, emit=plain(resumed), **options) == whole
    assert of_looks(resumed) == of_looks(events, 20)
    assert {each["tap"] for each in of_looks(resumed)} == {"norm", "predict", "same", "late"}
    account = [each for each in events if each["event"] == "instrument_losses"][-1]
    assert (account["taps"]["norm"]["dropped"] > 0) == (link < 1e6), "the slow link drops some"


def test_a_run_that_was_kept_without_an_instrument_goes_on_with_one(tmp_path: Path, plain_trace: Any) -> None:
    kept = Checkpoint(tmp_path / "kept.safetensors", 1)
    watched = design(Tap(name="norm", layers=layers()[0], aggregation="norm_check"))
    with pytest.raises(KeyboardInterrupt):
        train(QUICK, watched.numerics, hooks=[KilledAt(27)], checkpoint=kept)
    trace, events = watch(watched, checkpoint=kept)
    assert trace == plain_trace
    assert [each["step"] for each in of_looks(events)] == [20]


def test_without_control_registers_no_learning_rate() -> None:
    bare = design(Tap(name="in", layers=layers()[0]), hardware=changed(HARDWARE, controls=0))
    command = Command(id="it", streams=(), verb="learning_rate", value=0.1)
    _, events = watch(bare, commands=lambda stream: Planned({3: command}))
    (answer,) = [each for each in events if each["event"] == "instrument_answer"]
    assert "this hardware has 0" in answer["message"]


def test_a_link_that_is_too_slow_drops_whole_frames_and_says_so(plain_trace: Any) -> None:
    tap = Tap(name="in", layers="*", every=1)
    watched = design(tap, link_bytes_per_s=2000.0, output_bytes=256, step_s=1e-3)
    trace, events = watch(watched)
    assert trace == plain_trace
    account = [each for each in events if each["event"] == "instrument_losses"][-1]
    dropped = sum(each["dropped"] for each in account["taps"].values())
    delivered = sum(each["delivered"] for each in account["taps"].values())
    assert delivered == sum(each["event"] == "instrument" for each in events)
    assert dropped > 0 < delivered
    assert dropped + delivered == 30 * len(layers())
    assert account["skipped_bytes"] == account["lost_packets"] == 0


def test_hosts_on_the_socket_come_and_go(plain_trace: Any) -> None:
    seen: list[bytes] = []
    hosts: list[SocketLink] = []

    class Visitor:
        def before_step(self, step: int) -> None:
            if step in (2, 20):
                hosts.append(SocketLink(address[0]))
            if step == 10:
                hosts[0].close()
            for host in hosts[-1:] if step < 10 or step >= 20 else ():
                seen.append(host.receive())

        def after_step(self, step: int, facts: Any) -> Any:
            return facts

    address: list[str] = []

    def emit(event: Event) -> None:
        if isinstance(event, InstrumentStarted):
            address.append(event.address)

    tap = Tap(name="in", layers=layers()[0], every=1)
    watched = design(tap, listen="127.0.0.1:0")
    trace = train_watched(QUICK, watched, emit=emit, hooks=[Visitor()])
    for host in hosts:
        host.close()
    assert trace == plain_trace
    assert address[0].startswith("127.0.0.1:")
    assert b"".join(seen).count(b"\xd1\x5c") > 5


@pytest.mark.parametrize("accepts", [False, True])
def test_a_host_on_the_socket_programs_only_where_it_may(plain_trace: Any, accepts: bool) -> None:
    events: list[dict[str, Any]] = []
    tap = Tap(name="in", layers=layers()[0], every=1)
    watched = design(tap, listen="127.0.0.1:0", accept_images=accepts)
    other = Host(watched.instrument.built, wire_taps(changed(watched.instrument, taps=(norm(tap),)), layers()))  # type: ignore[union-attr,arg-type]

    class Meddler:
        def before_step(self, step: int) -> None:
            if step == 10:
                self.link = SocketLink(events[0]["address"])
                self.link.send(other.take())

        def after_step(self, step: int, facts: Any) -> Any:
            return facts

    meddler = Meddler()
    trace = train_watched(QUICK, watched, emit=plain(events), hooks=[meddler])
    meddler.link.close()
    assert trace == plain_trace
    seen = [each["aggregation"] for each in events if each["event"] == "instrument"]
    account = [each for each in events if each["event"] == "instrument_losses"][-1]
    assert seen[:10] == ["summary"] * 10
    assert set(seen[11:]) == ({"unknown"} if accepts else {"summary"})
    assert ("ignored_bytes" in account) is not accepts
    assert account["undecodable"] == 0


@pytest.mark.parametrize("has_token", [False, True])
def test_a_host_on_another_machine_programs_only_with_the_token(
    plain_trace: Any, has_token: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    events: list[dict[str, Any]] = []
    tap = Tap(name="in", layers=layers()[0], every=1)
    watched = design(tap, listen="0.0.0.0:0", accept_images=True)
    other = Host(watched.instrument.built, wire_taps(changed(watched.instrument, taps=(norm(tap),)), layers()))  # type: ignore[union-attr,arg-type]
    refusals: list[str] = []

    class Visitor:
        link: SocketLink | None = None

        def before_step(self, step: int) -> None:
            if step == 10:
                token = (tmp_path / TOKEN_FILE).read_text().strip() if has_token else None
                self.link = SocketLink(events[0]["address"].replace("0.0.0.0", "127.0.0.1"), token=token)
                self.link.send(other.take())

        def after_step(self, step: int, facts: Any) -> Any:
            if self.link is not None and not refusals:
                try:
                    self.link.receive()
                except ConfigError as error:
                    refusals.append(str(error))
            return facts

    visitor = Visitor()
    trace = train_watched(QUICK, watched, emit=plain(events), hooks=[visitor], directory=tmp_path)
    assert visitor.link is not None
    visitor.link.close()
    assert trace == plain_trace
    seen = [each["aggregation"] for each in events if each["event"] == "instrument"]
    assert set(seen[11:]) == ({"unknown"} if has_token else {"summary"})
    assert bool(refusals) is not has_token
    secret = (tmp_path / TOKEN_FILE).read_text().strip()
    for text in (str(events), str(watched.to_plain()), *refusals):
        assert secret not in text


def test_images_from_other_machines_need_a_place_for_the_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    watched = design(Tap(name="in", layers=layers()[0]), listen="0.0.0.0:0", accept_images=True)
    with pytest.raises(ConfigError, match="needs a token"):
        train_watched(QUICK, watched)


def norm(tap: Tap) -> Tap:
    return changed(tap, aggregation="gradient_norm")


def test_a_watched_model_can_be_copied() -> None:
    copies = []

    class Copy:
        def attach(self, model: Any, optimizer: Any, step: int) -> None:
            self.model = model

        def before_step(self, step: int) -> None:
            copies.append(copy.deepcopy(self.model))

        def after_step(self, step: int, facts: Any) -> Any:
            return facts

    watched = design(Tap(name="in", layers=layers()[0], every=1), listen="127.0.0.1:0")
    train_watched(replace(QUICK, max_steps=2), watched, hooks=[Copy()])
    assert copies[1](torch.zeros(1, 64)).shape == (1, 10)


def in_jobs(jobs: int, seeds: str) -> dict[int, list[dict[str, Any]]]:
    events: list[dict[str, Any]] = []
    watched = design(Tap(name="in", layers="*", every=10), seeds=seeds)
    ps.evaluate(watched, QUICK, seeds=2, jobs=jobs, on_event=plain(events))
    found: dict[int, list[dict[str, Any]]] = {}
    for event in events:
        if event["event"] == "instrument":
            found.setdefault(event["seed"], []).append({k: v for k, v in event.items() if k not in ("stream", "time")})
    return found


def test_the_first_seed_is_watched_or_all_of_them_in_any_process() -> None:
    alone = in_jobs(1, "first")
    assert list(alone) == [0]
    both = in_jobs(2, "all")
    assert sorted(both) == [0, 1]
    assert both[0] == alone[0]


def test_a_recorded_stream_is_the_same_again_and_a_fault_is_named(tmp_path: Path) -> None:
    commands: dict[int, Command] = {9: Command(id="it", streams=(), verb="program", tap="in", aggregation="norm_check")}
    events: list[Event] = []
    watched = design(Tap(name="in", layers=layers()[0], every=3))
    train_watched(QUICK, watched, emit=events.append, directory=tmp_path, commands=lambda stream: Planned(commands))
    recorded = (tmp_path / stream_file("bf16-systolic-seed0")).read_bytes()
    same = compare_with_stream(recorded, QUICK, watched, events)
    assert (same.difference, same.compared, same.only_here, same.only_there) == (None, 10, 0, 0)
    asked = next(event for event in events if isinstance(event, InstrumentAnswer))
    louder = msgspec.to_builtins(Command(id="x", streams=(), verb="learning_rate", value=9.0))
    others = [
        msgspec.structs.replace(asked, step=3, request=louder, design=name, seed=seed)
        for name, seed in (("bf16-systolic", 1), ("another", 0))
    ]
    assert compare_with_stream(recorded, QUICK, watched, events + others) == same, "they were asked of others"
    other = compare_with_stream(recorded, replace(QUICK, batch_size=31), watched, events)
    assert other.difference is not None
    assert (other.difference.name, other.difference.step) == ("in", 0)


class Stuck(Reference):
    """A circuit whose lane 5 is stuck at 1.0 from step 12 on."""

    def feed(self, words: Any, last: Any, tap: int = 0) -> Any:
        self.frames = getattr(self, "frames", -1) + 1
        if self.frames >= 12:
            words = np.array(words)
            words[:, 5] = 0x3F800000
        return super().feed(words, last, tap)


def test_training_in_lockstep_with_a_circuit_that_has_a_fault() -> None:
    make: Callable[[], Any] = lambda: design(Tap(name="in", layers=layers()[-1], every=1, aggregation="sparsity"))  # noqa: E731
    watched = make()
    good = LockstepEngine(Reference(watched.instrument.built), Reference(watched.instrument.built))
    train_watched(replace(QUICK, max_steps=15), watched, engine=good)
    assert (good.compared, good.difference) == (15, None)
    bad = LockstepEngine(Reference(watched.instrument.built), Stuck(watched.instrument.built), names={0: "in"})
    train_watched(replace(QUICK, max_steps=15), watched, engine=bad)
    assert bad.difference is not None
    assert (bad.difference.name, bad.difference.step) == ("in", 12)
    assert bad.difference.element % 32 == 5
    assert (bad.difference.here, bad.difference.there) == (1.0, 0.0)


def warnings_of(events: list[dict[str, Any]]) -> list[tuple[int, dict[str, Any]]]:
    return [(place, each) for place, each in enumerate(events) if each["event"] == "instrument_warning"]


def test_counts_that_cannot_fit_are_told_before_the_first_look() -> None:
    narrow = changed(HARDWARE, element=parse("fixed(8, 8)"), accumulator_bits=None)
    taps = [
        Tap(name=role, layers=LAYER, role=role, aggregation=aggregation, vectors="all")
        for role, aggregation in (("weight", "summary"), ("activation", "norm_check"), ("error", "gradient_norm"))
    ]
    _, events = watch(design(*taps, hardware=narrow))
    (first, of_weight), (second, of_activation) = warnings_of(events)
    kinds = [each["event"] for each in events]
    assert set(kinds[:first]) == {"instrument_started", "instrument_aggregation"}, "before training begins"
    assert second < kinds.index("instrument"), "before any reading"
    assert (of_weight["tap"], of_weight["aggregation"], of_weight["limit"]) == ("weight", "summary", 127)
    weight = dict(QUICK.model().named_parameters())[f"{LAYER}.weight"]
    assert of_weight["largest_count"] == weight.numel()
    assert f"counts may reach {weight.numel()}, but words of 16 bits hold no more than 127" in of_weight["message"]
    for hint in ("accumulator_bits = ", "vectors = 3 or fewer", "fraction bits or fewer"):
        assert hint in of_weight["message"]
    assert (of_activation["tap"], of_activation["aggregation"]) == ("activation", "norm_check")


def test_counts_that_fit_are_not_warned_of() -> None:
    taps = [Tap(name="in", layers=LAYER), Tap(name="w", layers=LAYER, role="weight", aggregation="distribution")]
    _, events = watch(design(*taps))
    assert not warnings_of(events)
    assert not any("notes" in each for each in events)


def test_what_a_warning_says_to_try_is_enough() -> None:
    tap = Tap(name="w", layers=LAYER, role="weight", aggregation="summary", vectors="all")
    narrow = changed(HARDWARE, element=parse("fixed(8, 8)"), accumulator_bits=None)
    _, events = watch(design(tap, hardware=narrow))
    [(_, warning)] = warnings_of(events)
    bits = int(warning["message"].partition("accumulator_bits = ")[2].split()[0])
    for hardware, vectors in ((changed(narrow, accumulator_bits=bits), "all"), (narrow, 3)):
        assert not warnings_of(watch(design(changed(tap, vectors=vectors), hardware=hardware))[1])
    for hardware, vectors in ((changed(narrow, accumulator_bits=bits - 1), "all"), (narrow, 4)):
        assert warnings_of(watch(design(changed(tap, vectors=vectors), hardware=hardware))[1])


def test_an_aggregation_that_is_programmed_later_is_warned_of_at_its_first_look() -> None:
    narrow = changed(HARDWARE, accumulator_bits=None)
    tap = Tap(name="w", layers=LAYER, role="weight", aggregation="gradient_norm", vectors="all", every=1)
    command = Command(id="1", streams=(), verb="program", tap="w", aggregation="summary")
    _, events = watch(design(tap, hardware=narrow), commands=lambda stream: Planned({10: command}))
    [(place, warning)] = warnings_of(events)
    assert warning["aggregation"] == "summary"
    first = next(
        at for at, each in enumerate(events) if each["event"] == "instrument" and each["aggregation"] == "summary"
    )
    assert place < first


@pytest.mark.parametrize(
    ("is_attached", "is_observer", "begins", "said"),
    [
        (False, True, True, r"call attach\(model, optimizer, step\) before the first step"),
        (True, False, True, "give it to emulate_ as one of its observers"),
        (True, True, False, r"before_step\(0\) was not called"),
    ],
)
def test_a_loop_that_leaves_a_call_out_is_told(is_attached: bool, is_observer: bool, begins: bool, said: str) -> None:
    instrument = design(Tap(name="in", layers="0", aggregation="summary")).instrument
    assert instrument is not None
    watching = TrainingInstrument(instrument, layers_of=multiplying_layers, emit=lambda event: None)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4))
    model = ps.emulate_(model, ps.load_numerics("bf16"), observers=[watching] if is_observer else [])
    if is_attached:
        watching.attach(model, torch.optim.SGD(model.parameters(), lr=0.1), 0)

    def step() -> None:
        if begins:
            watching.before_step(0)
        model(torch.randn(2, 4)).sum().backward()
        watching.after_step(0, ps.StepFacts())

    with pytest.raises(ConfigError, match=said):
        step()
