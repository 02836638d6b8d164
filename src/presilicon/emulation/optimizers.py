"""Emulated optimizers: master weights and state in their formats, each update rounded."""

import copy
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache, wraps
from types import MethodType
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils._python_dispatch import TorchDispatchMode

from presilicon.base import ConfigError
from presilicon.designs import Numerics, Override, RoleFormat
from presilicon.emulation.attach import emulation_of, named_parameters, owner_of, state_tensors
from presilicon.emulation.emulation import Emulation, UncoveredWarning
from presilicon.emulation.persistent import round_in_place, stream_of
from presilicon.emulation.rounded import version
from presilicon.emulation.state.entry import ENTRY
from presilicon.emulation.steps.lines import Line
from presilicon.emulation.steps.update import run_update_step
from presilicon.formats import Key, parse
from presilicon.ops import describe_operator
from presilicon.records import Ends, Role
from presilicon.workloads import check_optimizer, ends_of, named_layers, tensors_in

OptimizerT = TypeVar("OptimizerT", bound=Optimizer)


def emulate_optimizer_(
    optimizer: OptimizerT, numerics: Numerics, *, model: nn.Module | None = None, seed: int = 0
) -> OptimizerT:
    """Make `optimizer` keep master weights and state in their formats, in place; the same optimizer is returned.

    Each tensor that persists from step to step is rounded once per step, after its update is complete and before it is
    read: the momentum to the format of the state, the weight to that of the master. Only what is stored is rounded:
    temporary results within a step, such as the gradient with its weight decay, stay in float32. Any torch optimizer
    works; it updates all parameters together on a GPU (`foreach`, unless that is False), rounding them by a few
    launches, and one parameter at a time elsewhere; `fused` is off. With `vector = "round-steps"`, and for user-defined
    formats with functions of their own, temporary results are rounded too: each operator is computed step by step in
    the format of the tensor that it writes, or of its first operand that has one. `state_dict`, learning-rate
    schedulers and `GradScaler` work as before. A deep copy, or the result of `torch.load`, is emulated too; copy it
    together with its model.

    With `model`, parameters have names and layers, so that overrides apply to them, and the schedule follows the steps
    of the emulated model; without it, parameters are numbered.

    Raises:
        ConfigError: the optimizer is already emulated, overrides need a model to know their layers or match none of
            them, the optimizer trains another model, wraps another optimizer, or keeps state outside `optimizer.state`.
    """
    arguments: tuple[Any, Any] = (optimizer, numerics)
    if not isinstance(arguments[0], Optimizer) or not isinstance(arguments[1], Numerics):
        types = " and ".join(type(argument).__name__ for argument in arguments)
        raise ConfigError(f"emulate_optimizer_ takes a torch optimizer and a design's numerics, not {types}")
    if hasattr(optimizer.step, "emulates"):
        raise ConfigError("this optimizer is already emulated")
    if model is None and not numerics.is_uniform:
        raise ConfigError("numerics with overrides or a schedule need the model: emulate_optimizer_(..., model=model)")
    if model is not None:
        numerics.check_layers((name for name, _ in named_layers(model)), ends_of(model))
        trained = {parameter for group in optimizer.param_groups for parameter in group["params"]}
        if trained.isdisjoint(model.parameters()):
            raise ConfigError("the optimizer has no parameter of this model: give the model that it trains")
    check_optimizer(optimizer)
    if not _rounds(numerics):
        return optimizer
    _attach(optimizer, _Update(optimizer, numerics, model, seed))
    return optimizer


def _attach(optimizer: Optimizer, update: "_Update") -> None:
    inner = optimizer.step
    update.watch(optimizer)
    if update.counts_steps:
        optimizer.register_state_dict_post_hook(lambda _, state: state.update({ENTRY: update.saved_count}))
        optimizer.register_load_state_dict_pre_hook(lambda _, state: update.load_count(state.get(ENTRY)))

    @wraps(getattr(inner, "__func__", inner))
    def step(self: Optimizer, closure: Callable[[], Any] | None = None) -> Any:
        with update.running() as mode:
            return inner() if closure is None else inner(mode.outside(closure))

    step.emulates = True  # type: ignore[attr-defined]
    # A bound method of this instance, so that learning-rate schedulers can wrap it.
    optimizer.step = MethodType(step, optimizer)  # type: ignore[method-assign]

    def copied(memo: dict[int, Any]) -> Optimizer:
        fresh: Optimizer = type(optimizer).__new__(type(optimizer))
        memo[id(optimizer)] = fresh
        fresh.__setstate__(copy.deepcopy(optimizer.__getstate__(), memo))
        _attach(fresh, update.copied(fresh, memo))
        return fresh

    def reduced(protocol: int) -> tuple[Any, ...]:
        return _rebuilt, (type(optimizer), optimizer.__getstate__(), update.detached())

    # Torch copies only the state of an optimizer, and so would lose the emulated step.
    optimizer.__deepcopy__ = copied  # type: ignore[attr-defined]
    optimizer.__reduce_ex__ = reduced  # type: ignore[assignment, method-assign]


def _rebuilt(kind: type[OptimizerT], state: dict[str, Any], update: "_Update") -> OptimizerT:
    """Unpickle an emulated optimizer; `torch.load` calls this."""
    optimizer = kind.__new__(kind)
    optimizer.__setstate__(state)
    update.optimizer = optimizer
    _attach(optimizer, update)
    return optimizer


def _rounds(numerics: Numerics) -> bool:
    """Whether master weights or state have a format other than float32, in any layer at any step."""
    parts: list[Numerics | Override] = [numerics, *numerics.overrides, *numerics.schedule]
    roles = [getattr(part, role) for part in parts for role in ("master", "state")]
    return any(role is not None and role.format != _FLOAT32 for role in roles)


_FLOAT32 = parse("float32")


class _Known(NamedTuple):
    """A tensor of the update that has a format."""

    tensor: Tensor
    role: Role
    name: str
    layer: str


class _Update:
    """State shared by the steps of one emulated optimizer."""

    def __init__(self, optimizer: Optimizer, numerics: Numerics, model: nn.Module | None, seed: int) -> None:
        self.optimizer, self.numerics, self.seed = optimizer, numerics, seed
        self._names = {parameter: name for name, parameter in named_parameters(model)} if model is not None else {}
        self._emulation: Emulation | None = None if model is None else emulation_of(model)
        self._ends = Ends() if model is None else ends_of(model)
        self.count = self._step = 0
        """Updates so far."""
        self._own = (
            ""
            if model is not None
            else stream_of(parameter for group in optimizer.param_groups for parameter in group["params"])
        )
        """Prefix of the random streams of an optimizer whose parameters have numbers and no names."""
        self._stream, self._ops = "", 0
        self._warned: set[Any] = set()
        self._formats: dict[tuple[Role, str, int], RoleFormat] = {}

    def watch(self, optimizer: Optimizer) -> None:
        """Let the steps of `optimizer` end those of the model."""
        if self._emulation is not None:
            self._emulation.count.watch(optimizer)

    @property
    def counts_steps(self) -> bool:
        """Whether roundings depend on the number of updates, which `state_dict` then contains."""
        depends = bool(self.numerics.schedule) or self.numerics.is_stochastic(("master", "state"))
        return depends and self._emulation is None

    @property
    def saved_count(self) -> dict[str, Any]:
        """The count and the random streams for `state_dict`."""
        return {"step": self.count} | ({"stream": self._own} if self._own else {})

    def load_count(self, entry: dict[str, Any] | None) -> None:
        """Continue the count of a saved optimizer, with its random streams."""
        if entry is not None:
            self.count, self._own = int(entry["step"]), str(entry.get("stream", ""))

    def copied(self, optimizer: Optimizer, memo: dict[int, Any]) -> "_Update":
        """The update of a copy of the optimizer, whose parameters are copies in `memo`."""
        update = copy.copy(self)
        update.optimizer = optimizer
        update._names = {memo[id(parameter)]: name for parameter, name in self._names.items() if id(parameter) in memo}
        update._emulation = copy.deepcopy(self._emulation, memo)
        return update

    def detached(self) -> "_Update":
        """A copy without the optimizer, for pickling."""
        update = copy.copy(self)
        update._warned = set()
        del update.optimizer
        return update

    @contextmanager
    def running(self) -> Iterator["_UpdateMode"]:
        """Context of one step: every write is tracked, and tensors still unrounded at the end are rounded."""
        self.read_step()
        groups = self.optimizer.param_groups
        switches = ("foreach", "fused")
        settings: list[dict[str, Any]] = [{key: group[key] for key in switches if key in group} for group in groups]
        in_lists = takes_lists(self.optimizer) and not self.has_steps
        mode = _UpdateMode(self, in_lists)
        try:
            for group, values in zip(groups, settings, strict=True):
                group.update({key: in_lists and key == "foreach" for key in values})
            with mode:
                yield mode
            mode.finish()
            if self.count == 0:  # most state is created in the first step
                check_optimizer(self.optimizer)
        finally:
            for group, values in zip(groups, settings, strict=True):
                group.update(values)
            self.count += 1

    def read_step(self) -> None:
        """Take step and random stream from the model's last forward pass.

        Updates that follow one another without a pass between them have streams of their own.
        """
        self._step, self._stream, self._ops = self.count, "update/" + self._own, 0
        if self._emulation is not None:
            count = self._emulation.count
            self._step = count.step
            self._stream += f"pass{count.last_pass}/" if count.last_pass else ""
            self._stream += f"repeat{count.updates}/" if count.updates else ""

    def round(self, known: Iterable[_Known]) -> None:
        """Round tensors in place, those of one format together."""
        groups: dict[tuple[Role, int], tuple[RoleFormat, list[tuple[Tensor, str]]]] = {}
        for tensor, role, name, layer in known:
            role_format = self._format_of(role, layer)
            # By identity, because formats take long to hash.
            groups.setdefault((role, id(role_format)), (role_format, []))[1].append((tensor, f"{self._stream}{name}"))
        for (role, _), (role_format, tensors) in groups.items():
            round_in_place(tensors, role_format, role, self.seed, self._step)

    def _format_of(self, role: Role, layer: str) -> RoleFormat:
        """The format in force, which changes with the stage of the schedule only.

        Weights have that of the step which reads them next.
        """
        is_last = self._emulation is None or self._emulation.count.ends_with_update
        step = self._step + (role == "master" and is_last)
        key = role, layer, self.numerics.stage(step)
        if key not in self._formats:
            self._formats[key] = self.numerics.resolve(role, layer, step, self._ends)
        return self._formats[key]

    @property
    def has_steps(self) -> bool:
        """Whether updates are computed step by step, in any layer at any step."""
        return any(part.has_steps("master") or part.has_steps("state") for part in self.numerics.variants())

    def line(self, func: Any, known: "_Known") -> Line | None:
        """The arithmetic of an operator that computes a tensor of a role; None if its results are rounded once."""
        role, layer = known.role, known.layer
        if not self.numerics.in_force(layer, self._step, self._ends).has_steps(role):
            return None
        self._ops += 1
        number, emulation = self._ops, self._emulation

        def key_of(name: str) -> Key:
            return Key(self.seed, self._step, f"{self._stream}{known.name}/update{number}/{name}")

        def note(name: str, formats: str, flops: int) -> None:
            if emulation is not None and emulation.watcher is not None:
                operator = func._schema.name.removeprefix("aten::").removesuffix("_")
                emulation.watcher.note_step(layer, f"{operator}.{name}", formats, flops)

        unlisted = nullcontext if emulation is None else emulation.bookkeeping
        return Line(self._format_of(role, layer), role, key_of, note, unlisted)

    def warn(self, func: Any) -> None:
        """Warn once that a product inside the optimizer, as in Muon, is not emulated."""
        if func not in self._warned:
            self._warned.add(func)
            message = f"{type(self.optimizer).__name__}: the matrix products of {func} stay in float32"
            warnings.warn(message, UncoveredWarning, stacklevel=3)

    def parameters(self) -> Iterator[tuple[Tensor, str]]:
        """Every parameter with its name."""
        number = 0
        for group in self.optimizer.param_groups:
            for parameter in group["params"]:
                yield parameter, self._names.get(parameter, f"parameter{number}")
                number += 1


class _UpdateMode(TorchDispatchMode):
    """Rounds each tensor that a step has written when it is next read."""

    def __init__(self, update: _Update, in_lists: bool) -> None:
        """`in_lists`: the optimizer keeps the tensors of its state from step to step."""
        super().__init__()
        self._update = update
        self._known: dict[int, _Known] = {}
        self._gradients: dict[int, tuple[str, str]] = {}
        self._unrounded: set[int] = set()
        self._rounded: dict[int, int] = {}
        """Version of each tensor that was rounded in this step."""
        self._copies: set[int] = set()
        """Copies of gradients; written to again, they are temporary results as others are."""
        self._replacements: list[Tensor] = []
        self._temporary: dict[int, _Known] = {}
        """Temporary results that are computed step by step, each with the role whose arithmetic it has."""
        self._has_steps = update.has_steps
        self._paused = False
        self._learn()
        state = update.optimizer.state
        self._creates_state = any(not state.get(parameter) for parameter, _ in update.parameters())
        """Whether this step creates state of some parameter, which is learned when it is first written to."""
        self._learns_last = self._creates_state or not in_lists

    def _learn(self) -> None:
        """Register parameters and state, which have a format, and gradients, to recognise results of them."""
        for parameter, name in self._update.parameters():
            layer = owner_of(name)
            self._known[_address(parameter)] = _Known(parameter, "master", name, layer)
            for key, value in state_tensors(self._update.optimizer.state.get(parameter, {}), parameter):
                self._known[_address(value)] = _Known(value, "state", f"{name}.{key}", layer)
            if parameter.grad is not None and parameter.grad.layout == torch.strided:
                self._gradients[_address(parameter.grad)] = (name, layer)

    def outside(self, closure: Callable[[], Any]) -> Callable[[], Any]:
        """A closure (which runs the model) that is not treated as part of the update."""

        def run() -> Any:
            self._paused = True
            try:
                return closure()
            finally:
                self._paused = False
                self._update.read_step()
                self._learn()

        return run

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Round the tensors that the op reads, run it, and note the tensors that it wrote."""
        kwargs = kwargs or {}
        if self._paused or (func is _READS_NUMBER and _address(args[0]) not in self._unrounded):
            return func(*args, **kwargs)
        inputs = list(tensors_in((*args, *kwargs.values())))
        written = {_address(tensor) for tensor in tensors_in(args[index] for index in _written(func))}
        temporary = written & self._copies
        for address in temporary:
            del self._known[address]
        self._unrounded -= temporary
        self._copies -= temporary
        if self._unrounded:
            self._settle({_address(tensor) for tensor in inputs} - written)
        if self._creates_state and not written <= self._known.keys():
            self._learn()
        if describe_operator(func).multiplies and not (inputs[-1].dim() > 1 and inputs[-1].shape[-2] == 1):
            self._update.warn(func)  # Adafactor's outer product adds nothing up
        out = self._run_steps(func, args, kwargs, inputs, written) if self._has_steps else NotImplemented
        if out is not NotImplemented:
            return out
        out = func(*args, **kwargs)
        self._unrounded |= written & self._known.keys()
        if func in _REPLACES_GRADIENT or (func is _COPIES and self._creates_state):
            results = list(tensors_in((out,)))
            for number, result in enumerate(results):
                self._note_gradient(result, inputs[number :: len(results)], is_stored=func is _COPIES)
        return out

    def _run_steps(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], inputs: list[Tensor], written: set[int]
    ) -> Any:
        """An operator in the arithmetic of the tensor that it writes; NotImplemented if that has none of its own.

        A temporary result has the arithmetic of its first operand with a role.
        """
        addresses = [*written, *map(_address, inputs)]
        known = next((self._known.get(a) or self._temporary.get(a) for a in addresses if self._is_owned(a)), None)
        line = None if known is None else self._update.line(func, known)
        if known is None or line is None:
            return NotImplemented
        out = run_update_step(func, args, kwargs, line)
        if out is not NotImplemented and not written:
            # Referenced until the end of the step, so that its address is not reused.
            self._temporary[_address(out)] = known._replace(tensor=out)
        return out

    def _is_owned(self, address: int) -> bool:
        return address in self._known or address in self._temporary

    def _note_gradient(self, result: Tensor, inputs: list[Tensor], is_stored: bool) -> None:
        """Register a result that replaces a gradient, or a copy of it, which is stored as the first momentum."""
        sources = [self._gradients[address] for address in map(_address, inputs) if address in self._gradients]
        if not sources:
            return
        (name, layer), address = sources[0], _address(result)
        # Referenced until the end of the step, so that its address is not reused.
        self._replacements.append(result)
        if is_stored:
            self._known[address] = _Known(result, "state", f"{name}.first", layer)
            self._unrounded.add(address)
            self._copies.add(address)
        else:
            self._gradients[address] = name, layer

    def _settle(self, addresses: set[int]) -> None:
        """Round those of some tensors that were written to."""
        due = sorted(addresses & self._unrounded)
        if due:
            self._unrounded.difference_update(due)
            self._update.round(self._known[address] for address in due)
            self._rounded.update((address, version(self._known[address].tensor)) for address in due)

    def finish(self) -> None:
        """Round all persistent tensors that may have changed since, whether or not a write to them was seen."""
        if self._learns_last:
            self._learn()
        self._update.round(
            known for address, known in self._known.items() if self._rounded.get(address) != version(known.tensor)
        )


def takes_lists(optimizer: Optimizer) -> bool:
    """Whether an optimizer can update all parameters together, which saves launches on a GPU."""
    return all(
        group.get("foreach") is not False and all(map(_is_plain, group["params"])) for group in optimizer.param_groups
    )


def _is_plain(parameter: Tensor) -> bool:
    """Whether a parameter is on a GPU, all of it in this process, with a gradient that is not sparse."""
    has_own_memory = parameter.is_cuda and not hasattr(parameter, "_local_tensor")
    return has_own_memory and (parameter.grad is None or parameter.grad.layout == torch.strided)


def _address(tensor: Tensor) -> int:
    """The address of a tensor, or of this process's part of a distributed one; -1 for sparse ones, which have none."""
    local: Tensor = getattr(tensor, "_local_tensor", tensor)
    return local.data_ptr() if local.layout == torch.strided else -1


_READS_NUMBER = torch.ops.aten._local_scalar_dense.default
"""`item()`, which Adam calls for the step of every parameter."""
_REPLACES_GRADIENT = (
    torch.ops.aten.add.Tensor,
    torch.ops.aten.neg.default,
    torch.ops.aten._foreach_add.List,
    torch.ops.aten._foreach_neg.default,
)
"""Ops whose result replaces the gradient in the update: with weight decay added, or negated to maximize."""
_COPIES = torch.ops.aten.clone.default
"""Makes the first momentum of a gradient."""


@cache
def _written(func: Any) -> tuple[int, ...]:
    arguments = func._schema.arguments
    return tuple(
        index
        for index, argument in enumerate(arguments)
        if argument.alias_info is not None and argument.alias_info.is_write and not argument.kwarg_only
    )
