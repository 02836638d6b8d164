"""The formats in use at each step, as facts that change its cost."""

from collections.abc import Mapping
from typing import Any

from presilicon.designs import RoleFormat
from presilicon.emulation.emulation import Emulation
from presilicon.records import LayerFact, ProductPhase, Role, StepFacts


class FormatFacts:
    """The facts of each step: every layer and role whose format is no longer the one that training began with.

    Static overrides are part of the design and need no facts: the simulator reads them there, by the same
    `Numerics.in_force`.
    """

    def __init__(self, emulation: Emulation) -> None:
        self._emulation = emulation
        self._numerics = emulation.numerics
        self._known: dict[Any, StepFacts] = {}

    def at(self, step: int) -> StepFacts:
        """The formats of a step that has run."""
        used = self._emulation.formats_used
        key = self._numerics.stage(step), tuple(sorted(used.items()))
        if key not in self._known:
            self._known[key] = StepFacts(
                layers=tuple(
                    LayerFact(
                        layer=layer,
                        role=role,
                        product=product,
                        format=str(changed.format),
                        stored_bits=changed.stored_bits,
                    )
                    for layer in dict.fromkeys((*self._emulation.layers_seen, *used))
                    for (role, product), changed in self._changed(layer, step, dict(used.get(layer, ())))
                )
            )
        return self._known[key]

    def _changed(
        self, layer: str, step: int, used: Mapping[Role, RoleFormat]
    ) -> list[tuple[tuple[Role, ProductPhase | None], RoleFormat]]:
        if not used and not self._numerics.schedule:
            return []
        static, scheduled = (self._numerics.in_force(layer, at, self._emulation.ends) for at in (0, step))
        return list(scheduled.changed({str(role): used[role] for role in used}).formats_differing(static).items())
