"""Models that nobody here wrote train emulated; docs/emulation.md shows the table that these tests check.

`python -m tests.cross.emulation.test_published_models` prints the table.
"""

import copy
import io
from pathlib import Path
from unittest import mock

import pytest
import torch
from ml_dtypes import float8_e4m3fn, float8_e5m2
from tests.cross.emulation.published_models import MODELS, Published, loss_of, make
from torch import Tensor, nn
from torch.nn import functional
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from presilicon.designs import Numerics, RoleFormat
from presilicon.emulation import coverage, emulate_, mode
from presilicon.formats import parse

DOCS = Path(__file__).parents[3] / "docs" / "emulation.md"
NUMERICS = Numerics(weight="e4m3fn", activation="e4m3fn", error="e5m2", gradient="bfloat16")
DRAWN = Numerics(weight="e4m3fn", activation="e4m3fn", error=RoleFormat(parse("e5m2"), rounding="stochastic"))
HEADER = (
    "| model | uncovered share of FLOPs | float32 equal to torch | products in a step | with operands in their formats "
    "| resumed to the same bits |\n|---|---|---|---|---|---|"
)

pytestmark = pytest.mark.filterwarnings("ignore")  # of the libraries: missing optional kernels, deprecated names


class OperandSpy(TorchDispatchMode):
    """Counts the matrix products of a step, and those that have an operand outside of the 8-bit formats.

    Products are the operators to which torch's own FLOP counter gives FLOPs, and those that it does not know: grouped
    and sparse ones, and fused attention on the CPU.
    """

    NAMES = frozenset(packet.__name__ for packet in flop_registry) | {"_grouped_mm", "_sparse_addmm", "_sparse_mm"}

    def __init__(self) -> None:
        super().__init__()
        self.products = self.wide = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func._schema.name.partition("::")[2]
        tensors = [leaf for leaf in pytree.tree_leaves(args) if isinstance(leaf, Tensor) and leaf.is_floating_point()]
        if name.startswith(("grouped_mm", "_scaled_dot_product")) or (name in self.NAMES and len(tensors) > 1):
            self.products += 1
            skipped = 1 if name in ("addmm", "baddbmm", "_sparse_addmm") else 0  # the addend
            count = 3 if name == "convolution_backward" else 2
            self.wide += not all(map(is_narrow, tensors[skipped : skipped + count]))
        return func(*args, **(kwargs or {}))


def is_narrow(tensor: Tensor) -> bool:
    array = (tensor.to_dense() if tensor.layout is not torch.strided else tensor).detach().numpy()
    return any((array == array.astype(kind).astype("float32")).all() for kind in (float8_e4m3fn, float8_e5m2))


def spied(published: Published) -> OperandSpy:
    with OperandSpy() as spy:
        published.loss().backward()
    return spy


def gradients(published: Published) -> list[Tensor]:
    torch.manual_seed(1)
    loss = published.loss()
    loss.backward()
    return [loss.detach(), *(p.grad for p in published.model.parameters() if p.grad is not None)]


def is_equal_in_float32(name: str) -> bool:
    """Loss and all gradients of float32 numerics are those of the model as it was, bit by bit."""
    plain, emulated = make(name), make(name)
    emulate_(emulated.model, Numerics())
    return all(map(torch.equal, gradients(plain), gradients(emulated)))


def train(model: nn.Module, optimizer: torch.optim.Optimizer, batch: dict, steps: range) -> None:
    for step in steps:
        torch.manual_seed(step)  # dropout
        optimizer.zero_grad()
        loss_of(model(**batch)).backward()
        optimizer.step()


def saved(model: nn.Module, optimizer: torch.optim.Optimizer) -> io.BytesIO:
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
    file.seek(0)
    return file


def resumes(name: str) -> bool:
    """Two steps, a checkpoint, a new model that loads it, and one more step: the bits of three steps in a row."""
    straight, stopped = make(name), make(name)
    ends = []
    for published, parts in ((straight, [range(3)]), (stopped, [range(2), range(2, 3)])):
        model = emulate_(published.model, DRAWN, seed=5)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        for index, steps in enumerate(parts):
            if index:
                state = torch.load(saved(model, optimizer))
                model = emulate_(make(name).model, DRAWN, seed=5)
                optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
                model.load_state_dict(state["model"])
                optimizer.load_state_dict(state["optimizer"])
            train(model, optimizer, published.batch, steps)
        ends.append([parameter.detach() for parameter in model.parameters()])
    return all(map(torch.equal, *ends))


def row(name: str) -> str:
    listing = coverage(make(name).model, NUMERICS, make(name).batch, loss=loss_of)
    published = make(name)
    emulate_(published.model, NUMERICS)
    spy = spied(published)
    share = listing.share("uncovered")
    return (
        f"| {name} | {share:.2%} | {_yes(is_equal_in_float32(name))} | {spy.products} | "
        f"{spy.products - spy.wide} | {_yes(resumes(name))} |"
    )


def _yes(is_so: bool) -> str:
    return "yes" if is_so else "no"


@pytest.mark.parametrize("name", MODELS)
def test_a_published_model_trains_as_the_table_says(name: str) -> None:
    pytest.importorskip("diffusers" if "diffusers" in name else "transformers")
    line = row(name)
    assert line in DOCS.read_text(encoding="utf-8"), f"docs/emulation.md should have this line:\n{line}"
    cells = [cell.strip() for cell in line.split("|")][2:-1]
    assert cells == ["0.00%", "yes", cells[2], cells[2], "yes"]


def test_plain_models_have_wide_operands() -> None:
    """The spy can fail."""
    pytest.importorskip("transformers")
    spy = spied(make("Llama"))
    assert spy.wide > 0.9 * spy.products


@pytest.mark.parametrize(
    ("name", "skipped"),
    [
        ("Llama", functional.linear),
        ("Llama", functional.scaled_dot_product_attention),
        ("Mixtral, batched experts", torch.bmm),
        ("ViT", torch.conv2d),
        ("graph convolution network", torch.sparse.mm),
        ("Mamba-2", torch.conv1d),
    ],
)
def test_a_skipped_operator_is_found(name: str, skipped) -> None:
    pytest.importorskip("transformers")
    table = {function: handler for function, handler in mode.product_handlers().items() if function is not skipped}
    assert len(table) == len(mode.product_handlers()) - 1
    published = make(name)
    emulate_(published.model, NUMERICS)
    with mock.patch.object(mode, "product_handlers", return_value=table):
        spy = spied(published)
    assert spy.wide > 0


def test_a_backward_product_that_is_not_rounded_is_found() -> None:
    pytest.importorskip("transformers")
    from presilicon.emulation.site import Site

    published = make("ViT")
    emulate_(published.model, NUMERICS)
    with mock.patch.object(Site, "round", lambda self, tensor, *args, **kwargs: tensor):
        spy = spied(published)
    assert spy.wide > spy.products / 3


def test_a_lost_state_is_found() -> None:
    pytest.importorskip("transformers")
    plain = copy.deepcopy(saved)

    def forgetful(model: nn.Module, optimizer: torch.optim.Optimizer) -> io.BytesIO:
        state = torch.load(plain(model, optimizer))
        state["model"].pop("presilicon_state")
        file = io.BytesIO()
        torch.save(state, file)
        file.seek(0)
        return file

    with mock.patch(f"{__name__}.saved", forgetful):
        assert not resumes("ViT")


if __name__ == "__main__":
    print(HEADER)
    for name in MODELS:
        print(row(name))
