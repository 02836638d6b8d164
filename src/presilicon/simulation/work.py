"""What an op asks of the machine, and the formats in which it asks."""

from msgspec import Struct

from presilicon.designs import SystolicMachine, Technology, curve_pj
from presilicon.designs.numerics import Numerics
from presilicon.formats import Format, parse
from presilicon.records import Role, StepFacts, TensorRef

PICO = 1e-12


class Work(Struct, frozen=True, kw_only=True):
    """What an op asks of the machine, before time and energy are put on it."""

    unit: str
    cycles: int
    operations_j: float
    bytes_dram: float
    bytes_sram: float
    peak_flops_s: float
    """Of the unit, every cell or lane at work in every cycle."""
    utilization: float = 0.0

    def energy_j(self, machine: SystolicMachine, technology: Technology) -> dict[str, float]:
        """Joules by component: the arithmetic, the buffer, DRAM."""
        sram_pj = curve_pj(technology.sram_64bit, machine.sram_kib) / 8
        return {
            "mac" if self.unit == "array" else "vector": self.operations_j,
            "sram": self.bytes_sram * sram_pj * PICO,
            "dram": self.bytes_dram * technology.dram_figure(machine.dram_kind).pj / 8 * PICO,
        }


class Formats:
    """The format in force for a layer's role: the facts' own where they name one, or else the design's."""

    def __init__(self, numerics: Numerics, facts: StepFacts) -> None:
        self._numerics = numerics
        self._bits: dict[Role, float] = {}
        self._special = {(fact.layer, fact.role): parse(fact.format) for fact in facts.layers if fact.format}

    def of(self, role: Role, layer: str) -> Format:
        """The format of `role` in `layer`."""
        return self._special.get((layer, role)) or self._numerics.of(role).format

    def bytes_of(self, tensor: TensorRef, layer: str) -> float:
        """What a tensor takes in memory, as an op of `layer` sees it."""
        if (layer, tensor.role) in self._special:
            bits = self._special[layer, tensor.role].bits_per_element
        else:
            if tensor.role not in self._bits:
                self._bits[tensor.role] = self._numerics.of(tensor.role).bits_per_element
            bits = self._bits[tensor.role]
        return tensor.elements * bits / 8

    @property
    def copies_weights(self) -> bool:
        """Whether the weights that products use are another copy than the master weights.

        Those that take more bits in memory than their format has are rounded on their way to the multiplier.
        """
        weight = self._numerics.weight
        return weight.stored_bits is None and weight.format != self._numerics.master.format
