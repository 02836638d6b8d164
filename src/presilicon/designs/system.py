"""Systems: several devices, their power and links, and a table of the time and power of ops on each of them."""

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import combinations_with_replacement, product
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct
from msgspec.structs import replace

from presilicon.base import (
    ConfigError,
    Source,
    apply_settings,
    decode_config,
    did_you_mean,
    located,
    to_plain,
    write_out,
)
from presilicon.designs.inheritance import BASE, packaged_names, read_packaged, read_whole

DeviceKind = Literal["gpu", "fpga", "cpu"]
SIZES = ("S", "M", "L")
"""Size classes, the smallest first."""

Watts = Annotated[float, Meta(ge=0, le=1e6)]
Positive = Annotated[float, Meta(gt=0, le=1e18)]
Count = Annotated[int, Meta(ge=1, le=1024)]


class Device(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The devices of one kind in a system."""

    kind: DeviceKind
    count: Count = 1
    idle_w: Watts
    """Power of a device that runs nothing."""
    peak_w: Watts
    """Highest power of a device."""
    bytes_per_s: Positive | None = None
    """Bandwidth of the link between a device and the host; without it, moving data is free."""
    memory_gb_s: Positive | None = None
    """Memory bandwidth of a device, from which ops that are not in the table are estimated."""
    memory_gb: Positive | None = None
    """Memory of a device; without it, everything fits."""
    kernels: dict[str, tuple[str, ...]] = {}
    """Sets of kinds of ops that fit on a board together, by name: each board holds one of them for the whole training.
    Without sets, a device runs every kind that the table has."""
    reconfigure_s: Positive | None = None
    """Time to load another set of kernels into a board."""
    big_units: Count = 1
    """Devices over which a big op is spread."""
    clocks: tuple[float, ...] = (1.0,)
    """Clock levels as fractions of the highest."""
    alpha: Annotated[float, Meta(ge=0, le=10)] = 1.0
    """An op at clock f takes f^-alpha of its time."""
    power_exponent: Annotated[float, Meta(ge=0, le=10)] = 3.0
    """At clock f, an op's power above idle is multiplied by f to this power."""
    clock_label: str = "assumption"
    """Source of the scaling of time and power with the clock."""
    price_usd: Annotated[float, Meta(ge=0)] | None = None
    """Price per device."""
    like: str | None = None
    """A design whose time for a step is compared with that of the table's rows: is the device as fast as a real one?"""
    machine: str | None = None
    """A design whose simulated costs replace a table: a preset or a file (see docs/scheduling.md)."""
    runtime: tuple[str, ...] = ()
    """Real devices of this machine that execute a schedule, one for each: `cpu`, `cuda:0`, `opencl:0.0/1`."""

    def verify(self) -> None:
        """Check that the peak is not below idle and that clocks decrease from 1.0."""
        if self.peak_w < self.idle_w:
            raise ConfigError(f"peak_w must be at least idle_w ({self.idle_w:g}), not {self.peak_w:g}")
        if not self.clocks or self.clocks[0] != 1.0 or any(not 0 < clock <= 1 for clock in self.clocks):
            raise ConfigError(f"clocks must begin with 1.0, the highest, and be above 0, not {list(self.clocks)}")
        if sorted(set(self.clocks), reverse=True) != list(self.clocks):
            raise ConfigError(f"clocks must decrease, not {list(self.clocks)}")
        if self.runtime and len(self.runtime) != self.count:
            raise ConfigError(f"runtime must name {self.count} devices, one for each, not {len(self.runtime)}")
        if self.reconfigure_s is not None and len(self.kernels) < 2:
            raise ConfigError("reconfigure_s is for boards with two or more sets of kernels: give them in kernels")
        for name, kinds in self.kernels.items():
            if not kinds:
                raise ConfigError(f'kernels."{name}" must name at least one kind of op, such as "Conv2D"')
        if self.big_units > self.count:
            raise ConfigError(f"big_units must be at most {self.count}, the number of devices, not {self.big_units}")


class Row(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Time and power of a kind of op on a device."""

    kind: str
    """Kind of op, such as `Conv2D`."""
    size: str = ""
    """`S`, `M` or `L`; empty if there is one row for all sizes."""
    device: str
    units: Count = 1
    """Devices over which the measured op was spread; the powers are those of all of them together."""
    time_ms: float
    average_w: float
    peak_w: float
    bandwidth_gb_s: float | None = None
    """Memory bandwidth used while it ran."""
    ipc: float | None = None
    """Instructions per cycle."""
    source: str = "table"

    def verify(self) -> None:
        """Check that no figure is negative."""
        for name in ("time_ms", "average_w", "peak_w", "bandwidth_gb_s", "ipc"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < 1e12:
                what = f"{self.kind} {self.size}".rstrip()
                raise ConfigError(f"{name} of {what} on {self.device} must be at least 0, not {value:g}")


class Characterization(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of rows in a file of its own."""

    name: str
    source: str
    suspect: tuple[str, ...] = ()
    """Figures that look wrong in the source, one sentence each."""
    rows: tuple[Row, ...]


class System(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True):
    """Devices around a host, and the time and power of ops on them."""

    name: str
    description: str = ""
    devices: dict[str, Device]
    base_w: Watts = 0.0
    """Power drawn all the time in addition to the devices."""
    big: tuple[str, ...] = ()
    """Kinds of ops that are spread over several devices."""
    replicas: Count = 1
    """Copies of the model that train side by side, each on its part of the batch."""
    table: str | None = None
    """A characterization that comes with the package, or a file; the system's own `rows` replace its rows."""
    rows: tuple[Row, ...] = ()
    notes: tuple[str, ...] = ()
    """Assumptions, one sentence each."""

    def check(self) -> None:
        """Check that rows belong to existing devices and that the table has no gaps."""
        if not self.name.strip():
            raise ConfigError("name must not be empty")
        if not self.devices:
            raise ConfigError("a system needs at least one device, as in [devices.gpu]")
        for name, device in self.devices.items():
            with located(f"devices.{name}"):
                device.verify()
                for kernels in device.kernels if len(device.kernels) > 1 else ():
                    if f"{name}-{kernels}" in self.devices:
                        raise ConfigError(f'boards with the kernels "{kernels}" are named like a device: rename one')
        for row in self.rows:
            row.verify()
            if row.device not in self.devices:
                what = f"{row.kind} {row.size}".rstrip()
                raise ConfigError(
                    f'the row of {what} is for a device "{row.device}": {did_you_mean(row.device, self.devices)}'
                )
        self._check_rows()

    def _check_rows(self) -> None:
        sizes: dict[str, set[str]] = {}
        keys: set[tuple[str, str, str]] = set()
        for row in self.rows:
            sizes.setdefault(row.kind, set()).add(row.size)
            key = (row.kind, row.size, row.device)
            if key in keys:
                raise ConfigError(f"{row.kind} {row.size} on {row.device} must have one row, not two")
            keys.add(key)
        for kind, device in sorted({(kind, device) for kind, _, device in keys}):
            present = {size for size in sizes[kind] if (kind, size, device) in keys}
            missing = sorted(sizes[kind] - present, key=_size_rank)
            if missing and "" not in present:
                have = ", ".join(sorted(present, key=_size_rank))
                raise ConfigError(
                    f"the table has a gap: {kind} on {device} has rows for {have} and none for "
                    f"{', '.join(size or 'any size' for size in missing)}"
                )

    def row(self, kind: str, size: str, device: str) -> Row | None:
        """The row of an op on a device: that of its size, or the one for all sizes."""
        return self._index.get((kind, size, device)) or self._index.get((kind, "", device))

    @cached_property
    def _index(self) -> dict[tuple[str, str, str], Row]:
        return {(row.kind, row.size, row.device): row for row in self.rows}

    @cached_property
    def kinds(self) -> frozenset[str]:
        """The kinds of ops that the table has."""
        return frozenset(row.kind for row in self.rows)

    @property
    def reference(self) -> str:
        """The device that runs everything in baselines: the first GPU, or else the first device."""
        return next((name for name, device in self.devices.items() if device.kind == "gpu"), next(iter(self.devices)))

    def configurations(self) -> tuple["System", ...]:
        """The systems that result from giving each board one of its sets of kernels; itself if there are no sets.

        Boards with the same set are one device, `fpga-products`; if all have the same, the device keeps its name.

        >>> system = load_system("v100-3xs10", ['devices.fpga.kernels={"a" = ["Mul"], "b" = ["MatMul"]}'])
        >>> [list(each.devices) for each in system.configurations()][:2]
        [['gpu', 'fpga'], ['gpu', 'fpga-a', 'fpga-b']]
        """
        choices = [
            list(combinations_with_replacement(device.kernels, device.count)) if len(device.kernels) > 1 else [None]
            for device in self.devices.values()
        ]
        return tuple(self._configured(choice) for choice in product(*choices))

    def _configured(self, choice: Sequence[Sequence[str] | None]) -> "System":
        devices: dict[str, Device] = {}
        rows: list[Row] = []
        for (name, device), sets in zip(self.devices.items(), choice, strict=True):
            parts = {name: device}
            if sets is not None:
                parts, first = {}, 0
                for kernels, count in Counter(sets).items():
                    parts[name if count == len(sets) else f"{name}-{kernels}"] = replace(
                        device,
                        count=count,
                        big_units=min(device.big_units, count),
                        kernels={kernels: device.kernels[kernels]},
                        reconfigure_s=None,
                        runtime=device.runtime[first : first + count],
                    )
                    first += count
            devices |= parts
            rows += [replace(row, device=part) for part in parts for row in self.rows if row.device == name]
        return replace(self, devices=devices, rows=tuple(rows))

    def to_plain(self) -> dict[str, Any]:
        """The whole system as dicts, strings and numbers."""
        plain: dict[str, Any] = to_plain(self)
        return plain


def _written_out(data: dict[str, Any], source: Source) -> dict[str, Any]:
    return write_out(data, System, source)


def load_system(name_or_path: str | Path, settings: Iterable[str] = ()) -> System:
    """The system of a preset name or a TOML file, with `devices.gpu.idle_w=39`-like settings applied.

    A name that holds a path separator or ends in `.toml` is a file; a table that it names is looked for beside it. A
    system may extend another, `base = "v100-3xs10"`, and give the differences.

    Raises:
        ConfigError: there is no such preset or file, or a value in it is invalid.

    >>> load_system("v100-3xs10", ["devices.fpga.idle_w=0"]).devices["fpga"].idle_w
    0.0
    """
    data, source = read_whole(name_or_path, "systems", "system", _beside, _written_out)
    settings = list(settings)
    if settings:
        data = apply_settings(data, settings, System, source, also=(BASE,))
        source = Source(f"{source.name} with {' '.join(settings)}", source.text)
    return decode_config(_with_table(data, source), System, source, also=(BASE,))


def system_names() -> list[str]:
    """The systems that come with the package."""
    return packaged_names("systems")


def load_characterization(name_or_path: str | Path) -> Characterization:
    """A table of rows: one that comes with the package, or a TOML file.

    >>> len(load_characterization("v100-s10").rows)
    42
    """
    data, source = read_packaged(name_or_path, "systems/tables", "table")
    return decode_config(data, Characterization, source)


def _table_names() -> list[str]:
    return packaged_names("systems/tables")


def _size_rank(size: str) -> tuple[int, str]:
    return (SIZES.index(size) if size in SIZES else len(SIZES), size)


def _with_table(data: dict[str, Any], source: Source) -> dict[str, Any]:
    """`data` with the rows of its table added, except those that it replaces with its own."""
    name = data.get("table")
    if name is None:
        return data
    if not isinstance(name, str):
        raise ConfigError(f"{source.locate('$.table')}: given {name!r}, expected the name of a table or a .toml file")
    with located(source.locate("$.table")):
        table = load_characterization(name)
    own = data.get("rows", [])
    if not isinstance(own, list | tuple):
        return data
    replaced = {(row.get("kind"), row.get("size", ""), row.get("device")) for row in own if isinstance(row, dict)}
    devices = data.get("devices")
    known = set(devices) if isinstance(devices, dict) else set()
    added = [
        to_plain(row) for row in table.rows if (row.kind, row.size, row.device) not in replaced and row.device in known
    ]
    return {**data, "rows": [*own, *added]}


def _beside(data: dict[str, Any], folder: Path) -> dict[str, Any]:
    """`data` with the path of its table taken relative to `folder`."""
    table = data.get("table")
    if not isinstance(table, str) or table in _table_names():
        return data
    return {**data, "table": str(folder / table)}
