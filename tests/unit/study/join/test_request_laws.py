"""Every option of a request reaches what it is about, and nothing else."""

from dataclasses import fields

import msgspec
import pytest

from presilicon.study import EvaluateRequest, plan_request
from presilicon.workloads import load_workload

OWN = load_workload("digits-mlp")
DESIGNS = ("fp32-systolic", "bf16-systolic")


def request(**options: object) -> EvaluateRequest:
    return EvaluateRequest(designs=DESIGNS, workload="digits-mlp", **options)


WORKLOAD = (
    ({"max_steps": 70}, {"max_steps": 70}),
    ({"evaluate_every": 7}, {"evaluate_every": 7}),
    ({"accumulate": 2}, {"accumulate": 2}),
    ({"stop_hopeless": True}, {"stop_hopeless": True}),
    ({"target": 0.9}, {"target": 0.9, "milestones": ()}),
    ({"target": (0.8, 0.95, 0.9, 0.8)}, {"target": 0.95, "milestones": (0.9, 0.8)}),
    (
        {"batch": 2 * OWN.batch_size},
        {"batch_size": 2 * OWN.batch_size, "max_steps": OWN.max_steps // 2, "evaluate_every": OWN.evaluate_every // 2},
    ),
    ({"batch": 2 * OWN.batch_size, "max_steps": 70},
     {"batch_size": 2 * OWN.batch_size, "max_steps": 70, "evaluate_every": OWN.evaluate_every // 2}),
)  # fmt: skip


@pytest.mark.parametrize(("options", "changes"), WORKLOAD, ids=lambda value: "-".join(value))
def test_an_option_of_the_training_changes_its_fields_of_the_workload_alone(options: dict, changes: dict) -> None:
    workload, own = request(**options).load_workload()
    assert own == OWN
    for field in fields(OWN):
        expected = changes.get(field.name, getattr(OWN, field.name))
        assert getattr(workload, field.name) == expected, field.name
    assert plan_request(request(**options)).workload == workload


@pytest.mark.parametrize("options", [{"schedule": "cosine(warmup=10)"}, {"optimizer": "adamw"}, {"learning_rate": 0.5}])
def test_an_option_of_the_updates_is_part_of_the_description(options: dict) -> None:
    plain = OWN.describe()
    changed = request(**options).load_workload()[0].describe()
    differing = {name for name in {*plain, *changed} if plain.get(name) != changed.get(name)}
    assert differing == {"optimizer" if name == "learning_rate" else name for name in options}


@pytest.mark.parametrize(
    ("options", "field", "value"),
    [
        ({"seeds": 7}, "seeds", 7),
        ({"seeds": 7}, "looks", (7,)),
        ({"seeds": "auto"}, "looks", (5, 10, 15, 20, 25, 30, 35, 40)),
        ({"seeds": "auto", "max_seeds": 11}, "looks", (5, 10, 11)),
        ({"seed": 3}, "seed", 3),
        ({"device": "cuda:1"}, "device", "cuda:1"),
        ({"checkpoint_every": 3}, "checkpoint_every", 3),
        ({"strict": True}, "strict", True),
        ({"strict_coverage": True}, "strict_coverage", True),
        ({"sensitivity": True}, "sensitivity", True),
    ],
)
def test_an_option_of_the_study_is_its_plans(options: dict, field: str, value: object) -> None:
    plain, plan = plan_request(request()), plan_request(request(**options))
    assert getattr(plan, field) == value
    assert [design.name for design in plan.designs] == list(DESIGNS)
    for name in ("seeds", "seed", "device", "checkpoint_every", "strict", "strict_coverage", "sensitivity"):
        if name not in options:
            assert getattr(plan, name) == getattr(plain, name)


def test_the_default_request_is_the_workload_as_it_comes() -> None:
    assert request().load_workload() == (OWN, OWN)
    assert msgspec.structs.asdict(request())["seeds"] == plan_request(request()).seeds == 5
