"""The state of an emulated model: its numerics, the step, and the running layer."""

import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dis import get_instructions
from functools import cache, partial
from hashlib import blake2b
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.utils import _pytree as pytree
from torch.utils.checkpoint import CheckpointFunction

from presilicon.base import ConfigError
from presilicon.designs import Numerics, RoleFormat
from presilicon.emulation.exact import exactly, is_exact, was_exact_before
from presilicon.emulation.layer_plan import LayerPlan
from presilicon.emulation.monitoring.recorder import Recorder
from presilicon.emulation.operators.replacement import Replacements
from presilicon.emulation.origins import Origins
from presilicon.emulation.rounded import Rounded
from presilicon.emulation.site import Site
from presilicon.emulation.state.amax import AmaxHistories
from presilicon.emulation.state.recomputation import Moment, Region, innermost_record, open_regions, reentrant_regions
from presilicon.emulation.state.steps import StepCount, StepWarning
from presilicon.emulation.transforms import is_distributed
from presilicon.formats import MacUnit, has_tensor_cores, parse
from presilicon.ops import Operator
from presilicon.records import OPERANDS, Ends, Observer, PairObserver, Role, Stateful
from presilicon.workloads import is_recomputing

if TYPE_CHECKING:
    from presilicon.emulation.mode import EmulationMode

RoleFormats = tuple[tuple[Role, RoleFormat], ...]

_ROUNDED_IN_PASSES: tuple[Role, ...] = ("weight", "activation", "error", "gradient")
"""Roles that the model rounds; the others belong to the optimizer."""


_RESUMED = (
    *("step", "_pass", "_evaluated", "_counts_passes", "earlier_tasks", "_training", "_layers", "_calls", "rounded"),
    *("origins", "_mode", "_replayed"),
)
"""State of a forward pass that a recomputation continues."""
_APPLY = Function.apply.__func__.__code__  # type: ignore[attr-defined]
"""Calls the forward pass of a custom autograd function."""


class UncoveredWarning(UserWarning):
    """A model computes matrix products that are not emulated."""


_FLOAT32 = parse("float32")


def digest_of(inputs: Any) -> str:
    """A name for the arguments of a model, the same on every device."""
    total = blake2b(digest_size=6)
    for leaf in pytree.tree_leaves(inputs):
        if not isinstance(leaf, Tensor):
            total.update(f"{leaf if isinstance(leaf, bool | int | float | str) else type(leaf).__name__}/".encode())
            continue
        total.update(f"{tuple(leaf.shape)} {leaf.dtype}/".encode())
        local = getattr(leaf, "_local_tensor", leaf).detach()
        if local.layout is torch.strided and not local.is_meta and type(local).__name__ != "FakeTensor":
            total.update(local.resolve_conj().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return total.hexdigest()


@cache
def _multiplies(code: CodeType) -> bool:
    """Whether a function computes matrix products itself, as its bytecode tells."""
    from presilicon.emulation.ops.calls import readers, uncovered

    names = {func.__name__ for func in (*readers(), *uncovered())}
    names |= {"einsum", "tensordot", "inner", "vecdot", "bilinear", "scaled_dot_product_attention"}
    before = ""
    for step in get_instructions(code):
        is_call = step.opname.startswith("LOAD_") and step.argval in names and before != "self"  # a layer of that name
        if is_call or step.argrepr in ("@", "@="):
            return True
        before = step.argval
    return False


class TensorCoreWarning(UserWarning):
    """Sums of tensor cores are slow on this device, or replaced by float32 sums."""


def _is_reentrant_training() -> bool:
    """Whether reentrant checkpointing runs a forward pass that it will differentiate."""
    return any(any(region.record.needs_input_grad) for region in reentrant_regions())


class Watcher(Protocol):
    """Receives notes on the ops that emulation computes; coverage implements it."""

    def region(self, layer: str, operator: str, forward: str, backward: str) -> AbstractContextManager[None]:
        """A context whose ops, and their backward pass, are emulated in these formats."""
        ...

    def note_product(self, flops: int) -> None:
        """Called when a MAC unit multiplies, which no torch operator shows."""

    def note_step(self, layer: str, operator: str, formats: str, flops: int) -> None:
        """Called when a step of a vector op is computed in its format."""

    def unlisted(self) -> AbstractContextManager[None]:
        """A context whose ops are no part of the model."""
        ...


class Emulation:
    """State shared by the hooks of an emulated model, copied and saved with the model."""

    def __init__(
        self,
        numerics: Numerics,
        seed: int = 0,
        observers: Iterable[Observer] = (),
        ends: Ends = Ends(),
        operators: Iterable[Operator] = (),
        own: str | None = "",
    ) -> None:
        self.numerics = numerics
        self.seed = seed
        self.own = own
        """Prefix of the random streams of a model that was given no seed; None before its first pass."""
        self.observers: tuple[Observer, ...] = tuple(observers)
        self.pair_observers = tuple(observer for observer in self.observers if isinstance(observer, PairObserver))
        self.ends = ends
        self.count = StepCount()
        """Counts forward passes in training mode, and those in evaluation mode that a backward pass follows; forward
        passes under `torch.no_grad` do not count.
        """
        self.step = 0
        """Index of the training step of the last forward pass."""
        self.watcher: Watcher | None = None
        self.recorders: tuple[Recorder, ...] = ()
        """See tensors before and after rounding: monitors, and the probe of a step that a diagnosis inspects."""
        self.asks_what_if = False
        """Whether a recorder of the running step sees formats that the model does not compute in, in every layer."""
        self.amax = AmaxHistories()
        """Magnitudes for delayed scaling."""
        self.rounded = Rounded()
        self.origins = Origins()
        self.given_operators = tuple(operators)
        """Operators beside those of the numerics."""
        self.operators = Replacements([*numerics.make_operators(), *self.given_operators])
        self.is_idle = not self.observers and not self.operators and numerics.is_uniform and LayerPlan(numerics).is_idle
        """Whether nothing is rounded or observed in any layer, so that torch can compute the model."""
        self.touches_vectors = numerics.computes_vectors or bool(self.operators)
        """Whether vector ops are rounded or replaced in any layer, or computed by a user-defined format."""
        self.stale_weights = False
        """Whether weights change between the forward and the backward pass, which then rounds them anew."""
        self._pass = self._repeat = 0
        self._evaluated = ""
        """Prefix of the random streams of an evaluation: its inputs."""
        self._counts_passes = True
        self.inputs: Any = None
        """The arguments of the model, until its forward pass begins."""
        self.earlier_tasks = 0
        """Backward passes for which the running recomputation was made before."""
        self._awaits_backward = False
        self._layers: list[str] = []
        self._mode: EmulationMode | None = None
        self._training = False
        self._replayed: list[Moment] = []
        """Starts of the forward passes that the running recomputation has yet to repeat."""
        self._calls: dict[str, int] = {}
        self._plans: dict[tuple[str, int, RoleFormats], LayerPlan] = {}
        self._set_formats: dict[str, RoleFormats] = {}
        self.formats_used: dict[str, RoleFormats] = {}
        """The formats that were set when the last forward pass began."""
        self._warned: set[tuple[str, str]] = set()
        self._parts: dict[str, Stateful] = {}
        self._loaded: dict[str, Any] = {}
        """Loaded states of parts that are not there yet."""
        if numerics.delays_scales:
            self.add_state("amax histories", self.amax)

    def __getstate__(self) -> dict[str, Any]:
        fresh: dict[str, Any] = {
            "_layers": [],
            "_mode": None,
            "_calls": {},
            "_replayed": [],
            "_plans": {},
            "inputs": None,
            "rounded": Rounded(),
            "origins": Origins(),
            "watcher": None,
            "recorders": (),
        }
        return self.__dict__ | fresh

    @property
    def layer(self) -> str:
        """Qualified name of the innermost module that is running."""
        return self._layers[-1]

    @property
    def is_inside(self) -> bool:
        """Whether a module is running."""
        return bool(self._layers)

    @property
    def stream(self) -> str:
        """Prefix of the random streams of this forward pass: empty for the first pass of a step.

        Processes that train together, each on samples of its own, draw numbers of their own. An evaluation draws by its
        inputs, so that each batch has numbers of its own, and the same ones whatever was evaluated before.
        """
        if not self._counts_passes:
            return self._evaluated
        rank = torch.distributed.get_rank() if is_distributed() else 0
        numbers = {"rank": rank, "pass": self._pass, "repeat": self._repeat}
        return self._evaluated + "".join(f"{name}{number}/" for name, number in numbers.items() if number)

    def follow(self, model: "Emulation", repeat: int) -> None:
        """Compute as part of the last forward pass of `model`; each `repeat` has random numbers of its own."""
        self.step, self._pass, self._repeat = model.step, model._pass, repeat
        self.watcher, self.recorders, self.own = model.watcher, model.recorders, model.own

    def plan(self, layer: str) -> LayerPlan:
        """The plan of a layer at this step."""
        stage = self.numerics.stage(self.step) if self.numerics.schedule else 0
        key = (layer, stage, self._set_formats.get(layer, ()))
        plan = self._plans.get(key)
        if plan is None:
            plan = self._plans[key] = LayerPlan(self.numerics_of(layer), self.stale_weights)
            self._warn_of_sums(plan.numerics)
        return plan

    def _warn_of_sums(self, numerics: Numerics) -> None:
        """Warn once for each pair of formats that is to be added as tensor cores do, but has no instruction."""
        if numerics.sums != "tensor-core":
            return
        for phase, (left, right) in OPERANDS.items():
            formats = [numerics.operand(role, phase).format for role in (left, right)]
            key = (f"{formats[0]} by {formats[1]}", "sums")
            is_plain = all(fmt == _FLOAT32 for fmt in formats)
            if numerics.unit_of(phase, left, right).is_float32 and not is_plain:
                message = f'sums = "tensor-core": no instruction multiplies {key[0]}, so these sums are float32'
                self._warn_once(key, message, TensorCoreWarning)

    def _warn_once(self, key: tuple[str, str], message: str, kind: type[Warning], stacklevel: int = 2) -> None:
        if key not in self._warned:
            self._warned.add(key)
            warnings.warn(message, kind, stacklevel=stacklevel + 1)

    def warn_of_scales(self, layer: str, is_convolution: bool) -> None:
        """Warn once per layer that the sums of its products are not those of codes, which are scaled afterwards."""
        which = "of a convolution along channels" if is_convolution else "of other axes than the product reduces"
        message = f'sums = "tensor-core", layer "{layer}": scales {which} stay in the operands; sums are float32'
        self._warn_once((layer, "scales"), message, TensorCoreWarning)

    def numerics_of(self, layer: str) -> Numerics:
        """The numerics of a layer at this step, with the formats that were set."""
        in_force = self.numerics.in_force(layer, self.step, self.ends)
        return in_force.changed(dict(self._set_formats.get(layer, ())))

    def set_format(self, layer: str, role: Role, role_format: RoleFormat | None) -> None:
        """Set the format of a layer's role from the next forward pass on; None returns to the numerics' own."""
        formats = dict(self._set_formats.get(layer, ()))
        formats.pop(role, None)
        if role_format is not None:
            formats[role] = role_format
        self._set_formats[layer] = tuple(sorted(formats.items()))
        self.is_idle = False

    @property
    def set_formats(self) -> "dict[str, RoleFormats]":
        """The formats that were set, by layer."""
        return {layer: formats for layer, formats in self._set_formats.items() if formats}

    def enter(self, layer: str, training: bool, *, counts: bool = True) -> None:
        """Called when a module's forward begins; the outermost turns emulation on and counts if it `counts`."""
        if not self._layers:
            # Inside a backward pass this is a recomputation (activation checkpointing) of the step in progress.
            recomputes = torch._C._current_graph_task_id() != -1
            if self._replayed:
                moment = self._replayed.pop(0)
                self.step, self._pass = moment.step, moment.pass_number
            elif (
                self._remembers_passes
                and not (is_recomputing() or is_exact())
                and (recomputes or _is_reentrant_training())
            ):
                raise ConfigError(
                    "stochastic rounding, delayed scaling and schedules cannot repeat a forward pass in reentrant "
                    "checkpointing around a whole emulated model, or in one that is not torch's; "
                    "use torch.utils.checkpoint.checkpoint(..., use_reentrant=False)"
                )
            self._note_inputs(training)
            self._awaits_backward = False
            self.formats_used = self.set_formats
            if counts and torch.is_grad_enabled() and not recomputes:
                self.step, self._pass = self.count.upcoming
                self._awaits_backward = not training and not self.count.is_pinned
                if not self._awaits_backward:
                    self.count.begin(self.step, self._pass)
            self._calls = {}
            if training and not recomputes:
                with self.bookkeeping():
                    self.amax.advance()
            self._turn_on(training)
        self._note_regions()
        self._layers.append(layer)

    def _note_inputs(self, training: bool) -> None:
        """Let an evaluation draw by its inputs."""
        self._counts_passes = training or torch.is_grad_enabled()
        is_drawn = not training and self.numerics.is_stochastic(_ROUNDED_IN_PASSES)
        self._evaluated = f"{digest_of(self.inputs)}/" if is_drawn else ""
        self.inputs = None

    @property
    def _remembers_passes(self) -> bool:
        """Whether the bits of a pass depend on those before it."""
        numerics = self.numerics
        return numerics.is_stochastic(_ROUNDED_IN_PASSES) or numerics.delays_scales or bool(numerics.schedule)

    def bookkeeping(self) -> AbstractContextManager[None]:
        """A context for ops of emulation itself, which coverage does not list."""
        return nullcontext() if self.watcher is None else self.watcher.unlisted()

    def _turn_on(self, training: bool) -> None:
        self._training = training
        due = [recorder for recorder in self.recorders if recorder.is_due(self.step)]
        self.asks_what_if = any(recorder.what_if_plan("", self.step) for recorder in due)
        from presilicon.emulation.mode import EmulationMode, is_emulating

        if not self.is_idle or due or is_emulating():
            self._mode = EmulationMode(self, training)
            self._mode.__enter__()

    def show_module(self, layer: str, module: nn.Module, inputs: Any, output: Any) -> None:
        """Show a module's forward pass to the recorders of this step."""
        call = self._next_call(f"{layer} module")
        for recorder in self.recorders if self._training else ():
            if recorder.is_due(self.step):
                recorder.see_module(self.step, layer, module, inputs, output, call)

    def show_relu(self, output: Tensor) -> None:
        """Show the result of a ReLU of the running layer to the recorders of this step."""
        call = self._next_call(f"{self.layer} relu")
        for recorder in self.recorders if self._training else ():
            if recorder.is_due(self.step):
                recorder.see_relu(self.layer, output, call)

    def _next_call(self, counter: str) -> int:
        """The number of earlier calls in this forward pass."""
        call = self._calls.get(counter, 0)
        self._calls[counter] = call + 1
        return call

    def _note_regions(self) -> None:
        """Remember the state at the start of checkpointed regions, for their recomputations in the backward pass."""
        innermost = innermost_record()
        is_known = innermost is None or (self._layers and Region(innermost).moments_of(self))
        may_be_reentrant = not torch.is_grad_enabled() and (self._training or not self._layers)
        if is_known and not may_be_reentrant:
            return
        for region in open_regions():
            moments = region.moments_of(self)
            if self._layers and moments:
                continue
            moments.append(self._moment(region))
            if len(moments) == 1:
                region.continue_from(partial(self._resumed, moments, []))

    def _moment(self, region: Region) -> Moment:
        return Moment(
            step=self.step,
            pass_number=self._pass,
            evaluated=self._evaluated,
            earlier_tasks=self.earlier_tasks,
            training=self._training,
            layers=tuple(self._layers),
            calls=dict(self._calls),
            rounded=self.rounded.emptied(region.inputs),
            origins=self.origins.copied(region.inputs),
            is_exact=was_exact_before(region),
        )

    @contextmanager
    def _resumed(self, moments: list[Moment], tasks: list[int], inputs: Sequence[Any]) -> Iterator[None]:
        """A context in which the forward pass continues from an earlier moment; `tasks` counts its backward passes."""
        before = {name: getattr(self, name) for name in _RESUMED}
        first, task = moments[0], torch._C._current_graph_task_id()
        tasks.extend([task] if task not in tasks else [])
        self.earlier_tasks = first.earlier_tasks + tasks.index(task)
        self.step, self._pass = first.step, first.pass_number
        self._evaluated, self._counts_passes = first.evaluated, True
        self._layers, self._calls, self._mode = list(first.layers), dict(first.calls), None
        self.rounded, self.origins = first.seen_by(inputs)
        self._replayed = [] if first.layers else list(moments)
        if first.layers:
            self._turn_on(first.training)
        try:
            with exactly(first.is_exact):
                yield
        finally:
            mode: EmulationMode | None = self._mode
            if mode is not None:
                mode.leave()
            self.__dict__.update(before)

    def add_state(self, name: str, part: Stateful) -> None:
        """Save and load the state of `part` with the model's `state_dict`; a part of that name is replaced."""
        self._parts[name] = part
        if name in self._loaded:
            part.load_state_dict(self._loaded.pop(name))

    def part(self, name: str) -> Stateful | None:
        """The part that was added under a name."""
        return self._parts.get(name)

    def state_dict(self) -> dict[str, Any]:
        """Everything that the numerics carry from one step to the next; empty if they carry nothing.

        Where a training loop numbers the steps itself, it also saves their number.
        """
        state: dict[str, Any] = {}
        if (self.numerics.is_stochastic() or self.numerics.schedule) and not self.count.is_pinned:
            state |= {"count": self.count.state_dict(), "seed": self.seed}
            state |= {} if self.own == "" else {"own": self.own}
        if self._parts or self._loaded:
            state["parts"] = self._loaded | {name: part.state_dict() for name, part in self._parts.items()}
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a state; parts that are not there yet are loaded when they are added."""
        if "count" in state:
            self.count.load_state_dict(state["count"])
            self.step, self._pass = self.count.step, self.count.last_pass
            self.own = state.get("own", "")
        if state.get("seed", self.seed) != self.seed and self.numerics.is_stochastic():
            message = (
                f"this state is of a run that rounded with seed {state['seed']}, but the model has seed {self.seed}: "
                f"it does not continue to the same bits; call emulate_(..., seed={state['seed']})"
            )
            warnings.warn(message, StepWarning, stacklevel=3)
        self._loaded = dict(state.get("parts", {}))
        for name, part in self._parts.items():
            if name in self._loaded:
                part.load_state_dict(self._loaded.pop(name))

    def begin_step(self, step: int, passes: int = 0) -> None:
        """Count all forward passes from now on as passes of training step `step`, of which `passes` are done."""
        self.count.pin(step, passes)

    def note_replay(self) -> None:
        """Count a forward pass that a CUDA graph makes, without a call of the model."""
        self.step, self._pass = self.count.upcoming
        self.count.begin(self.step, self._pass)

    @property
    def depth(self) -> int:
        """The number of modules that are running, one inside the other."""
        return len(self._layers)

    def leave(self, output: Any = None) -> None:
        """Called when the innermost module's forward ends."""
        if len(self._layers) == 1 and (
            self._awaits_backward or (self.numerics.schedule and not self.count.seen_update)
        ):
            self._await_backward(output)
        self.unwind(len(self._layers) - 1)

    def unwind(self, depth: int) -> None:
        """Leave all layers but the outermost `depth`; without any, turn emulation off."""
        del self._layers[depth:]
        if not self._layers:
            self.rounded.clear()
            self.origins.clear()
            mode, self._mode = self._mode, None
            if mode is not None:
                mode.leave()

    def _await_backward(self, output: Any) -> None:
        """Count a forward pass in evaluation mode when its backward pass begins."""
        count, is_uncounted = self.count, self._awaits_backward
        running = self.step, self._pass

        def begin(error: Tensor) -> None:
            if is_uncounted:
                count.begin(*running)
            if self.numerics.schedule and not count.is_pinned:
                count.note_backward()

        for leaf in pytree.tree_leaves(output):
            if isinstance(leaf, Tensor) and leaf.requires_grad:
                leaf.register_hook(begin)

    def warn(self, func: Callable[..., Any]) -> None:
        """Warn once per layer that a function's matrix products stay in float32."""
        layer, name = key = (self._layers[-1], func.__name__)
        message = f'layer "{layer}": the matrix products of {name} are not emulated and stay in float32'
        self._warn_once(key, message, UncoveredWarning, stacklevel=4)

    def warn_of_method(self, layer: str, code: CodeType) -> None:
        """Warn once that a method that multiplies runs outside of its module's forward pass."""
        if not self.is_idle and not is_exact() and _multiplies(code):
            message = (
                f'layer "{layer}": {code.co_name} runs outside of the forward pass, and the matrix products that it '
                "computes itself stay in float32; compute them in a module, or call it from forward"
            )
            self._warn_once((layer, code.co_name), message, UncoveredWarning, stacklevel=5)

    def warn_of_generator(self, layer: str) -> None:
        """Warn once that the forward pass of a module is a generator, which computes after it has ended."""
        if not self.is_idle:
            message = (
                f'layer "{layer}": forward is a generator, and what it computes itself stays in float32; return a list'
            )
            self._warn_once((layer, "generator"), message, UncoveredWarning, stacklevel=4)

    def _warn_of_autocast(self) -> None:
        """Warn once that torch.autocast rounds operands and results on its own."""
        message = (
            "torch.autocast casts the operands and results of emulated ops, so that they are not in the formats of "
            "the numerics; leave it off, and name such formats in the numerics"
        )
        self._warn_once(("", "autocast"), message, UncoveredWarning, stacklevel=4)

    def unit_on(self, device: torch.device, core: MacUnit) -> MacUnit:
        """The unit that adds as a tensor core does, on this device: a card with another one adds in float32."""
        is_modelled = device.type != "cuda" or has_tensor_cores(device)
        key = (str(device), "tensor core")
        if key not in self._warned and (device.type == "cpu" or not is_modelled):
            words = (
                "the CPU runs a model of the tensor core, about 30 times slower than float32 sums"
                if is_modelled
                else f"the tensor cores of {torch.cuda.get_device_name(device)} are not modelled: sums are float32"
            )
            self._warn_once(key, f'sums = "tensor-core": {words}', TensorCoreWarning)
        return core if is_modelled else MacUnit()

    def check_custom_function(self, func: Callable[..., Any]) -> None:
        """Warn once per layer if an op runs in a custom autograd function, whose backward pass is not emulated."""
        key = (self._layers[-1], "custom")
        if key in self._warned or is_recomputing():
            return
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if frame.f_code is _APPLY and frame.f_locals.get("cls") is not CheckpointFunction:
                message = (
                    f'layer "{key[0]}": the backward pass of a custom autograd function that calls {func.__name__} '
                    "is not emulated and stays in float32"
                )
                self._warn_once(key, message, UncoveredWarning, stacklevel=4)
                return
            frame = frame.f_back

    def site(self, training: bool, kind: str = "") -> Site:
        """The site of the running layer's next op; `kind` distinguishes vector ops from products."""
        if torch._C._is_any_autocast_enabled():
            self._warn_of_autocast()
        self._note_regions()
        layer = self._layers[-1]
        return Site(self, layer, f"{kind}{self._next_call(layer + kind)}", training)
