"""Runs in the peers' environment: elements per second of each, as JSON on the last line.

    python peers_worker.py ELEMENTS THREADS

A peer that cannot be imported or fails is named on stderr and left out. Slow ones get fewer numbers.
"""

import json
import sys
import traceback
from collections import defaultdict
from collections.abc import Callable

import torch
from timing import take_turns

ELEMENTS, THREADS = int(sys.argv[1]), int(sys.argv[2])
torch.set_num_threads(THREADS)
X = torch.randn(ELEMENTS, generator=torch.Generator().manual_seed(0))
RATES: dict[str, dict[str, float]] = defaultdict(dict)


def measure(
    kind: str, peer: str, make: Callable[[torch.Tensor], Callable[[], object]], elements: int = ELEMENTS
) -> None:
    elements = min(elements, ELEMENTS)
    try:
        work = make(X[:elements].clone())
        RATES[kind][peer] = elements / take_turns({"it": work}, 5)["it"]
    except Exception:  # a peer's failure is a finding, not ours to handle
        print(f"{peer} ({kind}) failed:\n{traceback.format_exc(limit=-2)}", file=sys.stderr)


def torch_cast(x: torch.Tensor) -> Callable[[], object]:
    return lambda: x.to(torch.float8_e5m2).to(torch.float32)


def ml_dtypes_cast(x: torch.Tensor) -> Callable[[], object]:
    import ml_dtypes

    return lambda: x.numpy().astype(ml_dtypes.float8_e5m2).astype("float32")


def qtorch_with(name: str, rounding: str) -> Callable[[torch.Tensor], Callable[[], object]]:
    def make(x: torch.Tensor) -> Callable[[], object]:
        from qtorch import quant

        calls = {
            "float": lambda: quant.float_quantize(x, 5, 2, rounding=rounding),
            "fixed": lambda: quant.fixed_point_quantize(x, 12, 4, rounding=rounding),
            "block": lambda: quant.block_quantize(x.view(-1, 16), 5, dim=0, rounding=rounding),
        }
        return calls[name]

    return make


def pychop_float(rounding: int) -> Callable[[torch.Tensor], Callable[[], object]]:
    def make(x: torch.Tensor) -> Callable[[], object]:
        import pychop

        pychop.backend("torch")
        chop = pychop.Chop(exp_bits=5, sig_bits=2, rmode=rounding)
        return lambda: chop(x)

    return make


def gfloat_round(x: torch.Tensor) -> Callable[[], object]:
    import gfloat
    from gfloat.formats import format_info_ocp_e5m2

    values = x.double().numpy()
    return lambda: gfloat.round_ndarray(format_info_ocp_e5m2, values)


def apytypes_float(x: torch.Tensor) -> Callable[[], object]:
    import apytypes

    return lambda: apytypes.APyFloatArray.from_array(x.numpy(), 5, 2).to_numpy()


def torchao_mx(x: torch.Tensor) -> Callable[[], object]:
    from torchao.prototype.mx_formats.mx_tensor import MXTensor

    return lambda: MXTensor.to_mx(x.view(-1, 4096), torch.float8_e4m3fn, 32).dequantize(torch.float32)


def main() -> None:
    measure("float", "torch .to(e5m2).to(float32)", torch_cast)
    measure("float", "ml_dtypes", ml_dtypes_cast)
    measure("float", "qtorch", qtorch_with("float", "nearest"))
    measure("float", "gfloat", gfloat_round, 1 << 20)
    measure("float", "pychop", pychop_float(1), 1 << 20)
    measure("float", "apytypes", apytypes_float, 1 << 20)
    measure("float stochastic", "qtorch", qtorch_with("float", "stochastic"))
    measure("float stochastic", "pychop", pychop_float(5), 1 << 20)
    measure("fixed", "qtorch", qtorch_with("fixed", "nearest"))
    measure("fixed stochastic", "qtorch", qtorch_with("fixed", "stochastic"))
    measure("block", "qtorch", qtorch_with("block", "nearest"))
    measure("mx", "torchao", torchao_mx, 1 << 22)
    print(json.dumps(RATES))


if __name__ == "__main__":
    main()
