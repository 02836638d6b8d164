"""The op table: entries by the operators of ATen that capture meets, and by the functions of torch that users call."""

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, NamedTuple

from presilicon.base import ConfigError, ExtensionPoint, torch, unknown
from presilicon.ops.entry import KINDS, Captured, Handling, KindFacts, OpEntry, Statistics, Streaming, Width
from presilicon.records import Op

_REGISTERED: ExtensionPoint[OpEntry] = ExtensionPoint("presilicon.ops", "operator", {}, OpEntry, decides="always")
"""Entries of installed packages, which add operators or replace what is known of one."""
_own: dict[str, OpEntry] = {}
"""Entries that the program has added itself."""


class KnownOperator(NamedTuple):
    """An operator of ATen as the table knows it."""

    entry: OpEntry
    captured: Captured
    is_gradient: bool


class _Table(NamedTuple):
    by_name: Mapping[str, OpEntry]
    by_captured: Mapping[str, KnownOperator]
    by_function: Mapping[str, OpEntry]


def enter(entry: OpEntry) -> OpEntry:
    """Add an entry to the table, or change what is known of an operator, in this process and workers of its studies.

    A package that is installed registers it under the entry point `presilicon.ops` instead, so that every command
    finds it.

    Raises:
        ConfigError: it is no entry, or one with a kind, results, names, a formula or a module that it cannot have.
    """
    if not isinstance(entry, OpEntry):
        raise ConfigError(f"the op table takes an OpEntry, not {type(entry).__name__}")
    for captured in (entry.forward, entry.backward):
        if captured is not None and captured.kind not in KINDS:
            raise unknown("kind of op", captured.kind, list(KINDS))
        if captured is not None and (type(captured.results) is not int or captured.results < 0):
            raise ConfigError(f"{entry.name}: results are a whole number of at least 0, not {captured.results!r}")
        names: object = () if captured is None else captured.names
        if not isinstance(names, tuple):
            raise ConfigError(f"{entry.name}: names are a tuple, as ({names!r},), not {names!r}")
        _check_formula(captured)
    known = entry_named(entry.name)
    if entry.module is not None and known is not None and known.module is None:
        raise ConfigError(
            f"{entry.name} is the op table's name of a function; give the op of {entry.module.__name__} another name"
        )
    _own[entry.name] = entry
    forget()
    return entry


def _check_formula(captured: Captured | None) -> None:
    """Compile the formulas of an operator, so that one that is not in the language is refused here."""
    from presilicon.ops.formulas import compile_formula

    own = None if captured is None else captured.formula
    for formula in () if own is None else (own,) if callable(own) else own.values():
        compile_formula(formula)


def withdraw(name: str) -> None:
    """Remove an entry that `enter` has added."""
    _own.pop(name, None)
    forget()


_followers: list[Callable[[], None]] = []


def entered() -> tuple[OpEntry, ...]:
    """The entries that the program has added itself."""
    return tuple(_own.values())


def follow(clear: Callable[[], None]) -> None:
    """Call a function when the table changes, to clear what was derived from it."""
    _followers.append(clear)


def forget() -> None:
    """Forget what was derived from the table."""
    for clear in (_table.cache_clear, facts_of_op_named.cache_clear, *_followers):
        clear()


@cache
def _table() -> _Table:
    entries: dict[str, OpEntry] = {}
    package = import_module("presilicon.ops.entries")
    modules = [import_module(f"{package.__name__}.{module.name}") for module in iter_modules(package.__path__)]
    listed: list[OpEntry] = [entry for module in modules for entry in module.ENTRIES]
    for entry in listed:
        assert entry.name not in entries, f"two entries are called {entry.name}"
        entries[entry.name] = entry
    for entry in (*_REGISTERED.members().values(), *_own.values()):
        entries[entry.name] = entry
    by_captured: dict[str, KnownOperator] = {}
    by_function: dict[str, OpEntry] = {}
    for entry in entries.values():
        for captured, is_gradient in ((entry.forward, False), (entry.backward, True)):
            if captured is not None:
                by_captured.update(dict.fromkeys(captured.names, KnownOperator(entry, captured, is_gradient)))
        by_function.update(dict.fromkeys(entry.functions, entry))
    return _Table(entries, by_captured, by_function)


def all_entries() -> Iterable[OpEntry]:
    """All entries."""
    return _table().by_name.values()


def entry_named(name: str) -> OpEntry | None:
    """The entry of that name; None if there is none."""
    return _table().by_name.get(name)


def entry_of_function(name: str) -> OpEntry | None:
    """The entry of a function of torch; None if there is none."""
    return _table().by_function.get(name)


def exact_functions() -> dict[str, Callable[[float], float]]:
    """The functions of one number that an operator can replace inside others, as plain Python.

    `softmax.exp` is the exponential inside softmax; `rsqrt` is also the one inside normalizations.
    """
    return {entry.name: entry.exact for entry in all_entries() if entry.exact is not None}


def exact(name: str) -> Callable[[float], float]:
    """The function of one number of that name.

    Raises:
        ConfigError: there is no such function to replace.
    """
    functions = exact_functions()
    if name not in functions:
        raise unknown("function to replace", name, functions)
    return functions[name]


def rectifies(function: str) -> bool:
    """Whether a unit that this function of torch leaves at zero for every sample is dead."""
    entry = entry_of_function(function)
    return entry is not None and entry.is_rectifier


def entry_of_module(module: type) -> OpEntry | None:
    """The entry that a kind of module is as a whole; None if it has none."""
    return next((entry for entry in all_entries() if entry.module is module), None)


def function_names(handling: Handling = "vector") -> tuple[str, ...]:
    """Functions of torch that do not multiply matrices, and that emulation handles in this way."""
    return tuple(name for name, entry in _table().by_function.items() if entry.handling == handling)


def product_names() -> tuple[str, ...]:
    """Matrix products, and functions that contain some or are losses, which a custom operator can replace."""
    return tuple(entry.name for entry in all_entries() if entry.is_product and entry.signature)


def find(name: str) -> KnownOperator | None:
    """The entry of an operator of ATen, by its name without namespace and overload; None if it has none."""
    table = _table().by_captured
    return table.get(name) or table.get(name.strip("_"))


_LIBRARY = ("cudnn_enable", "cudnn_enabled")
"""Arguments by which norms may use a library, which have no meaning for a program."""


def arguments_of(
    entry: OpEntry, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a call in the order in which programs take them."""
    kwargs = {key: value for key, value in kwargs.items() if key not in _LIBRARY}
    if not entry.signature_of_torch or func is not getattr(torch, entry.name, None):
        return args, kwargs
    return (), {**dict(zip(entry.signature_of_torch.split(), args, strict=False)), **kwargs}


class OpFacts(NamedTuple):
    """Facts about an op in a captured step, as cost models need them."""

    name: str
    """Of the operator, without namespace and overload."""
    entry: OpEntry | None
    captured: Captured
    is_gradient: bool
    of_kind: KindFacts

    @property
    def style(self) -> Streaming:
        """How it takes the tiles of other ops, whatever its sizes."""
        return self.captured.style or self.of_kind.style

    @property
    def statistics(self) -> Statistics:
        """The numbers that a normalization's statistics are taken over."""
        return self.captured.statistics

    @property
    def width(self) -> Width:
        """The width that mixed precision gives it."""
        return "" if self.is_in_place else self.captured.width

    @property
    def is_in_place(self) -> bool:
        """Whether it overwrites its first operand."""
        return self.name.endswith("_") and not self.name.endswith("__")


@cache
def facts_of_op_named(operator: str, kind: Any) -> OpFacts:
    """The facts about the captured operator of that name, as in `aten._softmax.default`, and kind."""
    name = operator.partition(".")[2].partition(".")[0] or operator
    is_own = operator.startswith("presilicon.") or "." not in operator
    met = _whole(operator.removeprefix("presilicon.")) if is_own else find(name)
    if met is None:
        return OpFacts(name, None, Captured(names=(name,), kind=kind), name.endswith("_backward"), KINDS[kind])
    return OpFacts(name, met.entry, met.captured, met.is_gradient, KINDS[kind])


def _whole(name: str) -> KnownOperator | None:
    """A pass of a module that is one operator."""
    is_gradient = name.endswith("_backward")
    entry = entry_named(name.removesuffix("_backward"))
    captured = None if entry is None or entry.module is None else entry.backward if is_gradient else entry.forward
    return None if entry is None or captured is None else KnownOperator(entry, captured, is_gradient)


def facts_of_op(op: Op) -> OpFacts:
    """The facts about an op of a captured step."""
    return facts_of_op_named(op.operator, op.kind)


def is_unknown(op: Op) -> bool:
    """Whether an op's operator is one of ATen that nobody entered."""
    return op.operator.startswith("aten.") and facts_of_op(op).entry is None


@cache
def functions(handling: Handling = "vector") -> Mapping[Callable[..., Any], str]:
    """The name of every function of torch that emulation handles in this way, in-place variants included.

    >>> functions()[torch.Tensor.add_], functions()[torch.nn.functional.gelu]
    ('add', 'gelu')
    """
    homes = (torch, torch.Tensor, torch.nn.functional, torch._C._nn, torch.special, torch.linalg)
    table: dict[Callable[..., Any], str] = {}
    for name in function_names(handling):
        spellings = [name] if name.startswith("__") else [name, f"{name}_"]
        for home in homes:
            for spelling in spellings:
                function = getattr(home, spelling, None)
                if callable(function):
                    table[function] = name
    return table


follow(functions.cache_clear)
