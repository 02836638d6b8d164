"""Wrong arguments of every public function end in an error that says what is allowed, before anything is done."""

import pickle
from inspect import Parameter, signature
from typing import Any

import pytest

import presilicon as ps
from presilicon.base.arguments import fits

FUNCTIONS = {
    name: function for name in ps.__all__ if callable(function := getattr(ps, name)) and not isinstance(function, type)
}


class Odd:
    """What no function can use."""


def _named(function) -> dict[str, Parameter]:
    variadic = Parameter.VAR_KEYWORD, Parameter.VAR_POSITIONAL
    return {name: each for name, each in signature(function).parameters.items() if each.kind not in variadic}


ANYTHING = {
    *((name, part) for name in ("capture", "coverage", "format_sensitivity") for part in ("batch", "targets")),
    ("monitor_trainer", "trainer"),
}
"""Arguments that may be whatever a model takes, or a trainer of any library."""


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_every_argument_of_another_type_is_refused_by_name(name: str) -> None:
    function = FUNCTIONS[name]
    for parameter in _named(function):
        if (name, parameter) in ANYTHING:
            continue
        with pytest.raises(ps.PresiliconError, match=f"^{name}: {parameter} must be "):
            function(**{parameter: Odd()})


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_defaults_are_of_the_types_that_are_named(name: str) -> None:
    for parameter in _named(FUNCTIONS[name]).values():
        if parameter.default is not Parameter.empty and not isinstance(parameter.annotation, str):
            assert fits(parameter.default, parameter.annotation), parameter


def test_what_users_confuse_is_told_in_words() -> None:
    design, workload = ps.load_design("bf16-systolic"), ps.load_workload("digits-mlp")
    result: Any = design
    with pytest.raises(ps.ConfigError, match=r"^compare: designs must be a list of .*, not a Numerics$"):
        ps.compare(design.numerics, workload)  # type: ignore[arg-type]
    with pytest.raises(ps.ConfigError, match=r"^compare: workload must be a Workload or a string, not a Design$"):
        ps.compare([design], result)
    with pytest.raises(ps.ConfigError, match=r"^compare: designs must be"):
        ps.compare([workload], workload)  # type: ignore[list-item]
    with pytest.raises(ps.PresiliconError, match=r"presilicon\.parse\(\"e4m3\"\)"):
        ps.Format("e4m3")  # type: ignore[call-arg, abstract]


def test_a_public_function_is_one_object_and_can_be_pickled() -> None:
    for name, function in FUNCTIONS.items():
        assert getattr(ps, name) is function
        assert pickle.loads(pickle.dumps(function)) is function
