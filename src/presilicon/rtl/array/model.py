"""A systolic array in Verilator: products of linear layers, their cycles, and the stream of the instrument."""

import ctypes
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from presilicon.base import ConfigError, RunFailedError, np
from presilicon.records import PRODUCT_PHASES, ProductPhase
from presilicon.rtl.arithmetic.units import LEAST_BITS, Port, pack_bits, port_bits, port_codes
from presilicon.rtl.array.circuit import ArrayCircuit
from presilicon.rtl.array.top import SIMULATED, TOP, files_of, simulated_text, top_text
from presilicon.rtl.sources import SIMULATION, SOURCES
from presilicon.rtl.verilator import build

QUIET = 600
"""Cycles without a byte after which the instrument is taken to have sent everything."""


LARGE = 64
"""Cells from which on an array is compiled to run fast."""


class ArrayRun(NamedTuple):
    """Results of a job."""

    products: "dict[ProductPhase, np.typing.NDArray[np.int64]]"
    """Codes: forward [samples, outputs], input_grad [samples, inputs], weight_grad [outputs, inputs]."""
    cycles: dict[ProductPhase, int]
    """Cycles of the array for each product."""
    total: int
    """Cycles from the start to the last result and, with an instrument, its last byte."""
    stream: bytes
    """Bytes that the instrument sent."""


class _Job(ctypes.Structure):
    _fields_ = (
        *(
            (name, ctypes.c_int32)
            for name in (
                "products", "resident", "samples", "last_row", "last_column", "rest_rows", "rest_columns", "layer",
                "rows",
            )
        ),
        ("word_counts", ctypes.c_int32 * 4),
        ("memory", ctypes.c_void_p * 3),
        ("most_results", ctypes.c_int64),
        ("places", ctypes.c_void_p),
        ("results", ctypes.c_void_p),
        ("config_bytes", ctypes.c_int64),
        ("config", ctypes.c_char_p),
        ("quiet", ctypes.c_int64),
        ("most_bytes", ctypes.c_int64),
        ("bytes", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("result_count", "byte_count")),
        ("cycles", ctypes.c_int64 * 3),
        ("total", ctypes.c_int64),
    )  # fmt: skip


@cache
def _library(circuit: ArrayCircuit, sources: Path) -> ctypes.CDLL:
    with tempfile.TemporaryDirectory() as temporary:
        texts = {TOP: top_text(circuit, "simulated"), SIMULATED: simulated_text(circuit)}
        for name, text in texts.items():
            (Path(temporary) / f"{name}.sv").write_text(text)
        wanted = set(files_of(circuit))
        files = [path for path in sorted(sources.rglob("presilicon_*.sv")) if path.name in wanted]
        tops = [Path(temporary) / f"{name}.sv" for name in texts]
        headers = sorted(sources.glob("*.svh"))
        fast = circuit.rows * circuit.cols >= LARGE
        library = build(SIMULATED, {}, [*files, *tops], headers, SIMULATION / "array.cpp", fast=fast)
    library.array_new.restype = ctypes.c_void_p
    return library


class ArrayModel:
    """An array whose cells keep their weights from job to job, as the circuit does.

    `gap` is the share of cycles in which it stands still.
    """

    def __init__(self, circuit: ArrayCircuit, *, gap: float = 0.0, seed: int = 0, sources: Path = SOURCES) -> None:
        self.circuit = circuit
        self._library = _library(circuit, sources)
        odds = ctypes.c_uint32(min(int(gap * 65536), 65000))
        self._simulation = ctypes.c_void_p(self._library.array_new(ctypes.c_uint64(seed), odds))

    def __del__(self) -> None:
        if hasattr(self, "_simulation"):
            self._library.array_free(self._simulation)

    def run(
        self,
        products: Sequence[ProductPhase],
        weight: "np.typing.NDArray[np.int64]",
        activation: "np.typing.NDArray[np.int64] | None" = None,
        error: "np.typing.NDArray[np.int64] | None" = None,
        *,
        resident: bool = False,
        layer: int = 0,
        images: bytes = b"",
    ) -> ArrayRun:
        """The products of a layer, in the order of training, from codes.

        `weight` is [outputs, inputs], `activation` [samples, inputs], `error` [samples, outputs]. `resident`: the
        forward product of the same layer was the last one. `images` go to the instrument first.

        Raises:
            ConfigError: operands do not fit one another, or the product is larger than the circuit can count.
        """
        circuit = self.circuit
        operands = {"activation": activation, "error": error}
        samples = self._check(weight, operands)
        matrix = weight if circuit.columns else weight.T
        sides = ("error", "activation") if circuit.columns else ("activation", "error")
        lanes = (circuit.rows, circuit.cols)
        sizes = matrix.shape
        groups = [-(-size // count) for size, count in zip(sizes, lanes, strict=True)]
        memories = [_packed(weight_tiles(matrix, *lanes), circuit.weight.bits)]
        for role, size, count in zip(sides, sizes, lanes, strict=True):
            codes = operands[role]
            codes = np.zeros((samples, size), np.int64) if codes is None else codes
            memories.append(_packed(edge_vectors(codes, count), getattr(circuit, role).bits))
        wide = max(lanes)
        out = Port("out", circuit.mac.accumulate.bits, wide)
        words = -(-max(LEAST_BITS, out.bits * out.count) // 32)
        most = samples * sum(groups) + circuit.rows * groups[0] * groups[1] + 1
        places, results = np.zeros((most, 5), np.int32), np.zeros((most, words), np.uint32)
        stream = np.zeros(1 << 20 if circuit.hardware else 1, np.uint8)
        job = _Job(
            products=sum(1 << index for index, phase in enumerate(PRODUCT_PHASES) if phase in products),
            resident=int(resident),
            samples=samples,
            last_row=groups[0] - 1,
            last_column=groups[1] - 1,
            rest_rows=sizes[0] - (groups[0] - 1) * lanes[0],
            rest_columns=sizes[1] - (groups[1] - 1) * lanes[1],
            layer=layer,
            rows=circuit.rows,
            word_counts=(ctypes.c_int32 * 4)(*(memory.shape[1] for memory in memories), words),
            memory=(ctypes.c_void_p * 3)(*(memory.ctypes.data for memory in memories)),
            most_results=most,
            places=places.ctypes.data,
            results=results.ctypes.data,
            config_bytes=len(images),
            config=images,
            quiet=QUIET if circuit.hardware else 0,
            most_bytes=len(stream),
            bytes=stream.ctypes.data,
        )
        if code := self._library.array_run(self._simulation, ctypes.byref(job), ctypes.c_int64(1 << 40)):
            raise RunFailedError(f"the simulation of the array did not end ({code}): a fault in the RTL")
        bits = np.unpackbits(results[: job.result_count].view(np.uint8), axis=1, bitorder="little")
        codes = port_codes(out, bits[:, : out.bits * out.count])
        return ArrayRun(
            self._gather(products, places[: job.result_count], codes, samples, sizes),
            dict(zip(PRODUCT_PHASES, job.cycles, strict=True)),
            job.total,
            stream[: job.byte_count].tobytes(),
        )

    def _check(
        self,
        weight: "np.typing.NDArray[np.int64]",
        operands: "Mapping[str, np.typing.NDArray[np.int64] | None]",
    ) -> int:
        """The number of samples; raise if the shapes are wrong or too large."""
        circuit = self.circuit
        given = {role: codes for role, codes in operands.items() if codes is not None}
        sizes = dict(zip(("error", "activation"), weight.shape, strict=True))
        counts = {len(codes) for codes in given.values()}
        if len(counts) != 1 or any(codes.shape[1:] != (sizes[role],) for role, codes in given.items()):
            shapes = ", ".join(f"{role} {codes.shape}" for role, codes in {"weight": weight, **given}.items())
            raise ConfigError(
                f"the operands do not fit: {shapes}; weight is [outputs, inputs], activation [samples, inputs], error "
                "[samples, outputs], at least one of the two"
            )
        (samples,) = counts
        for role, noun in (("activation", "inputs"), ("error", "outputs")):
            most = circuit.sides[role] << circuit.group_bits
            if not 1 <= sizes[role] <= most:
                raise ConfigError(f"{sizes[role]} {noun}: this array counts 1 to {most}; set features in array_circuit")
        if not 1 <= samples <= circuit.most_samples:
            raise ConfigError(
                f"{samples} samples: this array counts 1 to {circuit.most_samples}; set samples in array_circuit"
            )
        return samples

    def _gather(
        self,
        products: Sequence[ProductPhase],
        places: "np.typing.NDArray[np.int32]",
        codes: "np.typing.NDArray[np.int64]",
        samples: int,
        sizes: tuple[int, ...],
    ) -> "dict[ProductPhase, np.typing.NDArray[np.int64]]":
        """Matrices from the vectors that came out; every element must have come exactly once."""
        rows, cols, columns = self.circuit.rows, self.circuit.cols, self.circuit.columns
        gathered: dict[ProductPhase, np.typing.NDArray[np.int64]] = {}
        for index, phase in enumerate(PRODUCT_PHASES):
            if phase not in products:
                continue
            down = columns == (phase == "input_grad")
            lanes, size = (cols, sizes[1]) if down or phase == "weight_grad" else (rows, sizes[0])
            chosen = places[:, 0] == index
            _, sample, row_group, column_group, row = places[chosen].T
            lines = row_group * rows + row if phase == "weight_grad" else sample
            groups = column_group if down or phase == "weight_grad" else row_group
            height = -(-sizes[0] // rows) * rows if phase == "weight_grad" else samples
            whole = np.full((height, -(-size // lanes), lanes), -1, np.int64)
            whole[lines, groups] = codes[chosen][:, :lanes]
            matrix = whole.reshape(height, -1)[: sizes[0] if phase == "weight_grad" else samples, :size]
            if (matrix < 0).any() or len(lines) != height * whole.shape[1]:
                raise RunFailedError(f"results of {phase} are missing or came twice: a fault in the RTL")
            gathered[phase] = matrix if columns or phase != "weight_grad" else matrix.T
        return gathered


def weight_tiles(matrix: "np.typing.NDArray[np.int64]", rows: int, cols: int) -> "np.typing.NDArray[np.int64]":
    """The rows of a matrix' tiles, tile by tile: [row groups x column groups x rows, cols]."""
    down, across = -(-len(matrix) // rows), -(-matrix.shape[1] // cols)
    padded = np.zeros((down * rows, across * cols), np.int64)
    padded[: len(matrix), : matrix.shape[1]] = matrix
    return padded.reshape(down, rows, across, cols).transpose(0, 2, 1, 3).reshape(-1, cols)


def edge_vectors(codes: "np.typing.NDArray[np.int64]", lanes: int) -> "np.typing.NDArray[np.int64]":
    """Vectors of an edge, group by group, sample by sample: [groups x samples, lanes]."""
    samples, groups = len(codes), -(-codes.shape[1] // lanes)
    padded = np.zeros((samples, groups * lanes), np.int64)
    padded[:, : codes.shape[1]] = codes
    return padded.reshape(samples, groups, lanes).transpose(1, 0, 2).reshape(-1, lanes)


def _packed(vectors: "np.typing.NDArray[np.int64]", bits: int) -> "np.typing.NDArray[np.uint32]":
    return pack_bits(port_bits(Port("memory", bits, vectors.shape[1]), vectors, len(vectors)))
