"""Schedules of a training step over several devices: which device runs each op, and when, for least energy or time."""

from typing import TYPE_CHECKING

from presilicon.base import deferred
from presilicon.scheduling.accounting import SAMPLE_S, cost, critical_path, link_loads, power_trace
from presilicon.scheduling.baselines import LAG_S, reactive_clock, reference_only, retimed
from presilicon.scheduling.candidates import candidates, judge
from presilicon.scheduling.checker import check
from presilicon.scheduling.fpga_kernels import (
    Fmax,
    Ranked,
    Space,
    explore,
    latency_indicator,
    synthetic_fmax,
    table_fmax,
)
from presilicon.scheduling.goals import Goal, Objective, Progress, sound_bound
from presilicon.scheduling.graphs import Graph, GraphOp, joined, parse_graph, read_graph
from presilicon.scheduling.kernel_estimates import Estimate, FpgaBoard, estimate
from presilicon.scheduling.kernel_ops import SHAPES, KernelConfig, make_input
from presilicon.scheduling.op_kinds import kind_named, kind_of, size_class
from presilicon.scheduling.problems import Costs, OpEstimate, alone, build_problem
from presilicon.scheduling.solve import TIME_LIMIT_S, Plausibility, Solution, Solver, solve_best
from presilicon.scheduling.solve import solve as solve_schedule
from presilicon.scheduling.solvers.greedy import DeadlockError, Rules, execute
from presilicon.scheduling.solvers.heft import heft as schedule_heft

if TYPE_CHECKING:
    from presilicon.scheduling.runtime.devices import DeviceLostError, DeviceTensor, OpDevice, TorchDevice, open_device
    from presilicon.scheduling.runtime.executor import Executor, Ran
    from presilicon.scheduling.runtime.meters import PowerMeter, check_watts, find_meter
    from presilicon.scheduling.runtime.nvml import Nvml
    from presilicon.scheduling.runtime.opencl.boards import BoardInfo, list_boards
    from presilicon.scheduling.runtime.opencl.ranking import Ranking, rank
    from presilicon.scheduling.runtime.opencl.tuning import TUNED_OPS, Trial, Tuned, save_tuned, stored_path, tune
    from presilicon.scheduling.runtime.session import HybridTensor, Session
    from presilicon.scheduling.solvers.bounds import energy_bound

__getattr__ = deferred(__name__)

__all__ = [
    "LAG_S",
    "SAMPLE_S",
    "SHAPES",
    "TIME_LIMIT_S",
    "TUNED_OPS",
    "BoardInfo",
    "Costs",
    "DeadlockError",
    "DeviceLostError",
    "DeviceTensor",
    "Estimate",
    "Executor",
    "Fmax",
    "FpgaBoard",
    "Goal",
    "Graph",
    "GraphOp",
    "HybridTensor",
    "KernelConfig",
    "Nvml",
    "Objective",
    "OpDevice",
    "OpEstimate",
    "Plausibility",
    "PowerMeter",
    "Progress",
    "Ran",
    "Ranked",
    "Ranking",
    "Rules",
    "Session",
    "Solution",
    "Solver",
    "Space",
    "TorchDevice",
    "Trial",
    "Tuned",
    "alone",
    "build_problem",
    "candidates",
    "check",
    "check_watts",
    "cost",
    "critical_path",
    "energy_bound",
    "estimate",
    "execute",
    "explore",
    "find_meter",
    "joined",
    "judge",
    "kind_named",
    "kind_of",
    "latency_indicator",
    "link_loads",
    "list_boards",
    "make_input",
    "open_device",
    "parse_graph",
    "power_trace",
    "rank",
    "reactive_clock",
    "read_graph",
    "reference_only",
    "retimed",
    "save_tuned",
    "schedule_heft",
    "size_class",
    "solve_best",
    "solve_schedule",
    "sound_bound",
    "stored_path",
    "synthetic_fmax",
    "table_fmax",
    "tune",
]
