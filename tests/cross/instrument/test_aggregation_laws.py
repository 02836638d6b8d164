"""Laws of every aggregation: its figures are NumPy's, or null where words are too narrow, wherever numbers stand."""

import itertools
import math

import numpy as np
import pytest

from presilicon.designs import Hardware
from presilicon.formats import parse
from presilicon.instrument import FastModel, Reference, compile_firmware, to_words, values_of
from presilicon.instrument.aggregations import AGGREGATIONS, BuiltAggregation, aggregation
from presilicon.instrument.host.tensors import cut_pair, cut_tensor

LANES = 8


def summary(x):
    return {
        "sum": x.sum(), "zeros": (x == 0).sum(), "elements": x.size, "min": x.min(), "max": x.max(), "mean": x.mean(),
    }  # fmt: skip


def distribution(x, low=-1.0, high=1.0):
    edges = np.linspace(low, high, 65)
    edges[[0, -1]] = -np.inf, np.inf
    return {"counts": [((a < x) & (x <= b)).sum() for a, b in itertools.pairwise(edges)]}


def invalidity(x):
    ends = {"saturated_low": (x == -128).sum(), "saturated_high": (x == 127).sum()}
    return ends | {"nan": np.isnan(x).sum(), "+inf": (x == np.inf).sum(), "-inf": (x == -np.inf).sum()}


def vector_change(x):
    change = np.abs(np.diff(x, axis=0))
    return {"sum": change.sum(), "max": change.max()}


def predictiveness(x):
    return {"largest_sum": x.sum(axis=0).max(), "largest_mean": x.mean(axis=0).max()}


def gradient_norm(x):
    return {"sum_of_squares": (x * x).sum(), "norm": np.sqrt((x * x).sum())}


def update_ratio(update, weight):
    norms = np.sqrt((update * update).sum()), np.sqrt((weight * weight).sum())
    return {"update_norm": norms[0], "weight_norm": norms[1], "ratio": norms[0] / norms[1]}


def quantization_error(x, q):
    error, signal = ((q - x) ** 2).sum(), (x * x).sum()
    return {"squared_error": error, "squared_signal": signal, "signal_to_noise_db": 10 * np.log10(signal / error)}


def correlation(x, y):
    sums = {"x": x, "y": y, "xy": x * y, "xx": x * x, "yy": y * y}
    return {f"sum_{name}": values.sum() for name, values in sums.items()}


SINGLE = {
    "summary": summary,
    "distribution": distribution,
    "norm_check": distribution,
    "invalidity": invalidity,
    "vector_change": vector_change,
    "predictiveness": predictiveness,
    "gradient_norm": gradient_norm,
    "sparsity": lambda x: {"zeros": (x == 0).sum()},
    "pass_through": lambda x: {"tensor": x},
}
PAIRED = {"update_ratio": update_ratio, "quantization_error": quantization_error, "correlation": correlation}


class Bench:
    """An engine with one aggregation; frames follow each other, so that memories were used before."""

    def __init__(self, name: str, element: str, engine, **fields) -> None:
        hardware = Hardware(
            lanes=LANES, ranges=LANES, element=parse(element), flush="frame", range_rows=16, **fields
        )  # fmt: skip
        self.built: BuiltAggregation = aggregation(name, hardware)
        self.engine = engine(hardware)
        self.engine.load(compile_firmware(self.built.firmware, hardware))

    def figures(self, *tensors):
        words = [to_words(self.built.hardware, tensor) for tensor in tensors]
        vectors, last = cut_tensor(words[0], LANES) if len(words) == 1 else cut_pair(*words, LANES)
        sent = np.concatenate([block.words for block in self.engine.feed(vectors, last)])
        return self.built.decode(sent, count=tensors[0].size, nodes=tensors[0].shape[1])

    def check(self, *tensors, may_be_null: bool) -> int:
        """Compare all figures with NumPy's; returns how many are not null."""
        seen = [values_of(self.built.hardware, to_words(self.built.hardware, tensor)) for tensor in tensors]
        with np.errstate(all="ignore"):
            wanted = (SINGLE | PAIRED)[self.built.name](*seen)
        found = self.figures(*tensors)
        known = 0
        for name in wanted.keys() & found.keys():
            if found[name] is None and may_be_null:
                assert found["notes"]
                continue
            np.testing.assert_allclose(np.asarray(found[name], float), wanted[name], rtol=1e-12, err_msg=name)
            known += 1
        return known


def test_every_aggregation_has_a_law() -> None:
    assert set(SINGLE) | set(PAIRED) == set(AGGREGATIONS.names())


@pytest.mark.parametrize("engine", [FastModel, Reference])
@pytest.mark.parametrize("name", [*SINGLE, *PAIRED])
def test_fixed_point_is_right_or_null_also_where_a_sum_leaves_the_range_and_comes_back(name, engine) -> None:
    """Signed tensors, permuted, at words as narrow as the element: sums walk beyond the ends and back."""
    rng = np.random.default_rng(3)
    known = 0
    for element, scale in (("fixed(8, 0)", 0.5), ("fixed(8, 0)", 3.0), ("fixed(8, 0)", 40.0)):
        bench = Bench(name, element, engine)
        for _ in range(20 if engine is FastModel else 4):
            tensors = [np.round(rng.normal(size=(6, 16)) * scale) for _ in range(1 + (name in PAIRED))]
            if name == "predictiveness":
                tensors = [np.sort(tensors[0], axis=0)[:: rng.choice([-1, 1])]]
            known += bench.check(*tensors, may_be_null=True)
    assert known > 0


def test_predictiveness_is_right_or_null_without_a_minimum_too() -> None:
    rng = np.random.default_rng(3)
    bench = Bench("predictiveness", "fixed(8, 0)", FastModel, reduce=("sum", "max"))
    known = 0
    for scale in (1.0, 3.0, 40.0):
        for _ in range(20):
            x = np.sort(np.round(rng.normal(size=(6, 16)) * scale), axis=0)
            known += bench.check(x[:: rng.choice([-1, 1])], may_be_null=True)
    assert known > 0


@pytest.mark.parametrize("special", [math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("name", [*SINGLE, *PAIRED])
def test_figures_with_one_infinity_or_nan_are_numpys_wherever_it_stands(name, special) -> None:
    rng = np.random.default_rng(5)
    sides = 1 + (name in PAIRED)
    tensors = [rng.integers(1, 5, (3, 2 * LANES)) * rng.choice([-1.0, 1.0], (3, 2 * LANES)) for _ in range(sides)]
    bench = Bench(name, "float32", FastModel)
    for side in range(sides):
        for place in np.ndindex(tensors[side].shape):
            changed = [tensor.copy() for tensor in tensors]
            changed[side][place] = special
            assert bench.check(*changed, may_be_null=False)
    assert bench.check(*tensors, may_be_null=False)
