"""Parameters of a user's top module: names and values."""

import re
from collections.abc import Collection, Iterable, Mapping

from presilicon.base import ConfigError, did_you_mean

SETTING = "presilicon_setting"
"""A module that instantiates the top with its parameters, so that they get type and sign by Verilog's rules."""

_DIGITS = {"b": "01xz?", "o": "0-7xz?", "d": "0-9", "h": "0-9a-fxz?"}
_SIZED = "|".join(f"{base}[{digits}][{digits}_]*" for base, digits in _DIGITS.items())
_VALUE = re.compile(rf"""-?\d[\d_]*|-?\d*'s?(?:{_SIZED})|"[^"\\\n]*\"""", re.IGNORECASE)


def parse_parameters(texts: Iterable[str]) -> dict[str, str]:
    """Values in Verilog by name, from `NAME=VALUE`.

    >>> parse_parameters(["WIDTH=16", "START=8'h7f", 'MODE="up"'])
    {'WIDTH': '16', 'START': "8'h7f", 'MODE': '"up"'}

    Raises:
        ConfigError: it is not NAME=VALUE, the value is not a literal, or a name is given twice.
    """
    values: dict[str, str] = {}
    for text in texts:
        name, _, value = (part.strip() for part in text.partition("="))
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_$]*", name) or not value:
            raise ConfigError(f'--param "{text}": expected NAME=VALUE, as in --param WIDTH=16')
        if not _VALUE.fullmatch(value):
            raise ConfigError(
                f"--param {name}: given {value}, expected an integer (16, -3), a sized literal (8'h7f) or a text in "
                f"""double quotes (--param '{name}="up"')"""
            )
        if name in values:
            raise ConfigError(f"--param {name}: given twice")
        values[name] = value
    return values


def check_names(names: Collection[str], known: Collection[str], top: str) -> None:
    """Raise if a top does not have one of these parameters."""
    for name in names:
        if not known:
            raise ConfigError(f'--param {name}: the module "{top}" has no parameters')
        if name not in known:
            raise ConfigError(f'--param: the module "{top}" has no parameter "{name}": {did_you_mean(name, known)}')


def setting_text(top: str, parameters: Mapping[str, str]) -> str:
    """Text of the module that sets the parameters."""
    values = ", ".join(f".{name}({value})" for name, value in parameters.items())
    return f"module {SETTING};\n  {top} #({values}) user_design ();\nendmodule\n"


def names_in(rtlil: str, top: str) -> list[str]:
    r"""Names of the parameters of a module in RTLIL.

    >>> names_in("module \\top\n  parameter \\WIDTH 8\n  wire \\q\nend\n", "top")
    ['WIDTH']
    """
    head = re.search(rf"^module \\{re.escape(top)}\n((?:  parameter .*\n)*)", rtlil, re.MULTILINE)
    return re.findall(r"^  parameter \\(\S+)", head[1], re.MULTILINE) if head else []
