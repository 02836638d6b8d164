"""The systolic array of a design as a circuit: sizes, formats of its cells, taps of the instrument."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from presilicon.base import ConfigError
from presilicon.designs import Design, Hardware, Numerics
from presilicon.formats import Fixed, Float, Format, Integer, MacUnit
from presilicon.instrument import wire_taps
from presilicon.records import OPERANDS, PRODUCT_PHASES, ProductPhase
from presilicon.rtl.arithmetic.mac import mac_circuit
from presilicon.rtl.arithmetic.words import format_word
from presilicon.rtl.sources import instrument_parameters, output_blocks

MOST_CELLS = 1 << 16
ROLES = ("activation", "weight", "error")


class ArrayTap(NamedTuple):
    """A tap of the instrument on an edge of the array."""

    layer: int
    """Number of the layer."""
    role: str
    """`activation` (the vectors of the forward product) or `error` (those of the weight gradient)."""


class ArrayCircuit(Struct, frozen=True, kw_only=True):
    """A systolic array with its controller: `presilicon_linear` and its parameters."""

    rows: int
    cols: int
    columns: bool
    """Whether the forward product is summed along the rows of cells: rows of weights are then the layer's outputs."""
    double: bool
    """Whether a fold is loaded or drained while another one streams."""
    activation: Format
    weight: Format
    error: Format
    operand: Format
    """The cells' own format, which holds all three."""
    mac: MacUnit
    chunk: int
    """Samples after which the sums of a weight gradient leave the cells; 0: all."""
    sample_bits: int
    group_bits: int
    layers: tuple[str, ...] = ()
    taps: tuple[ArrayTap, ...] = ()
    hardware: Hardware | None = None
    """The instrument."""
    output_blocks: int = 0
    """Blocks of its output buffer."""

    @property
    def most_samples(self) -> int:
        """Samples of a product that the controller can count."""
        return 1 << self.sample_bits

    @property
    def sides(self) -> dict[str, int]:
        """Lanes of activations, and of errors."""
        ends = (self.cols, self.rows) if self.columns else (self.rows, self.cols)
        return dict(zip(("activation", "error"), ends, strict=True))

    @property
    def edges(self) -> dict[str, Format]:
        """Formats of the left and the top edge."""
        ends = (self.error, self.activation) if self.columns else (self.activation, self.error)
        return dict(zip(("left", "top"), ends, strict=True))

    @property
    def units(self) -> dict[ProductPhase, MacUnit]:
        """The MAC unit that each product equals."""
        stays = {"order": "chunked", "chunk": self.chunk} if self.chunk else {"order": "sequential"}
        return {
            "forward": self.mac,
            "input_grad": replace(self.mac, rows=self.rows if self.columns else self.cols),
            "weight_grad": replace(self.mac, rows=None, **stays),
        }

    def parameters(self) -> dict[str, int]:
        """The parameters of `presilicon_linear`."""
        unit = dict(mac_circuit(self.operand, self.operand, self.mac).parameters)
        sums = ("PRODUCT", "PARTIAL", "PRODUCT_ROUNDING", "PARTIAL_ROUNDING", "TOTAL", "TOTAL_ROUNDING")
        return {
            "ROWS": self.rows,
            "COLS": self.cols,
            "LEFT": format_word(self.edges["left"]),
            "TOP": format_word(self.edges["top"]),
            "WEIGHT": format_word(self.weight),
            "OPERAND": format_word(self.operand),
            **{name: unit[name] for name in sums},
            "COLUMNS": int(self.columns),
            "DOUBLE": int(self.double),
            "CHUNK": self.chunk,
            "SAMPLE": self.sample_bits,
            "GROUP": self.group_bits,
        }


def array_circuit(
    design: Design, layers: Sequence[str] = (), *, samples: int = 256, features: int = 1024
) -> ArrayCircuit:
    """The array of a design's systolic machine, with its instrument if there is one.

    `layers` are the layers that will run on it, for the instrument's taps; `samples` and `features` are the largest
    numbers of samples, and of inputs or outputs, of a product.

    Raises:
        ConfigError: the hardware cannot do it; the message says why and what to try.
    """
    machine = _machine(design)
    numerics = design.numerics
    if not numerics.is_uniform:
        raise ConfigError("numerics: all layers share the cells, which have one format; leave out overrides, schedule")
    formats = {role: _role_format(numerics, role) for role in ROLES}
    operand = cell_format(tuple(formats.values()))
    columns = machine.reduction == "columns"
    mac, chunk = _mac(numerics, *((machine.cols, machine.rows) if columns else (machine.rows, machine.cols)))
    mac_circuit(operand, operand, mac)  # raises what the arithmetic cannot do
    if not 1 <= samples <= 1 << 16:
        raise ConfigError(f"samples must be from 1 to {1 << 16}, not {samples}")
    groups = -(-features // min(machine.rows, machine.cols))
    if not 1 <= groups <= 1 << 12:
        raise ConfigError(f"features must be from 1 to {min(machine.rows, machine.cols) << 12}, not {features}")
    circuit = ArrayCircuit(
        rows=machine.rows,
        cols=machine.cols,
        columns=columns,
        double=machine.fold_overlap,
        activation=formats["activation"],
        weight=formats["weight"],
        error=formats["error"],
        operand=operand,
        mac=mac,
        chunk=chunk,
        sample_bits=max((samples - 1).bit_length(), (machine.rows - 1).bit_length(), 1),
        group_bits=max((groups - 1).bit_length(), 1),
        layers=tuple(layers),
    )
    return circuit if design.instrument is None else _instrumented(circuit, design, layers)


def _machine(design: Design) -> Any:
    """The systolic machine, if its dataflows are those that the controller runs."""
    machine: Any = design.machine
    if machine.kind != "systolic":
        raise ConfigError(f'a machine of kind "{machine.kind}" has no systolic array; name a design that has one')
    if min(machine.rows, machine.cols) < 2 or machine.rows * machine.cols > MOST_CELLS:
        raise ConfigError(
            f"machine: an array has at least 2 rows and columns and at most {MOST_CELLS} cells, not "
            f"{machine.rows} x {machine.cols}; try --set machine.rows=16 --set machine.cols=16"
        )
    wanted = {"forward": "weight-stationary", "input_grad": "weight-stationary", "weight_grad": "output-stationary"}
    for phase, dataflow in wanted.items():
        given = getattr(machine.dataflow, phase)
        if given != dataflow:
            raise ConfigError(
                f'machine.dataflow.{phase} must be "{dataflow}", not "{given}": the weights stay in the cells of this '
                "array, and so do the sums of the weight gradient"
            )
    if machine.transpose != "in-place":
        raise ConfigError(
            f'machine.transpose must be "in-place", not "{machine.transpose}": the input gradient uses the weights '
            "where they lie; try --set machine.transpose=in-place"
        )
    if machine.cores.count > 1:
        raise ConfigError(f"machine.cores.count must be 1, not {machine.cores.count}: the circuit is one array")
    if machine.sparsity.zeros != "computed":
        raise ConfigError(
            f'machine.sparsity.zeros must be "computed", not "{machine.sparsity.zeros}": the cells multiply by every '
            "operand"
        )
    return machine


def _role_format(numerics: Numerics, role: Any) -> Format:
    formats = {}
    for phase, roles in OPERANDS.items():
        if numerics.product(phase).hadamard:
            raise ConfigError(f"numerics.{phase}.hadamard: the array does not transform its operands; leave it out")
        if role in roles:
            formats[phase] = numerics.operand(role, phase).format
    if len(set(formats.values())) > 1:
        listed = ", ".join(f"{fmt} in {phase}" for phase, fmt in formats.items())
        raise ConfigError(f"numerics: {role} must have one format in both products that use it, not {listed}")
    fmt = next(iter(formats.values()))
    if fmt.is_blocked:
        raise ConfigError(
            f"numerics.{role}: a cell multiplies one number by another, and {fmt} has scales of groups; their units "
            "add whole groups: `presilicon rtl mac`"
        )
    format_word(fmt)
    return fmt


def cell_format(formats: Sequence[Format]) -> Format:
    """The smallest format that holds all numbers of several.

    >>> from presilicon.formats import parse
    >>> str(cell_format([parse("e4m3"), parse("e5m2")])), str(cell_format([parse("int8"), parse("fixed(4, 4)")]))
    ('float(exponent=5, mantissa=3)', 'fixed(integer=8, fraction=4)')

    Raises:
        ConfigError: they are not all floats or all fixed point.
    """
    if len(set(formats)) == 1:
        return formats[0]
    names = ", ".join(dict.fromkeys(str(fmt) for fmt in formats))
    floats = [fmt for fmt in formats if isinstance(fmt, Float)]
    if len(floats) == len(formats):
        mantissa = max(fmt.mantissa for fmt in floats)
        lowest = min(fmt.min_exponent - fmt.mantissa for fmt in floats)
        highest = max(fmt.max_exponent for fmt in floats)
        for exponent in range(2, 9):
            wide = Float(exponent, mantissa)
            if wide.min_exponent - mantissa <= lowest and wide.max_exponent >= highest:
                return wide
        raise ConfigError(f"numerics: no float with an exponent of 8 bits holds all numbers of {names}")
    fixed = [fmt.codes if isinstance(fmt, Integer) else fmt for fmt in formats]
    if not all(isinstance(fmt, Fixed) for fmt in fixed):
        raise ConfigError(f"numerics: the cells have one multiplier, for floats or for fixed point, not for {names}")
    fraction = max(fmt.fraction_bits for fmt in fixed)
    signed = any(fmt.is_twos_complement for fmt in fixed)
    integer = max(fmt.bits - fmt.fraction_bits + (signed and not fmt.is_twos_complement) for fmt in fixed)
    return Fixed(integer, fraction, signed=signed)


def _mac(numerics: Numerics, forward_rows: int, backward_rows: int) -> tuple[MacUnit, int]:
    """The MAC unit of the cells, and the chunk of the weight gradient."""
    units = {phase: numerics.unit_of(phase, *OPERANDS[phase]) for phase in PRODUCT_PHASES}
    _check_systolic("forward", units["forward"], forward_rows)
    _check_systolic("input_grad", units["input_grad"], backward_rows)
    weight_grad = units["weight_grad"]
    if weight_grad.is_float32:
        raise ConfigError(f"numerics.weight_grad.mac: {_OWN_ORDER} try order=sequential")
    if weight_grad.order not in ("sequential", "chunked", "systolic") or weight_grad.width != 1:
        raise ConfigError(
            f"numerics.weight_grad.mac: {weight_grad}: sums that stay in their cells are added one after another; try "
            "order=chunked with chunk= as many samples as a batch has"
        )
    forward = units["forward"]
    for phase, unit in units.items():
        if unit.is_stochastic:
            raise ConfigError(
                f"numerics.mac: {unit}: cells have no shift registers, and emulation draws its random words in an "
                "order of its own; try rounding=nearest-even"
            )
        for field in ("multiply", "accumulate", "partial", "partial_rounding", "rounding"):
            if getattr(unit, field) != getattr(forward, field):
                raise ConfigError(
                    f"numerics.{phase}.mac.{field}: all products share the cells' adder, so it must be "
                    f"{getattr(forward, field)}, as in the forward product, not {getattr(unit, field)}"
                )
        if (unit.fused is False) != (forward.fused is False):
            raise ConfigError(f"numerics.{phase}.mac.fused: all products share the cells' adder; give all the same")
    return forward, weight_grad.chunk or weight_grad.rows or 0


_OWN_ORDER = (
    "emulation leaves a unit that adds in float32 in no stated order to torch.matmul, which adds in an order of its "
    "own, so that the array cannot equal it;"
)


def _check_systolic(phase: ProductPhase, unit: MacUnit, rows: int) -> None:
    if unit.is_float32:
        raise ConfigError(f"numerics.mac: {_OWN_ORDER} try order=systolic, rows={rows}")
    if unit.order != "systolic" or unit.rows != rows:
        raise ConfigError(
            f"numerics.mac: {unit}: the array adds the {phase} product in tiles of {rows}; set order=systolic, "
            f"rows={rows} (numerics.{phase}.mac for this product alone)"
        )


def _instrumented(circuit: ArrayCircuit, design: Design, layers: Sequence[str]) -> ArrayCircuit:
    assert design.instrument is not None
    hardware = design.instrument.built
    if not layers:
        raise ConfigError("instrument: name the layers that run on the array, as in --layers fc1,fc2; taps match them")
    wires = wire_taps(design.instrument, layers)
    for wire in wires:
        if wire.role not in ("activation", "error"):
            raise ConfigError(
                f'instrument: tap "{wire.name}": the edges of the array carry activations and errors as the instrument '
                f"takes them, vector by vector; of {wire.role} they carry columns: tap an activation or error"
            )
        if wire.vectors != "all":
            raise ConfigError(
                f'instrument: tap "{wire.name}": the array offers every vector of a tensor; set vectors = "all"'
            )
        lanes, fmt = circuit.sides[wire.role], getattr(circuit, wire.role)
        if hardware.lanes != lanes:
            raise ConfigError(
                f"instrument.hardware.lanes: the edge of the array with the {wire.role} has {lanes} lanes, not "
                f"{hardware.lanes}; set lanes = {lanes}"
            )
        if cell_format((fmt, hardware.element)) != hardware.element:
            raise ConfigError(
                f"instrument.hardware.element: {hardware.element} does not hold every number of {fmt}; try "
                f"{cell_format((fmt, Float(5, 10)) if isinstance(fmt, Float) else (fmt,))}"
            )
    instrument_parameters(hardware)
    taps = [ArrayTap(layers.index(wire.layer), wire.role) for wire in wires]
    if hardware.taps > len(taps):
        raise ConfigError(
            f"instrument.hardware.taps: {hardware.taps}, but {len(taps)} are wired; set taps = {len(taps)}"
        )
    blocks = output_blocks(design.instrument)
    return replace(circuit, taps=tuple(taps), hardware=hardware, output_blocks=blocks)
