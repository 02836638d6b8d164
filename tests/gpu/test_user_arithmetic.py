"""A user's own arithmetic on the GPU: the bits of the CPU, and of the built-in format that it writes again."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS), str(TESTS / "cross" / "formats")]

import test_mac_user as examples  # noqa: E402
import translated  # noqa: E402

from presilicon.formats import Key, MacUnit, ProcessingUnit, encode, matmul, parse, quantize, user_step  # noqa: E402
from presilicon.formats.mac import user_gpu  # noqa: E402
from presilicon.formats.mac.user import Sums  # noqa: E402
from user_e4m3 import USER_E4M3, same_run, train_digits, truncated_mad  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.mark.parametrize("workload", ["digits-mlp", "digits-cnn"])
def test_a_training_run_has_the_bits_of_the_built_in_format(workload: str) -> None:
    user, own = (train_digits(fmt, workload, 200, "cuda") for fmt in (USER_E4M3, parse("e4m3")))
    assert same_run(user, own)
    other = replace(USER_E4M3, name="truncated_e4m3", mad=truncated_mad)
    assert not same_run(train_digits(other, workload, 5, "cuda"), train_digits(parse("e4m3"), workload, 5, "cuda"))


@pytest.mark.parametrize(
    "mac",
    [
        MacUnit(accumulate=USER_E4M3),
        MacUnit(accumulate=USER_E4M3, fused=False, order="chunked", chunk=16),
        MacUnit(accumulate=examples.WIDE, order="systolic", rows=8),
        MacUnit(accumulate=examples.COARSE_WIDE, order="pairwise", chunk=16),
        MacUnit(accumulate=examples.COARSE, order="chunked", chunk=32, width=4),
        MacUnit(accumulate=translated.SHIFTING),
        MacUnit(unit=examples.PAIRS4),
        MacUnit(unit=ProcessingUnit("tree16", examples.COARSE, lanes=16)),
    ],
    ids=str,
)
def test_products_have_the_bits_of_the_cpu(mac: MacUnit) -> None:
    torch.manual_seed(0)
    a, b = torch.randn(3, 70, 90) * 2, torch.randn(3, 90, 65) * 2
    on_cpu, on_gpu = (matmul(a.to(d), b.to(d), mac, key=Key(1, 2, "x")).cpu() for d in ("cpu", "cuda"))
    assert torch.equal(on_cpu, on_gpu)
    assert on_cpu.any()


def test_tables_and_compiled_functions_give_the_same_codes() -> None:
    torch.manual_seed(0)
    mac = MacUnit(accumulate=USER_E4M3)
    left, right = (encode(torch.randn(1, 128, 128), USER_E4M3).cuda() for _ in range(2))
    sums = Sums.of(mac, USER_E4M3, 128)
    kernel = user_gpu._compiled(mac, 1, False)
    assert kernel is not None
    tables = user_gpu._by_tables(left, right, mac, USER_E4M3, sums)
    assert torch.equal(tables, user_gpu._by_kernel(left, right, kernel, mac, sums, None))


@pytest.mark.parametrize(
    ("fmt", "names"),
    [
        (USER_E4M3, "add sub mul div sqrt maximum exp"),
        (translated.ODDITIES, "add mul"),
        (translated.LOOPING, "add mul div"),
        (examples.WIDE, "add mul sub"),
    ],
    ids=str,
)
def test_steps_have_the_bits_of_the_cpu(fmt, names: str) -> None:
    torch.manual_seed(0)
    x, y = torch.randn(5000) * 10, torch.randn(5000)
    for name in names.split():
        operands = (x,) if name in ("sqrt", "exp") else (x, y)
        on_cpu, on_gpu = (user_step(fmt, name, tuple(o.to(d) for o in operands)).cpu() for d in ("cpu", "cuda"))
        assert torch.equal(on_cpu.nan_to_num(7.0), on_gpu.nan_to_num(7.0)), name


def test_conversion_has_the_bits_of_the_cpu() -> None:
    x = torch.randn(100_000) * torch.logspace(-4, 4, 100_000)
    for fmt in (USER_E4M3, translated.NEAREST, examples.WIDE):
        assert torch.equal(quantize(x, fmt), quantize(x.cuda(), fmt).cpu())


def spelled(a, b):
    return min(int(str(a)) + b, 255)


@pytest.mark.filterwarnings("ignore:spelling. `add` cannot be compiled .*it runs in Python")
def test_a_function_outside_of_the_language_runs_on_the_cpu_with_a_warning() -> None:
    fmt = replace(examples.WIDE, name="spelling", add=spelled)
    x = torch.randn(100).cuda()
    line = spelled.__code__.co_firstlineno + 1
    with pytest.warns(UserWarning, match=rf"`add` cannot be compiled .*line {line}: the call of str.*on the CPU"):
        found = user_step(fmt, "add", (x, x))
    assert torch.equal(found.cpu(), user_step(fmt, "add", (x.cpu(), x.cpu())))


def test_codes_outside_the_fields_are_refused() -> None:
    fmt = replace(examples.WIDE, name="far_outside", add=examples.too_large)
    with pytest.raises(Exception, match="must give codes from 0 to"):
        user_step(fmt, "add", (torch.ones(3).cuda(), torch.ones(3).cuda()))
