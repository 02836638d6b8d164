"""Identity by content: a digest of a Python value that says what it computes, not what it is called.

A function counts by its compiled code, defaults, closure and the globals that it uses, down to the functions and
modules of the user's that these lead to; an object by its class and its state; a path by the contents of the file. What
belongs to an installed package counts by its name and the package's version. Comments, layout, the places of files and
the order of keys do not count.
"""

import dis
import logging
import os
import sys
import types
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from functools import cache, cached_property, partial
from importlib import import_module
from inspect import getattr_static
from pathlib import Path, PurePath
from typing import Any, NamedTuple

from presilicon.base.fingerprints import array_content, hashed, is_file, path_content
from presilicon.base.installed import is_installed, package_of

_DEPTH = 20_000
"""Python calls within one walk."""

_DYNAMIC = {
    "getattr", "globals", "vars", "eval", "exec", "__import__", "import_module", "attrgetter", "methodcaller",
    "getmembers", "__dict__",
}  # fmt: skip
"""Functions and attributes through which code reaches names that do not stand in it."""
_OWN = {"globals", "eval", "exec", "modules"}
"""Those through which it reaches names of its own module."""
_PLACES = {"__file__", "__name__", "__package__", "__spec__", "__loader__", "__cached__", "__path__"}
"""Global names that say where code stands."""
_CLASS_INTERNALS = {
    "__module__", "__doc__", "__dict__", "__weakref__", "__qualname__", "__firstlineno__", "__static_attributes__",
    "__annotations__", "__annotate__", "__annotate_func__", "__annotations_cache__", "__slots__", "__slotnames__",
}  # fmt: skip
_PLAIN = (type(None), type(...), bool, int, float, complex, str, bytes)
_CACHED = type(cache(len))
_SLOTS = (types.MemberDescriptorType, types.GetSetDescriptorType, types.WrapperDescriptorType)
_LONGEST_PLACE = 200
"""Characters of a place in the walk, which messages name."""
EMPTY = "__empty__"
"""Where a module may say which of its names stood for nothing, or for an empty container, when it had been run.

What code puts there later, such as data that it keeps, is made by what counts, and does not count itself.
"""


class Content(NamedTuple):
    """The content of a value."""

    digest: str
    unknown: tuple[str, ...] = ()
    """Parts that have no content which could be compared, such as an open socket: their place and type."""
    modules: frozenset[str] = frozenset()
    """Modules outside of installed packages whose code counts."""


def content_of(value: Any, name: str = "value") -> Content:
    """The content of a value, which messages call `name`.

    >>> content_of(partial(int, base=2)).digest == content_of(partial(int, base=2)).digest
    True
    >>> content_of(partial(int, base=2)).digest == content_of(partial(int, base=8)).digest
    False
    >>> content_of({"numbers": (number for number in "12")}, "model").unknown
    ("model['numbers'] (generator)",)
    """
    walk = _Walk()
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, _DEPTH))  # functions may call each other in long chains
    try:
        digest = walk.digest(value, name)
    finally:
        sys.setrecursionlimit(limit)
    return Content(digest, tuple(dict.fromkeys(walk.unknown)), frozenset(walk.modules))


class _Walk:
    """One walk over a value; equal parts are visited once."""

    def __init__(self) -> None:
        self.unknown: list[str] = []
        self.modules: set[str] = set()
        self._finished: dict[int, tuple[Any, str]] = {}
        self._open: list[int] = []
        self._lenient: dict[int, tuple[Any, str]] = {}
        """Finished parts of modules that count as a whole; those that cannot be compared are not named there."""
        self._whole: dict[int, list[str]] = {}

    def digest(self, value: Any, where: str) -> str:
        """The digest of a part of the value, which stands at `where`."""
        if type(value) in _PLAIN:
            return hashed(type(value).__name__, repr(value))
        if len(where) > _LONGEST_PLACE:  # places are for messages, and a long way down would make each very long
            where = f"{where[: _LONGEST_PLACE // 2]}...{where[-_LONGEST_PLACE // 4 :]}"
        key = id(value)
        if key in self._finished:
            return self._finished[key][1]
        if key in self._open:
            return hashed("cycle", str(len(self._open) - self._open.index(key)))
        self._open.append(key)
        try:
            found = self._of_kind(value, where)
        except RecursionError:
            found = self._give_up(value, where)
        finally:
            self._open.pop()
        self._finished[key] = value, found  # the value is held, so that its id stays its own
        return found

    def _of_kind(self, value: Any, where: str) -> str:
        match value:
            case list() | tuple() if type(value) in (list, tuple):
                parts = [self.digest(part, f"{where}[{index}]") for index, part in enumerate(value)]
                return hashed(type(value).__name__, *parts)
            case dict() | types.MappingProxyType() if type(value) in (dict, types.MappingProxyType):
                return hashed("dict", *self._items(value, where))
            case set() | frozenset():
                return hashed("set", *sorted(self.digest(part, where) for part in sorted(value, key=_place_in_set)))
            case PurePath():
                return hashed("path", path_content(Path(value)))
            case partial():
                named = {name: self._argument(part, f"{where}: {name}") for name, part in value.keywords.items()}
                parts = [self._argument(part, f"{where}: argument {number}") for number, part in enumerate(value.args)]
                pairs = [part for name in sorted(named) for part in (name, named[name])]
                return hashed("partial", self.digest(value.func, where), *parts, "keywords", *pairs)
            case types.FunctionType():
                return self._function(value, where)
            case types.MethodType():
                return hashed("method", self.digest(value.__func__, where), self.digest(value.__self__, where))
            case types.BuiltinFunctionType() | types.MethodDescriptorType() | types.MethodWrapperType():
                return self._builtin(value, where)
            case type():
                return self._class(value, where)
            case types.ModuleType():
                return self._module(value, None, where)
            case types.CodeType():
                return hashed("code", *self._instructions(value, where))
            case property():
                accessors = [self.digest(part, where) for part in (value.fget, value.fset, value.fdel)]
                return hashed("property", *accessors)
            case cached_property():
                return hashed("property", self.digest(value.func, where))
            case staticmethod() | classmethod():
                return hashed(type(value).__name__, self.digest(value.__func__, where))
        if isinstance(value, _CACHED):
            return hashed("cached", self.digest(value.__wrapped__, where))
        compiled = getattr_static(value, "py_func", None)  # asking an object may be an error of its own
        if isinstance(compiled, types.FunctionType) and is_installed(type(value).__module__):
            options = self.digest(getattr(value, "targetoptions", None), where)
            return hashed(_qualified(type(value)), self.digest(compiled, where), options)
        array = array_content(value)
        return array if array is not None else self._object(value, where)

    def _items(self, values: Mapping[Any, Any], where: str) -> list[str]:
        """Digests of keys and values, in an order that does not depend on theirs."""
        ordered = sorted(values, key=lambda key: (type(key).__name__, str(key)))
        pairs = [(self.digest(key, where), self.digest(values[key], f"{where}[{key!r}]")) for key in ordered]
        return [part for pair in sorted(pairs) for part in pair]

    def _argument(self, value: Any, where: str) -> str:
        """The digest of an argument; a text that names a file counts by its contents as well."""
        own = self.digest(value, where)
        file = _named_file(value)
        return own if file is None else hashed("file", path_content(file))

    def _function(self, function: types.FunctionType, where: str) -> str:
        module = function.__globals__.get("__name__")  # a decorator may have changed that of the function
        if module is not None and is_installed(module):
            made = self._made(function, where) if "<locals>" in function.__code__.co_qualname else []
            return hashed("function", package_of(module), module, function.__code__.co_qualname, *made)
        self.modules.add(module or "a module without name")
        state = {name: part for name, part in vars(function).items() if name != "__wrapped__"}
        return hashed(
            "function",
            *self._instructions(function.__code__, where),
            *self._made(function, where),
            "globals", *self._globals(function, where),
            "files", *_files_named_in(function.__code__, function.__globals__.get("__file__")),
            "attributes", *self._items(state, where),
        )  # fmt: skip

    def _made(self, function: types.FunctionType, where: str) -> list[str]:
        """The default arguments and the closure of a function."""
        cells = []
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            try:
                cells.append(self._argument(cell.cell_contents, f"{where}: {name}"))
            except ValueError:  # not yet assigned
                cells.append("")
        defaults = [self._argument(part, f"{where}: a default") for part in function.__defaults__ or ()]
        return ["defaults", *defaults, *self._items(function.__kwdefaults__ or {}, where), "closure", *cells]

    def _globals(self, function: types.FunctionType, where: str) -> list[str]:
        """The global names that a function uses, with what they stand for."""
        names = _names_in(function.__code__)
        space, parts = function.__globals__, []
        is_dynamic = bool((names.used | names.attributes) & _DYNAMIC)
        for name in sorted((names.used & space.keys()) - space.get(EMPTY, frozenset())):
            value = space[name]
            if isinstance(value, types.ModuleType):
                is_whole = is_dynamic or name in names.whole
                parts += [name, self._module(value, None if is_whole else names.attributes, where)]
            else:
                parts += [name, "" if name in _PLACES else self._argument(value, f"{where}: {name}")]
        for name, level, variable in sorted(names.imports):
            module = _imported(name, level, space)
            if module is not None:
                is_whole = is_dynamic or variable in names.whole
                parts += [name, self._module(module, None if is_whole else names.attributes | names.used, where)]
        own = sys.modules.get(space.get("__name__", ""))
        if own is not None and (names.used | names.attributes) & _OWN:
            parts += ["own", self._module(own, None, where)]
        return parts

    def _instructions(self, code: types.CodeType, where: str) -> list[str]:
        """A function's compiled code without its docstring, its places in the file and unreachable constants."""
        bytecode = dis.Bytecode(code)
        listed = [each for each in bytecode if each.opname not in ("EXTENDED_ARG", "CACHE", "NOP")]
        offsets = [each.offset for each in listed]
        parts = [str((code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags & 0x2FF))]
        parts += code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        for each in listed:
            if each.opcode in dis.hasconst:
                value = each.argval
                detail = self.digest(value, where) if each.opname != "KW_NAMES" else repr(value)
            elif each.opcode in dis.hasjrel or each.opcode in dis.hasjabs:
                detail = f"to {bisect_left(offsets, each.argval)}"
            elif each.opcode in dis.hasname or each.opcode in dis.haslocal or each.opcode in dis.hasfree:
                detail = f"{each.argval}"
            else:
                detail = f"{each.arg}"
            parts.append(f"{each.opname} {detail}")
        for entry in bytecode.exception_entries:  # type: ignore[attr-defined]
            bounds = [bisect_left(offsets, offset) for offset in (entry.start, entry.end, entry.target)]
            parts.append(f"handler {bounds} {entry.depth} {entry.lasti}")
        return parts

    def _builtin(self, function: Any, where: str) -> str:
        owner = getattr(function, "__self__", None)
        name = f"{getattr(function, '__module__', None)}.{getattr(function, '__qualname__', function.__name__)}"
        if owner is None or isinstance(owner, types.ModuleType | type):
            return hashed("builtin", name)
        return hashed("builtin", name, self.digest(owner, where))

    def _class(self, kind: type, where: str) -> str:
        if is_installed(kind.__module__):
            return hashed("class", package_of(kind.__module__), _qualified(kind))
        self.modules.add(kind.__module__)
        members = [
            (name, self.digest(part, f"{where}: {kind.__qualname__}.{name}"))
            for name, part in sorted(vars(kind).items())
            if name not in _CLASS_INTERNALS and not name.startswith("_abc_") and not isinstance(part, _SLOTS)
        ]
        fields = sorted(vars(kind).get("__annotations__", {}))
        bases = [self.digest(base, where) for base in (*kind.__bases__, type(kind))]
        return hashed("class", kind.__qualname__, *bases, *fields, *[part for pair in members for part in pair])

    def _module(self, module: types.ModuleType, names: Iterable[str] | None, where: str) -> str:
        """The parts of a module that code uses; all of them where `names` is None."""
        if is_installed(module.__name__):
            return hashed("module", package_of(module.__name__), module.__name__)
        self.modules.add(module.__name__)
        empty = vars(module).get(EMPTY, frozenset())
        space = {name: part for name, part in vars(module).items() if not (name.startswith("__") or name in empty)}
        parts: list[str] = []
        if names is None:
            if id(module) not in self._whole:
                self._whole[id(module)] = []  # of one that leads to itself
                quiet = _Walk()  # parts that no code may ever touch are not worth a remark
                quiet._open, quiet.modules = [*self._open, id(module)], self.modules
                quiet._finished = quiet._lenient = self._lenient
                quiet._whole = self._whole
                self._whole[id(module)] = quiet._items(space, where)
            parts = self._whole[id(module)]
        for name in () if names is None else sorted(set(names) & space.keys()):
            value = space[name]
            if isinstance(value, types.ModuleType):
                is_open = id(value) in self._open
                self._open.append(id(value))
                parts += [name, "cycle" if is_open else self._module(value, names, where)]
                self._open.pop()
            else:
                parts += [name, self.digest(value, f"{where}: {module.__name__}.{name}")]
        return hashed("module", *parts)

    def _object(self, value: Any, where: str) -> str:
        """An object by its class and by the state that a copy of it would get."""
        if isinstance(value, logging.Logger):
            return hashed("logger")
        try:
            reduced = value.__reduce_ex__(2)
        except Exception:  # an object may refuse to be copied in a way of its own
            return self._give_up(value, where)
        if isinstance(reduced, str):
            return hashed("object", _qualified(type(value)), reduced)
        rebuild, arguments, state, items, pairs = (*reduced, None, None, None)[:5]
        if isinstance(state, dict):
            parts = [self.digest(rebuild, where), self.digest(arguments, where)]
            for name in sorted(state.keys() - _cached_names(type(value)), key=str):
                parts += [str(name), self.digest(state[name], f"{where}.{name}")]
                if isinstance(state[name], dict):  # such as the layers of a model, which run in their order
                    parts.append(repr([str(key) for key in state[name]]))
        else:
            parts = [self.digest(part, where) for part in (rebuild, arguments, state)]
        parts += [self.digest(part, f"{where}[{index}]") for index, part in enumerate(items or ())]
        if isinstance(value, OrderedDict):
            parts.append(repr([str(key) for key in value]))
        return hashed("object", self.digest(type(value), where), *parts, *self._items(dict(pairs or ()), where))

    def _give_up(self, value: Any, where: str) -> str:
        self.unknown.append(f"{where} ({type(value).__qualname__})")
        return hashed("unknown", _qualified(type(value)))


def _qualified(value: Any) -> str:
    return f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', '')}"


def _cached_names(kind: type) -> frozenset[str]:
    """Names of the properties that a class computes once and keeps in its state."""
    return frozenset(
        name for base in kind.__mro__ for name, part in vars(base).items() if isinstance(part, cached_property)
    )


class _Names(NamedTuple):
    """The names in a function and those inside it."""

    used: set[str]
    """Global names."""
    attributes: set[str]
    imports: set[tuple[str, int, str]]
    """Imported modules with their level, and the variable that stands for each."""
    whole: set[str]
    """Variables that are used for more than their attributes, for example passed on."""


def _names_in(code: types.CodeType) -> _Names:
    names = _Names(set(), set(), set(), set())
    listed = [each for each in dis.get_instructions(code) if each.opname not in ("EXTENDED_ARG", "CACHE", "NOP")]
    level = 0
    for each, after in zip(listed, [*listed[1:], None], strict=True):
        is_constant = each.opcode in dis.hasconst or each.opname == "LOAD_SMALL_INT"
        if each.opname.startswith(("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS")):
            names.used.add(each.argval)
        elif each.opname == "IMPORT_NAME":
            names.imports.add((each.argval, level, str(after.argval) if after is not None else ""))
        elif each.opcode in dis.hasname:
            names.attributes.add(each.argval)
        elif is_constant and type(each.argval) is int:
            level = each.argval  # an import's level is the last number before it
        if each.opname.startswith("LOAD_") and not is_constant:
            variables = each.argval if isinstance(each.argval, tuple) else (each.argval,)
            reads_attribute = after is not None and after.opname in ("LOAD_ATTR", "LOAD_METHOD", "STORE_ATTR")
            names.whole.update(map(str, variables[:-1] if reads_attribute else variables))
        if isinstance(each.argval, types.CodeType):
            for own, inner in zip(names, _names_in(each.argval), strict=True):
                own |= inner  # type: ignore[operator]
    return names


def _place_in_set(part: Any) -> tuple[str, str]:
    """Sort key for visiting the parts of a set, whose own order differs from process to process."""
    return type(part).__name__, repr(part) if type(part) in _PLAIN else _qualified(part)


def _named_file(value: Any, folder: Path = Path()) -> Path | None:
    """The file that a text names, if it does."""
    if not isinstance(value, str) or not 2 < len(value) < 1024 or not ("." in value or os.sep in value):
        return None
    return folder / value if is_file(folder / value) else None


def _files_named_in(code: types.CodeType, module: str | None) -> list[str]:
    """The contents of files that the texts in a function name, from here or from the folder of its module."""
    folders = [Path(), *([Path(module).parent] if module else [])]
    found = []
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found += _files_named_in(constant, module)
        else:
            files = [file for folder in folders if (file := _named_file(constant, folder)) is not None]
            found += [path_content(file) for file in files[:1]]
    return found


def _imported(name: str, level: int, space: Mapping[str, Any]) -> types.ModuleType | None:
    """The module that an import inside a function means; None if there is none, which is the function's own error."""
    package = space.get("__package__") or ""
    try:
        full = f"{'.'.join(package.split('.')[: len(package.split('.')) - level + 1])}.{name}" if level else name
        if is_installed(full.strip(".")) and full not in sys.modules:
            return None
        return import_module(full.strip("."))
    except Exception:  # the code of the imported module may fail in any way
        return None
