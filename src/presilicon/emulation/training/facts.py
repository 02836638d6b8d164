"""Facts of each step that change its cost: the work that it did, and the formats in use."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from presilicon.designs import RoleFormat
from presilicon.emulation.emulation import Emulation
from presilicon.records import LayerFact, ProductPhase, Role, StepFacts


@dataclass(slots=True)
class StepWork:
    """Passes and updates of one step."""

    batch_size: int = 0
    """Samples that the step was to have, when its batch was fetched."""
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


class FormatFacts:
    """The facts of each step: the stage of the schedule of the numerics, and the formats that methods have set.

    Overrides and changes are part of the design and need no facts of their own: the simulator reads them there, by the
    same `Numerics.in_force`.
    """

    def __init__(self, emulation: Emulation) -> None:
        self._emulation = emulation
        self._numerics = emulation.numerics
        self._known: dict[Any, StepFacts] = {}

    def at(self, step: int) -> StepFacts:
        """The formats of a step that has run."""
        used = self._emulation.formats_used
        stage = self._numerics.stage(step)
        key = stage, tuple(sorted(used.items()))
        if key not in self._known:
            self._known[key] = StepFacts(
                numerics_step=stage,
                layers=tuple(
                    LayerFact(
                        layer=layer,
                        role=role,
                        product=product,
                        format=str(changed.format),
                        stored_bits=changed.stored_bits,
                    )
                    for layer in used
                    for (role, product), changed in self._changed(layer, step, dict(used[layer]))
                ),
            )
        return self._known[key]

    def _changed(
        self, layer: str, step: int, used: Mapping[Role, RoleFormat]
    ) -> list[tuple[tuple[Role, ProductPhase | None], RoleFormat]]:
        scheduled = self._numerics.in_force(layer, step, self._emulation.ends)
        return list(scheduled.changed({str(role): used[role] for role in used}).formats_differing(scheduled).items())
