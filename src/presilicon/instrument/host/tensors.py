"""Tensors cut into the vectors that a tap offers: one group of N nodes after the other, sample by sample."""

from typing import Any

from presilicon.base import ConfigError, np


def cut_tensor(values: Any, lanes: int) -> "tuple[np.typing.NDArray[Any], np.typing.NDArray[np.bool_]]":
    """The vectors [V, lanes] and frame ends [V, 2] of a tensor [samples, nodes] of numbers or words.

    For each group of `lanes` nodes there is one vector for each sample; lanes beyond the last node are 0. Level 0 ends
    with a group, level 1 with the tensor.

    >>> vectors, last = cut_tensor([[1, 2, 3], [4, 5, 6]], 2)
    >>> vectors.tolist()
    [[1, 2], [4, 5], [3, 0], [6, 0]]
    >>> last.tolist()
    [[False, False], [True, False], [False, False], [True, True]]
    """
    tensor = np.asarray(values)
    if tensor.ndim != 2 or not tensor.size:
        raise ConfigError(f"a tensor of shape {tensor.shape} cannot be cut; give (samples, nodes), both at least 1")
    samples, nodes = tensor.shape
    groups = -(-nodes // lanes)
    padded = np.zeros((samples, groups * lanes), dtype=tensor.dtype)
    padded[:, :nodes] = tensor
    vectors = np.ascontiguousarray(padded.reshape(samples, groups, lanes).transpose(1, 0, 2)).reshape(-1, lanes)
    last = np.zeros((len(vectors), 2), dtype=np.bool_)
    last[samples - 1 :: samples, 0] = True
    last[-1] = True
    return vectors, last


def cut_pair(x: Any, y: Any, lanes: int) -> "tuple[np.typing.NDArray[Any], np.typing.NDArray[np.bool_]]":
    """Two alternating tensors [samples, nodes]: a vector of x, then that of y; level 0 ends with each pair.

    >>> vectors, last = cut_pair([[1, 2]], [[3, 4]], 2)
    >>> vectors.tolist(), last.tolist()
    ([[1, 2], [3, 4]], [[False, False], [True, True]])
    """
    if np.shape(x) != np.shape(y):
        raise ConfigError(f"the tensors of a pair must have the same shape, not {np.shape(x)} and {np.shape(y)}")
    (first, _), (second, _) = cut_tensor(x, lanes), cut_tensor(y, lanes)
    vectors = np.stack([first, second], axis=1).reshape(-1, lanes)
    last = np.zeros((len(vectors), 2), dtype=np.bool_)
    last[1::2, 0] = True
    last[-1] = True
    return vectors, last


def join_tensor(vectors: Any, samples: int, nodes: int) -> "np.typing.NDArray[Any]":
    """The tensor [samples, nodes] that `cut_tensor` cut.

    >>> join_tensor([[1, 2], [4, 5], [3, 0], [6, 0]], 2, 3).tolist()
    [[1, 2, 3], [4, 5, 6]]
    """
    groups = np.asarray(vectors).reshape(-1, samples, np.shape(vectors)[1])
    joined: np.typing.NDArray[Any] = groups.transpose(1, 0, 2).reshape(samples, -1)[:, :nodes]
    return joined
