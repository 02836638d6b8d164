"""The circuit as an engine of the instrument: the bare core in Verilator."""

import ctypes
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from presilicon.base import ConfigError, RunFailedError, np
from presilicon.designs import Hardware
from presilicon.instrument import REFUSALS, Image, ImageRefusedError, PackedBlock, Settings, check_feed, check_tap
from presilicon.rtl.sources import SIMULATION, SOURCES, core_parameters, modules_in
from presilicon.rtl.verilator import build

if TYPE_CHECKING:
    from numpy.typing import NDArray

_BREAK = 4
_END, _ABORT = 1 << 16, 1 << 17


class _Run(ctypes.Structure):
    """The arguments and results of `sim_run` in sim/bare.cpp."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("lanes", "element_bits", "word_bits", "vectors")),
        ("words", ctypes.c_void_p),
        ("meta", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("tap", "config_bytes")),
        ("config", ctypes.c_char_p),
        ("wait_for_image", ctypes.c_int64),
        ("seed", ctypes.c_uint64),
        *((name, ctypes.c_uint32) for name in ("in_gap", "config_gap", "out_gap")),
        ("most_blocks", ctypes.c_int64),
        ("out_words", ctypes.c_void_p),
        ("out_meta", ctypes.c_void_p),
        ("most_cycles", ctypes.c_int64),
        *((name, ctypes.c_int64) for name in ("blocks", "first_accept", "last_accept", "cycles")),
        *((name, ctypes.c_int64) for name in ("image", "taken", "refused", "refusal")),
    )


class _State(ctypes.Structure):
    """The arguments and results of `sim_state`."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("lanes", "word_bits", "rows")),
        *((name, ctypes.c_void_p) for name in ("scratchpad", "carried", "partial")),
        ("fill", ctypes.c_int64),
        *((name, ctypes.c_uint64) for name in ("first_0", "first_1")),
        ("registers", ctypes.c_int64),
        ("controls", ctypes.c_void_p),
    )


@cache
def core_library(hardware: Hardware, sources: Path = SOURCES) -> ctypes.CDLL:
    """The bare core of a hardware, compiled."""
    files = [*modules_in(sources), SIMULATION / "presilicon_sim_bare.sv"]
    headers = sorted(sources.glob("presilicon_*.svh"))
    library = build("presilicon_sim_bare", core_parameters(hardware), files, headers, SIMULATION / "bare.cpp")
    library.sim_new.restype = ctypes.c_void_p
    return library


class RtlModel:
    """The circuit, bit by bit and cycle by cycle; the first model of a hardware takes seconds to compile.

    `in_gap`, `out_gap` and `config_gap` are the odds that in a cycle no vector is offered, no block taken, no byte of
    an image sent. Results must not depend on them, nor on `seed`, which also fills registers that are not reset.

    Raises:
        MissingToolError: Verilator, perl or g++ is absent.
    """

    def __init__(
        self,
        hardware: Hardware,
        *,
        seed: int = 0,
        in_gap: float = 0.0,
        out_gap: float = 0.0,
        config_gap: float = 0.0,
        sources: Path = SOURCES,
    ) -> None:
        hardware.check()
        self.hardware = hardware
        self.accept_cycles = 0
        """Cycles from the acceptance of the first vector of the last `feed` to that of its last."""
        self._library = core_library(hardware, sources)
        self._simulation = ctypes.c_void_p(self._library.sim_new(ctypes.c_int(seed)))
        self._seed = seed
        self._gaps = tuple(min(int(odds * 65536), 65000) for odds in (in_gap, config_gap, out_gap))
        self._settings = Settings(hardware)
        self._status = (0, 0, 0, 0)
        self._queue: list[bytes] = []
        """Images behind one that waits for the end of a frame."""
        self._waits = False
        self._leaving: list[list[int]] = []
        self._under_way: int | None = None

    def __del__(self) -> None:
        simulation = getattr(self, "_simulation", None)
        if simulation:
            self._library.sim_free(simulation)

    def load(self, image: Image | bytes) -> None:
        """Take an image, at once or when the outer frame that is under way has ended."""
        data = image.to_bytes() if isinstance(image, Image) else bytes(image)
        if self._waits:
            self._settings.accept(data)
            self._queue.append(data)
            return
        self._send(data)

    def _send(self, data: bytes) -> None:
        refused = self.status[2]
        self._run(config=data)
        if self.status[2] != refused:
            code = self.status[3]
            raise ImageRefusedError(code, REFUSALS.get(code, "for no known reason"))
        self._waits = self._under_way is not None

    @property
    def status(self) -> tuple[int, int, int, int]:
        """CRC of the image in force, images taken, images refused, code of the last refusal."""
        return self._status

    def feed(self, words: Any, last: Any, tap: int = 0) -> list[PackedBlock]:
        """Run vectors [V, N] with their frame ends [V, 2]; returns the blocks that leave."""
        vectors, flags = check_feed(self.hardware, words, last, tap)
        check_tap(self._under_way, tap)
        spare = self.hardware.word_bits - self.hardware.element_bits
        if self.hardware.is_float:
            if np.any(vectors & ((1 << spare) - 1)):
                raise ConfigError("every word must be a widened element: the circuit takes elements")
            vectors = vectors >> spare
        meta = (flags[:, 0] | flags[:, 1] << 1).astype(np.uint8)
        blocks: list[PackedBlock] = []
        begin = 0
        while begin < len(vectors):
            end = len(vectors)
            if self._queue:  # the images behind the one that waits come before the next frame
                ends = np.flatnonzero(flags[begin:, 1])
                end = begin + int(ends[0]) + 1 if ends.size else end
            blocks += self._feed(vectors[begin:end], meta[begin:end], tap)
            self._under_way = None if flags[end - 1, 1] else tap
            if flags[begin:end, 1].any():
                self._waits = False
            while self._queue and self._under_way is None:
                self._send(self._queue.pop(0))
            begin = end
        return blocks

    def _feed(self, vectors: "NDArray[np.int64]", meta: "NDArray[np.uint8]", tap: int) -> list[PackedBlock]:
        blocks: list[PackedBlock] = []
        for words, is_end in self._run(np.ascontiguousarray(vectors), np.ascontiguousarray(meta), tap):
            if words or (is_end and not self._leaving):
                self._leaving.append(words)
            if is_end or not self.hardware.flushes:
                count = len(self._leaving)
                for index, leaving in enumerate(self._leaving):
                    array = np.array(leaving, dtype=np.int64)
                    blocks.append(PackedBlock(tap, array, is_end and index == count - 1))
                self._leaving = []
        return blocks

    def break_off(self) -> None:
        """End the outer frame that is under way without sending anything of it."""
        if not self.hardware.flushes:
            raise ConfigError('with flush = "never" no frame can be broken off: the input waits instead')
        if self._under_way is None:
            return
        self._run(np.zeros((1, self.hardware.lanes), np.int64), np.array([_BREAK], np.uint8), self._under_way)
        self._leaving = []
        self._under_way, self._waits = None, False
        while self._queue:
            self._send(self._queue.pop(0))

    def _run(
        self,
        vectors: "NDArray[np.int64] | None" = None,
        meta: "NDArray[np.uint8] | None" = None,
        tap: int = 0,
        config: bytes = b"",
    ) -> list[tuple[list[int], bool]]:
        """Run the circuit until it is idle; returns the words of each block that left, and whether it ends a frame."""
        lanes, bits = self.hardware.lanes, self.hardware.word_bits
        vectors = np.zeros((0, lanes), np.int64) if vectors is None else vectors
        meta = np.zeros(0, np.uint8) if meta is None else meta
        max_blocks = (len(vectors) + 2) * (self.hardware.chains + 2)
        words, marks = np.empty((max_blocks, lanes), np.int64), np.empty(max_blocks, np.int32)
        self._seed = (self._seed * 6364136223846793005 + 1442695040888963407) & (2**63 - 1)
        run = _Run(
            lanes=lanes,
            element_bits=self.hardware.element_bits,
            word_bits=bits,
            vectors=len(vectors),
            words=vectors.ctypes.data,
            meta=meta.ctypes.data,
            tap=tap,
            config_bytes=len(config),
            config=config,
            wait_for_image=int(bool(config)),
            seed=self._seed,
            in_gap=self._gaps[0],
            config_gap=self._gaps[1],
            out_gap=self._gaps[2],
            most_blocks=max_blocks,
            out_words=words.ctypes.data,
            out_meta=marks.ctypes.data,
            most_cycles=200_000 + 200 * len(config) + 20_000 * len(vectors),
        )
        if self._library.sim_run(self._simulation, ctypes.byref(run)):
            raise RunFailedError("the circuit does not become idle: a fault in the RTL")
        self.accept_cycles = run.last_accept - run.first_accept
        self._status = (run.image, run.taken, run.refused, run.refusal)
        if not self.hardware.is_float:
            words = words << 64 - bits >> 64 - bits
        return [
            (words[block, : marks[block] & 0xFFFF].tolist(), bool(marks[block] & _END))
            for block in range(run.blocks)
            if not marks[block] & _ABORT
        ]

    def _state(self) -> "tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], _State, NDArray[np.int64]]":
        hardware = self.hardware
        scratchpad = np.empty((hardware.scratchpad_rows, hardware.lanes), np.int64)
        carried, partial = np.empty(hardware.lanes, np.int64), np.empty(hardware.lanes, np.int64)
        controls = np.zeros(max(hardware.controls, 1), np.int64)
        state = _State(
            lanes=hardware.lanes,
            word_bits=hardware.word_bits,
            rows=hardware.scratchpad_rows,
            scratchpad=scratchpad.ctypes.data,
            carried=carried.ctypes.data,
            partial=partial.ctypes.data,
            registers=hardware.controls,
            controls=controls.ctypes.data,
        )
        self._library.sim_state(self._simulation, ctypes.byref(state))
        if not hardware.is_float:
            spare = 64 - hardware.word_bits
            scratchpad, carried, partial = (part << spare >> spare for part in (scratchpad, carried, partial))
        return scratchpad, carried, partial[: state.fill], state, controls[: hardware.controls]

    @property
    def scratchpad(self) -> "NDArray[np.int64]":
        """The words of all rows, [rows, N]."""
        return self._state()[0]

    @property
    def carried(self) -> "NDArray[np.int64]":
        """The carried vector."""
        return self._state()[1]

    @property
    def partial(self) -> "NDArray[np.int64]":
        """Words that are still in the packer."""
        return self._state()[2]

    @property
    def first(self) -> "NDArray[np.bool_]":
        """Whether each tap's next vector is the first of its frames, [taps, 2]."""
        state = self._state()[3]
        taps = range(self.hardware.taps)
        return np.array([[state.first_0 >> tap & 1, state.first_1 >> tap & 1] for tap in taps], dtype=np.bool_)

    @property
    def controls(self) -> list[int]:
        """The control registers."""
        return [int(value) for value in self._state()[4]]
