"""Models in torch's wrappers: DDP, FSDP and torch.compile change neither the bits nor the names of layers."""

import copy
import subprocess
import sys
import warnings
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
import torch
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel
from torch.overrides import _get_current_function_mode_stack

from presilicon.base import ConfigError
from presilicon.designs import LossScale, Numerics, Override, RoleFormat
from presilicon.emulation import LossScaler, emulate_, emulate_optimizer_, restore_
from presilicon.emulation.attach import emulation_of
from presilicon.formats import MacUnit, parse
from presilicon.workloads import ends_of

FP8 = Numerics(
    weight="e4m3", activation="e4m3", error="e5m2", gradient="bfloat16", master="bfloat16", state="bfloat16",
    overrides=(
        Override(layers="0", weight="bfloat16", master="float32"),
        Override(layers="last", activation="float16"),
    ),
)  # fmt: skip
SUMS = Numerics(mac=MacUnit(accumulate=parse("bfloat16")))


def make() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))


def outputs(model: nn.Module, numerics: Numerics) -> list[torch.Tensor]:
    """The outputs of three steps of an emulated model; two of them follow an update."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    emulate_optimizer_(optimizer, numerics, model=model)
    results = []
    for step in range(3):
        optimizer.zero_grad()
        out = model(torch.randn(4, 8, generator=torch.Generator().manual_seed(step)))
        out.square().mean().backward()
        optimizer.step()
        results.append(out.detach())
    return results


def shard(model: nn.Module) -> nn.Module:
    fully_shard(model[0])
    return fully_shard(model)


def fsdp1(model: nn.Module, **options) -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return FullyShardedDataParallel(model, device_id=torch.device("cpu"), **options)


WRAPPERS: dict[str, Callable[[nn.Module], nn.Module]] = {
    "ddp": DistributedDataParallel,
    "fsdp1": lambda model: fsdp1(model, use_orig_params=True),
    "fsdp1 flat": fsdp1,
    "fsdp2": shard,
}


def shards_draw_alike() -> bool:
    """Whether the parts of a distributed weight, equal before, are equal after stochastic rounding."""
    numerics = Numerics(master=RoleFormat(parse("bfloat16"), "stochastic"))
    model = nn.Linear(64, 8, bias=False)
    nn.init.ones_(model.weight)
    model = emulate_(fully_shard(model), numerics)
    optimizer = emulate_optimizer_(torch.optim.SGD(model.parameters(), lr=2.0**-11), numerics, model=model)
    model(torch.ones(1, 64)).sum().backward()
    optimizer.step()
    first, second = model.weight.full_tensor().chunk(2)
    assert not torch.equal(first, torch.ones_like(first))
    return torch.equal(first, second)


def scaler_skips_alone() -> bool:
    """Whether a gradient that is infinite in one process's part makes only that process skip the update."""
    numerics = Numerics(loss_scale=LossScale(kind="dynamic", initial=8.0))
    model = fully_shard(emulate_(nn.Linear(4, 2, bias=False), numerics))
    optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.1), LossScaler(model)
    scaler.scale((model(torch.ones(1, 4)) * torch.tensor([1.0, float("inf")])).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    return scaler.skipped != (0,) or scaler.get_scale() != 4.0


SIZES = {"a": 1.0, "b": 10.0, "c": 100.0}


class Experts(nn.ModuleDict):
    """Layers that see inputs of other sizes; the argument names those that run, in their order."""

    def __init__(self) -> None:
        super().__init__({name: nn.Linear(2, 2) for name in SIZES})

    def forward(self, names: str, size: float) -> torch.Tensor:
        return sum(self[name](torch.full((1, 2), size * SIZES[name])) for name in names)


def histories_mix(rank: int) -> bool:
    """Whether layers that the processes run in another order, or alone, follow the magnitudes of other layers."""
    role = RoleFormat(parse("scaled(element=e4m3fn)"), amax_history=4)
    model = emulate_(Experts(), Numerics(activation=role))
    if rank == 0:
        with torch.no_grad():
            model("b", 1.0)
    for _ in range(3):
        model(("ab", "bac")[rank], 1.0 + rank)
    (table,) = emulation_of(model).amax.state_dict().values()
    magnitudes = dict(zip(table["names"], table["in_use"].tolist(), strict=True))
    return magnitudes != {f"{name}/0/activation/": 2 * size for name, size in SIZES.items()}


def differing(rank: int, store: str) -> list[str]:
    """Wrappers under which two processes compute other bits than one does without a wrapper."""
    shared = distributed.FileStore(store, 2)
    distributed.init_process_group("gloo", store=shared, rank=rank, world_size=2, timeout=timedelta(seconds=60))
    names = []
    for numerics in (FP8, SUMS):
        expected = outputs(emulate_(make(), numerics), numerics)
        for name, wrap in WRAPPERS.items():
            # The parameters of a flat FSDP1 belong to no layer.
            used = numerics if name != "fsdp1 flat" or numerics is SUMS else Numerics(weight="e4m3", error="e5m2")
            wanted = expected if used is numerics else outputs(emulate_(make(), used), used)
            for order in ("before", "after"):
                model = wrap(emulate_(make(), used)) if order == "before" else emulate_(wrap(make()), used)
                if not all(map(torch.equal, outputs(model, used), wanted)):
                    names.append(f"{name} {order}")
    names += ["shards"] if shards_draw_alike() else []
    names += ["scaler"] if scaler_skips_alone() else []
    names += ["histories"] if histories_mix(rank) else []
    distributed.destroy_process_group()
    return names


def test_distributed_training_computes_the_same_bits(tmp_path: Path) -> None:
    # It leaves at once: threads of torch.distributed that end together with the interpreter sometimes abort it.
    code = "import os, sys, runpy; os._exit(len(runpy.run_path(sys.argv[1])['differing'](1, sys.argv[2])))"
    store = str(tmp_path / "store")
    other = subprocess.Popen([sys.executable, "-W", "ignore", "-c", code, __file__, store])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert differing(0, store) == []
    assert other.wait(60) == 0


@pytest.mark.parametrize("order", ["before", "after"])
@pytest.mark.filterwarnings("ignore")
def test_tensor_parallel_layers_are_refused_before_they_compute(order: str, tmp_path: Path) -> None:
    distributed.init_process_group(
        "gloo", store=distributed.FileStore(str(tmp_path / "store"), 1), rank=0, world_size=1
    )
    try:
        mesh = init_device_mesh("cpu", (1,))
        model = make()
        emulate_(model, FP8) if order == "before" else None
        model = parallelize_module(model, mesh, {"2": ColwiseParallel()})
        with pytest.raises(ConfigError, match='layer "2": weight is a distributed tensor'):
            model(torch.randn(4, 8)) if order == "before" else emulate_(model, FP8)
        assert (emulation_of(model) is None) == (order == "after")
        assert not _get_current_function_mode_stack()
    finally:
        distributed.destroy_process_group()


def compiled(model: nn.Module) -> nn.Module:
    return torch.compile(model, backend="eager")


@pytest.mark.parametrize("wrap", [nn.DataParallel, compiled, lambda model: compiled(nn.DataParallel(model))])
def test_layers_have_their_own_names_in_a_wrapper(wrap) -> None:
    model = wrap(make())
    assert ends_of(model) == ends_of(make())
    emulation = emulation_of(emulate_(model, FP8))
    plans = [str(emulation.plan(layer).numerics.weight) for layer in ("0", "2")]
    assert plans == ["bfloat16", "e4m3"]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    emulate_optimizer_(optimizer, FP8, model=model)
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, 1 / 3)
    optimizer.step()
    weights = [parameter for parameter in model.parameters() if parameter.dim() == 2]
    assert [torch.equal(weight, weight.bfloat16().float()) for weight in weights] == [False, True]


def make_plain() -> nn.Module:
    model = compiled(make())
    model(torch.randn(4, 8))
    return model


@pytest.mark.parametrize("how", ["another", "the same", "a part", "restored", "copied"])
def test_code_that_was_compiled_for_a_model_is_not_run_for_one_that_is_emulated(how: str) -> None:
    x, plain, expected = torch.randn(4, 8), make()(torch.ones(4, 8)), None
    model = make_plain()
    if how == "another":
        model = compiled(emulate_(make(), FP8))
    elif how == "a part":
        part = make()
        emulate_(part[2], Numerics(weight="e4m3", activation="e4m3"))
        expected, model = part(x), compiled(part)
    elif how == "restored":
        compiled(emulate_(make(), FP8))(x)
        expected, model = restore_(emulate_(make(), FP8))(x), restore_(emulate_(model, FP8))
    else:
        model = emulate_(model, FP8)
        model = compiled(copy.deepcopy(model._orig_mod)) if how == "copied" else model
    expected = emulate_(make(), FP8)(x) if expected is None else expected
    assert torch.equal(model(x), expected)
    assert torch.equal(model(x), expected)
    assert torch.equal(make_plain()(torch.ones(4, 8)), plain), "nor the other way around"
