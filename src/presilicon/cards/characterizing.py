"""A card or processor from scratch: layers measured, efficiency and energies fitted, a design written."""

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import torch
from msgspec import Meta, Struct, structs

from presilicon.base import LARGEST_DATA, ConfigError, read_file
from presilicon.cards.benches import UNITS, Bench, CpuBench, CudaBench, Precision, processor_name
from presilicon.cards.fitting import fit, fit_energy
from presilicon.cards.layers import Layer
from presilicon.cards.measuring import LayerTime, measure
from presilicon.cards.own import layers_of, left_out
from presilicon.cards.suite import measuring_order, suite
from presilicon.designs import Design, RooflineMachine
from presilicon.simulation import MeasuredLayers, image_layout
from presilicon.workloads import capture_workload, load_workload

WINDOW_S = 0.6
"""Length of a measurement of power."""
_LARGEST_BATCH = 1 << 30
_STREAMED = 1 << 25
"""Elements of an input that no cache holds; in networks, most inputs come from memory."""
_COMMON = (("linear", "", ""), ("convolution", "2", ""), ("batch-norm", "2", ""))
"""Kinds of layers on which networks spend most of their energy."""

Progress = Callable[[int, int, str], None]
"""Is called with the number of layers that are done, that of all, and what is measured now."""


class CardTimes(Struct, frozen=True, kw_only=True):
    """Everything that was measured on a card."""

    schema: Literal[1] = 1
    device: str
    software: str
    """Versions of PyTorch, CUDA, cuDNN and the driver."""
    date: str
    static_w: Annotated[float, Meta(ge=0)] = 0.0
    """Power of the waiting card at the clock of a busy one; 0 where no powers are measured."""
    times: tuple[LayerTime, ...] = ()
    powers: tuple[LayerTime, ...] = ()
    own: tuple[Layer, ...] = ()
    """Layers of networks that were measured beside the suite; the first has the place -1, the second -2."""

    @property
    def layers(self) -> list[Layer]:
        """All layers, so that places lead to them."""
        return [*suite(), *reversed(self.own)]


def characterize_card(
    machine: RooflineMachine, *, before: CardTimes | None = None, own: Sequence[Layer] = (), minutes: float = 15.0,
    progress: Progress = lambda done, count, text: None, notice: Callable[[str], None] = lambda text: None,
    keep: Callable[[CardTimes], None] = lambda card: None,
) -> CardTimes:  # fmt: skip
    """Measure times of all layers on the card at hand, and then the power of some of each kind.

    Where `before` has them already, only `own` layers of networks are measured. `notice` is told what is left out, and
    `keep` is handed what was measured so far.

    Raises:
        MissingToolError: there is no CUDA device, or its power cannot be read.
        ConfigError: other programs use the card, or heat slows it down.
    """
    bench, card = CudaBench(), before
    layers, precisions = suite(), precisions_of(machine)
    versions = f"PyTorch {torch.__version__}, CUDA {torch.version.cuda}, cuDNN {_cudnn()}"
    software = f"{versions}, driver {bench.nvml.driver()}"
    if card is None:
        card = empty = CardTimes(
            device=torch.cuda.get_device_name(), software=software,
            date=time.strftime("%Y-%m-%d"), static_w=round(bench.waiting_w, 1),
        )  # fmt: skip
        times = measure(
            bench, layers, measuring_order(layers), precisions, stop_after_s=36 * minutes, notice=notice,
            progress=lambda done, text: progress(done, len(layers), text),
            keep=lambda times: keep(structs.replace(empty, times=tuple(times))),
        )  # fmt: skip
        chosen = list(layers_for_power(layers, times))
        timed = structs.replace(empty, times=tuple(times))
        powers = measure(
            bench, layers, chosen, precisions, window_s=WINDOW_S, stop_after_s=24 * minutes, notice=notice,
            progress=lambda done, text: progress(done, len(chosen), f"power of {text}"),
            keep=lambda powers: keep(structs.replace(timed, powers=tuple(powers))),
        )  # fmt: skip
        card = structs.replace(timed, powers=tuple(powers))
    elif torch.cuda.get_device_name() != card.device:
        raise ConfigError(f"the times are those of {card.device}, and this card is {torch.cuda.get_device_name()}")
    return _with_own(card, own, bench, precisions, minutes, progress, notice, software)


def characterize_processor(
    machine: RooflineMachine, *, before: CardTimes | None = None, own: Sequence[Layer] = (), minutes: float = 15.0,
    progress: Progress = lambda done, count, text: None, notice: Callable[[str], None] = lambda text: None,
    keep: Callable[[CardTimes], None] = lambda card: None,
) -> CardTimes:  # fmt: skip
    """Measure times of the smaller layers on the processor, with the threads that torch has, and of `own` layers.

    `notice` is told what is left out, and `keep` is handed what was measured so far.

    Raises:
        ConfigError: other programs use the processor.
    """
    bench, card, precisions = CpuBench(), before, precisions_of(machine)
    software = f"PyTorch {torch.__version__}"
    if card is None:
        layers = suite()
        chosen = [place for place in measuring_order(layers) if bench.admits(layers[place], "fp32")]
        empty = CardTimes(device=processor_name(), software=software, date=time.strftime("%Y-%m-%d"))
        times = measure(
            bench, layers, chosen, precisions, stop_after_s=60 * minutes, notice=notice,
            progress=lambda done, text: progress(done, len(chosen), text),
            keep=lambda times: keep(structs.replace(empty, times=tuple(times))),
        )  # fmt: skip
        card = structs.replace(empty, times=tuple(times))
    elif processor_name() != card.device:
        raise ConfigError(f"the times are those of {card.device}, and this processor is {processor_name()}")
    return _with_own(card, own, bench, precisions, minutes, progress, notice, software)


def _with_own(
    card: CardTimes, layers: Sequence[Layer], bench: Bench, precisions: Sequence[Precision], minutes: float,
    progress: Progress, notice: Callable[[str], None], software: str,
) -> CardTimes:  # fmt: skip
    """A measured card with the times of further layers, and the `software` that measured them."""
    before = card.layers
    known = {msgspec.json.encode(before[place]) for place in {row.layer for row in card.times}}
    added = [layer for layer in layers if msgspec.json.encode(layer) not in known]
    if not added:
        return card
    own = (*card.own, *added)
    places = range(-len(card.own) - 1, -len(own) - 1, -1)
    times = measure(
        bench, [*suite(), *reversed(own)], places, precisions, stop_after_s=60 * minutes, notice=notice,
        progress=lambda done, text: progress(done, len(added), text),
    )  # fmt: skip
    today = time.strftime("%Y-%m-%d")
    if (software, today) != (card.software, card.date):
        software = f"{card.software}; {len(added)} layers of networks on {today} with {software}"
    return structs.replace(card, own=own, times=(*card.times, *times), software=software)


def own_layers(
    workloads: Sequence[str], machine: RooflineMachine, notice: Callable[[str], None] = lambda text: None
) -> list[Layer]:
    """The layers of networks, each named as `NAME` or, with a batch size of its own, `NAME@BATCH`.

    `notice` is told how many products cannot be measured by themselves.

    Raises:
        ConfigError: there is no such workload, or its batch size is no number.
    """
    layers = []
    for text in workloads:
        name, at, batch = text.rpartition("@") if "@" in text else (text, "", "")
        if at and not (batch.isdecimal() and 1 <= int(batch) <= _LARGEST_BATCH):
            raise ConfigError(
                f'--workload {text}: a batch size must be a number from 1 to {_LARGEST_BATCH}, not "{batch}"'
            )
        graph = capture_workload(load_workload(name), batch_size=int(batch) if batch else None)
        if left_out(graph):
            notice(f"left out: {left_out(graph)} recurrent products or products of strided operands of {name}")
        layers += layers_of(graph, channels_last=image_layout(graph.ops, machine) == "channels-last")
    return layers


def precisions_of(machine: RooflineMachine) -> tuple[Precision, ...]:
    """The precisions that a machine has a matrix unit of."""
    return tuple(precision for precision, unit in UNITS.items() if unit in machine.matrix)


def _cudnn() -> int:
    return int(torch.backends.cudnn.version() or 0)  # type: ignore[no-untyped-call]


def layers_for_power(layers: Sequence[Layer], times: Sequence[LayerTime]) -> Iterator[int]:
    """Layers of each kind, by their place: three of common kinds and one of others, of those that leave the cache.

    Where there are too few of these, the largest ones.
    """
    measured = {row.layer for row in times}
    kinds: dict[tuple[str, ...], list[int]] = {}
    for index, layer in enumerate(layers):
        if index in measured:
            kinds.setdefault(layer.kind, []).append(index)
    for members in kinds.values():
        count = 3 if layers[members[0]].kind[:3] in _COMMON else 1
        members.sort(key=lambda index: layers[index].elements)
        streamed = [index for index in members if layers[index].elements >= _STREAMED]
        chosen = streamed if len(streamed) > count else members[-count:]
        yield from (chosen[(2 * k + 1) * len(chosen) // (2 * count)] for k in range(min(count, len(chosen))))


def read_card(path: Path) -> CardTimes:
    """The measurements of an earlier characterization.

    Raises:
        ConfigError: the file cannot be read.
    """
    try:
        card = msgspec.json.decode(read_file(path, LARGEST_DATA), type=CardTimes)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} has no measured layers: {error}") from None
    count, own = len(suite()), len(card.own)
    for layer in card.own:
        try:
            layer.build()
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise ConfigError(
                f'{path}, own: a layer "{layer.name}" {layer.arguments} cannot be built: {error}'
            ) from None
    for field in ("times", "powers"):
        for number, row in enumerate(getattr(card, field)):
            if not -own <= row.layer < count or row.time_us <= 0:
                raise ConfigError(
                    f"{path}, {field}[{number}]: layer must be from {-own} to {count - 1} and time_us more than 0, "
                    f"not {row.layer} and {row.time_us:g}"
                )
            if field == "powers" and (row.power_w is None or row.power_w <= 0):
                raise ConfigError(f"{path}, {field}[{number}]: power_w must be more than 0, not {row.power_w}")
    return card


def check_peaks(design: Design, precisions: Sequence[Precision] = CudaBench.required) -> RooflineMachine:
    """The machine of a design that has the published peaks of a card, in the precisions that are measured.

    Raises:
        ConfigError: it is no roofline, or lacks a unit that is measured.
    """
    machine = design.machine
    if not isinstance(machine, RooflineMachine):
        raise ConfigError(f"{design.name} is no chip with peaks: give a design whose machine is of the kind roofline")
    missing = [unit for unit in (UNITS[precision] for precision in precisions) if unit not in machine.matrix]
    if missing:
        raise ConfigError(f"{design.name} gives no rate of {', '.join(missing)}: add [machine.matrix.{missing[0]}]")
    return machine


def describe_card(design: Design, card: CardTimes, path: Path) -> tuple[Design, MeasuredLayers, float | None]:
    """The design with the efficiency and energies of a card, the table that it names, and the error of the energies.

    `design` has the published peaks of the card. The table is written to `path`. Where no powers were measured, the
    energies stay those of the design, and their error is None.

    Raises:
        ConfigError: the design's machine is no roofline, or lacks a unit that was measured.
    """
    machine = check_peaks(design, sorted({row.precision for row in card.times}))
    command = "characterize-gpu" if card.static_w else "characterize-cpu"
    source = f"presilicon {command}, {card.date}, {card.software}, {len(card.times)} phases of layers"
    layers = card.layers
    table = fit(layers, card.times, machine, device=card.device, source=source)
    table = structs.replace(table, is_processor=not card.static_w)
    if not any(group.points for group in table.groups.values()):
        raise ConfigError(f"{len(card.times)} times of layers are too few: no group of kernels can be fitted")
    path.write_bytes(msgspec.json.encode(table))
    machine = structs.replace(machine, measured=str(path.resolve()))
    error = None
    if card.powers:
        machine, powers, error = fit_energy(layers, card.powers, machine, card.static_w)
        table = structs.replace(table, powers=powers)
        path.write_bytes(msgspec.json.encode(table))
    return structs.replace(design, name=path.stem, machine=machine), table, error
