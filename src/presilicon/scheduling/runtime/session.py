"""A dispatch mode that sends the aten calls of an unmodified training loop to the devices that a schedule names.

Calls return at once, with tensors whose values follow (`HybridTensor`). Plain tensors (parameters, batches) stay plain;
their storages are followed by version. A value that Python asks for is waited for. When the mode ends, everything is
back in the memory of the plain tensors, and tensors that are left, such as optimizer state, become plain ones.
"""

import weakref
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn.parameter import is_lazy
from torch.overrides import TorchFunctionMode
from torch.utils._mode_utils import no_dispatch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from presilicon.base import ConfigError
from presilicon.ops import OperatorFacts, describe_operator
from presilicon.records import Problem, Schedule
from presilicon.scheduling.runtime.calls import (
    AS_CALLED,
    CONVOLUTION_BACKWARD,
    Spec,
    divide_call,
    divide_convolution,
    results_of,
    written_by,
)
from presilicon.scheduling.runtime.devices import DeviceTensor, TorchDevice, map_leaves
from presilicon.scheduling.runtime.executor import Executor, Job, Lane, LaneChoice, OpResult, Version, operands_of

aten = torch.ops.aten
_SET_DATA = Tensor.data.__set__  # type: ignore[attr-defined]
_HOST = torch.device("cpu")
_CPU = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
_SPARSE = "the runtime cannot follow sparse tensors; use dense gradients, as with sparse=False"
UNSCHEDULED = 1e9
"""Priority of ops that were not captured: after those of the schedule."""


class TrackedStorage:
    """A storage: its current version, and the memory of the plain tensor that it belongs to."""

    __slots__ = ("alive", "home", "version")

    def __init__(self, version: Version, home: Tensor | None = None, alive: Any = None) -> None:
        self.version, self.home, self.alive = version, home, alive


class HybridTensor(Tensor):
    """A tensor whose values are on some device, or on their way there."""

    _buffer: TrackedStorage
    _session: "Session"

    @staticmethod
    def __new__(cls, session: "Session", buffer: TrackedStorage, spec: Spec) -> "HybridTensor":
        """Wrap a buffer with the metadata of one of its views."""
        tensor: HybridTensor = Tensor._make_wrapper_subclass(
            cls, spec.shape, strides=spec.strides, storage_offset=spec.offset, dtype=spec.dtype, device=_HOST
        )
        tensor._buffer, tensor._session = buffer, session
        key, alive = id(tensor), session.alive
        alive[key] = weakref.ref(tensor, lambda _: alive.pop(key, None))
        return tensor

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Outside of its session: an ordinary call on the values."""

        def plain(leaf: Any) -> Any:
            return leaf._session.host_tensor(leaf) if isinstance(leaf, HybridTensor) else leaf

        return func(*map_leaves(plain, args), **map_leaves(plain, kwargs or {}))

    def plain(self) -> Tensor:
        """A plain copy of the values, when they are there."""
        with _disable_current_modes(), torch.no_grad():
            return self._session.host_tensor(self).clone().requires_grad_(self.requires_grad)

    def numpy(self, *, force: bool = False) -> Any:
        """As `Tensor.numpy`."""
        return self.plain().numpy(force=force)

    def tolist(self) -> Any:
        """As `Tensor.tolist`."""
        return self.plain().tolist()

    def __array__(self, dtype: Any = None) -> Any:
        return self.plain().__array__(dtype)  # type: ignore[no-untyped-call]

    def __format__(self, spec: str) -> str:
        return format(self.plain().detach(), spec)

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return repr(self.plain())

    def __deepcopy__(self, memo: Any) -> Tensor:
        if self.grad_fn is not None:
            raise RuntimeError("only tensors without a graph can be copied deeply, as in plain torch; detach it first")
        return self.plain()

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.plain().detach().requires_grad_(self.requires_grad).__reduce_ex__(protocol)  # type: ignore[no-untyped-call]


class _Assignments(TorchFunctionMode):
    """Lets `parameter.data = ...` take a tensor whose values are on some device."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func == _SET_DATA and isinstance(args[1], HybridTensor):
            args = (args[0], args[1].plain().detach())
        return func(*args, **kwargs or {})


class Placement(NamedTuple):
    """Where a captured op runs."""

    task: int
    lanes: tuple[Lane, ...]
    priority: float
    choices: tuple[LaneChoice, ...]
    clock: float
    readers: tuple[Lane, ...]
    """Lanes that read its result in the next step."""


class Session(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Executes the training steps of a model as a schedule says.

    An op is recognised by its operator and the sides of its first result: the n-th such call of a step is the n-th such
    op of the schedule. What is not recognised runs on the reference device and is counted in `unknown`. A step ends
    when the first op of the schedule comes again.
    """

    def __init__(
        self, model: nn.Module, problem: Problem, schedule: Schedule, executor: Executor, *, barrier: bool = True
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.model, self.executor, self.barrier = model, executor, barrier
        self.alive: dict[int, weakref.ref[HybridTensor]] = {}
        self.unknown: Counter[str] = Counter()
        self.uncovered: Counter[tuple[str, str]] = Counter()
        """By operator and lane: calls that the lane has no kernel for."""
        self.has_trained = False
        """Whether an op ran whose gradient may be wanted."""
        self.step = -1
        self.steps_s: list[float] = []
        """Start of each step."""
        self._placements = _placements(problem, schedule, executor)
        self._operators = {operator for operator, _ in self._placements}
        self._seen: Counter[Any] = Counter()
        self._buffers: dict[int, TrackedStorage] = {}
        self._state: set[int] = set()
        self._covers: dict[Any, bool] = {}
        self._batches: dict[Any, tuple[Tensor, TrackedStorage, tuple[int, ...]]] = {}
        """Copies of plain tensors that this step reads; the tensors themselves are kept, so that no other takes their
        place in memory."""
        self._depth = 0
        self._in_list = False
        self._outside = ExitStack()
        _refuse_sparse(model)
        for name, tensor in (*model.named_parameters(), *model.named_buffers()):
            if is_lazy(tensor):
                raise ConfigError(
                    f"{name} has no shape yet: call the lazy model once with a batch, and schedule it then"
                )
            if tensor.device.type != "cpu":
                raise ConfigError(
                    f"the model must be in the host's memory, not on {tensor.device}: the schedule says which device "
                    "runs an op; move it with model.cpu()"
                )
            self._state.add(tensor.untyped_storage()._cdata)
            self._buffer_of(tensor)

    def __enter__(self) -> "Session":
        if not self._depth:
            # Saving a model reads the memory of its parameters.
            hook = self.model.register_state_dict_pre_hook(lambda *_: self.synchronize())  # type: ignore[no-untyped-call]
            self._outside.callback(hook.remove)
            self._outside.enter_context(_Assignments())
        self._depth += 1
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *exception: Any) -> None:
        super().__exit__(*exception)  # type: ignore[no-untyped-call]
        self._depth -= 1
        if self._depth:
            return
        self._outside.close()
        try:
            self.synchronize()
            self._become_plain()
        finally:
            self.executor.close()

    def synchronize(self) -> None:
        """Wait for everything, and bring the plain tensors up to date."""
        self.executor.drain()
        with _disable_current_modes(), torch.no_grad():
            for buffer in self._buffers.values():
                if buffer.home is not None:
                    values = self.executor.wait(buffer.version)
                    if values.data_ptr() != buffer.home.data_ptr():
                        buffer.home.copy_(values)
                        # Devices that have these contents keep them.
                        buffer.version.tensors[self.executor.host.label] = TorchDevice.wrap(buffer.home)

    def host_tensor(self, tensor: Tensor) -> Tensor:
        """The values of a tensor in the host's memory, when they are there."""
        if not isinstance(tensor, HybridTensor):
            buffer = self._buffers.get(tensor.untyped_storage()._cdata)
            if buffer is None or buffer.alive.expired():
                return tensor
        else:
            buffer = tensor._buffer
        flat = self.executor.wait(buffer.version)
        flat = flat if flat.dtype == tensor.dtype else flat.view(tensor.dtype)
        return flat.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())

    def _become_plain(self) -> None:
        """Turn the tensors that are left into plain ones; those that autograd holds keep their class and work."""
        for parameter in self.model.parameters():
            if isinstance(parameter.grad, HybridTensor):
                parameter.grad = self.host_tensor(parameter.grad)
        left = [tensor for reference in self.alive.values() if (tensor := reference()) is not None]
        self.alive.clear()
        for tensor in left:
            plain = self.host_tensor(tensor).detach()
            if tensor.grad_fn is None and not tensor.requires_grad:
                # If somebody else refers to it, it stays a HybridTensor, which reads its values when asked.
                with suppress(RuntimeError):
                    torch.utils.swap_tensors(tensor, plain)  # type: ignore[no-untyped-call]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        func = AS_CALLED.get(func, func) if self._in_list else func
        facts = describe_operator(func)
        tensors = list(_tensors((args, kwargs)))
        if any(tensor.layout is not torch.strided for tensor in tensors):
            raise ConfigError(f"{facts.full_name}: {_SPARSE}")
        follows = any(isinstance(tensor, HybridTensor) or self._is_known(tensor) for tensor in tensors)
        if not follows and facts.full_name not in self._operators:
            return func(*args, **kwargs)
        if (facts.is_view or func is aten.new_empty.default) and not isinstance(args[0], HybridTensor):
            return func(*args, **kwargs)
        if facts.turns:
            with no_dispatch():  # only the metadata of the tensor itself changes
                return func(*args, **kwargs)
        if func is aten._local_scalar_dense.default:
            return func(self.host_tensor(args[0]))
        if follows and any(self._is_cast(tensor) for tensor in tensors):
            return self._run_now(func, facts, args, kwargs)
        if facts.is_foreach and follows:
            return self._each(func, args, kwargs)
        if func is aten.native_dropout.default and args[2]:
            return self._drop(args[0], args[1])
        specs, key = results_of(func, args, kwargs)
        if facts.resizes or (facts.is_immediate and follows) or specs is None:
            return self._run_now(func, facts, args, kwargs) if follows else func(*args, **kwargs)
        if facts.is_view:
            views = [HybridTensor(self, args[0]._buffer, spec) for spec in specs if spec is not None]
            return views if func._schema.returns[0].type.kind() == "ListType" else views[0]
        if func is CONVOLUTION_BACKWARD:
            outputs: list[Any] = [None, None, None]
            for place, part, part_args in divide_convolution(args):
                specs, key = results_of(part, part_args, kwargs)
                assert specs is not None
                results = self._issue(
                    part, replace(describe_operator(part), full_name=facts.full_name), part_args, kwargs, specs, key
                )
                outputs[place] = next(result for result in results if result is not None)
            return tuple(outputs)
        if not follows and self._expected(facts.full_name, specs, args) is None:
            return func(*args, **kwargs)
        results = self._issue(func, facts, args, kwargs, specs, key)
        if len(facts.returned) == 1:
            return results if func._schema.returns[0].type.kind() == "ListType" else results[0]
        return tuple(results) if facts.returned else None

    def _each(self, func: Any, args: Any, kwargs: Any) -> Any:
        """A call on lists of tensors, by torch's own loop over calls on single ones."""
        if func._overloadname == "Tensor" and func._schema.name.startswith("aten::_foreach_addc"):
            args = (*args[:3], self.host_tensor(args[3]))  # its factors are read from memory
        self._in_list = True
        try:
            with self:
                return func.redispatch(_CPU, *args, **kwargs)
        finally:
            self._in_list = False

    def _is_cast(self, tensor: Tensor) -> bool:
        """Whether a tensor views the bytes of a storage as another type."""
        if isinstance(tensor, HybridTensor):
            return tensor.dtype != tensor._buffer.version.dtype
        buffer = self._buffers.get(tensor.untyped_storage()._cdata)
        return buffer is not None and not buffer.alive.expired() and tensor.dtype != buffer.version.dtype

    def _is_known(self, tensor: Tensor) -> bool:
        buffer = self._buffers.get(tensor.untyped_storage()._cdata)
        return buffer is not None and not buffer.alive.expired()

    def _expected(self, name: str, specs: Sequence[Spec | None], args: Any) -> Any:
        """The key of a captured op; None if no such op was captured."""
        first = next((spec for spec in specs if spec is not None), None)
        if first is not None:
            sides = tuple(
                sorted(side for side, stride in zip(first.shape, first.strides, strict=True) if stride and side > 1)
            )
        else:
            written = next(_tensors(args), None)
            sides = () if written is None else tuple(sorted(side for side in written.shape if side > 1))
        return (name, sides) if (name, sides) in self._placements else None

    def _recognise(self, key: Any) -> Placement | None:
        if key is None:
            return None
        placements = self._placements[key]
        index = self._seen[key] % len(placements)
        if placements[index].task == 0 and torch.is_grad_enabled():
            self._begin()
        self._seen[key] += 1
        return placements[index]

    def _begin(self) -> None:
        self.step += 1
        self._seen.clear()
        self._batches.clear()
        if self.barrier:
            self.executor.drain()
        self.steps_s.append(self.executor.now_s())
        for address, buffer in list(self._buffers.items()):
            if address not in self._state and (buffer.alive.expired() or buffer.version.writer is None):
                del self._buffers[address]  # a batch of an earlier step

    def _issue(
        self, func: Any, facts: OperatorFacts, args: Any, kwargs: Any, specs: Sequence[Spec | None], key: Any
    ) -> list[Any]:
        """Send a call to its device, and return its results."""
        self.has_trained = self.has_trained or torch.is_grad_enabled()
        placement = self._recognise(self._expected(facts.full_name, specs, args))
        if placement is None:
            self.unknown[facts.full_name] += 1
        write = {id(tensor) for tensor in _tensors(written_by(func, args, kwargs))}
        buffers: dict[int, TrackedStorage] = {}

        def operand(leaf: Any) -> Any:
            if not isinstance(leaf, Tensor):
                return leaf
            buffer, offset, strides = self._place(leaf, id(leaf) in write)
            if id(leaf) in write:
                buffers[id(buffer)] = buffer
            return DeviceTensor(buffer.version, tuple(leaf.shape), strides, offset, leaf.dtype)

        placed, placed_kwargs = map_leaves(operand, tuple(args)), map_leaves(operand, kwargs)
        lanes = self._lanes(func, facts, placement, placed, placed_kwargs, key)
        returned = facts.returned * len(specs) if len(facts.returned) == 1 < len(specs) else facts.returned
        results = [
            None if spec is None or source is not None else _new_result(spec)
            for spec, source in zip(specs, returned, strict=False)
        ]
        calls = divide_call(func, placed, len(lanes)) if len(lanes) > 1 and not write else None
        if calls is None:
            job = self._job(lanes[0], facts.full_name, placement)
            job.func, job.args, job.kwargs, job.results = func, placed, placed_kwargs, results
            job.writes = [
                (buffer.version, Version(buffer.version.size, buffer.version.dtype)) for buffer in buffers.values()
            ]
            writes = job.writes
            self.executor.submit(job, {leaf._storage for leaf in operands_of((placed, placed_kwargs))})
            for buffer, (_, after) in zip(buffers.values(), writes, strict=True):
                buffer.version = after
        else:
            job = self._issue_parts(func, facts, calls, placed_kwargs, lanes, placement, results)
        if placement is not None:
            for version in [buffer.version for buffer in buffers.values()] + [r.version for r in results if r]:
                for lane in placement.readers:
                    self.executor.prefetch(version, lane, job)
        return [
            (kwargs.get(source) if isinstance(source, str) else args[source])
            if source is not None
            else None
            if spec is None or result is None
            else HybridTensor(self, TrackedStorage(result.version), Spec(spec.shape, spec.strides, 0, spec.dtype))
            for spec, source, result in zip(specs, returned, results, strict=False)
        ]

    def _job(self, lane: Lane, name: str, placement: Placement | None) -> Job:
        if placement is None:
            return Job("op", lane, UNSCHEDULED, name, -1, max(self.step, 0))
        job = Job("op", lane, placement.priority, name, placement.task, self.step)
        job.choices, job.clock = placement.choices, placement.clock
        return job

    def _issue_parts(
        self,
        func: Any,
        facts: OperatorFacts,
        calls: Any,
        kwargs: Any,
        lanes: Sequence[Lane],
        placement: Any,
        results: Any,
    ) -> Job:
        """Run the parts of a big op on several devices, and join their results on the first."""
        parts: list[list[DeviceTensor]] = [[] for _ in results]
        for lane, call in zip(lanes, calls, strict=True):
            specs, _ = results_of(func, *map_leaves(_as_meta, (call, kwargs)))
            assert specs is not None
            job = self._job(lane, facts.full_name, placement)
            job.choices = ()  # a part stays where it is
            job.func, job.args, job.kwargs = func, call, kwargs
            job.results = [None if spec is None else _new_result(spec) for spec in specs]
            for place, spec, result in zip(parts, specs, job.results, strict=True):
                if spec is not None and result is not None:
                    place.append(DeviceTensor(result.version, spec.shape, spec.strides, 0, spec.dtype))
            self.executor.submit(job, {leaf._storage for leaf in operands_of((call, kwargs))})
        for place, result in zip(parts, results, strict=True):
            if result is not None:
                job = self._job(self.executor.reference, facts.full_name, placement)
                if lanes[0].device.covers(aten.cat.default, (place, 0), {}):
                    job.lane = lanes[0]
                job.choices = ()
                job.func, job.args, job.results = aten.cat.default, (place, 0), [result]
                self.executor.submit(job, {leaf._storage for leaf in place})
        return job

    def _lanes(
        self, func: Any, facts: OperatorFacts, placement: Placement | None, args: Any, kwargs: Any, key: Any
    ) -> Any:
        """The lanes of a call: those of the schedule, if they have a kernel for it."""
        if placement is None:
            return (self.executor.reference,)
        lanes = []
        for lane in placement.lanes:
            known = (lane.label, key)
            if known not in self._covers:
                self._covers[known] = lane.device.covers(func, args, kwargs)
            if self._covers[known]:
                lanes.append(lane)
            else:
                self.uncovered[facts.full_name, lane.label] += 1
        return lanes or (self.executor.reference,)

    def _place(self, tensor: Tensor, is_written: bool) -> tuple[TrackedStorage, int, tuple[int, ...]]:
        if isinstance(tensor, HybridTensor):
            return tensor._buffer, int(tensor.storage_offset()), tensor.stride()
        if not is_written and not self._is_known(tensor):
            # A batch, which may be a slice of the whole data, and whose memory may be filled again: a copy is moved.
            storage = tensor.untyped_storage()
            key = (storage._cdata, tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype)
            if key not in self._batches or not torch.is_grad_enabled():
                copy = tensor.detach().clone(memory_format=torch.contiguous_format)
                self._batches[key] = tensor, TrackedStorage(self._version_of(copy.view(-1))), copy.stride()
            _, buffer, strides = self._batches[key] if torch.is_grad_enabled() else self._batches.pop(key)
            return buffer, 0, strides
        return self._buffer_of(tensor), int(tensor.storage_offset()), tensor.stride()

    def _buffer_of(self, tensor: Tensor) -> TrackedStorage:
        storage = tensor.untyped_storage()
        buffer = self._buffers.get(storage._cdata)
        if buffer is None or buffer.alive.expired():
            size = storage.nbytes() // tensor.element_size()
            home = tensor.data.as_strided((size,), (1,), 0)  # with a version counter of its own
            buffer = TrackedStorage(self._version_of(home), home, StorageWeakRef(storage))  # type: ignore[no-untyped-call]
            self._buffers[storage._cdata] = buffer
        return buffer

    def _version_of(self, flat: Tensor) -> Version:
        version = Version(flat.numel(), flat.dtype)
        version.tensors[self.executor.host.label] = DeviceTensor(flat, tuple(flat.shape), flat.stride(), 0, flat.dtype)
        return version

    def _drop(self, tensor: Tensor, share: float) -> tuple[Tensor, Tensor]:
        """Dropout with a mask that is drawn here, so that random numbers come in the order of the program."""
        # In the order of the tensor's memory, as torch draws it.
        like = torch.empty_strided(tensor.shape, tensor.stride(), device="meta")
        mask = torch.empty_like(like, dtype=torch.bool, device=_HOST).bernoulli_(1 - share)
        func, args = aten.native_dropout_backward.default, (tensor, mask, 1 / (1 - share))
        specs, key = results_of(func, args, {})
        assert specs is not None
        facts = replace(describe_operator(func), full_name="aten.native_dropout.default")
        [output] = self._issue(func, facts, args, {}, specs, key)
        return output, mask

    def _run_now(self, func: Any, facts: OperatorFacts, args: Any, kwargs: Any) -> Any:
        """Run a call here, when its operands have arrived: its results depend on values, or are random."""
        if facts.resizes:
            raise ConfigError(f"{facts.full_name} changes a tensor's storage in place, which the runtime cannot follow")
        self.unknown[facts.full_name] += 1
        written = list(_tensors(written_by(func, args, kwargs)))
        if written:
            self.executor.drain()
        hosts = {id(tensor): self.host_tensor(tensor) for tensor in _tensors((args, kwargs))}
        output = func(
            *map_leaves(lambda leaf: hosts.get(id(leaf), leaf), args),
            **map_leaves(lambda leaf: hosts.get(id(leaf), leaf), kwargs),
        )
        for tensor in written:
            buffer = tensor._buffer if isinstance(tensor, HybridTensor) else self._buffer_of(tensor)
            buffer.version = self._version_of(self.executor.wait(buffer.version))
        back = {id(hosts[id(tensor)]): tensor for tensor in written}
        return map_leaves(lambda leaf: back.get(id(leaf), leaf), output)


def _placements(problem: Problem, schedule: Schedule, executor: Executor) -> dict[Any, list[Placement]]:
    """Where the ops of a schedule run, by operator and sides of the first result."""
    placements: dict[Any, list[Placement]] = {}
    lanes = [tuple(executor.lanes[f"{slot.mode.device} {unit}"] for unit in slot.units) for slot in schedule.started]
    for task, slot in zip(problem.tasks, schedule.started, strict=True):
        if not task.operator:
            raise ConfigError(f"op {task.name} was not captured from a model, so that it cannot be executed")
        choices = {}
        for mode in task.modes:
            if mode.units == 1 and mode.clock in (1.0, slot.mode.clock):
                for unit in range(problem.pool[mode.device].units):
                    lane = executor.lanes[f"{mode.device} {unit}"]
                    added_w = mode.peak_w - problem.pool[mode.device].idle_w
                    if lane.label not in choices or mode.clock == slot.mode.clock:
                        choices[lane.label] = LaneChoice(lane, mode.time_s, added_w)
        readers = {lane.label: lane for reader in task.next_readers for lane in lanes[reader]}
        sides = tuple(sorted(side for side in task.shape if side > 1))
        placements.setdefault((task.operator, sides), []).append(
            Placement(
                task.id, lanes[task.id], slot.start_s, tuple(choices.values()), slot.mode.clock,
                tuple(lane for lane in readers.values() if lane not in lanes[task.id]),
            )
        )  # fmt: skip
    return placements


def _refuse_sparse(model: nn.Module) -> None:
    """Refuse layers whose gradients are sparse, before anything is trained."""
    for name, layer in model.named_modules():
        if isinstance(layer, (nn.Embedding, nn.EmbeddingBag)) and layer.sparse:
            raise ConfigError(f"{name or 'the model'} ({type(layer).__name__} with sparse=True): {_SPARSE}")


def _tensors(values: Any) -> Iterator[Tensor]:
    for value in values.values() if isinstance(values, Mapping) else values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, (list, tuple, Mapping)):
            yield from _tensors(value)


def _new_result(spec: Spec) -> OpResult:
    return OpResult(Version(spec.size, spec.dtype), spec.shape, spec.strides)


def _as_meta(leaf: Any) -> Any:
    if not isinstance(leaf, DeviceTensor):
        return leaf
    size = Spec(leaf.shape, leaf.strides, 0, leaf.dtype).size
    return torch.empty(size, dtype=leaf.dtype, device="meta").as_strided(leaf.shape, leaf.strides, 0)
