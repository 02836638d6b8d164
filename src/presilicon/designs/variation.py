"""Variants of a design: `machine.rows=32,64` makes one design for each value."""

from collections.abc import Iterable, Sequence
from itertools import product
from pathlib import Path

from msgspec.structs import replace

from presilicon.base import ConfigError
from presilicon.designs.design import Design, load_design

_CLOSING = {"(": ")", "[": "]", "{": "}"}


def vary_designs(
    name_or_path: str | Path,
    settings: Iterable[str] = (),
    vary: Sequence[str] = (),
    *,
    numerics: str | None = None,
    methods: Sequence[str] = (),
) -> list[Design]:
    """A design for each value of `PATH=VALUE,VALUE,...`; with several of these, for each combination.

    `settings`, `numerics` and `methods` apply to all of them, as in `load_design`; `method.NAME.parameter=VALUE,VALUE`
    varies a parameter of a method, and `methods=none,NAME,NAME+NAME` which are added to the design's own. Each is
    called by its design and its values: `bf16-systolic[machine.rows=32]`. Commas inside parentheses, brackets or
    quotes belong to a value. Without `vary` it is the design itself.

    Raises:
        ConfigError: a variation has no values, names a path that is set or varied already, or two combinations give the
            same design; and whatever `load_design` raises.

    >>> [design.name for design in vary_designs("bf16-systolic", vary=["machine.rows=32,64"])]
    ['bf16-systolic[machine.rows=32]', 'bf16-systolic[machine.rows=64]']
    """
    settings = list(settings)
    paths = {setting.partition("=")[0].strip() for setting in settings}
    axes = []
    for variation in vary:
        path, equals, text = variation.partition("=")
        values = split_values(text)
        if not equals or not path.strip() or not all(values):
            raise ConfigError(f'--vary "{variation}": write a path and its values, as in --vary machine.rows=32,64')
        if path.strip() == "name":
            raise ConfigError(f'--vary "{variation}": designs are named after what varies; vary another field')
        overlapping = [other for other in paths if _overlap(other, path.strip())]
        if overlapping:
            raise ConfigError(f'--vary "{variation}": {overlapping[0]} is set or varied already; give it once')
        if path.strip() == "methods" and methods:
            raise ConfigError(
                f'--vary "{variation}": --method {methods[0]} is for every design already; give methods by one of them'
            )
        paths.add(path.strip())
        axes.append([f"{path.strip()}={value}" for value in values])
    designs: list[Design] = []
    for combination in product(*axes):
        try:
            chosen = [setting.removeprefix("methods=") for setting in combination if setting.startswith("methods=")]
            names = [name.strip() for text in chosen for name in text.split("+") if text.strip() != "none"]
            own = [setting.removeprefix("method.") for setting in combination if setting.startswith("method.")]
            if chosen:  # a parameter alone would turn its method on, in designs that are to be without it
                own = [setting for setting in own if setting.partition(".")[0] in names]
            others = [setting for setting in combination if not setting.startswith(("method.", "methods="))]
            added = [*methods, *names, *own]
            design = load_design(name_or_path, [*settings, *others], numerics=numerics, methods=added)
        except ConfigError as error:
            raise ConfigError(_name_option(str(error), settings, combination)) from None
        if combination:
            design = replace(design, name=f"{design.name}[{', '.join(combination)}]")
            design.check()
            _refuse_duplicate(design, designs)
        designs.append(design)
    return designs


def _overlap(one: str, other: str) -> bool:
    """Whether two paths are equal, or one is a part of the other."""
    return f"{one}.".startswith(f"{other}.") or f"{other}.".startswith(f"{one}.")


def _name_option(message: str, settings: Sequence[str], combination: Sequence[str]) -> str:
    """An error about a setting that --vary made, with that option's name; or about one that --vary was meant for."""
    for setting in combination:
        message = message.replace(f'--set "{setting}"', f'--vary "{setting}"')
    for setting in settings:
        text = setting.partition("=")[2]
        if len(split_values(text)) > 1 and f"given {text.strip()!r}" in message:
            message += f"; for a design with each of these values, --vary {setting}"
    return message


def split_values(text: str) -> list[str]:
    """The values between the commas of `text`, except commas inside parentheses, brackets or quotes.

    >>> split_values("float32, bfp(mantissa=4, group=4)")
    ['float32', 'bfp(mantissa=4, group=4)']
    """
    values, start, closing = [], 0, [""]
    for position, character in enumerate(text):
        if character == closing[-1]:
            closing.pop()
        elif closing[-1] in ('"', "'"):
            continue
        elif character in ('"', "'") or character in _CLOSING:
            closing.append(_CLOSING.get(character, character))
        elif character == "," and len(closing) == 1:
            values.append(text[start:position].strip())
            start = position + 1
    return [*values, text[start:].strip()]


def _refuse_duplicate(design: Design, others: Sequence[Design]) -> None:
    for other in others:
        if replace(design, name="", description="") == replace(other, name="", description=""):
            raise ConfigError(
                f"--vary: {other.name} and {design.name} are the same design; vary what makes a difference"
            )
