"""Models, data sets and accuracy targets, and the capture of one training step as a graph.

Importing this room loads neither torch nor scikit-learn: a workload names functions, which import what they need when
they are called, and the names that need torch are resolved when they are first used.
"""

from typing import TYPE_CHECKING

from presilicon.base import deferred
from presilicon.workloads.graphs import step_graph
from presilicon.workloads.published import classified, from_networks, sequences, unet
from presilicon.workloads.reading.splits import Splits
from presilicon.workloads.registry import load_workload, workload_names
from presilicon.workloads.settings.metric import Metric
from presilicon.workloads.settings.metrics import load_metric
from presilicon.workloads.settings.optimizers import OPTIMIZERS, read_optimizer, with_learning_rate
from presilicon.workloads.settings.schedule import LearningRateSchedule
from presilicon.workloads.user import files_of, load_file, workload_errors
from presilicon.workloads.workload import Workload, adamw, sgd

if TYPE_CHECKING:
    from presilicon.workloads.capturing.device_ops import DeviceOps
    from presilicon.workloads.capturing.layers import (
        Layers,
        constants_of,
        ends_of,
        multiplying_layers,
        named_layers,
        next_sequence_number,
        plain_name,
        sequence_number_of,
        tensors_in,
    )
    from presilicon.workloads.capturing.optimizer_state import check_optimizer
    from presilicon.workloads.capturing.origins import Origin, origin_of_result
    from presilicon.workloads.capturing.step_capture import capture, capture_workload, mean_of_outputs
    from presilicon.workloads.digits import digits_revnet, load_digits
    from presilicon.workloads.reading.batch import Batch, Slot
    from presilicon.workloads.reading.examples import Rows, all_inputs, open_split, resident_pair
    from presilicon.workloads.reading.fingerprint import splits_digest
    from presilicon.workloads.reading.randomness import (
        Generators,
        PrivateRandom,
        fingerprint_of_generators,
        seed_generators,
    )
    from presilicon.workloads.reading.stream import Stream
    from presilicon.workloads.reversible import Coupling, Reversible, is_recomputing, recomputing

__getattr__ = deferred(__name__)

__all__ = [
    "OPTIMIZERS",
    "Batch",
    "Coupling",
    "DeviceOps",
    "Generators",
    "Layers",
    "LearningRateSchedule",
    "Metric",
    "Origin",
    "PrivateRandom",
    "Reversible",
    "Rows",
    "Slot",
    "Splits",
    "Stream",
    "Workload",
    "adamw",
    "all_inputs",
    "capture",
    "capture_workload",
    "check_optimizer",
    "classified",
    "constants_of",
    "digits_revnet",
    "ends_of",
    "files_of",
    "fingerprint_of_generators",
    "from_networks",
    "is_recomputing",
    "load_digits",
    "load_file",
    "load_metric",
    "load_workload",
    "mean_of_outputs",
    "multiplying_layers",
    "named_layers",
    "next_sequence_number",
    "open_split",
    "origin_of_result",
    "plain_name",
    "read_optimizer",
    "recomputing",
    "resident_pair",
    "seed_generators",
    "sequence_number_of",
    "sequences",
    "sgd",
    "splits_digest",
    "step_graph",
    "tensors_in",
    "unet",
    "with_learning_rate",
    "workload_errors",
    "workload_names",
]
