"""Turns the record of a step into ops: decides phases and roles, names ops, and gives products one orientation."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass

from msgspec import structs

from presilicon.records import Gemm, Op, Phase, Role, TensorRef
from presilicon.workloads.capturing.calls import Record, RecordedCall, View


@dataclass(frozen=True, slots=True)
class Settled:
    """The phase of each call, and the role of each storage before the update."""

    phases: list[Phase]
    roles: dict[int, Role]


def assemble(record: Record, parameters: frozenset[int], gradients: frozenset[int]) -> tuple[Op, ...]:
    """The ops of a recorded step; `parameters` and `gradients` are the storages that the update reads."""
    settled = _settle(record)
    names: Counter[str] = Counter()
    temporary: dict[int, tuple[Role, str]] = {}
    ops: list[Op] = []
    for index, (call, phase) in enumerate(zip(record.calls, settled.phases, strict=True)):
        roles, layer = settled.roles, call.layer
        if phase == "update":
            roles, layer = _update_roles(call, record, parameters, gradients, temporary)
        inputs, outputs = _references(call.inputs, roles), _references(call.outputs, roles)
        gemm = call.gemm
        if gemm is not None and _is_transposed(phase, inputs):
            gemm = Gemm(gemm.n, gemm.k, gemm.m, gemm.count)
            inputs = (_transposed(inputs[1]), _transposed(inputs[0]), *inputs[2:])
            outputs = tuple(map(_transposed, outputs))
        name = ".".join(filter(None, (layer, phase, call.label.strip("_"))))
        names[name] += 1
        ops.append(
            Op(
                index=index,
                name=name if names[name] == 1 else f"{name}.{names[name]}",
                kind="optimizer" if phase == "update" and gemm is None else call.kind,
                operator=call.operator,
                phase=phase,
                layer=layer,
                inputs=inputs,
                outputs=outputs,
                flops=call.flops,
                depends_on=call.depends_on,
                gemm=gemm,
                convolution=call.convolution,
                differentiates="" if call.differentiates is None else ops[call.differentiates].name,
                access=call.access,
                recurrent=call.recurrent,
                fixed_statistics=call.fixed_statistics,
                work=call.work,
            )
        )
    return tuple(ops)


def _settle(record: Record) -> Settled:
    """Phases of calls and roles of storages, found by going backward through the calls.

    A result that left its autograd node is an error or a gradient depending on where it went. One that stayed inside
    the node takes the role of the results computed from it there.
    """
    roles = dict(record.roles)
    phases: list[Phase] = ["forward"] * len(record.calls)
    readers: defaultdict[int, list[tuple[int, Role]]] = defaultdict(list)
    for index in reversed(range(len(record.calls))):
        call = record.calls[index]
        if call.stage == "update":
            phases[index] = "update"
        elif call.stage == "backward":
            output_roles: list[Role] = []
            for view in call.outputs:
                uses = record.flowing.get(view.storage) or _uses(readers[view.storage], call.node)
                role: Role = "error" if "error" in uses else "gradient"
                output_roles.append(role)
                roles.setdefault(view.storage, role)
            of_weights = all(role == "gradient" for role in output_roles)
            phases[index] = "weight_grad" if of_weights else "input_grad"
            for view in call.inputs:
                readers[view.storage].append((call.node, "gradient" if of_weights else "error"))
    return Settled(phases, roles)


def _uses(readers: list[tuple[int, Role]], node: int) -> set[Role]:
    """Roles of what is computed from a result that never entered a node: in its own node, or else anywhere."""
    inside: set[Role] = {role for reader, role in readers if reader == node}
    return inside or {role for _, role in readers} or {"error"}


def _update_roles(
    call: RecordedCall,
    record: Record,
    parameters: frozenset[int],
    gradients: frozenset[int],
    temporary: dict[int, tuple[Role, str]],
) -> tuple[dict[int, Role], str]:
    """Roles in the update, and the layer whose parameter is updated.

    A temporary has the role of the first tensor that it is computed from.
    """
    roles: dict[int, Role] = {}
    layers: list[str] = []
    for storage in dict.fromkeys(view.storage for view in (*call.inputs, *call.outputs)):
        inherited = temporary.get(storage)
        if storage in parameters:
            roles[storage] = "master"
        elif storage in gradients:
            roles[storage] = "gradient"
        elif inherited is not None:
            roles[storage] = inherited[0]
        elif storage in record.roles:
            roles[storage] = record.roles[storage]
        if storage in record.owners:
            layers.append(record.owners[storage])
        elif inherited is not None:
            layers.append(inherited[1])
    layer = layers[0] if layers else ""
    first: Role = next(iter(roles.values()), "state")
    for view in call.outputs:
        if view.storage not in roles:
            roles[view.storage] = first
            temporary[view.storage] = (first, layer)
    return roles, layer


def _references(views: tuple[View, ...], roles: dict[int, Role]) -> tuple[TensorRef, ...]:
    return tuple(
        TensorRef(view.storage, view.shape, roles.get(view.storage, "activation"), view.integer_bits) for view in views
    )


def _is_transposed(phase: Phase, inputs: tuple[TensorRef, ...]) -> bool:
    """Whether autograd computed the transpose of E W^T or A^T E: the same work with the factors exchanged."""
    left, right = inputs[0].role, inputs[1].role
    if phase == "weight_grad":
        return left == "error" and right == "activation"
    return phase == "input_grad" and left == "weight" and right == "error"


def _transposed(tensor: TensorRef) -> TensorRef:
    if len(tensor.shape) < 2:
        return tensor
    *leading, rows, columns = tensor.shape
    return structs.replace(tensor, shape=(*leading, columns, rows))
