"""The reversible chain: the gradients of a plain network, an inverse, and memory that does not grow with depth."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from presilicon.workloads import Reversible
from presilicon.workloads.networks.reversible import reversible_chain

Forward = Callable[[Tensor], Tensor]


def plainly(chain: Reversible) -> Forward:
    """The same blocks and weights, differentiated by autograd."""

    def forward(x: Tensor) -> Tensor:
        x1, x2 = x.chunk(2, dim=1)
        for block in chain.couplings:
            x1, x2 = block(x1, x2)
        return torch.cat([x1, x2], dim=1)

    return forward


def make(blocks: int, dtype: torch.dtype = torch.float64) -> tuple[Reversible, Tensor]:
    torch.manual_seed(0)
    return reversible_chain(blocks, 16).to(dtype), torch.randn(2, 16, 5, 5, dtype=dtype)


def gradients(forward: Forward, chain: nn.Module, x: Tensor) -> list[Tensor]:
    x = x.clone().requires_grad_()
    weight = torch.linspace(-1, 1, x.numel(), dtype=x.dtype).reshape(x.shape)
    loss = (forward(x) * weight).sum()
    return list(torch.autograd.grad(loss, (x, *chain.parameters())))


def saved_elements(forward: Forward, x: Tensor, weights: nn.Module) -> int:
    """Numbers that autograd holds for the backward pass, weights left out, each storage once."""
    known = {weight.data_ptr() for weight in weights.parameters()}
    held: dict[int, Tensor] = {}

    def pack(tensor: Tensor) -> Tensor:
        held[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        output = forward(x.clone().requires_grad_())
    total = sum(tensor.numel() for address, tensor in held.items() if address not in known)
    assert output.requires_grad
    return total


@pytest.mark.parametrize("blocks", [1, 3])
def test_gradients_are_those_of_the_plain_network(blocks: int) -> None:
    chain, x = make(blocks)
    ours, plain = gradients(chain, chain, x), gradients(plainly(chain), chain, x)
    assert len(ours) == 1 + 12 * blocks
    for mine, theirs in zip(ours, plain, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-10)
        assert float(theirs.abs().max()) > 1e-3


def test_the_comparison_can_fail() -> None:
    chain, x = make(2)
    ours = gradients(chain, chain, x)
    with torch.no_grad():
        chain.couplings[1].second[5].weight.mul_(1.001)
    plain = gradients(plainly(chain), chain, x)
    assert not torch.allclose(ours[0], plain[0], rtol=1e-9, atol=1e-10)


def invert(chain: Reversible, y: torch.Tensor) -> torch.Tensor:
    """The input that gives `y`, up to rounding."""
    y1, y2 = y.chunk(2, dim=1)
    for block in reversed(chain.couplings):
        y1 = y1 - block.second(y2)
        y2 = y2 - block.first(y1)
    return torch.cat([y1, y2], dim=1)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-4)])
def test_the_inverse_reconstructs_the_input(dtype: torch.dtype, tolerance: float) -> None:
    chain, x = make(6, dtype)
    with torch.no_grad():
        y = chain(x)
        assert float((y - x).abs().max()) > 0.1
        torch.testing.assert_close(invert(chain, y), x, rtol=tolerance, atol=tolerance)


def test_nothing_inside_the_chain_is_stored() -> None:
    held = {}
    for blocks in (1, 4, 16):
        chain, x = make(blocks)
        assert saved_elements(chain, x, chain) == x.numel()
        held[blocks] = saved_elements(plainly(chain), x, chain)
    # A plain network of the same blocks stores the inner activations of each of them.
    assert held[16] == 4 * held[4] == 16 * held[1] > 16 * 4 * x.numel()
