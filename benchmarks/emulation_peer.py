"""Runs in the peers' environment: native and qtorch steps at the points where emulation rounds, as JSON.

python emulation_peer.py REPEATS
"""

import copy
import json
import sys

import torch
from emulation_models import MODELS, Attention, peak_bytes, stepper
from qtorch import FloatingPoint
from qtorch.quant import quantizer
from timing import take_turns
from torch import Tensor, nn
from torch.nn import functional

E5M2 = FloatingPoint(exp=5, man=2)
ROUND = quantizer(forward_number=E5M2, forward_rounding="nearest", backward_number=None)
WEIGHT = quantizer(E5M2, E5M2, "nearest", "nearest")
ERROR = quantizer(forward_number=None, backward_number=E5M2, backward_rounding="nearest")


class Linear(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return ERROR(functional.linear(ROUND(x), WEIGHT(self.weight), self.bias))


class Conv2d(nn.Conv2d):
    def forward(self, x: Tensor) -> Tensor:
        return ERROR(self._conv_forward(ROUND(x), WEIGHT(self.weight), self.bias))


class Rounded(Attention):
    def mix(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        scores = ERROR(ROUND(query) @ ROUND(key).mT) * query.shape[-1] ** -0.5
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        return ERROR(ROUND(scores.masked_fill(hidden, -torch.inf).softmax(-1)) @ ROUND(value))


def with_qtorch(model: nn.Module) -> nn.Module:
    """The same model, its layers exchanged for rounding ones in place."""
    for module in model.modules():
        for plain, rounding in ((nn.Linear, Linear), (nn.Conv2d, Conv2d), (Attention, Rounded)):
            if type(module) is plain:
                module.__class__ = rounding
    return model


def main() -> None:
    torch.set_num_threads(1)
    found = {}
    for name, make in MODELS.items():
        model, inputs, targets = make()
        native = stepper(copy.deepcopy(model), inputs, targets)
        rounding = stepper(with_qtorch(model), inputs, targets)
        times = take_turns({"native": native, "qtorch": rounding}, int(sys.argv[1]))
        found[name] = times | {"native_bytes": peak_bytes(native), "qtorch_bytes": peak_bytes(rounding)}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
