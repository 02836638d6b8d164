"""OpenCL boards: find a device, configure kernels (built once, cached on disk), launch them, release the device."""

import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Any, NamedTuple

from presilicon.base import ConfigError, MissingToolError, RunFailedError, cache_directory, np, write_atomically
from presilicon.scheduling.runtime.devices import DeviceLostError
from presilicon.scheduling.runtime.opencl.printing import printed

INSTALL = "pip install 'presilicon[opencl]'"
_STRICT = "-cl-std=CL1.2 -cl-kernel-arg-info -w"


def import_opencl() -> Any:
    """The module pyopencl.

    Raises:
        MissingToolError: it is not installed.
    """
    # PoCL: each thread stays on its core, so that boards made of one core do not take turns on the same one.
    os.environ.setdefault("POCL_AFFINITY", "1")
    try:
        import pyopencl
        import pyopencl.tools
    except ImportError as error:
        raise MissingToolError(f"OpenCL devices need pyopencl ({error}): {INSTALL}") from None
    return pyopencl


class BoardInfo(NamedTuple):
    """An OpenCL device of this machine."""

    name: str
    """As in `open_device`, such as `opencl:0.0`."""
    device: str
    platform: str
    version: str
    compute_units: int
    clock_mhz: int
    memory_bytes: int


def list_boards() -> list[BoardInfo]:
    """All OpenCL devices of this machine.

    Raises:
        MissingToolError: pyopencl or a platform is missing.
    """
    boards = []
    for p, platform in enumerate(_platforms()):
        for d, device in enumerate(platform.get_devices()):
            boards.append(_describe(f"opencl:{p}.{d}", platform, device))
    return boards


def _platforms() -> list[Any]:
    opencl = import_opencl()
    try:
        platforms: list[Any] = opencl.get_platforms()
    except opencl.Error:  # no loader entry at all is an error, not an empty list
        platforms = []
    if not platforms:
        raise MissingToolError(f"there is no OpenCL platform here; PoCL runs on any CPU: {INSTALL}")
    return platforms


def _describe(name: str, platform: Any, device: Any) -> BoardInfo:
    return BoardInfo(
        name,
        device.name.strip(),
        platform.name.strip(),
        f"{platform.version.strip()}, driver {device.driver_version.strip()}",
        device.max_compute_units,
        device.max_clock_frequency,
        device.global_mem_size,
    )


def _compile_error(context: Any, device: Any) -> str:
    """The compiler's first error for an empty kernel, or nothing."""
    opencl = import_opencl()
    try:
        opencl.Program(context, "__kernel void nothing() {}").build([], [device], cache_dir=False)
    except opencl.RuntimeError as error:
        lines = str(error).splitlines()
        return next((line.strip() for line in lines if line.strip().startswith("error:")), lines[0])
    return ""


class BuiltKernel(NamedTuple):
    """A kernel that is built for a board."""

    name: str
    call: Any


class Board:
    """A device with its context, an in-order queue and built kernels.

    `part` names a sub-device that is one compute unit, so that a CPU gives several boards. Work on
    several boards overlaps only if each has a thread that waits for it.

    Raises:
        ConfigError: there is no such device.
        MissingToolError: there is no OpenCL, or it cannot compile for this device.
    """

    def __init__(self, platform: int = 0, device: int = 0, part: int | None = None, *, profile: bool = False) -> None:
        self.opencl = opencl = import_opencl()
        platforms = _platforms()
        name = f"opencl:{platform}.{device}" + ("" if part is None else f"/{part}")
        devices = platforms[platform].get_devices() if platform < len(platforms) else []
        if device >= len(devices):
            known = ", ".join(board.name for board in list_boards())
            raise ConfigError(f"there is no OpenCL device {name!r}; this machine has {known}")
        chosen = devices[device]
        self.info = _describe(name, platforms[platform], chosen)
        if part is not None:
            try:
                parts = chosen.create_sub_devices([opencl.device_partition_property.EQUALLY, 1])
            except opencl.Error as error:
                raise ConfigError(f"{name}: this device cannot be divided ({error})") from None
            if part >= len(parts):
                raise ConfigError(f"{name}: sub-devices are 0 to {len(parts) - 1}, not {part}")
            chosen = parts[part]
        self.device, self.units = chosen, int(chosen.max_compute_units)
        self.group = 64 if chosen.type & opencl.device_type.GPU else 1
        self.context = opencl.Context([chosen])
        if cause := _compile_error(self.context, chosen):
            raise MissingToolError(
                f"{name}: {self.info.platform} ({self.info.version}) cannot compile for {self.info.device}: {cause}; "
                "a processor that is newer than the driver needs another one (Debian's is pocl-opencl-icd)"
            )
        flags = opencl.command_queue_properties.PROFILING_ENABLE if profile else 0
        self.queue = opencl.CommandQueue(self.context, chosen, flags)
        self.pool = opencl.tools.MemoryPool(opencl.tools.ImmediateAllocator(self.queue))
        self.keep = True
        """Whether to store what it builds in the cache."""
        self.builds = 0
        """Programs that were compiled from source; those from the cache do not count."""
        self.last_event: Any = None
        self._kernels: dict[tuple[str, str, str], BuiltKernel] = {}
        self._constants: dict[tuple[int, ...], Any] = {}

    def allocate(self, nbytes: int) -> Any:
        """Memory on the device; it goes back to the pool when nobody refers to it."""
        try:
            return self.pool.allocate(max(nbytes, 4))
        except self.opencl.Error as error:
            raise DeviceLostError(f"{self.info.name}: {nbytes} bytes could not be allocated ({error})") from error

    def constants(self, values: tuple[int, ...]) -> Any:
        """A buffer of 32-bit integers, made once."""
        if values not in self._constants:
            flags = self.opencl.mem_flags
            data = np.array(values, dtype=np.int32)
            self._constants[values] = self.opencl.Buffer(
                self.context, flags.READ_ONLY | flags.COPY_HOST_PTR, hostbuf=data
            )
        return self._constants[values]

    def configure(self, file: str, name: str, defines: Mapping[str, int] | None = None) -> BuiltKernel:
        """A kernel of a .cl file, built with macros; from memory, from the cache on disk, or compiled."""
        macros = " ".join(f"-D{key}={value}" for key, value in sorted((defines or {}).items()))
        key = file, name, macros
        if key not in self._kernels:
            self._kernels[key] = self._build(kernel_source(file, name), name, f"{_STRICT} {macros}".strip())
        return self._kernels[key]

    def _build(self, source: str, name: str, options: str) -> BuiltKernel:
        info = self.info
        identity = "\0".join((source, name, options, info.device, info.platform, info.version))
        path = cache_directory("opencl") / f"{sha256(identity.encode()).hexdigest()[:32]}.bin"
        program, types = self._from_cache(path, options)
        if program is None:
            try:
                program = self.opencl.Program(self.context, source).build(options, [self.device], cache_dir=False)
            except self.opencl.RuntimeError as error:
                raise DeviceLostError(f"{info.name}: {name} ({options}) does not build: {error}") from error
            self.builds += 1
            kernel = self.opencl.Kernel(program, name)
            query = self.opencl.kernel_arg_info.TYPE_NAME
            types = [kernel.get_arg_info(index, query) for index in range(kernel.num_args)]
            if self.keep:
                binary = program.get_info(self.opencl.program_info.BINARIES)[0]
                with suppress(OSError, RunFailedError):  # without a cache it only takes longer the next time
                    path.parent.mkdir(parents=True, exist_ok=True)
                    write_atomically(path, json.dumps(types).encode() + b"\n" + binary)
        kernel = self.opencl.Kernel(program, name)
        scalars = {"long": np.int64, "int": np.int32, "float": np.float32}
        kernel.set_scalar_arg_dtypes([scalars.get(kind) for kind in types])
        return BuiltKernel(name, kernel)

    def _from_cache(self, path: Any, options: str) -> tuple[Any, list[str]]:
        try:
            head, binary = path.read_bytes().split(b"\n", 1)
            program = self.opencl.Program(self.context, [self.device], [binary]).build(options, cache_dir=False)
            return program, json.loads(head)
        except (OSError, ValueError, self.opencl.Error):
            return None, []  # not there, or damaged: it is built again

    def launch(self, kernel: BuiltKernel, items: int | tuple[int, int], *args: Any, group: int | None = None) -> Any:
        """Start a kernel on a number of work items; returns its event without waiting.

        Raises:
            DeviceLostError: the device refused it.
        """
        width, batches = (items, 1) if isinstance(items, int) else items
        size = self.group if group is None else group
        width = -(-width // size) * size
        try:
            self.last_event = kernel.call(self.queue, (width, batches), (size, 1), *args)
        except self.opencl.Error as error:
            raise DeviceLostError(f"{self.info.name}: {kernel.name} could not be launched ({error})") from error
        return self.last_event

    def copy(self, target: Any, source: Any) -> None:
        """Copy a NumPy array to a buffer, or a buffer into an array; waits."""
        try:
            self.opencl.enqueue_copy(self.queue, target, source, is_blocking=True)
        except self.opencl.Error as error:
            raise DeviceLostError(f"{self.info.name}: a copy failed ({error})") from error

    def synchronize(self) -> None:
        """Wait until the queue is empty."""
        try:
            self.queue.finish()
        except self.opencl.Error as error:
            raise DeviceLostError(f"{self.info.name} failed ({error})") from error

    def release(self) -> None:
        """Free kernels and unused memory; the board cannot be used any more."""
        self.queue.finish()
        self._kernels.clear()
        self._constants.clear()
        self.pool.stop_holding()


def profiled_s(event: Any) -> float:
    """Seconds that a launched kernel ran, on a board that profiles."""
    event.wait()
    return float(event.profile.end - event.profile.start) * 1e-9


@cache
def _text(file: str) -> str:
    return (files(__package__) / "kernels" / f"{file}.cl").read_text(encoding="utf-8")


_FUNCTION = re.compile(r"^(?:__kernel|ITEM)\b[^{]*?\bvoid (\w+)\(.*?^}\n", re.MULTILINE | re.DOTALL)
_LINE = re.compile(r"^(FLOAT|LONG|TEST|TEST_LONG|KERNEL)\((\w+),.*\n", re.MULTILINE)


def kernel_source(file: str, name: str) -> str:
    """The text of a file with only one of its kernels: compilers work on whole programs, so small ones build fast."""

    def keep(found: re.Match[str]) -> str:
        return found[0] if found[1] == name else ""

    def keep_line(found: re.Match[str]) -> str:
        made = "map_" + found[2] + ("_long" if found[1].endswith("LONG") else "")
        return found[0] if name in (made, made + "_strided") else ""

    if file == "formulas":
        plain = _LINE.sub("", _text("elementwise"))
        return f"{_text('functions')}{plain}{printed[name.removeprefix('map_').removesuffix('_strided')]}"
    text = _FUNCTION.sub(keep, _text(file)) if file != "elementwise" else _LINE.sub(keep_line, _text(file))
    return (_text("functions") if file in ("elementwise", "reductions") else "") + text
