"""Work that training has done: in one step, and in all steps so far."""

from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class StepWork:
    """Passes and updates of one step."""

    batch_size: int = 0
    """Samples of the step on each chip."""
    samples: int = 0
    passes: int = 0
    """Forward passes."""
    loss: float = 0.0
    """Sum of the losses of all samples."""
    backward_passes: int = 0
    updates: int = 0

    def add_loss(self, loss: float, samples: int) -> None:
        """Count a forward pass of `samples` with that mean loss."""
        self.samples += samples
        self.passes += 1
        self.loss += loss * samples


@dataclass(slots=True)
class Counts:
    """Samples and updates of a run so far."""

    samples: int = 0
    updates: int = 0

    def add(self, work: StepWork) -> None:
        """Count a step."""
        self.samples += work.samples
        self.updates += work.updates

    def state_dict(self) -> dict[str, Any]:
        """The counts."""
        return {"samples": self.samples, "updates": self.updates}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the counts."""
        self.samples, self.updates = int(state["samples"]), int(state["updates"])
