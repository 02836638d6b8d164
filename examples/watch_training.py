"""A training watched by its design's instrument, and given orders on the way.

Every tenth step the instrument looks at what enters each layer of a small network. At step 100 the tap of the last
layer is programmed anew, from summary statistics to NormCheck, and at step 200 the learning rate is lowered through a
control register. From the command line the same is done to a run by `presilicon instrument program` and `set`.

    python examples/watch_training.py
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import presilicon as ps
from presilicon.instrument import Command
from presilicon.study.instrumented import train_watched

STEPS = 300
ORDERS = {
    100: Command(id="1", streams=(), verb="program", tap="into.output", aggregation="norm_check"),
    200: Command(id="2", streams=(), verb="learning_rate", value=0.001),
}


class Orders:
    """Where the training looks for commands, before every step."""

    def pending(self, step: int) -> list[Command]:
        return [ORDERS[step]] if step in ORDERS else []


def main() -> None:
    design = ps.load_design(Path(__file__).with_name("watched.toml"))
    workload = replace(ps.load_workload("digits-cnn"), target=1.0, max_steps=STEPS, sustain=STEPS)
    seen: list[dict[str, Any]] = []
    train_watched(workload, design, emit=seen.append, step_s=61e-6, commands=lambda stream: Orders())
    print(f"{'step':>5}  what the tap of the last layer sees")
    for event in seen:
        if event["event"] == "instrument" and event["tap"] == "into.output" and event["step"] % 50 == 0:
            values = event["values"]
            shown = ("p15", "p50", "p85") if event["aggregation"] == "norm_check" else ("mean", "sparsity", "max")
            print(f"{event['step']:5}  " + "  ".join(f"{name} {values[name]:8.3f}" for name in shown))
        elif event["event"] == "instrument_answer":
            print(f"{event['step']:5}  ordered: {event['message']}")


if __name__ == "__main__":
    main()
