"""Cycles of CATERPILLAR in closed form: products on one core, collectives on the ring, products on all cores.

A core is nr x nr processing elements (PEs). Their MAC units start one multiply-add in each cycle and finish it S stages
later; buses and neighbours take one cycle. The oracle in `tests/oracles/caterpillar.py` counts all of this PE
by PE.

    turns       Work comes in turns: before one, each PE reads what it adds to through a port, after it, it writes the
                result back through the same port. Turns of two multiply-adds or more hide both: N + S + 2 for N in
                all. Turns of one do not: the port alternates between bursts of S + 2 reads and as many writes.
    GEMM        C += A B, a turn per nr x nr tile of C: k rank-1 updates, a column of A on the row buses and a row of
                B on the column buses.
    GEMV        y += W x, a turn per nr rows: each PE adds ceil(k / nr) products, then the sums of a row of PEs move
                from neighbour to neighbour, one more addition each; a PE starts one cycle after its neighbour. For
                W^T e rows and columns change places, and W lies as it does for W x.
    update      W += e x^T in place, a turn per access of MEM A.
    ring        a message of N words takes ceil(N / words per cycle) + hop cycles to the next core. All-gather and
                reduce-scatter of n chunks take n - 1 such steps, the bucket algorithm (all-reduce) both.
    multicore   n panels circulate; a core computes with one while the next one arrives: c + (n - 1) max(c, message).

Ragged panels are padded: all cores run the same program. Ragged tiles take as long as full ones.
"""

from math import ceil


def core_gemm_cycles(m: int, k: int, n: int, nr: int, stages: int) -> int:
    """C[m, n] += A[m, k] B[k, n] on one core.

    >>> core_gemm_cycles(8, 100, 8, nr=4, stages=4)
    406
    """
    return _turns(ceil(m / nr) * ceil(n / nr), k, stages)


def core_gemv_cycles(m: int, k: int, nr: int, stages: int) -> int:
    """y[m] += W[m, k] x[k] on one core; for W^T e give the sides of W^T.

    >>> core_gemv_cycles(8, 400, nr=4, stages=4)
    211
    """
    reduces = nr > 1
    return _turns(ceil(m / nr), ceil(k / nr) + reduces, stages) + nr - 1


def core_update_cycles(m: int, k: int, nr: int, stages: int, port_words: int) -> int:
    """W[m, k] += e[m] x[k]^T on one core, in place.

    >>> core_update_cycles(8, 400, nr=4, stages=4, port_words=4), core_update_cycles(8, 400, 4, 4, port_words=1)
    (206, 404)
    """
    weights = ceil(m / nr) * ceil(k / nr)
    return _turns(weights, 1, stages) if port_words == 1 else weights + stages + 2


def message_cycles(words: int, ring_words: int, hop_cycles: int) -> int:
    """Cycles from the first word leaving a core to the last one arriving at the next."""
    return ceil(words / ring_words) + hop_cycles


def all_gather_cycles(words: int, cores: int, ring_words: int, hop_cycles: int) -> int:
    """Every core receives all chunks, of `words` together. Reduce-scatter takes as long.

    The bucket algorithm (all-reduce) is one of each: 2 (n - 1) steps.

    >>> all_gather_cycles(1024, 8, ring_words=4, hop_cycles=2)
    238
    """
    return (cores - 1) * message_cycles(ceil(words / cores), ring_words, hop_cycles)


def circulate_cycles(compute: int, words: int, cores: int, ring_words: int, hop_cycles: int) -> int:
    """`cores` panels of `words` each go around the ring; each core computes for `compute` cycles with every one.

    The same for buckets of sums, to which every core adds its product.

    >>> [circulate_cycles(compute, 64, 8, ring_words=4, hop_cycles=2) for compute in (100, 10)]
    [800, 136]
    """
    return compute + (cores - 1) * max(compute, message_cycles(words, ring_words, hop_cycles))


def _turns(turns: int, length: int, stages: int) -> int:
    """Turns of `length` multiply-adds, each with a read before and a write after it through one port."""
    if length > 1:
        return turns * length + stages + 2
    burst = stages + 2
    whole, rest = divmod(turns, burst)
    return 2 * burst * whole + (burst + rest if rest else 0)
