"""The structure of captured graphs, checked by replaying them and against the models themselves."""

from math import prod
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from presilicon.records import PHASES, ROLES, StepGraph
from presilicon.workloads import capture


@pytest.fixture
def graph(case: Any) -> StepGraph:
    return capture(case.make_model(), case.make_batch())


def replay(graph: StepGraph) -> None:
    """Runs the ops in order and checks that each names the last writer of everything that it reads."""
    writers: dict[int, int] = {}
    for position, op in enumerate(graph.ops):
        assert op.index == position
        assert list(op.depends_on) == sorted(set(op.depends_on))
        assert all(earlier < position for earlier in op.depends_on), op.name
        needed = {writers[tensor.id] for tensor in op.inputs if tensor.id in writers}
        assert needed <= set(op.depends_on), op.name
        # Beyond what it reads, an op depends only on the one who wrote the rest of what it partly overwrites.
        rest = {writers[tensor.id] for tensor in op.outputs if tensor.id in writers}
        assert set(op.depends_on) <= needed | rest, op.name
        writers.update({tensor.id: position for tensor in op.outputs})


def test_every_op_depends_on_who_made_what_it_reads(graph: StepGraph) -> None:
    replay(graph)


def test_the_replay_can_fail() -> None:
    graph = capture(nn.Linear(2, 2), torch.empty(1, 2))
    last = graph.ops[-1]
    document = {name: getattr(last, name) for name in last.__struct_fields__} | {"depends_on": ()}
    broken = StepGraph(name="broken", batch_size=1, ops=(*graph.ops[:-1], type(last)(**document)))
    with pytest.raises(AssertionError):
        replay(broken)


def test_what_nobody_made_existed_before_the_step(case: Any, graph: StepGraph) -> None:
    model = case.make_model()
    written: set[int] = set()
    outside: dict[int, str] = {}
    for op in graph.ops:
        for tensor in op.inputs:
            if tensor.id not in written:
                outside.setdefault(tensor.id, tensor.role)
        written |= {tensor.id for tensor in op.outputs}
    parameters = {tensor.id for tensor in graph.parameters}
    state = {tensor.id for tensor in graph.state}
    buffers = sum(1 for _ in model.buffers())
    others = {number: role for number, role in outside.items() if number not in parameters | state}
    assert sum(role == "state" for role in others.values()) <= buffers
    assert sum(role == "activation" for role in others.values()) == 1, "the batch alone"
    assert set(others.values()) <= {"state", "activation"}


def test_parameters_and_state_are_the_models(case: Any, graph: StepGraph) -> None:
    model = case.make_model()
    shapes = [tuple(parameter.shape) for parameter in model.parameters()]
    assert [tensor.shape for tensor in graph.parameters] == shapes
    assert [tensor.shape for tensor in graph.state] == shapes, "one momentum per parameter"
    assert graph.parameter_elements == sum(map(prod, shapes))
    assert len({tensor.id for tensor in (*graph.parameters, *graph.state)}) == 2 * len(shapes)


def test_the_update_reads_every_gradient_and_writes_every_parameter(graph: StepGraph) -> None:
    update = [op for op in graph.ops if op.phase == "update"]
    written = {tensor.id for op in update for tensor in op.outputs if tensor.role == "master"}
    assert written == {tensor.id for tensor in graph.parameters}
    gradients = {tensor.id for op in update for tensor in op.inputs if tensor.role == "gradient"}
    made = {tensor.id for op in graph.ops if op.phase != "update" for tensor in op.outputs if tensor.role == "gradient"}
    assert gradients <= made
    assert len(gradients) == len(graph.parameters)
    assert all(op.kind == "optimizer" for op in update)


def test_phases_and_roles_go_together(graph: StepGraph) -> None:
    order = [op.phase for op in graph.ops]
    assert set(order) <= set(PHASES)
    assert order.index("update") == len(order) - order.count("update"), "the update comes last"
    for op in graph.ops:
        made = {tensor.role for tensor in op.outputs}
        seen = made | {tensor.role for tensor in op.inputs}
        assert seen <= set(ROLES)
        if op.phase == "forward":
            assert seen <= {"activation", "weight", "state"}, op.name
        elif op.phase == "input_grad":
            assert "error" in made, op.name
        elif op.phase == "weight_grad":
            assert made == {"gradient"}, op.name
        else:
            assert made <= {"master", "state", "gradient"}, op.name


def test_factors_fit_their_product(graph: StepGraph) -> None:
    for op in graph.ops:
        if op.kind == "gemm":
            assert op.gemm is not None
            left, right = op.inputs[:2]
            assert left.shape[-2:] == (op.gemm.m, op.gemm.k), op.name
            assert right.shape[-2:] == (op.gemm.k, op.gemm.n), op.name
            assert op.outputs[0].shape[-2:] == (op.gemm.m, op.gemm.n), op.name
        if op.gemm is not None:
            assert op.flops == op.gemm.flops
            roles = tuple(tensor.role for tensor in op.inputs[:2])
            if op.phase == "weight_grad":
                assert roles == ("activation", "error"), op.name
            elif op.phase == "input_grad" and "weight" in roles:
                assert roles == ("error", "weight"), op.name


def test_names_are_unique_and_layers_are_modules(case: Any, graph: StepGraph) -> None:
    names = [op.name for op in graph.ops]
    assert len(set(names)) == len(names)
    modules = {name for name, _ in case.make_model().named_modules()}
    assert {op.layer for op in graph.ops} <= modules
    assert all(op.name.startswith(op.layer) and op.phase in op.name for op in graph.ops)


def test_every_layer_with_a_product_has_its_gradient_there(graph: StepGraph) -> None:
    """The layers found in the backward pass are those that the forward pass went through."""
    forward = {op.layer for op in graph.ops if op.gemm and op.phase == "forward"}
    backward = {op.layer for op in graph.ops if op.gemm and op.phase in ("input_grad", "weight_grad")}
    assert forward == backward


def test_work_grows_linearly_with_the_batch(case: Any) -> None:
    batch = case.make_batch()
    once, thrice = (capture(case.make_model(), torch.cat([batch] * times)) for times in (1, 3))
    assert thrice.batch_size == 3 * once.batch_size
    assert len(thrice.ops) == len(once.ops)
    for phase in ("forward", "input_grad", "weight_grad"):
        assert thrice.flops(phase, matrix_only=True) == 3 * once.flops(phase, matrix_only=True)
    assert thrice.flops("update") == once.flops("update")
    assert thrice.parameters == once.parameters


def test_the_model_and_its_random_numbers_are_left_alone(case: Any) -> None:
    torch.manual_seed(0)
    model, batch = case.make_model(), case.make_batch()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    places = {name: tensor.data_ptr() for name, tensor in model.state_dict().items()}
    hooks = [len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules()]
    generator = torch.get_rng_state()
    first = capture(model, batch)
    assert torch.equal(torch.get_rng_state(), generator)
    assert all(parameter.grad is None and parameter.device.type == "cpu" for parameter in model.parameters())
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert places == {name: tensor.data_ptr() for name, tensor in model.state_dict().items()}
    assert hooks == [len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules()]
    assert capture(model, batch) == first, "the same input gives the same graph"
    assert all(leaf.grad_fn is None for leaf in tree_leaves(batch))
