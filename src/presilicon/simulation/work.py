"""What an op asks of the machine, and the formats in which it asks."""

from msgspec import Struct

from presilicon.designs import Design, curve_pj, load_technology
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
    utilization: float = 0.0

    def energy_j(self, design: Design) -> dict[str, float]:
        """Joules by component: the arithmetic, the buffer, DRAM."""
        technology = load_technology(design.machine.technology)
        sram_pj_per_byte = curve_pj(technology.sram_64bit, design.machine.sram_kib) / 8
        dram_pj_per_byte = technology.dram_64bit.pj / 8
        return {
            "mac" if self.unit == "array" else "vector": self.operations_j,
            "sram": self.bytes_sram * sram_pj_per_byte * PICO,
            "dram": self.bytes_dram * dram_pj_per_byte * PICO,
        }


class Formats:
    """The format in force for a layer's role: the facts' own where they name one, or else the design's."""

    def __init__(self, numerics: Numerics, facts: StepFacts) -> None:
        self._numerics = numerics
        self._special = {(fact.layer, fact.role): parse(fact.format) for fact in facts.layers if fact.format}

    def of(self, role: Role, layer: str) -> Format:
        """The format of `role` in `layer`."""
        return self._special.get((layer, role)) or self._numerics.of(role).format

    def bytes_of(self, tensor: TensorRef, layer: str) -> float:
        """What a tensor takes in memory, as an op of `layer` sees it."""
        return tensor.elements * self.of(tensor.role, layer).bits_per_element / 8

    @property
    def copies_weights(self) -> bool:
        """Whether the weights that products use are another copy than the master weights."""
        return self._numerics.weight.format != self._numerics.master.format
