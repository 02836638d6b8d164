"""When ops run: compute and transfer overlap inside an op, and with prefetching from one op to the next."""

from collections.abc import Iterable

from msgspec import Struct


class Demand(Struct, frozen=True, kw_only=True, gc=False):
    """What an op asks of the two resources that work side by side."""

    compute_s: float
    transfer_s: float
    """Of the DRAM channel, in all."""
    early_s: float = 0.0
    """The part of the transfer that need not wait for the op before."""


class Span(Struct, frozen=True, kw_only=True, gc=False):
    """Where an op lies on the timeline."""

    start_s: float
    time_s: float
    prefetched_s: float
    """Transfer that ran before its start, while the channel was idle under the op before."""


def lay_out(demands: Iterable[Demand], *, prefetch: bool) -> list[Span]:
    """Ops one after another, each as long as the longer of its compute and of the transfer that is still to do.

    With `prefetch`, the channel fetches ahead for the next op once it is done with the transfers of this one.

    >>> ops = [Demand(compute_s=5.0, transfer_s=2.0), Demand(compute_s=1.0, transfer_s=4.0, early_s=4.0)]
    >>> [span.time_s for span in lay_out(ops, prefetch=False)], [span.time_s for span in lay_out(ops, prefetch=True)]
    ([5.0, 4.0], [5.0, 1.0])
    """
    spans: list[Span] = []
    start_s = idle_s = 0.0
    for demand in demands:
        prefetched_s = min(demand.early_s, demand.transfer_s, idle_s) if prefetch else 0.0
        left_s = demand.transfer_s - prefetched_s
        time_s = max(demand.compute_s, left_s)
        spans.append(Span(start_s=start_s, time_s=time_s, prefetched_s=prefetched_s))
        idle_s = time_s - left_s
        start_s += time_s
    return spans
