"""Models, data sets and accuracy targets, and the capture of one training step as a graph.

Importing this room loads neither torch nor scikit-learn: a workload names functions, which import what they need when
they are called, and the names that need torch are resolved when they are first used.
"""

from typing import TYPE_CHECKING

from presilicon.base.exports import deferred
from presilicon.workloads.registry import load_workload, workload_names
from presilicon.workloads.user import files_of, load_file, workload_errors
from presilicon.workloads.workload import Splits, Workload, sgd

if TYPE_CHECKING:
    from presilicon.workloads.capturing.layers import (
        Layers,
        ends_of,
        multiplying_layers,
        next_sequence_number,
        sequence_number_of,
    )
    from presilicon.workloads.capturing.operators import count_flops, describe_operator
    from presilicon.workloads.capturing.products import find_products
    from presilicon.workloads.capturing.step_capture import capture, capture_workload
    from presilicon.workloads.digits import load_digits
    from presilicon.workloads.published import classified, from_networks, unet

__getattr__ = deferred(
    __name__,
    {
        "presilicon.workloads.capturing.step_capture": ("capture", "capture_workload"),
        "digits": ("load_digits",),
        "presilicon.workloads.capturing.layers": (
            "Layers",
            "ends_of",
            "multiplying_layers",
            "next_sequence_number",
            "sequence_number_of",
        ),
        "presilicon.workloads.capturing.operators": ("count_flops", "describe_operator"),
        "presilicon.workloads.capturing.products": ("find_products",),
        "published": ("classified", "from_networks", "unet"),
    },
)

__all__ = [
    "Layers",
    "Splits",
    "Workload",
    "capture",
    "capture_workload",
    "classified",
    "count_flops",
    "describe_operator",
    "ends_of",
    "files_of",
    "find_products",
    "from_networks",
    "load_digits",
    "load_file",
    "load_workload",
    "multiplying_layers",
    "next_sequence_number",
    "sequence_number_of",
    "sgd",
    "unet",
    "workload_errors",
    "workload_names",
]
