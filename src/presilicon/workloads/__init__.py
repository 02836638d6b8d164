"""Models, data sets and accuracy targets, and the capture of one training step as a graph.

Importing this room loads neither torch nor scikit-learn: a workload names functions, and they import what they need
when they are called. Capture lives in `presilicon.workloads.capture`, which does need torch.
"""

from presilicon.workloads.registry import load_workload, workload_names
from presilicon.workloads.workload import Splits, Workload

__all__ = ["Splits", "Workload", "load_workload", "workload_names"]
