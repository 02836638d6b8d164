"""The JSON document that `presilicon simulate --json` prints; `schemas/simulate.schema.json` describes it."""

from collections.abc import Sequence
from typing import Any

from msgspec import UNSET, Struct, UnsetType, json, to_builtins

from presilicon.base import DOCUMENT_SCHEMA, json_text
from presilicon.records import Cost, Coverage, Gemm, OpCost, StepGraph
from presilicon.report.steps import ops_overlap, waiting_s


class Checkpointing(Struct, frozen=True, kw_only=True):
    """A step that drops activations and recomputes them, beside the same step that keeps them all."""

    segments: int
    memory_bytes_without: float
    flops_without: int
    saves_memory: bool
    time_s_without: float | UnsetType = UNSET
    """Only of a step with times of our own, as is the energy."""
    energy_j_without: float | UnsetType = UNSET


class StepNotes(Struct, frozen=True, kw_only=True):
    """Notes on one step on one design, beside the fields of its `Cost`."""

    design: str
    workload: str
    batch_size: int
    flops: int
    utilization: float
    time_by_phase_s: dict[str, float]
    waiting_s: float
    ops_overlap: bool
    remarks: tuple[str, ...] = ()
    """What the price leaves out."""
    checkpointing: Checkpointing | UnsetType = UNSET
    """Only with `--checkpoint`."""
    times: Coverage | UnsetType = UNSET
    """Only with `--times`."""


class ProductNotes(Struct, frozen=True, kw_only=True):
    """One matrix product on one design; the settings of its kind of machine that it was priced with stand beside."""

    design: str
    gemm: dict[str, int]
    """The sides `m`, `k` and `n`."""
    convention: str
    cycles: int
    time_s: float
    energy_j: float
    utilization: float
    bytes_dram: float
    least_bytes_dram: float | UnsetType = UNSET
    """Lower bound of that traffic, for kinds of machines that give it."""
    bytes_sram: float
    macs: int
    compute_s: float
    memory_s: float
    intensity: float
    roof_flops_s: float
    bound: str


def step_document(
    cost: Cost,
    *,
    design: str,
    graph: StepGraph,
    remarks: Sequence[str] = (),
    checkpointing: Checkpointing | None = None,
    times: Coverage | None = None,
) -> dict[str, Any]:
    """One step on one design as plain data: totals and notes, then every op."""
    notes = StepNotes(
        design=design,
        workload=graph.name,
        batch_size=cost.batch_size,
        flops=cost.chips * graph.flops(),
        utilization=cost.utilization,
        time_by_phase_s=cost.time_by_phase_s(),
        waiting_s=waiting_s(cost),
        ops_overlap=ops_overlap(cost),
        remarks=tuple(remarks),
        checkpointing=UNSET if checkpointing is None else checkpointing,
        times=UNSET if times is None else times,
    )
    document: dict[str, Any] = to_builtins(notes) | to_builtins(cost)
    return document


def product_document(
    cost: OpCost,
    *,
    design: str,
    gemm: Gemm,
    convention: str,
    settings: dict[str, Any],
    least_bytes: float | None = None,
) -> dict[str, Any]:
    """One matrix product as plain data; `settings` are the fields of the machine that it was priced with.

    `least_bytes` is the lower bound of its DRAM traffic.
    """
    notes = ProductNotes(
        design=design,
        gemm={"m": gemm.m, "k": gemm.k, "n": gemm.n},
        convention=convention,
        cycles=cost.cycles,
        time_s=cost.time_s,
        energy_j=cost.energy_j,
        utilization=cost.utilization,
        bytes_dram=cost.bytes_dram,
        least_bytes_dram=UNSET if least_bytes is None else least_bytes,
        bytes_sram=cost.bytes_sram,
        macs=gemm.macs,
        compute_s=cost.compute_s,
        memory_s=cost.memory_s,
        intensity=cost.intensity,
        roof_flops_s=cost.roof_flops_s,
        bound=cost.bound,
    )
    document: dict[str, Any] = {"design": design, "gemm": notes.gemm, **settings} | to_builtins(notes)
    return document


def simulate_to_json(designs: Sequence[dict[str, Any]], remarks: Sequence[str] = ()) -> str:
    """Steps or products on one or several designs as a JSON document; `remarks` are on all designs together."""
    return json_text({"schema": DOCUMENT_SCHEMA, "designs": designs, "remarks": remarks})


def simulate_schema() -> dict[str, Any]:
    """The JSON schema of `simulate_to_json`."""
    (notes, cost, product), definitions = json.schema_components(
        [StepNotes, Cost, ProductNotes], ref_template="#/$defs/{name}"
    )
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "presilicon simulate --json",
        "description": "One step, or one matrix product, on each of one or several designs.",
        "type": "object",
        "properties": {
            "schema": {"enum": [DOCUMENT_SCHEMA]},
            "designs": {"type": "array", "minItems": 1, "items": {"anyOf": [{"allOf": [notes, cost]}, product]}},
            "remarks": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["schema", "designs", "remarks"],
        "$defs": definitions,
    }
