"""The instructions of firmware: names, the blocks they run in, their operands."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from presilicon.base import ConfigError, did_you_mean

CONDITIONS = ("first", "notfirst", "last", "notlast")
"""Conditions of level 0; `@1` makes them those of level 1. Bits 0-3 of a mask in this order, bits 4-7 for level 1."""
FUNCTIONS = ("sum", "product", "max", "min")
ALU = {"vv_add": "add", "vv_sub": "sub", "vv_mul": "mul", "vv_max": "max", "vv_min": "min", "v_abs": "abs"}
"""Function of the vector unit for each instruction."""


class Instruction(Struct, frozen=True):
    """One instruction. Fields that its operation does not have keep their defaults.

    >>> str(Instruction("vv_add", addr=2, conditions=("notfirst",)))
    'vv_add(2, notfirst)'
    """

    op: str
    addr: int = 0
    """A row of ranges (`vv_filter`) or of the scratchpad."""
    axis: str = "M"
    """Axis of `m_reduce`: "M" counts lanes for each range, "N" counts ranges for each lane."""
    size: int | str = "N"
    """Words that `v_commit` sends: 1, M or N, as a number or a letter."""
    function: str = "sum"
    """Function of `v_reduce`: sum, product, max, min."""
    conditions: tuple[str, ...] = ()

    def __str__(self) -> str:
        shown = [str(getattr(self, name)) for name in OPERATIONS[self.op].takes if name != "conditions"]
        return f"{self.op}({', '.join([*shown, *self.conditions])})"


class Operation(Struct, frozen=True):
    """Block that an instruction runs in, its stage within that block, and its operands."""

    block: str
    stage: int
    takes: tuple[str, ...] = ()


OPERATIONS = {
    "vv_filter": Operation("filter_reduce", 0, ("addr",)),
    "m_reduce": Operation("filter_reduce", 1, ("axis",)),
    "v_mc_load": Operation("vector_alu", 0),
    **{op: Operation("vector_alu", 1, ("addr", "conditions")) for op in ALU if op != "v_abs"},
    "v_abs": Operation("vector_alu", 1, ("conditions",)),
    "v_cache": Operation("vector_alu", 2, ("addr", "conditions")),
    "v_mc_save": Operation("vector_alu", 2),
    "v_reduce": Operation("scalar_reduce", 0, ("function",)),
    "v_commit": Operation("packer", 0, ("size", "conditions")),
}
"""Instructions of the same block and stage exclude each other, apart from `v_cache` and `v_mc_save`."""


def location(chain: int, instruction: int | None = None, op: str = "") -> str:
    """Location in a firmware for error messages, counted from 1: `chain 2, instruction 3 (vv_add)`."""
    if instruction is None:
        return f"chain {chain + 1}"
    return f"chain {chain + 1}, instruction {instruction + 1}" + (f" ({op})" if op else "")


def read_chains(data: Any) -> tuple[tuple[Instruction, ...], ...]:
    """Chains of instructions from a JSON document: a list of lists of objects.

    >>> read_chains([[{"op": "v_commit", "size": 1, "conditions": "last"}]])
    ((Instruction(op='v_commit', addr=0, axis='M', size=1, function='sum', conditions=('last',)),),)

    Raises:
        ConfigError: with the chain and the instruction, counted from 1.
    """
    if not isinstance(data, list):
        raise ConfigError(f"firmware is {_shown(data)}, expected a list of chains, each a list of instructions")
    chains = []
    for chain, items in enumerate(data):
        if not isinstance(items, list):
            raise ConfigError(f"{location(chain)}: {_shown(items)}, expected a list of instructions")
        chains.append(tuple(read_instruction(item, chain, index) for index, item in enumerate(items)))
    return tuple(chains)


def read_instruction(data: Any, chain: int, index: int) -> Instruction:
    """One instruction of a JSON document."""
    where = location(chain, index)
    if not isinstance(data, Mapping):
        raise ConfigError(f'{where}: {_shown(data)}, expected an object like {{"op": "vv_add", "addr": 0}}')
    op = data.get("op")
    if "op" not in data:
        raise ConfigError(f'{where}: the required key "op" is missing. Allowed: {", ".join(OPERATIONS)}')
    if not isinstance(op, str) or op not in OPERATIONS:
        raise ConfigError(f"{where}: unknown op {_shown(op)}: {did_you_mean(str(op), OPERATIONS)}")
    where = location(chain, index, op)
    takes = OPERATIONS[op].takes
    for key in data:
        if key not in ("op", *takes) and not (key == "conditions" and data[key] in ([], None)):
            raise ConfigError(f'{where}: takes no "{key}": {did_you_mean(str(key), ("op", *takes))}')
    if "axis" in takes and "axis" not in data:
        raise ConfigError(f'{where}: the required key "axis" is missing. Allowed: M, N')
    fields = {key: data[key] for key in takes if key in data}
    if "conditions" in fields:
        fields["conditions"] = _conditions(fields["conditions"], where)
    _check_types(fields, where)
    return Instruction(op, **fields)


def _check_types(fields: Mapping[str, Any], where: str) -> None:
    addr = fields.get("addr", 0)
    if not isinstance(addr, int) or isinstance(addr, bool):
        raise ConfigError(f"{where}: addr is {_shown(addr)}, expected a row number")
    size = fields.get("size", "N")
    if not isinstance(size, int | str) or isinstance(size, bool):
        raise ConfigError(f'{where}: size is {_shown(size)}, expected 1, M or N, as a number or "M", "N"')
    for name in ("axis", "function"):
        if name in fields and not isinstance(fields[name], str):
            allowed = FUNCTIONS if name == "function" else ("M", "N")
            raise ConfigError(f"{where}: {name} is {_shown(fields[name])}. Allowed: {', '.join(allowed)}")


def _conditions(value: Any, where: str) -> tuple[str, ...]:
    names = [value] if isinstance(value, str) else value
    if names is None:
        return ()
    if not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        raise ConfigError(f"{where}: conditions is {_shown(value)}, expected a list of {', '.join(CONDITIONS)}")
    return tuple(names)


def condition_mask(conditions: Sequence[str]) -> int:
    """Conditions as bits 0-3 (level 0) and 4-7 (level 1).

    >>> condition_mask(["notfirst", "last@1"])
    66

    Raises:
        ConfigError: a condition is unknown, or two can never hold together.
    """
    mask = 0
    for condition in conditions:
        if not isinstance(condition, str):
            raise ConfigError(f"a condition is {_shown(condition)}, expected one of {', '.join(CONDITIONS)}")
        name, at, level = condition.partition("@")
        if name not in CONDITIONS or (at and level not in ("0", "1")):
            raise ConfigError(f'unknown condition "{condition}": {did_you_mean(name, CONDITIONS)}, each with @1 or not')
        mask |= 1 << CONDITIONS.index(name) + (4 if level == "1" else 0)
    for bit in (0, 2, 4, 6):
        if mask >> bit & 3 == 3:
            pair = " and ".join(condition_names(mask & 3 << bit))
            raise ConfigError(f"{pair} never hold together: this would never run")
    return mask


def condition_names(mask: int) -> tuple[str, ...]:
    """The conditions of a mask.

    >>> condition_names(66)
    ('notfirst', 'last@1')
    """
    names = [*CONDITIONS, *(f"{name}@1" for name in CONDITIONS)]
    return tuple(name for bit, name in enumerate(names) if mask >> bit & 1)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
