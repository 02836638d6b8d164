"""Products of a sparse matrix and a dense one, as in graph networks."""

from typing import NamedTuple

import torch
from torch import Tensor

from presilicon.emulation.ops.calls import Call
from presilicon.emulation.ops.products import Axes, Multiply, Product


class Places(NamedTuple):
    """Where the stored numbers of a sparse matrix stand."""

    rows: Tensor
    cols: Tensor
    shape: tuple[int, int]

    def matrix(self, values: Tensor) -> Tensor:
        """The sparse matrix with these values."""
        indices = torch.stack((self.rows, self.cols))
        return torch.sparse_coo_tensor(indices, values, self.shape, is_coalesced=True, check_invariants=False)

    def transposed(self, values: Tensor) -> Tensor:
        """The transpose of that matrix."""
        indices = torch.stack((self.cols, self.rows))
        return torch.sparse_coo_tensor(indices, values, self.shape[::-1], check_invariants=False)


class SparseProduct(Product):
    """The stored values of a sparse matrix (m, k) by a dense matrix (k, n).

    Only stored numbers are rounded, multiplied and differentiated. Block formats group them in the order in which they
    are stored. A MAC unit adds up whole rows, with the zeros between the stored numbers.
    """

    axes = Axes(a_forward=-1, b_forward=0, error_input=-1, b_input=1, a_weight=-1, error_weight=0)

    def __init__(self, places: Places) -> None:
        self.places = places

    def forward(self, a: Tensor, b: Tensor, bias: Tensor | None, multiply: Multiply | None) -> Tensor:
        matrix = self.places.matrix(a)
        out = torch.sparse.mm(matrix, b) if multiply is None else multiply(matrix.to_dense(), b)
        return out if bias is None else out + bias

    def input_grad(self, error: Tensor, b: Tensor, shape: torch.Size, multiply: Multiply | None) -> Tensor:
        rows, cols, _ = self.places
        if multiply is None:
            return (error[rows] * b[cols]).sum(-1)
        return multiply(error, b.t())[rows, cols]

    def weight_grad(self, a: Tensor, error: Tensor, shape: torch.Size, multiply: Multiply | None) -> Tensor:
        transposed = self.places.transposed(a)
        return torch.sparse.mm(transposed, error) if multiply is None else multiply(transposed.to_dense(), error)

    def bias_grad(self, error: Tensor, shape: torch.Size) -> Tensor:
        return error.sum_to_size(shape)


def sparse_call(a: Tensor, b: Tensor) -> Call | None:
    """The product of a sparse and a dense matrix, in either order; None for anything else."""
    if a.layout is torch.strided:
        flipped = sparse_call(b.t(), a.t()) if a.dim() == b.dim() == 2 and b.layout is not torch.strided else None
        return None if flipped is None else flipped._replace(finish=lambda out: out.t(), sources=(b, a))
    is_sparse = a.layout in (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc)
    if not is_sparse or b.layout is not torch.strided or a.dim() != 2 or b.dim() != 2 or a.dense_dim():
        return None
    matrix = a.to_sparse_coo().coalesce()
    rows, cols = matrix.indices()
    places = Places(rows, cols, (a.shape[0], a.shape[1]))
    return Call(SparseProduct(places), matrix.values(), b, sources=(a, b))
