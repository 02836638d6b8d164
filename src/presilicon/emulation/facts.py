"""What hardware must know of a step's formats: where the schedule has changed them."""

from presilicon.designs import RoleFormat
from presilicon.emulation.emulation import Emulation
from presilicon.records import LayerFact, Role, StepFacts


class FormatFacts:
    """The facts of each step: every layer and role whose format is no longer the one that training began with.

    Static overrides are part of the design and need no facts: whoever prices a step reads them there, by the same
    `Numerics.in_force`.
    """

    def __init__(self, emulation: Emulation) -> None:
        self._emulation = emulation
        self._numerics = emulation.numerics
        self._by_stage: dict[int, StepFacts] = {}

    def at(self, step: int) -> StepFacts:
        """The facts of a step that has run, as far as formats go."""
        stage = self._numerics.stage(step)
        if stage not in self._by_stage:
            self._by_stage[stage] = StepFacts(
                layers=tuple(
                    LayerFact(layer=layer, role=role, format=str(chosen.format), stored_bits=chosen.stored_bits)
                    for layer in self._emulation.layers_seen
                    for role, chosen in self._changed(layer, step)
                )
            )
        return self._by_stage[stage]

    def _changed(self, layer: str, step: int) -> list[tuple[Role, RoleFormat]]:
        if not self._numerics.schedule:
            return []
        now, static = (self._numerics.in_force(layer, at, self._emulation.ends) for at in (step, 0))
        return list(now.formats_differing(static).items())
