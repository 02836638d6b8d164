"""Methods with models that call their layers in unusual ways."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from presilicon.designs import Method, Numerics
from presilicon.emulation import train
from presilicon.formats import BlockFloat
from presilicon.methods.ada_gp import AdaGp
from presilicon.methods.fast import Fast, _Deciding
from presilicon.methods.measure_zeros import MeasureZeros
from presilicon.workloads import load_workload


class Unusual(nn.Module):
    """A layer that is given its input by name, two that take a single sample, and one that is never called."""

    def __init__(self) -> None:
        super().__init__()
        self.named, self.vector, self.unused = nn.Linear(64, 10), nn.Linear(4, 10), nn.Linear(4, 4)
        self.picture = nn.Conv2d(2, 10, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shift = self.picture(torch.ones(2, 3, 3)).flatten()
        return self.named(input=x) + self.vector(torch.ones(4)) + shift


@pytest.mark.parametrize("method", [AdaGp(warmup=2), Fast(every=2), MeasureZeros(every=2)])
def test_layers_may_be_called_by_name_with_single_samples_or_never(method: Method):
    workload = replace(load_workload("digits-mlp"), model=Unusual, max_steps=6, evaluate_every=6)
    trace = train(workload, Numerics(), methods=[method])
    assert len(trace.losses) == 6
    measured = {fact.layer for fact in trace.runs[-1].facts.products}
    assert measured == ({"named", "vector", "picture"} if isinstance(method, MeasureZeros) else set())


def test_groups_of_a_single_sample_lie_along_its_channels(monkeypatch: pytest.MonkeyPatch):
    seen: list[torch.Size] = []
    monkeypatch.setattr(_Deciding, "_improvement", lambda self, x, axis: seen.append((x.shape, axis)) or torch.ones(()))
    model = nn.Conv2d(2, 10, 3)

    class Run:
        def set_format(self, layer: str, role: str, role_format: BlockFloat) -> None:
            pass

    deciding = _Deciding(Fast(), Run(), {"": model})
    deciding._looks = True
    model(torch.ones(2, 4, 4)).sum().backward()
    assert seen == [((1, 2, 4, 4), 1), (model.weight.shape, 1), ((1, 10, 2, 2), 1)]
