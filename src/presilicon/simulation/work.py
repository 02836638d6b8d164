"""What an op asks of the machine, and the formats in which it asks."""

from msgspec import Struct

from presilicon.designs.numerics import Numerics
from presilicon.formats import Format, parse
from presilicon.records import Role, StepFacts, TensorRef
from presilicon.simulation.energy import Rates


class Work(Struct, frozen=True, kw_only=True):
    """What an op asks of the machine, before time and energy are put on it."""

    unit: str
    cycles: int
    operations_j: float
    """Of the arithmetic."""
    register_bits: float = 0.0
    """Bits written to registers of the array and the transposer."""
    bytes_dram: float
    bytes_sram: float
    peak_flops_s: float
    """Of the unit, every cell or lane at work in every cycle."""
    utilization: float = 0.0

    def energy_j(self, rates: Rates, time_s: float) -> dict[str, float]:
        """Joules by component, for an op that takes `time_s`: arithmetic, registers, the buffer, DRAM, leakage."""
        energy = {
            "mac" if self.unit == "array" else "vector": self.operations_j,
            "register": self.register_bits * rates.register_bit_j,
            "sram": self.bytes_sram * rates.sram_byte_j,
            "dram": self.bytes_dram * rates.dram_byte_j,
        }
        if rates.leakage_w is not None:
            energy["leakage"] = rates.leakage_w * time_s
        return energy


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
