"""Ops that a step runs, by the facts about it."""

from collections.abc import Iterator

from presilicon.designs import StepFormats
from presilicon.records import Op, StepFacts, StepGraph, TensorRef
from presilicon.simulation.recent import Recent

_RECENT = Recent[tuple[Op, ...]](16)


def executed_ops(graph: StepGraph, formats: StepFormats, facts: StepFacts) -> tuple[Op, ...]:
    """The ops of the graph that are not skipped, and the rounding of updated weights where products use a copy."""
    copies = formats.copies_weights and not facts.update_skipped
    key = (copies, facts.backward_skipped, facts.update_skipped)
    return _RECENT.find(graph, key, lambda: tuple(_executed(graph, facts, copies=copies)))


def _executed(graph: StepGraph, facts: StepFacts, *, copies: bool) -> Iterator[Op]:
    yield from (op for op in graph.ops if op.name in graph.added or not _is_skipped(op, facts))
    if copies and (parameters := updated(graph)):
        yield _copy_weights(graph, parameters)


def updated(graph: StepGraph) -> tuple[TensorRef, ...]:
    """The parameters that the step updates: none in a graph without an update, as of inference."""
    written = {tensor.id for op in graph.ops if op.phase == "update" for tensor in op.outputs}
    return tuple(tensor for tensor in graph.parameters if tensor.id in written)


def _is_skipped(op: Op, facts: StepFacts) -> bool:
    backward = op.phase in ("input_grad", "weight_grad")
    return (backward and facts.backward_skipped) or (op.phase == "update" and facts.update_skipped)


def _copy_weights(graph: StepGraph, parameters: tuple[TensorRef, ...]) -> Op:
    """The rounding of the master weights to the copy that the next step uses."""
    master = tuple(TensorRef(tensor.id, tensor.shape, "master") for tensor in parameters)
    writers = {tensor.id: op.index for op in graph.ops if op.phase == "update" for tensor in op.outputs}
    return Op(
        index=len(graph.ops),
        name="update.round_weights",
        kind="copy",
        operator="presilicon.round",
        phase="update",
        layer="",
        inputs=master,
        outputs=parameters,
        flops=sum(tensor.elements for tensor in parameters),
        depends_on=tuple(sorted({writers[tensor.id] for tensor in master if tensor.id in writers})),
    )
