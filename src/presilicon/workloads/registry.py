"""The workloads that come with the package, by name, and those in files of their own."""

from collections.abc import Callable
from pathlib import Path

from presilicon.base.errors import unknown
from presilicon.workloads.digits import DIGITS_CNN, DIGITS_MLP
from presilicon.workloads.fashion import fashion_cnn, fashion_mlp, fashion_resnet
from presilicon.workloads.published import PUBLISHED
from presilicon.workloads.shakespeare import SHAKESPEARE_GPT
from presilicon.workloads.user import load_file
from presilicon.workloads.workload import Workload

_WORKLOADS: dict[str, Workload | Callable[[], Workload]] = {
    **{workload.name: workload for workload in (DIGITS_CNN, DIGITS_MLP, SHAKESPEARE_GPT, *PUBLISHED)},
    # Made when they are asked for: which data they train on hangs on what is installed.
    "fashion-cnn": fashion_cnn,
    "fashion-mlp": fashion_mlp,
    "fashion-resnet": fashion_resnet,
}


def workload_names() -> tuple[str, ...]:
    """The names that `load_workload` takes, sorted.

    >>> workload_names()[:4]
    ('alexnet', 'bert-base', 'bert-large', 'dcgan-discriminator')
    """
    return tuple(sorted(_WORKLOADS))


def load_workload(name: str | Path) -> Workload:
    """The workload of that name, or in that Python file: a name that ends in `.py` is a file.

    Raises:
        ConfigError: when there is none, with the nearest name, or when the file has none.

    >>> load_workload("digits-mlp").target
    0.97
    """
    if isinstance(name, Path) or name.endswith(".py"):
        return load_file(name)
    if name not in _WORKLOADS:
        raise unknown("workload", name, _WORKLOADS)
    found = _WORKLOADS[name]
    return found if isinstance(found, Workload) else found()
