"""Two torch devices of different speed share one training step.

    python examples/mixed_devices.py

With two GPUs in a machine, name them in the system (`runtime = ["cuda:0"]` and `["cuda:1"]`). Here the slower one is
the CPU behind a wrapper that takes twice the time of each op, so that the example runs everywhere.
"""

import time

import presilicon as ps
from presilicon.designs import Device, System
from presilicon.scheduling import TorchDevice
from presilicon.study import ExecuteOptions, ScheduleRequest, execute


class Slower(TorchDevice):
    """The CPU, with every op taking twice its time, and memory of its own."""

    def __init__(self) -> None:
        super().__init__("cpu")
        self.name = "slower cpu"

    def run(self, func, args, kwargs):
        """Run the op, and wait as long again."""
        began = time.perf_counter()
        result = super().run(func, args, kwargs)
        time.sleep(time.perf_counter() - began)
        return result


def mixed_system() -> System:
    """A fast device that draws 250 W and a slow one that draws 70 W."""
    return System(
        name="mixed",
        devices={
            "fast": Device(kind="gpu", idle_w=40, peak_w=250, memory_gb_s=900, runtime=("cpu",)),
            "slow": Device(kind="gpu", idle_w=10, peak_w=70, memory_gb_s=300, bytes_per_s=12e9, runtime=("cpu",)),
        },
        notes=("Powers are made up; times are measured.",),
    )


def main(workload: str = "digits-cnn", batch_size: int = 256, steps: int = 20) -> None:
    """Measure, schedule, train, and compare with plain torch."""
    request = ScheduleRequest(
        system=mixed_system(), workload=workload, batch_size=batch_size, objective="throughput", solver="heft"
    )
    options = ExecuteOptions(steps=steps, devices={"fast": ["cpu"], "slow": [Slower()]})
    scheduled, execution = execute(request, options)
    alone_s = scheduled.solution.baseline.cost.makespan_s
    print(f"{workload}, batch {batch_size}: a step on the fast device alone {1e3 * alone_s:.1f} ms (from measured ops)")
    predicted_ms, executed_ms = 1e3 * execution.predicted_makespan_s, 1e3 * execution.makespan_s
    print(f"both: predicted {predicted_ms:.1f} ms, executed {executed_ms:.1f} ms")
    print(f"{execution.offloaded:.0%} of the ops ran on the slow device; {execution.takeovers} were taken back")
    print(f"largest relative difference from plain torch's losses: {execution.largest_loss_difference:.1g}")


if __name__ == "__main__":
    print(f"presilicon {ps.__version__}")
    main()
