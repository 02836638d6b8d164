"""Configuration: from TOML text to frozen structs, with errors that say where, what and what instead.

A struct may offer a shorthand: with the class variable `shorthand = "format"`, the text `weight = "e5m2"` means
`weight = { format = "e5m2" }`. A struct may also set `check()`, called once the whole document has been read, for rules
that span fields. A field whose type is an `Extensible` class takes any member of an extension point, chosen by name.
"""

import json
import math
import re
import tomllib
import types
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cache
from inspect import getdoc
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from presilicon.base.errors import ConfigError, did_you_mean
from presilicon.base.extensions import ExtensionPoint
from presilicon.base.files import read_text

T = TypeVar("T")
Hook = Callable[[type, Any], Any]


class Extensible:
    """Base of structs that a table chooses between by name, as in `kind = "systolic"`, and that packages can add to.

    `members` finds the struct of a name, which is also the struct's tag. The base itself is not a struct, because
    msgspec would then decode a field of this type to the base and not to a member.
    """

    __slots__ = ()
    members: ClassVar[ExtensionPoint[Any]]
    tag_field: ClassVar[str] = "kind"
    """The key of a table that names the member."""

    @property
    def member_name(self) -> str:
        """The name of the member in tables."""
        return str(type(self).__struct_config__.tag)  # type: ignore[attr-defined]

    @classmethod
    def summary(cls) -> str:
        """One line about the member: the first of its docstring."""
        return (getdoc(cls) or "").partition("\n")[0]


class Source:
    """Origin of a document: its name for messages, and its text for line numbers."""

    def __init__(self, name: str, text: str = "") -> None:
        self.name = name
        self.text = text

    def locate(self, path: str) -> str:
        """The file, the line where the key at `path` stands if it can be told, and the path.

        >>> Source("a.toml", "[machine]\\nrows = -1\\n").locate("$.machine.rows")
        'a.toml, line 2, $.machine.rows'
        """
        line = _line_of(self.text, path)
        return f"{self.name}, line {line}, {path}" if line else f"{self.name}, {path}"


_EXAMPLE = "`presilicon design show fp32-systolic` prints a full example"


def read_toml(path: Path, example: str = _EXAMPLE, *, again: bool = False) -> tuple[dict[str, Any], Source]:
    """The document in a TOML file, which may be read `again`; `example` says where one can be seen, if it is empty.

    Raises:
        ConfigError: the file is missing, is no regular file, is too large, is not text, is empty, or is not TOML.
    """
    text = read_text(path, kind="TOML", again=again)
    if not text.strip():
        raise ConfigError(f"{path}: the file is empty; {example}")
    return parse_toml(text, str(path))


def parse_toml(text: str, name: str) -> tuple[dict[str, Any], Source]:
    """The document in a TOML text that came from `name`."""
    try:
        return tomllib.loads(text), Source(name, text)
    except (ValueError, RecursionError) as error:
        what = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise ConfigError(f"{name}: not valid TOML: {what}") from None


def decode_config(
    data: Mapping[str, Any], kind: type[T], source: Source, hook: Hook | None = None, *, also: Collection[str] = ()
) -> T:
    """`data` as a frozen struct of type `kind`, every field checked.

    `hook(type, value)` builds values of types that are no structs (a number format from its spelling); a ValueError or
    ConfigError from it is reported with the path of the value. `also` are keys of the document that were read before.

    Raises:
        ConfigError: an unknown key, a wrong type or an impossible value, with its path and what is allowed.
    """

    def build(expanded: Any, struct: type[Any], path: str) -> Any:
        try:
            return msgspec.convert(expanded, struct, dec_hook=_wrap(hook) if hook else None)
        except msgspec.ValidationError as error:
            raise _explain(error, expanded, source, path) from None

    value: T = build(_expand(dict(data), kind, "$", source, build, also=also), kind, "$")
    _check(value, "$", source)
    return value


def check_built(value: msgspec.Struct, name: str) -> None:
    """Check a struct that was built in Python as one from a file is: types and limits of all fields, and `check()`.

    Raises:
        ConfigError: a field has a wrong type or an impossible value, with its path below `name`.
    """
    source = Source(name)
    _check_fields(value, "$", source)
    _check(value, "$", source)


def apply_settings(
    data: Mapping[str, Any], settings: Iterable[str], kind: type, source: Source, *, also: Collection[str] = ()
) -> dict[str, Any]:
    """`data` with `machine.rows=128`-like settings applied; the values are TOML, or else plain text.

    Fields are checked when the result is decoded; here only the form of a setting and the path to its field are.
    """
    result: dict[str, Any] = _expand(dict(data), kind, "$", source, also=also)
    for setting in settings:
        path, equals, text = setting.partition("=")
        keys = [key.strip() for key in path.split(".")]
        if not equals or not all(keys):
            raise ConfigError(f'--set "{setting}": write a path and a value, as in --set machine.rows=128')
        value = read_value(text)
        table = result
        for depth, key in enumerate(keys[:-1]):
            below = table.setdefault(key, {})
            if not isinstance(below, dict):
                where = ".".join(keys[: depth + 1])
                raise ConfigError(f'--set "{setting}": {where} is {below!r}, a single value with no fields below it')
            table = below
        table[keys[-1]] = value
        _expand(result, kind, "$", Source(f'--set "{setting}"'))
    return result


def write_out(data: Mapping[str, Any], kind: type, source: Source) -> dict[str, Any]:
    """`data` with shorthands written out: a text that stands for a table becomes the table."""
    written: dict[str, Any] = _expand(dict(data), kind, "$", source)
    return written


def read_value(text: str) -> Any:
    """The value of a setting: TOML, or else plain text.

    >>> read_value("[1, 2]"), read_value("float32")
    ([1, 2], 'float32')
    """
    try:
        read = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        read = {}
    return read["value"] if set(read) == {"value"} else text.strip()


def to_plain(value: Any) -> Any:
    """`value` as dicts, lists, strings and numbers, ready for JSON or TOML.

    Structs become dicts (with their tag), None fields are kept, other objects become their `str()`.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, msgspec.Struct):
        config = value.__struct_config__
        tag = {config.tag_field: config.tag} if config.tag_field else {}
        return tag | {name: to_plain(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in value]
    return str(value)


def to_toml(plain: Mapping[str, Any], struct: msgspec.Struct | None = None) -> str:
    """A plain document as TOML: scalars first, then tables, short ones on a line; None is left out.

    So is an empty list in a table, after which TOML lets no `[[table.list]]` follow, unless the field of `struct`,
    which the document describes, is another list by default. Lists of tables are written that way.

    >>> print(to_toml({"name": "a", "machine": {"rows": 2, "dataflow": {"forward": "os"}}}), end="")
    name = "a"
    <BLANKLINE>
    [machine]
    rows = 2
    dataflow = { forward = "os" }
    """
    lines = [line for key, value in plain.items() if _is_inline(value) for line in _assignment(key, value)]
    for key, value in plain.items():
        if isinstance(value, Mapping):
            lines += _table(_key(key), value, struct=_below(struct, key))
    return "\n".join(lines).lstrip("\n") + "\n"


def _below(struct: Any, key: str) -> Any:
    """The struct in a field, or nothing where there is none."""
    value = getattr(struct, key, None)
    return value if isinstance(value, msgspec.Struct) else None


def _is_left_empty(struct: Any, key: str) -> bool:
    """Whether a field is an empty list where it would have entries by default."""
    if not isinstance(struct, msgspec.Struct):
        return False
    defaults = {field.name: field for field in msgspec.structs.fields(struct)}
    field = defaults.get(key)
    if field is None:
        return False
    default = field.default_factory() if callable(field.default_factory) else field.default
    return isinstance(default, list | tuple) and bool(default)


def _table(path: str, table: Mapping[str, Any], header: str = "[{}]", struct: Any = None) -> list[str]:
    """A table under its header; what is too long for a line becomes a table of its own below it."""
    lines: list[str] = []
    below: list[str] = []
    for key, value in table.items():
        if value is None or (isinstance(value, list | tuple) and not value and not _is_left_empty(struct, key)):
            continue
        if _is_list_of_tables(value):
            for item in value:
                below += _table(f"{path}.{_key(key)}", item, "[[{}]]")
            continue
        assignment = _assignment(key, value)
        if isinstance(value, Mapping) and len(assignment[0]) > _LONGEST_LINE:
            below += _table(f"{path}.{_key(key)}", value, struct=_below(struct, key))
        else:
            lines += assignment
    needed = lines or not below or header != "[{}]"
    return (["", header.format(path), *lines] if needed else []) + below


def _assignment(key: str, value: Any) -> list[str]:
    """`key = value`; a long list has a line per item."""
    line = f"{_key(key)} = {_inline(value)}"
    if isinstance(value, list | tuple) and len(line) > _LONGEST_LINE:
        return [f"{_key(key)} = [", *(f"    {_inline(item)}," for item in value), "]"]
    return [line]


def _is_list_of_tables(value: Any) -> bool:
    return isinstance(value, list | tuple) and bool(value) and all(isinstance(item, Mapping) for item in value)


_LONGEST_LINE = 120


def _key(key: str) -> str:
    return key if re.fullmatch("[A-Za-z0-9_-]+", key) else json.dumps(key, ensure_ascii=False)


def _is_inline(value: Any) -> bool:
    return value is not None and not isinstance(value, Mapping)


def _inline(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)  # a JSON string is a TOML string
    if isinstance(value, Mapping):
        inner = ", ".join(f"{_key(key)} = {_inline(item)}" for key, item in value.items() if item is not None)
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(_inline(item) for item in value)}]"
    return repr(value)


Build = Callable[[Any, type[Any], str], Any]


def _expand(
    data: Any, kind: Any, path: str, source: Source, build: Build | None = None, *, also: Collection[str] = ()
) -> Any:
    """`data` with shorthands written out, after a check that every key exists.

    `build(table, struct, path)` turns the table of an `Extensible` field into its struct; without it, tables are left.
    `also` are further keys that a message about an unknown one allows.
    """
    if get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    if isinstance(data, float) and not math.isfinite(data):
        raise ConfigError(f"{source.locate(path)}: given {data}, expected a finite number")
    _check_word(data, kind, path, source)
    struct = _struct_for(kind, data, path, source)
    if struct is not None:
        shorthand = getattr(struct, "shorthand", None)
        if shorthand is not None and not isinstance(data, Mapping):
            data = {shorthand: data}
        if not isinstance(data, Mapping):
            return data
        hints, names = _fields_of(struct)
        tag = struct.__struct_config__.tag_field
        for key in data:
            if key not in names and key != tag:
                raise ConfigError(
                    f'{source.locate(f"{path}.{key}")}: unknown key "{key}": {did_you_mean(str(key), [*names, *also])}'
                )
        table = {
            key: value if key == tag else _expand(value, hints[names[key]], f"{path}.{key}", source, build)
            for key, value in data.items()
        }
        return build(table, struct, path) if build is not None and _is_extensible(kind) else table
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is dict and isinstance(data, Mapping):
        items = {key: _expand(value, arguments[1], f"{path}.{key}", source, build) for key, value in data.items()}
        for key, value in items.items():
            _check_item(value, arguments[1], f"{path}.{key}", source)
        return items
    if origin in (list, tuple) and isinstance(data, list):
        return [_expand(value, arguments[0], f"{path}[{index}]", source, build) for index, value in enumerate(data)]
    return data


@cache
def _fields_of(struct: type[msgspec.Struct]) -> tuple[dict[str, Any], dict[str, str]]:
    """The types of a struct's fields, and their names by the keys of a document; costly to find, and never changing."""
    names = {field.encode_name: field.name for field in msgspec.structs.fields(struct)}
    return get_type_hints(struct, include_extras=True), names


def _check_word(data: Any, kind: Any, path: str, source: Source) -> None:
    """A field that takes one of some words must have one of them, or None where that is allowed."""
    options = get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)
    if not all(option is type(None) or get_origin(option) is Literal for option in options):
        return
    words = [word for option in options for word in get_args(option)]
    if data not in words and not (data is None and type(None) in options):
        raise ConfigError(f"{source.locate(path)}: given {data!r}; {did_you_mean(str(data), map(str, words))}")


def _check_item(value: Any, kind: Any, path: str, source: Source) -> None:
    """Convert one item of a dict by itself: in a whole document, msgspec does not say which key is wrong."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        try:
            msgspec.convert(value, kind)
        except msgspec.ValidationError as error:
            raise _explain(error, value, source, path) from None


def _is_extensible(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Extensible) and not issubclass(kind, msgspec.Struct)


def _struct_for(kind: Any, data: Any, path: str, source: Source) -> type[msgspec.Struct] | None:
    """The struct that `data` is meant to become: `kind` itself, or the member of a union that its tag names."""
    if _is_extensible(kind):
        return _member_for(kind, data, path, source)
    options = get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)
    structs = [option for option in options if isinstance(option, type) and issubclass(option, msgspec.Struct)]
    if not structs or not isinstance(data, Mapping):
        return structs[0] if len(structs) == 1 else None
    field = structs[0].__struct_config__.tag_field
    if field is None:
        return structs[0]
    tags = {str(struct.__struct_config__.tag): struct for struct in structs}
    return tags[_tag(data, field, list(tags), path, source)]


def _member_for(kind: type[Extensible], data: Any, path: str, source: Source) -> type[msgspec.Struct]:
    """The member of an extension point that the table `data` names."""
    if not isinstance(data, Mapping):
        raise ConfigError(f"{source.locate(path)}: given {data!r}, expected a table")
    field = kind.tag_field
    name = _tag(data, field, kind.members.names(), path, source)
    try:
        member: type[msgspec.Struct] = kind.members.load(name)
        config = member.__struct_config__
        if (config.tag_field, config.tag) != (field, name):
            raise ConfigError(
                f'the {kind.members.noun} "{name}" must be a struct with tag_field="{field}", tag="{name}"'
            )
    except ConfigError as error:
        raise ConfigError(f"{source.locate(f'{path}.{field}')}: {error}") from None
    return member


def _tag(data: Mapping[str, Any], field: str, tags: list[str], path: str, source: Source) -> str:
    """The name in `data` that chooses one of several structs."""
    if field not in data:
        raise ConfigError(f'{source.locate(path)}: the required key "{field}" is missing. Allowed: {", ".join(tags)}')
    if str(data[field]) not in tags:
        location = source.locate(f"{path}.{field}")
        raise ConfigError(f"{location}: given {data[field]!r}; {did_you_mean(str(data[field]), tags)}")
    return str(data[field])


def _wrap(hook: Hook) -> Hook:
    def decode_value(kind: type, value: Any) -> Any:
        if isinstance(value, kind):  # built already
            return value
        try:
            return hook(kind, value)
        except ConfigError as error:
            # msgspec adds the path to a ValueError; the mark tells our own sentence from msgspec's.
            raise ValueError(f"{_OURS}{error}") from None

    return decode_value


_OURS = "\0"


def _explain(error: msgspec.ValidationError, data: Any, source: Source, root: str = "$") -> ConfigError:
    """msgspec's one-line complaint with the place, the value that was given, and ours in place of its idiom.

    `data` stands at `root` in the document.
    """
    text = str(error)
    message, _, path = text.rpartition(" - at `")
    message, path = (message, path.rstrip("`")) if message else (text, "$")
    location = source.locate(root + path.removeprefix("$"))
    if message.startswith(_OURS):
        return ConfigError(f"{location}: {message.removeprefix(_OURS)}")
    if match := re.fullmatch(r"Object missing required field `(.+)`", message):
        return ConfigError(f'{location}: the required key "{match[1]}" is missing')
    value = _value_at(data, path)
    expected = message.replace("`", "").removeprefix("Expected ")
    expected = re.sub(r", got .*", "", expected).replace("object", "table").replace("str", "text")
    return ConfigError(f"{location}: given {value!r}, expected {expected}")


def _value_at(data: Any, path: str) -> Any:
    for key in re.findall(r"[^.\[\]$]+", path):
        try:
            data = data[int(key)] if isinstance(data, list) else data[key]
        except (KeyError, IndexError, TypeError, ValueError):
            return None
    return data


def _line_of(text: str, path: str) -> int | None:
    """The line on which the key of a `$.table.key` path is set, or its nearest ancestor that has one."""
    keys = re.findall(r"[^.\[\]$]+", path)
    table: list[str] = []
    best, best_depth = None, 0
    for number, line in enumerate(text.splitlines(), start=1):
        if header := re.match(r"\s*\[+\s*([^\]]+?)\s*\]+", line):
            table = [part.strip().strip('"') for part in header[1].split(".")]
            here = table
        elif key := re.match(r"\s*([A-Za-z0-9_.\"-]+)\s*=", line):
            here = table + [part.strip('"') for part in key[1].split(".")]
        else:
            continue
        if len(here) > best_depth and keys[: len(here)] == here:
            best, best_depth = number, len(here)
    return best


def _check_fields(value: Any, path: str, source: Source) -> None:
    if isinstance(value, list | tuple):
        for index, item in enumerate(value):
            _check_fields(item, f"{path}[{index}]", source)
    if not isinstance(value, msgspec.Struct):
        return
    fields = {name: getattr(value, name) for name in value.__struct_fields__}
    for name, kind in get_type_hints(type(value), include_extras=True).items():
        if name in fields:
            _check_word(fields[name], kind, f"{path}.{name}", source)
    try:
        converted = msgspec.convert(fields, type(value), dec_hook=_wrap(_refuse))
    except msgspec.ValidationError as error:
        raise _explain(error, fields, source, path) from None
    for name, field in fields.items():
        struct = type(getattr(converted, name))
        if isinstance(field, dict) and struct is not dict:
            raise ConfigError(f"{source.locate(f'{path}.{name}')}: given {field!r}, expected a {struct.__name__}")
        _check_fields(field, f"{path}.{name}", source)


def _refuse(kind: type, value: Any) -> Any:
    raise ConfigError(f"given {value!r}, expected a {kind.__name__}")


def _check(value: Any, path: str, source: Source) -> None:
    if isinstance(value, tuple) and any(isinstance(item, Extensible) for item in value):
        for index, item in enumerate(value):
            _check(item, f"{path}[{index}]", source)
    if isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            _check(getattr(value, name), f"{path}.{name}", source)
        check = getattr(value, "check", None)
        if check is not None:
            try:
                check()
            except ConfigError as error:
                raise ConfigError(f"{source.locate(path)}: {error}") from None
