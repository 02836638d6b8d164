"""A clock for each op, so that a step stays under a power cap.

    python examples/clocks_under_cap.py

The schedule gives some ops a lower clock and leaves others at the highest. On a GPU, `presilicon schedule ...
--execute --set-clocks` would set the clocks through NVML (as root). Here a fake card takes the settings, and the ops
run on the CPU.
"""

from collections import Counter

import presilicon as ps
from presilicon.study.execution import PlainTraining
from presilicon.study.hybrid_context import GpuClocks
from presilicon.workloads import load_workload

CAP_W = 230.0


class FakeCard:
    """Stands for NVML: remembers the clocks that it was given."""

    def __init__(self) -> None:
        self.clocks_mhz: list[int] = []

    def highest_clock_mhz(self) -> int:
        """The clock of a V100."""
        return 1530

    def lock_clock(self, mhz: int) -> None:
        """Remember a clock."""
        self.clocks_mhz.append(mhz)

    def unlock_clock(self) -> None:
        """Back to the highest."""
        self.clocks_mhz.append(self.highest_clock_mhz())


def main(workload: str = "fashion-alexnet", batch_size: int = 32, steps: int = 3) -> None:
    """Schedule under the cap with clock levels, and train by the schedule."""
    settings = ("devices.gpu.clocks=[1.0, 0.8, 0.6]",)
    plan = ps.schedule(
        "v100-1xs10", workload, batch_size, objective="throughput", cap_w=CAP_W, solver="heft", settings=settings
    )
    levels = Counter(slot.mode.clock for slot in plan.schedule.started if slot.mode.device == "gpu")
    print(f"clocks of the ops on the GPU: {dict(sorted(levels.items()))}; peak {plan.cost.peak_power_w:.0f} W")
    card, training = FakeCard(), PlainTraining(load_workload(workload), batch_size)
    clocks = GpuClocks({"gpu 0": card})  # type: ignore[dict-item]
    devices = {"gpu": ["cpu"], "fpga": ["cpu"]}
    with ps.hybrid(training.model, plan, devices=devices, set_clock=clocks, takeover=False) as run:
        losses = list(training.run(steps))
    clocks.reset()
    print(f"the card was given {len(card.clocks_mhz)} clocks: {sorted(set(card.clocks_mhz))} MHz")
    print(f"losses {', '.join(f'{loss:.4f}' for loss in losses)}; {run.execution.forced} ops above the cap")


if __name__ == "__main__":
    main()
