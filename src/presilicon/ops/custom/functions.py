"""Functions of torch that operators replace, by name."""

from presilicon.base import ConfigError, unknown
from presilicon.ops.lookup import entry_of_function, exact_functions, function_names, product_names


def replaceable() -> frozenset[str]:
    """Functions that an operator can replace."""
    return frozenset([*exact_functions(), *function_names(), *product_names()])


def split_pattern(replaces: str) -> tuple[str, str]:
    """The pattern of layers, empty for all, and the function's name, of what an operator replaces.

    >>> split_pattern("blocks.*.softmax"), split_pattern("softmax.exp"), split_pattern("relu")
    (('blocks.*', 'softmax'), ('', 'softmax.exp'), ('', 'relu'))
    """
    for name in ("softmax.exp", replaces.rpartition(".")[2]):
        if replaces == name:
            return "", name
        if replaces.endswith(f".{name}"):
            return replaces.removesuffix(f".{name}"), name
    return "", replaces


def check_function(replaces: str) -> str:
    """The function's name in what an operator replaces.

    Raises:
        ConfigError: there is no such function to replace, or it is another one with its arguments exchanged.
    """
    name = split_pattern(replaces)[1]
    entry = entry_of_function(name)
    if entry is not None and entry.swaps:
        raise ConfigError(f"{name} is {entry.swaps} with its arguments exchanged; an operator replaces {entry.swaps}")
    allowed = replaceable()
    if name not in allowed:
        raise unknown("function to replace", name, sorted(allowed))
    return name
