"""Small systolic arrays, their products in emulation, and an MLP that is trained on them."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from msgspec.structs import replace
from torch import nn
from torch.nn import functional

from presilicon.designs import Design, ProductNumerics, load_design
from presilicon.emulation import emulate_, emulate_optimizer_
from presilicon.formats import MacUnit, decode, encode, matmul, quantize
from presilicon.instrument import Host, TrainingInstrument, wire_taps
from presilicon.records import OPERANDS, PRODUCT_PHASES, Gemm, StepFacts
from presilicon.rtl.array.circuit import array_circuit
from presilicon.rtl.array.model import ArrayModel
from presilicon.rtl.sources import SOURCES
from presilicon.simulation.systolic.cycles import gemm_cycles
from presilicon.workloads import multiplying_layers

FLOAT32 = MacUnit()


def array_design(
    rows: int, cols: int, sums: MacUnit = FLOAT32, *, columns: bool = False, overlap: bool = False, **formats: str
) -> Design:
    """A design whose MAC units add as an array of that size does, in the formats of `sums`; operands are 8 bits."""
    design = load_design(
        "fp8-systolic",
        [
            f"machine.rows={rows}",
            f"machine.cols={cols}",
            "machine.transpose=in-place",
            f"machine.reduction={'columns' if columns else 'rows'}",
            f"machine.fold_overlap={str(overlap).lower()}",
        ],
    )
    forward, backward = (cols, rows) if columns else (rows, cols)
    numerics = replace(
        design.numerics,
        mac=replace(sums, order="systolic", rows=forward),
        input_grad=ProductNumerics(mac=replace(sums, order="systolic", rows=backward)),
        weight_grad=ProductNumerics(mac=replace(sums, order="chunked", chunk=4096)),
        **formats,
    )
    return replace(design, numerics=numerics)


def codes_of(values, fmt) -> np.ndarray:
    return encode(values, fmt).numpy().astype(np.int64)


def operands(circuit, samples: int, inputs: int, outputs: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Random codes of a layer's weights, activations and errors, of magnitudes far apart, with zeros."""
    generator = torch.Generator().manual_seed(seed)
    shapes = {"weight": (outputs, inputs), "activation": (samples, inputs), "error": (samples, outputs)}
    codes = {}
    for role, shape in shapes.items():
        scales = torch.exp2(torch.randint(-4, 5, shape, generator=generator))
        used = torch.rand(shape, generator=generator) > 0.1
        codes[role] = codes_of(torch.randn(shape, generator=generator) * scales * used, getattr(circuit, role))
    return codes


def emulated(design: Design, circuit, codes: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The codes of a layer's three products by `matmul`."""
    numbers = {role: decode(torch.from_numpy(value), getattr(circuit, role)) for role, value in codes.items()}
    x, w, e = (numbers[role] for role in ("activation", "weight", "error"))
    factors = {"forward": (x, w.T), "input_grad": (e, w), "weight_grad": (e.T, x)}
    units = {phase: design.numerics.unit_of(phase, *OPERANDS[phase]) for phase in PRODUCT_PHASES}
    return {phase: codes_of(matmul(*factors[phase], units[phase]), circuit.mac.accumulate) for phase in PRODUCT_PHASES}


def simulated_cycles(design: Design, samples: int, inputs: int, outputs: int) -> dict[str, int]:
    """Cycles of the three products by the simulator's formulas, the input gradient in place."""
    machine = design.machine
    turned = "rows" if machine.reduction == "columns" else "columns"
    shared = {"fold_overlap": machine.fold_overlap}
    size = (machine.rows, machine.cols)
    forward = gemm_cycles(
        Gemm(samples, inputs, outputs), *size, "weight-stationary", reduction=machine.reduction, **shared
    )
    input_grad = gemm_cycles(
        Gemm(samples, outputs, inputs), *size, "weight-stationary", reduction=turned, resident=True, **shared
    )
    weight_grad = gemm_cycles(
        Gemm(inputs, samples, outputs), *size, "output-stationary", reduction=machine.reduction, **shared
    )
    return {"forward": forward.cycles, "input_grad": input_grad.cycles, "weight_grad": weight_grad.cycles}


class Training(NamedTuple):
    losses: list[float]
    weights: list[torch.Tensor]
    stream: bytes


RATE = 0.05


def _data(steps: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(1)
    return [
        (torch.randn(6, 10, generator=generator), torch.randint(3, (6,), generator=generator)) for _ in range(steps)
    ]


def _model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(10, 7), nn.ReLU(), nn.Linear(7, 3))


def train_emulated(design: Design, steps: int) -> Training:
    """An MLP trained in emulation, watched by the design's instrument."""
    sent = bytearray()
    watching = TrainingInstrument(design.instrument, layers_of=multiplying_layers, emit=lambda event: None)
    watching.links.append(_Link(sent))
    model = _model()
    emulate_(model, design.numerics, observers=[watching])
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    emulate_optimizer_(optimizer, design.numerics, model=model)
    watching.attach(model, optimizer, 0)
    losses = []
    for step, (x, target) in enumerate(_data(steps) * 2):
        watching.before_step(step)
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(x), target)
        loss.backward()
        optimizer.step()
        watching.after_step(step, StepFacts())
        losses.append(loss.item())
    watching.finish()
    assert not any(watching.chip.dropped)
    return Training(losses, [parameter.detach() for parameter in model.parameters()], bytes(sent))


class _Link:
    def __init__(self, sent: bytearray) -> None:
        self._sent = sent

    def send(self, data: bytes) -> None:
        self._sent += data

    def close(self) -> None:
        pass


def train_on_array(design: Design, layers: Sequence[str], steps: int, sources=SOURCES) -> Training:
    """The same MLP with all products on the array; the host does what a vector unit does, in float32."""
    circuit = array_circuit(design, layers, samples=16, features=16)
    array = ArrayModel(circuit, sources=sources)
    host = None if circuit.hardware is None else Host(circuit.hardware, wire_taps(design.instrument, layers))
    images = b"" if host is None else host.take()
    parameters = list(_model().parameters())
    optimizer = torch.optim.SGD(parameters, lr=RATE)
    w1, b1, w2, b2 = parameters
    stream = bytearray()
    losses = []

    def multiply(layer: int, *products: str, resident: bool = False, **tensors: torch.Tensor) -> list[torch.Tensor]:
        nonlocal images
        codes = {role: codes_of(tensor.detach(), getattr(circuit, role)) for role, tensor in tensors.items()}
        run = array.run(products, **codes, layer=layer, resident=resident, images=images)
        images = b""
        stream.extend(run.stream)
        return [decode(torch.from_numpy(run.products[phase].copy()), circuit.mac.accumulate) for phase in products]

    def gradient(values: torch.Tensor) -> torch.Tensor:
        return quantize(values, design.numerics.gradient.format)

    for x, target in _data(steps) * 2:
        (product,) = multiply(0, "forward", weight=w1, activation=x)
        hidden = torch.relu(product + b1.detach())
        (product,) = multiply(1, "forward", weight=w2, activation=hidden)
        logits = (product + b2.detach()).requires_grad_()
        loss = functional.cross_entropy(logits, target)
        loss.backward()
        back, w2.grad = multiply(
            1, "input_grad", "weight_grad", weight=w2, activation=hidden, error=logits.grad, resident=True
        )
        error = back * (hidden > 0)
        (w1.grad,) = multiply(0, "weight_grad", weight=w1, activation=x, error=error)
        b1.grad, b2.grad = (quantize(part, design.numerics.error.format).sum(0) for part in (error, logits.grad))
        for parameter in parameters:
            parameter.grad = gradient(parameter.grad)
        optimizer.step()
        losses.append(loss.item())
    return Training(losses, [parameter.detach() for parameter in parameters], bytes(stream))
