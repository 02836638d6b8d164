"""A training run watched by its design's instrument, with commands during the run.

Every tenth step the instrument reads the input of each layer of a small network. At step 100 the tap of the last
layer is reprogrammed from summary statistics to NormCheck, and at step 200 the learning rate is lowered through a
control register. On the command line, `presilicon instrument program` and `set` do the same to a run.

    python examples/watch_training.py
"""

from dataclasses import replace
from pathlib import Path

import presilicon as ps
from presilicon.instrument import Command
from presilicon.records import InstrumentAnswer, InstrumentEvent, InstrumentReading
from presilicon.study.instrumented import train_watched

STEPS = 300
COMMANDS = {
    100: Command(id="1", streams=(), verb="program", tap="into.output", aggregation="norm_check"),
    200: Command(id="2", streams=(), verb="learning_rate", value=0.001),
}


class Commands:
    """The source of commands that training polls before every step."""

    def pending(self, step: int) -> list[Command]:
        return [COMMANDS[step]] if step in COMMANDS else []


def main() -> None:
    design = ps.load_design(Path(__file__).with_name("watched.toml"))
    workload = replace(ps.load_workload("digits-cnn"), target=1.0, max_steps=STEPS, sustain=STEPS)
    events: list[InstrumentEvent] = []
    train_watched(workload, design, emit=events.append, step_s=61e-6, commands=lambda stream: Commands())
    print(f"{'step':>5}  readings of the tap on the last layer")
    for event in events:
        if isinstance(event, InstrumentReading) and event.tap == "into.output" and event.step % 50 == 0:
            shown = ("p15", "p50", "p85") if event.aggregation == "norm_check" else ("mean", "sparsity", "max")
            print(f"{event.step:5}  " + "  ".join(f"{name} {event.values[name]:8.3f}" for name in shown))
        elif isinstance(event, InstrumentAnswer):
            print(f"{event.step:5}  command: {event.message}")


if __name__ == "__main__":
    main()
