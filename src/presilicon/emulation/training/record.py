"""The training record: all that decides the bits of a training, with one identity by content."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from presilicon.base import (
    ConfigError,
    Content,
    content_of,
    extensions_named_in,
    meaning,
    processor,
    to_plain,
)
from presilicon.designs import MINIBATCH, Design, Method, Numerics, UpdateRule
from presilicon.ops import Operator, entered
from presilicon.records import PassiveHook, Stateful, TrainingHook
from presilicon.runs import versions
from presilicon.workloads import Workload


class TrainingRecord(NamedTuple):
    """All that decides the bits of a training. A study, a task of a worker and a checkpoint pass on the same one."""

    workload: Workload
    numerics: Numerics
    seed: int = 0
    device: str = "cpu"
    update_rule: UpdateRule = MINIBATCH
    """How the machine updates the weights."""
    methods: tuple[Method, ...] = ()
    operators: tuple[Operator, ...] = ()
    """Operators that replace functions, in addition to those of the numerics."""
    hooks: tuple[TrainingHook, ...] = ()
    """Hooks that may change the training; they live through one run."""

    @classmethod
    def of_design(cls, design: Design, workload: Workload, *, seed: int = 0, device: str = "cpu") -> "TrainingRecord":
        """The training of a workload on a design."""
        return cls(workload, design.numerics, seed, device, design.machine.update_rule, design.methods)

    def check(self) -> None:
        """Refuse a record whose parts have the wrong type, or whose workload cannot be trained."""
        expected: list[tuple[object, type]] = [(self.workload, Workload), (self.numerics, Numerics)]
        for argument, kind in [*expected, *((method, Method) for method in self.methods)]:
            if not isinstance(argument, kind):
                raise ConfigError(
                    f"train takes a Workload, Numerics and Methods: {argument!r} is not a {kind.__name__}"
                )
        self.workload.require_data()

    @property
    def contents(self) -> dict[str, Content]:
        """The content of each part: of its values, and of the code of the user's that these lead to."""
        acting = [hook for hook in self.hooks if not isinstance(hook, PassiveHook)]
        parts = {
            "numerics": self.numerics,
            "update_rule": self.update_rule,
            "methods": self.methods,
            "ops": entered(),
            # The state of some is restored from the checkpoint, and others describe themselves.
            "hooks": [
                type(hook) if isinstance(hook, Stateful) or hasattr(hook, "describe") else hook for hook in acting
            ],
        }
        return {name: content_of(value, name) for name, value in parts.items() if value}

    def describe(self) -> dict[str, Any]:
        """The record without its seed, as plain data by which two can be compared part by part."""
        plain: dict[str, Any] = {"workload": self.workload.describe(), "numerics": to_plain(self.numerics)}
        plain["meaning of training"] = meaning()["training"]
        if self.operators:
            plain["operators"] = [operator.describe() for operator in self.operators]
        acting = [_describe_hook(hook) for hook in self.hooks if not isinstance(hook, PassiveHook)]
        if acting:
            plain["hooks"] = acting
        if self.update_rule != MINIBATCH:
            plain["update_rule"] = to_plain(self.update_rule)
        if self.methods:
            plain["methods"] = [to_plain(method) for method in self.methods]
        extensions = extensions_named_in(json.dumps(plain, default=str))
        if extensions:
            plain["extensions"] = extensions
        contents = self.contents
        plain["code"] = {name: content.digest for name, content in contents.items()}
        plain |= {"device": self.device, "versions": versions()}
        unknown = [*self.workload.content().unknown, *(place for each in contents.values() for place in each.unknown)]
        return plain | ({"unknown": unknown} if unknown else {})

    def identity(self, data: Content, described: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Everything that a checkpoint must agree with; `data` is the content of the splits.

        `described` is what `describe` said before any of the user's code ran, which may leave something behind in its
        module, such as a table of what was loaded.
        """
        plain = {
            **(described or self.describe()),
            "data": data.digest,
            "seed": self.seed,
            "processor": processor(self.device),
        }
        unknown = [*plain.get("unknown", ()), *data.unknown]
        return plain | ({"unknown": unknown} if unknown else {})


def changed_parts(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """The names of the parts in which two identities differ, fields of the workload and versions one by one.

    >>> changed_parts({"seed": 1, "workload": {"loss": "a", "model": "m"}}, {"seed": 2, "workload": {"loss": "b"}})
    ['seed', 'workload.loss', 'workload.model']
    """
    changed = list(_changed(then, now, ""))
    return [name for name in changed if name.removeprefix("code.") == name or name.removeprefix("code.") not in changed]


_NESTED = ("workload", "code", "versions", "processor")
"""Parts whose own parts are named one by one."""


def _changed(then: Mapping[str, Any], now: Mapping[str, Any], prefix: str) -> Iterator[str]:
    for name in {**then, **now}:
        before, after = then.get(name), now.get(name)
        if before == after:
            continue
        if isinstance(before, Mapping) and isinstance(after, Mapping) and name in _NESTED:
            yield from _changed(before, after, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def _describe_hook(hook: TrainingHook) -> Any:
    """A hook's own `describe()`, which should contain its parameters, or else the name of its type."""
    name = f"{type(hook).__module__}.{type(hook).__qualname__}"
    describe = getattr(hook, "describe", None)
    return name if describe is None else {name: to_plain(describe())}
