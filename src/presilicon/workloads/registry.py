"""The workloads that come with the package, by name."""

from presilicon.base.errors import unknown
from presilicon.workloads.digits import DIGITS_CNN, DIGITS_MLP
from presilicon.workloads.published import PUBLISHED
from presilicon.workloads.workload import Workload

_WORKLOADS = {workload.name: workload for workload in (DIGITS_CNN, DIGITS_MLP, *PUBLISHED)}


def workload_names() -> tuple[str, ...]:
    """The names that `load_workload` takes, sorted.

    >>> workload_names()[:4]
    ('alexnet', 'bert-base', 'bert-large', 'dcgan-discriminator')
    """
    return tuple(sorted(_WORKLOADS))


def load_workload(name: str) -> Workload:
    """The workload of that name.

    Raises:
        ConfigError: when there is none, with the nearest name.

    >>> load_workload("digits-mlp").target
    0.97
    """
    if name not in _WORKLOADS:
        raise unknown("workload", name, _WORKLOADS)
    return _WORKLOADS[name]
