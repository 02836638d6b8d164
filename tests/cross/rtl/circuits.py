"""The circuits that are compiled for the tests, and random cases for them."""

import numpy as np
from cases import Case, random_firmware, random_vectors

from presilicon.designs import Hardware
from presilicon.formats import parse
from presilicon.instrument import compile_firmware


def make(lanes, ranges, element, bits=None, **fields) -> Hardware:
    sizes = {"buffer": 8, "range_rows": 3, "scratchpad_rows": 4, "chains": 8}
    return Hardware(lanes=lanes, ranges=ranges, element=parse(element), accumulator_bits=bits, **{**sizes, **fields})


F, A, R = "filter_reduce", "vector_alu", "scalar_reduce"
CIRCUITS = {
    "fixed": make(8, 4, "fixed(16, 16)", 40),
    "wide": make(4, 1, "fixed(1, 31)", 48, blocks=(R, A, F), flush="frame"),
    "integers": make(8, 8, "int8", 12, blocks=(A, R, F), taps=3),
    "no products": make(4, 2, "int(4)", 7, alu=("add", "sub", "max"), reduce=("sum", "min"), blocks=(A, F, R)),
    "half": make(4, 2, "float16", blocks=(F, A, R), flush="frame"),
    "brain": make(2, 2, "bfloat16", 32, blocks=(A, F, R), taps=2),
    "tiny": make(2, 1, "float(2, 1)", range_rows=1, scratchpad_rows=1, blocks=(F, R, A)),
    "one lane": make(1, 1, "e5m2", 12, blocks=(R, F), controls=0),
}


def case_of(hardware: Hardware, seed: int, vectors: int = 24) -> Case:
    """A random case for a circuit: two images, and frames of random taps."""
    rng = np.random.default_rng(seed)
    images = tuple(compile_firmware(random_firmware(rng, hardware), hardware) for _ in range(2))
    words, last = random_vectors(rng, hardware, vectors)
    last[-1] |= hardware.taps > 1  # a frame that has not ended cannot make room for another tap
    ends = [int(end) + 1 for end in np.flatnonzero(last[:, 1])]
    frames = [
        (int(rng.integers(hardware.taps)), words[begin:end], last[begin:end])
        for begin, end in zip([0, *ends], [*ends, vectors], strict=True)
        if begin < end
    ]
    return Case(hardware, images, frames)
