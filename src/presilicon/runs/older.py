"""Events of runs from before schema 2, with their fields under the present names: such runs are shown, not resumed."""

from typing import Any

from presilicon.base import DOCUMENT_SCHEMA

_EVENT_NAMES = {
    "evaluation": {"accuracy": "value"},
    "seed_finished": {"test_accuracy": "test_value"},
    "seed_restored": {"test_accuracy": "test_value"},
}
_RESULT_NAMES = {"accuracy": "value", "better": "direction"}
_SEED_NAMES = _POINT_NAMES = {"accuracy": "value"}


def with_present_names(event: dict[str, Any]) -> dict[str, Any]:
    """A plain event as it would be recorded now; fields that kept their names, and damaged ones, stay as they are.

    >>> with_present_names({"event": "evaluation", "step": 20, "accuracy": 0.9})
    {'event': 'evaluation', 'step': 20, 'value': 0.9}
    """
    if event.get("event") == "result" and isinstance(event.get("comparison"), dict):
        return event | {"comparison": present_comparison(event["comparison"])}
    names = _EVENT_NAMES.get(str(event.get("event")), {})
    return {names.get(name, name): value for name, value in event.items()}


def present_comparison(comparison: dict[str, Any]) -> dict[str, Any]:
    """A plain comparison of schema 1 in the present schema; one of another schema as it is."""
    if comparison.get("schema", 1) != 1:
        return comparison
    present: dict[str, Any] = _with_each(comparison | {"schema": DOCUMENT_SCHEMA}, "designs", _present_result)
    return present


def _present_result(result: Any) -> Any:
    return _with_each(_renamed(result, _RESULT_NAMES), "seeds", _present_seed)


def _present_seed(seed: Any) -> Any:
    return _with_each(_renamed(seed, _SEED_NAMES), "curve", lambda point: _renamed(point, _POINT_NAMES))


def _renamed(fields: Any, names: dict[str, str]) -> Any:
    return {names.get(name, name): value for name, value in fields.items()} if isinstance(fields, dict) else fields


def _with_each(fields: Any, name: str, change: Any) -> Any:
    """The same fields with every item of a list among them changed."""
    if not isinstance(fields, dict) or not isinstance(fields.get(name), list | tuple):
        return fields
    return fields | {name: [change(item) for item in fields[name]]}
