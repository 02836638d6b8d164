"""A table: ten measurements of 442 patients and the progression of their diabetes, from scikit-learn's wheel."""

from __future__ import annotations

from functools import partial

from presilicon.base import np, torch
from presilicon.workloads.published import from_networks
from presilicon.workloads.reading.splits import Splits
from presilicon.workloads.settings.metrics import load_metric
from presilicon.workloads.workload import Workload, sgd

SPLIT_SEED = 20240229
HELD_OUT = 0.2
"""Fraction of the patients in the validation split; the test split has the same."""


def load_diabetes() -> Splits:
    """Inputs (patients, 10) and targets (patients, 1), both normalized by the training split's mean and deviation."""
    from sklearn import datasets

    table, progression = datasets.load_diabetes(return_X_y=True, scaled=False)
    # RandomState rather than default_rng, because its stream is the same in all versions of numpy.
    order = np.random.RandomState(SPLIT_SEED).permutation(len(table))
    held = round(HELD_OUT * len(table))
    parts = np.split(order, [-2 * held, -held])

    def normalize(values: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> torch.Tensor:
        train = values[parts[0]]
        return torch.from_numpy(((values - train.mean(0)) / train.std(0)).astype(np.float32))

    inputs, targets = normalize(table), normalize(progression[:, None])
    return Splits(*((inputs[part], targets[part]) for part in parts))


DIABETES_MLP = Workload(
    name="diabetes-mlp",
    description="a multilayer perceptron on a table of diabetes patients (scikit-learn); RMSE in standard deviations",
    model=partial(from_networks, "perceptron.perceptron", widths=(10, 64, 64, 1)),
    data=load_diabetes,
    metric=load_metric("RMSE"),
    # docs/workloads.md says how target and budget were chosen.
    target=0.65,
    loss=partial(from_networks, "transformer.regression_loss"),
    optimizer=partial(sgd, learning_rate=5e-4, momentum=0.9, weight_decay=1e-3),
    schedule="constant(scale_from=32)",
    batch_size=32,
    evaluate_every=10,
    sustain=3,
    max_steps=1000,
)
