"""Training with stochastic computing: a multiplication is the AND of two streams of random bits.

A number a between 0 and 1 is a stream of bits of which a share a are ones; where two streams are independent, the
share of ones in their AND is the product, at the cost of one gate. The sign is handled apart, and magnitudes above 1
saturate. A stream of L bits counts a binomial variable: the product p has the variance p (1 - p) / L, and a sum of K of
them K times as much, so that accuracy is bought with time. The random numbers are fixed tables; each product begins
elsewhere in them, as with a shared shift register that is tapped at different places.

The AND has no derivative; the backward pass is that of the exact product.

    python examples/stochastic_computing.py
"""

from dataclasses import replace
from random import Random

import torch
from torch import nn

import presilicon as ps
from presilicon.designs import Numerics
from presilicon.ops import Operator, operator

PERIOD = 256
LEFT = Random(1).sample([(place + 0.5) / PERIOD for place in range(PERIOD)], PERIOD)
RIGHT = Random(2).sample([(place + 0.5) / PERIOD for place in range(PERIOD)], PERIOD)


def stochastic(length: int) -> tuple[Operator, Operator]:
    """The product of two numbers with streams of `length` bits, and the linear layer made of it."""

    @operator
    def product(a, b, place):
        """The share of ones in the AND of both streams, which begin at `place`."""
        ones = sum(
            1.0
            for t in range(length)
            if LEFT[(t + 41 * int(place)) % PERIOD] < abs(a) and RIGHT[(t + 97 * int(place)) % PERIOD] < abs(b)
        )
        return ones / length if a * b > 0 else -ones / length

    def toward_x(error: "b o", x: "b i", w: "o i") -> "b i":
        return sum(error[b, k] * w[k, i] for k in range(O))

    def toward_w(error: "b o", x: "b i", w: "o i") -> "o i":
        return sum(error[k, o] * x[k, i] for k in range(B))

    @operator("linear", custom_backward={"x": toward_x, "w": toward_w})
    def linear(x: "b i", w: "o i") -> "b o":
        return sum(product(x[b, k], w[o, k], k + 7 * o) for k in range(I))

    return product, linear


def model() -> nn.Module:
    """A multilayer perceptron whose activations lie between -1 and 1; weights are far below 1 anyway."""
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 24), nn.Hardtanh(), nn.Linear(24, 10))


def measured_deviation(linear: Operator, exact: torch.Tensor, x: torch.Tensor, w: torch.Tensor) -> float:
    return float((linear(x, w) - exact).square().mean().sqrt())


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    workload = replace(ps.load_workload("digits-mlp"), name="digits-stochastic", model=model, max_steps=150)
    x, w = torch.rand(32, 64), 0.25 * (2 * torch.rand(24, 64) - 1)
    exact = x @ w.T
    share = (x[:, None] * w[None]).abs()
    print(f"{'digits, 150 steps':20} {'loss':>7} {'test':>7} {'deviation':>10} {'predicted':>10} {'gates':>9}")
    trace = ps.train(workload, Numerics(), seed=0)
    print(f"{'exact products':20} {trace.losses[-1]:7.3f} {trace.test_value:7.1%}")
    for length in (4, 16, 64):
        _, linear = stochastic(length)
        trace = ps.train(workload, Numerics(), seed=0, operators=[linear])
        predicted = float((share * (1 - share) / length).sum(-1).mean().sqrt())
        deviation = measured_deviation(linear, exact, x, w)
        line = f"streams of {length:3} bits    {trace.losses[-1]:7.3f} {trace.test_value:7.1%}"
        print(f"{line} {deviation:10.4f} {predicted:10.4f} {share.numel() * length:9}")
    print("deviation of a sum of 64 products with |x| < 1, |w| < 1/4: measured, and sqrt(sum of p (1 - p) / L)")


if __name__ == "__main__":
    main()
