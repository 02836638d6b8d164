"""Delayed scaling: the scale of a tensor follows the largest magnitudes that it had in earlier passes."""

from collections.abc import Iterable
from copy import deepcopy
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from presilicon.base import ConfigError
from presilicon.designs import RoleFormat
from presilicon.formats import Scaled

_STALE = (
    "delayed scales follow earlier training passes, and this copy of the model (as in AveragedModel) {}; load those of "
    "the trained model: averaged.module.load_state_dict(entry, strict=False) with entry = "
    '{{"presilicon_state": model.state_dict()["presilicon_state"]}}'
)


class AmaxHistories:
    """Largest magnitudes of the tensors of a model over their last passes, and the one that each scale follows.

    The semantics are those of Transformer Engine's `DelayedScaling`: a pass records magnitudes while it uses the scales
    of the passes before, a tensor that was not seen yet has the scale 1, and magnitudes that are zero or not finite
    leave a scale as it is. All tensors stay on their device, and no pass waits for the host, except in a distributed
    run: there the processes first agree on the tensors, because each may have run other layers, or in another order.
    """

    def __init__(self) -> None:
        self._tables: dict[str, _Table] = {}
        self._order: Tensor | None = None
        """The rows of all tables in the order that the processes agreed on."""
        self._lacks_passes = False
        """Whether this is a copy of histories that had recorded nothing, and has recorded nothing since."""
        self._is_copy = False
        """Whether this is a copy that has recorded nothing since it was made."""
        self._writes: int | None = 0
        """Writes to the weights that the scales of a copy belong to; None right after they were loaded."""

    def __deepcopy__(self, memo: dict[int, Any]) -> "AmaxHistories":
        fresh = memo[id(self)] = AmaxHistories()
        fresh._tables, fresh._order = deepcopy((self._tables, self._order), memo)
        fresh._is_copy = True
        fresh._lacks_passes = not any(bool(table.history.any() | table.in_use.any()) for table in self._tables.values())
        return fresh

    def scale_amax(self, name: str, x: Tensor, role_format: RoleFormat, *, record: bool) -> Tensor:
        """The magnitude that the scale of tensor `name` follows in this pass; `record` that of `x` for later ones.

        Raises:
            ConfigError: a copy that was made before the first pass is evaluated, as torch's `AveragedModel` does.
        """
        if self._lacks_passes and not record:
            raise ConfigError(f'layer "{name.partition("/")[0]}": {_STALE.format("was made before the first")}')
        self._lacks_passes = False
        self._is_copy = self._is_copy and not record
        fmt, rule = role_format.format, role_format.amax_rule or "max"
        assert isinstance(fmt, Scaled)
        key = f"{role_format.amax_history} {rule} {x.device}"
        table = self._tables.get(key)
        if table is None:
            assert role_format.amax_history is not None
            table = self._tables[key] = _Table(role_format.amax_history, rule, x.device)
        row = table.row(name)
        if record:
            table.history[row, 0] = torch.maximum(table.history[row, 0], fmt.amax_of(x))
        return table.in_use[row]

    def check_weights(self, weights: Iterable[Tensor]) -> None:
        """Check, before an evaluation, that a copy has the weights with which it was made: its scales are of those.

        Raises:
            ConfigError: they were written to, as those of torch's `AveragedModel` are.
        """
        if not self._is_copy or self._lacks_passes:
            return
        writes = sum(weight._version for weight in weights)
        self._writes = writes if self._writes is None else self._writes
        if writes != self._writes:
            raise ConfigError(_STALE.format("has got other weights since it was made"))

    def advance(self) -> None:
        """Begin a pass: scales follow what the passes before it recorded."""
        if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
            self._share()
        for table in self._tables.values():
            table.advance()

    def state_dict(self) -> dict[str, Any]:
        """Names, histories and the magnitudes in use."""
        return {
            key: {"names": list(table.rows), "history": table.history.cpu(), "in_use": table.in_use.cpu()}
            for key, table in self._tables.items()
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved state."""
        self._tables, self._order, self._lacks_passes, self._writes = {}, None, False, None
        for key, saved in state.items():
            length, rule, device = key.split()
            table = self._tables[key] = _Table(int(length), rule, torch.device(device))
            table.rows = {name: row for row, name in enumerate(saved["names"])}
            table.history, table.in_use = (saved[part].to(table.in_use.device) for part in ("history", "in_use"))

    def _share(self) -> None:
        """Replace the magnitudes of the pass that ends by the largest of all processes."""
        device = _communication_device() if not self._tables else next(iter(self._tables.values())).history.device
        sizes = [len(table.rows) for table in self._tables.values()]
        is_changed = torch.tensor(float(self._order is None or len(self._order) != sum(sizes)), device=device)
        dist.all_reduce(is_changed, dist.ReduceOp.MAX)
        if is_changed.item():
            self._agree(device)
            sizes = [len(table.rows) for table in self._tables.values()]
        order = self._order
        assert order is not None
        if not len(order):
            return
        columns = torch.cat([table.history[:, 0].to(device) for table in self._tables.values()])
        largest = columns[order]
        dist.all_reduce(largest, dist.ReduceOp.MAX)
        columns[order] = largest
        for table, column in zip(self._tables.values(), columns.split(sizes), strict=True):
            table.history[:, 0] = column.to(table.history.device)

    def _agree(self, device: torch.device) -> None:
        """Give every tensor that a process knows a row in all of them, and sort the rows by name."""
        own = set(self._names())
        gathered: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(gathered, own)
        union = sorted(set().union(*gathered))
        for length, rule, name in (tensor for tensor in union if tensor not in own):
            key = f"{length} {rule} {device}"
            self._tables.setdefault(key, _Table(length, rule, device)).row(name)
        rows = {name: row for row, name in enumerate(self._names())}
        self._order = torch.tensor([rows[name] for name in union], dtype=torch.long, device=device)

    def _names(self) -> list[tuple[int, str, str]]:
        """Length of history, rule and name of every row, in the order of the tables."""
        return [(table.history.shape[1], table.rule, name) for table in self._tables.values() for name in table.rows]


def _communication_device() -> torch.device:
    """A device whose tensors the processes can exchange."""
    return torch.device("cuda", torch.cuda.current_device()) if "nccl" in dist.get_backend() else torch.device("cpu")


class _Table:
    """The tensors with histories of one length on one device: a row each, the running pass in its first column."""

    def __init__(self, length: int, rule: str, device: torch.device) -> None:
        self.rows: dict[str, int] = {}
        self.history = torch.zeros(0, length, device=device)
        self.in_use = torch.zeros(0, device=device)
        self.rule = rule

    def row(self, name: str) -> int:
        row = self.rows.get(name)
        if row is None:
            row = self.rows[name] = len(self.rows)
            self.history = torch.cat((self.history, self.history.new_zeros(1, self.history.shape[1])))
            self.in_use = torch.cat((self.in_use, self.in_use.new_zeros(1)))
        return row

    def advance(self) -> None:
        """Take the scales from the histories and make room for the next pass, in rows that recorded something."""
        history, current = self.history, self.history[:, 0]
        amax = history.amax(1) if self.rule == "max" else current
        self.in_use.copy_(torch.where(amax.isfinite() & (amax > 0), amax, self.in_use))
        rolled = history.roll(-1, 1)
        rolled[:, 0] = 0
        history.copy_(torch.where((current != 0).unsqueeze(1), rolled, history))
