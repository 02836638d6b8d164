"""Workloads by name or by file."""

from collections.abc import Callable
from pathlib import Path

from presilicon.base import ConfigError, ExtensionPoint, unknown
from presilicon.workloads.digits import DIGITS_CNN, DIGITS_MLP, DIGITS_REVNET
from presilicon.workloads.fashion import (
    FASHION_RESNET18,
    FASHION_VIT,
    fashion_alexnet,
    fashion_cnn,
    fashion_mlp,
    fashion_resnet,
)
from presilicon.workloads.published import PUBLISHED
from presilicon.workloads.python_source import python_gpt
from presilicon.workloads.shakespeare import SHAKESPEARE_GPT
from presilicon.workloads.tabular import DIABETES_MLP
from presilicon.workloads.user import load_file
from presilicon.workloads.workload import Workload

_FIXED = (
    DIABETES_MLP,
    DIGITS_CNN,
    DIGITS_MLP,
    DIGITS_REVNET,
    FASHION_RESNET18,
    FASHION_VIT,
    SHAKESPEARE_GPT,
    *PUBLISHED,
)

_WORKLOADS: dict[str, Workload | Callable[[], Workload]] = {
    **{workload.name: workload for workload in _FIXED},
    # Created on demand, because the data they train on depend on what is installed.
    "fashion-alexnet": fashion_alexnet,
    "fashion-cnn": fashion_cnn,
    "fashion-mlp": fashion_mlp,
    "fashion-resnet": fashion_resnet,
    "python-gpt": python_gpt,
}

REGISTERED: ExtensionPoint[Workload | Callable[[], Workload]] = ExtensionPoint(
    "presilicon.workloads", "workload", {}, reserved=_WORKLOADS
)
"""Workloads of installed packages: a `Workload`, or a function that returns one."""


def workload_names() -> tuple[str, ...]:
    """The names that `load_workload` takes, sorted.

    >>> workload_names()[:4]
    ('alexnet', 'bert-base', 'bert-large', 'dcgan-discriminator')
    """
    return tuple(sorted({*_WORKLOADS, *REGISTERED.names()}))


def load_workload(name: str | Path) -> Workload:
    """The workload of that name, or in that Python file: a name that ends in `.py` is a file.

    Raises:
        ConfigError: there is no such workload, with the nearest name, or the file contains none.

    >>> load_workload("digits-mlp").target
    0.97
    """
    if isinstance(name, Path) or name.endswith(".py"):
        return load_file(name)
    if name not in _WORKLOADS and name not in REGISTERED:
        raise unknown("workload", name, workload_names())
    member = _WORKLOADS[name] if name in _WORKLOADS else REGISTERED.load(name)
    with REGISTERED.errors_of(name):
        workload = member if isinstance(member, Workload) else member()
    if not isinstance(workload, Workload):
        raise ConfigError(f'workload "{name}" must be a presilicon.Workload, not {workload!r}')
    if name not in _WORKLOADS and workload.name != name:
        raise ConfigError(f'workload "{name}" is called "{workload.name}": register it under its own name')
    return workload
