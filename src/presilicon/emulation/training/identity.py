"""The identity of a training run: everything that determines its bits."""

import json
from collections.abc import Sequence
from typing import Any

from presilicon.base import extensions_named_in, to_plain
from presilicon.designs import MINIBATCH, Method, Numerics, UpdateRule
from presilicon.operators import Operator
from presilicon.records import PassiveHook, TrainingHook
from presilicon.runs import versions
from presilicon.workloads import Workload


def identity(
    workload: Workload,
    numerics: Numerics,
    seed: int,
    device: str,
    operators: Sequence[Operator] = (),
    hooks: Sequence[TrainingHook] = (),
    update_rule: UpdateRule = MINIBATCH,
    methods: Sequence[Method] = (),
) -> dict[str, Any]:
    """Everything that determines the bits of a run; a checkpoint must agree with it."""
    plain: dict[str, Any] = {"workload": workload.describe(), "numerics": to_plain(numerics)}
    if operators:
        plain["operators"] = [operator.describe() for operator in operators]
    active = [_describe_hook(hook) for hook in hooks if not isinstance(hook, PassiveHook)]
    if active:
        plain["hooks"] = active
    if update_rule != MINIBATCH:
        plain["update_rule"] = to_plain(update_rule)
    if methods:
        plain["methods"] = [to_plain(method) for method in methods]
    extensions = extensions_named_in(json.dumps(plain, default=str))
    if extensions:
        plain["extensions"] = extensions
    return plain | {"seed": seed, "device": device, "versions": versions()}


def _describe_hook(hook: TrainingHook) -> Any:
    """A hook's own `describe()`, which should contain its parameters, or else the name of its type."""
    name = f"{type(hook).__module__}.{type(hook).__qualname__}"
    describe = getattr(hook, "describe", None)
    return name if describe is None else {name: to_plain(describe())}
