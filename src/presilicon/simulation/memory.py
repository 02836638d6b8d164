"""How much memory a training step holds at once."""

from collections.abc import Callable

from presilicon.records import StepGraph, TensorRef


def peak_memory_bytes(graph: StepGraph, bytes_of: Callable[[TensorRef], float]) -> float:
    """Peak over the step of weights, optimizer state and every tensor from its making to its last use.

    Weights and state are held throughout. Views and in-place results share the storage of what they came from, so they
    are counted once, at the largest size that an op saw.
    """
    resident = {tensor.id for tensor in graph.parameters + graph.state}
    size: dict[int, float] = {}
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for position, op in enumerate(graph.ops):
        for tensor in op.inputs + op.outputs:
            if tensor.id not in resident:
                size[tensor.id] = max(size.get(tensor.id, 0.0), bytes_of(tensor))
                first.setdefault(tensor.id, position)
                last[tensor.id] = position
    change = [0.0] * (len(graph.ops) + 1)
    for key, held in size.items():
        change[first[key]] += held
        change[last[key] + 1] -= held
    transient = peak = 0.0
    for delta in change:
        transient += delta
        peak = max(peak, transient)
    return peak + sum(map(bytes_of, graph.parameters + graph.state))
