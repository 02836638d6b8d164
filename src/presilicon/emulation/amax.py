"""Delayed scaling: the scale of a tensor follows the largest magnitudes that it had in earlier passes."""

from typing import Any

import torch
from torch import Tensor

from presilicon.designs import RoleFormat
from presilicon.formats import Scaled


class AmaxHistories:
    """Largest magnitudes of the tensors of a model over their last passes, and the one that each scale follows.

    The semantics are those of Transformer Engine's `DelayedScaling`: a pass records magnitudes while it uses the scales
    of the passes before, a tensor that was not seen yet has the scale 1, and magnitudes that are zero or not finite
    leave a scale as it is. All tensors stay on their device, and no pass waits for the host.
    """

    def __init__(self) -> None:
        self._tables: dict[str, _Table] = {}

    def scale_amax(self, name: str, x: Tensor, role_format: RoleFormat, *, record: bool) -> Tensor:
        """The magnitude that the scale of tensor `name` follows in this pass; `record` that of `x` for later ones."""
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

    def advance(self) -> None:
        """Begin a pass: scales follow what the passes before it recorded."""
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
        self._tables = {}
        for key, saved in state.items():
            length, rule, device = key.split()
            table = self._tables[key] = _Table(int(length), rule, torch.device(device))
            table.rows = {name: row for row, name in enumerate(saved["names"])}
            table.history, table.in_use = (saved[part].to(table.in_use.device) for part in ("history", "in_use"))


class _Table:
    """The tensors with histories of one length on one device: a row each, the running pass in its first column."""

    def __init__(self, length: int, rule: str, device: torch.device) -> None:
        self.rows: dict[str, int] = {}
        self.history = torch.zeros(0, length, device=device)
        self.in_use = torch.zeros(0, device=device)
        self._rule = rule

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
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            current = current.contiguous()
            torch.distributed.all_reduce(current, torch.distributed.ReduceOp.MAX)
            history[:, 0] = current
        amax = history.amax(1) if self._rule == "max" else current
        self.in_use.copy_(torch.where(amax.isfinite() & (amax > 0), amax, self.in_use))
        rolled = history.roll(-1, 1)
        rolled[:, 0] = 0
        history.copy_(torch.where((current != 0).unsqueeze(1), rolled, history))
