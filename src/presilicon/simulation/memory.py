"""How much memory a training step holds at once."""

from collections.abc import Callable, Sequence, Set

from presilicon.records import Op, TensorRef


def peak_transient_bytes(ops: Sequence[Op], resident: Set[int], bytes_of: Callable[[TensorRef, str], float]) -> float:
    """Peak over the step of every tensor from its making to its last use, what is resident left out.

    Views and in-place results share the storage of what they came from, so they are counted once, at the largest size
    that an op saw. `bytes_of` takes a tensor and the layer of the op that uses it.
    """
    size: dict[int, float] = {}
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for position, op in enumerate(ops):
        for tensor in op.inputs + op.outputs:
            if tensor.id not in resident:
                size[tensor.id] = max(size.get(tensor.id, 0.0), bytes_of(tensor, op.layer))
                first.setdefault(tensor.id, position)
                last[tensor.id] = position
    change = [0.0] * (len(ops) + 1)
    for key, held in size.items():
        change[first[key]] += held
        change[last[key] + 1] -= held
    transient = peak = 0.0
    for delta in change:
        transient += delta
        peak = max(peak, transient)
    return peak
