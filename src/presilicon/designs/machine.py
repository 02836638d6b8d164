"""Machine kinds: everything that the package asks of a machine, and the extension point that finds the kinds.

A kind is one class: its fields are the `[machine]` table of a design, and its methods are the facets below. The
package's own kinds live beside their engines, in `simulation/systolic`, `simulation/caterpillar` and
`simulation/roofline`. Other packages register theirs:

    [project.entry-points."presilicon.machines"]
    my-machine = "my_package.machine:MyMachine"
"""

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from presilicon.base import ConfigError, Extensible, ExtensionPoint
from presilicon.designs.pricing import MachineStep, StepPrice
from presilicon.designs.technology import Technology
from presilicon.records import PRODUCT_PHASES, ROLES, Area, ArrayFrames, Gemm, StepFacts, StepGraph

if TYPE_CHECKING:
    from presilicon.designs.design import Design
    from presilicon.designs.numerics import Numerics


class UpdateRule(Struct, frozen=True, kw_only=True):
    """The samples that one update of the weights uses, and how old the weights are that those samples have seen."""

    chips: int = 1
    """Chips that share a batch evenly, and add up their gradients for one update."""
    per_sample: bool = False
    """Whether every sample has an update of its own."""
    pipelined: bool = False
    """Whether samples stream through the layers, each of which updates its weights at once."""

    def samples_per_update(self, batch_size: int) -> int:
        """Samples whose gradients make one update, at a batch size."""
        return 1 if self.per_sample else batch_size

    def batch_per_chip(self, workload: str, batch_size: int, accumulate: int = 1) -> int:
        """Samples of a batch on each chip.

        Raises:
            ConfigError: the chips cannot share the batch evenly, or an update of single samples has micro-batches.
        """
        parts = self.chips * accumulate
        if self.chips > 1 and batch_size % parts:
            of_each = f" in {accumulate} micro-batches each" if accumulate > 1 else ""
            lower = batch_size // parts * parts
            raise ConfigError(
                f'workload "{workload}": {self.chips} chips{of_each} cannot share a batch of {batch_size} samples '
                "evenly; the batch size counts the samples of all chips: try --batch "
                + (f"{lower} or " if lower else "")
                + str(lower + parts)
            )
        if self.per_sample and accumulate > 1:
            raise ConfigError(
                f'workload "{workload}": accumulate is {accumulate}, but the machine updates after every sample and '
                "adds up no gradients; set it to 1, or choose another schedule"
            )
        return batch_size // self.chips

    def staleness(self, layers: int) -> tuple[int, ...]:
        """Updates between the weights that a sample's activations and its errors see, for each layer in order.

        >>> UpdateRule(pipelined=True).staleness(4)
        (6, 4, 2, 0)
        """
        return tuple(2 * (layers - 1 - layer) if self.pipelined else 0 for layer in range(layers))

    def delays(self, graph: StepGraph) -> dict[str, int]:
        """The staleness of each layer of a step graph by its name; its stages are the layers with weights."""
        staleness = self.staleness(len(graph.weighted_layers))
        return {layer: staleness[stage] for layer, stage in graph.stages.items()} if staleness else {}


MINIBATCH = UpdateRule()
"""One update per batch, at once."""


class Machine(Extensible):
    """Base of machine kinds. A kind must be able to price a step; the other facets have defaults.

    A kind is a frozen struct whose tag is its name in design files:

        class MyMachine(
            Machine, Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="my-machine"
        ):
            flops_s: float
    """

    __slots__ = ()

    @property
    def kind(self) -> str:
        """The name of the kind in design files."""
        return self.member_name

    @property
    def function_steps(self) -> int | None:
        """Arithmetic results that a division, root or exponential of an operator counts as: 1 with a unit for it.

        None for a machine whose price reads operators itself.
        """
        return 1

    @property
    def technology(self) -> str | None:
        """Name or path of the technology table that prices its parts; None for a machine with its own figures."""
        return None

    @property
    def dram_kind(self) -> str | None:
        """The kind of DRAM, of those in the technology table."""
        return None

    @property
    def clock_ghz(self) -> float | None:
        """The clock that turns another simulator's cycles into seconds; None for a machine without one."""
        return None

    @property
    def memory_gib(self) -> float | None:
        """The memory that a step must fit in; None where there is no limit."""
        return None

    def file_digests(self) -> dict[str, str]:
        """Digests of the contents of the files that its price depends on, by field; the technology is not one."""
        return {}

    @property
    def update_rule(self) -> UpdateRule:
        """Samples that an update uses, and its delay."""
        return UpdateRule()

    def check_design(self, design: "Design") -> None:
        """Check what the machine demands of the rest of its design.

        Raises:
            ConfigError: the machine cannot run the design's numerics.
        """
        unit = design.numerics.unit_name
        if unit is not None:
            raise ConfigError(
                f"numerics.mac.unit {unit}: a machine of kind {self.kind} has arithmetic of its own, so that a "
                'processing unit has no price on it; use kind = "systolic", whose cells can be such units'
            )

    def price(self, step: MachineStep) -> StepPrice:
        """Time and energy of a training step and of each op in it.

        Raises:
            ConfigError: the machine cannot run the step.
        """
        raise ConfigError(f"machine kind {self.kind}: {type(self).__name__} must define price(step)")

    def remarks(self, facts: StepFacts) -> tuple[str, ...]:
        """Sentences for the result on facts of training that the hardware cannot use, or uses under an assumption.

        By default a machine computes with zeros as with all other numbers.
        """
        densities = [fact.density for fact in facts.layers if fact.density is not None and fact.density < 1]
        if not densities and not facts.products:
            return ()
        return ("the machine does not skip zeros: it gains no time or energy from the zeros that training makes",)

    def numerics_remarks(self, numerics: "Numerics") -> tuple[str, ...]:
        """Sentences for the result on formats that are biased, and on what is emulated but not in the price."""
        remarks: list[str] = [*numerics.remarks()]
        if any(part.product(phase).hadamard for part in numerics.variants() for phase in PRODUCT_PHASES):
            remarks.append("the Hadamard transforms of operands are emulated; their additions are not in the price")
        units = {mac.unit for mac in numerics.macs() if mac.unit}
        for unit in sorted(units, key=str):
            source = "the technology table" if unit.energy_pj is None else f"its own {unit.energy_pj:g} pJ"
            remarks.append(f"cells are processing units {unit.describe()}; energy of an operation from {source}")
        if any(mac.has_parts_beside_sums for mac in numerics.macs()):
            remarks.append(
                "MAC units that round products, round at random, align or add side by side are emulated; "
                "the price is that of a multiplier and an adder of their formats"
            )
        if any(part.has_steps(role) for part in numerics.variants() for role in ROLES):
            remarks.append("vector ops are emulated step by step in their formats; their price is that of float32")
        return tuple(remarks)

    def area(self, design: "Design", technology: Technology | None) -> Area:
        """The area by its parts, from the areas of `technology`, or why it is not known."""
        return Area(parts_mm2={}, how="not known: the machine gives none")

    def describe_product(self) -> dict[str, Any]:
        """Figures of the machine that `simulate --gemm` prints beside the price."""
        return {"machine": self.kind}

    def for_product(self) -> "Machine":
        """The machine on which a single product is priced, in place of a layer's three."""
        return self

    def array_settings(self, sides: tuple[int, int] | None, dataflow: str | None, overlap: bool | None) -> list[str]:
        """`machine.FIELD=VALUE` settings for another size, dataflow or fold overlap of the systolic array.

        Raises:
            ConfigError: the machine has no systolic array.
        """
        raise ConfigError(f"a machine of kind {self.kind} has no systolic array")

    def play_product(self, gemm: Gemm) -> ArrayFrames:
        """Every register of every cell in every cycle of a small matrix product.

        Raises:
            ConfigError: the machine has no systolic array, or the product is too large to play.
        """
        raise ConfigError(f"--frames shows the cells of a systolic array; a machine of kind {self.kind} has none")


MACHINES: ExtensionPoint[type[Machine]] = ExtensionPoint(
    "presilicon.machines",
    "machine kind",
    {
        "systolic": "presilicon.simulation.systolic:SystolicMachine",
        "caterpillar": "presilicon.simulation.caterpillar:CaterpillarMachine",
        "roofline": "presilicon.simulation.roofline:RooflineMachine",
    },
    Machine,
)
"""The machine kinds by the `kind` of a design's `[machine]` table."""

Machine.members = MACHINES
