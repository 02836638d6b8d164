"""Diagnosis of a training run: probes of single steps, and verdicts over many.

In a probed step, a `Probe` sees the tensors before and after rounding; the results do not change. One step in `EVERY`
is probed. A step that fails is repeated with a probe, to find the first number that is not finite and its layer.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from msgspec import convert, to_builtins
from msgspec.structs import replace
from torch import nn

from presilicon.designs import LossScale, Numerics
from presilicon.emulation.emulation import Emulation
from presilicon.emulation.training.probe import Probe, is_finite, name_layer
from presilicon.records import Finding, Role, RoleShares
from presilicon.workloads import Splits, resident_pair

EVERY = 50
DEAD = 0.9
"""Share of a ReLU's units that are zero for every example of a batch, above which it is reported."""
VANISHING, EXPLODING = 1e-6, 1e4
"""Limits for the norm of the first layer's gradient over that of the last."""
GROWN = 1e3
"""Size of a weight that indicates updates that are too large."""
HOPELESS = 20
"""Steps in a row without an update after which a run cannot recover."""

OnFinding = Callable[[Finding], None]


class Diagnosis:
    """Diagnoses one training run; each finding is reported once per layer, role and symptom."""

    def __init__(self, numerics: Numerics, on_finding: OnFinding | None = None) -> None:
        self.findings: list[Finding] = []
        self.shares: list[RoleShares] = []
        """Of the steps probed so far; a run saves this list with its progress."""
        self._rule: LossScale = numerics.loss_scale
        self._counts: Counter[tuple[str, str, str]] = Counter()
        self._on_finding = on_finding
        self._without_update = 0

    def state_dict(self) -> dict[str, Any]:
        """Findings so far."""
        return {
            "findings": to_builtins(self.findings),
            "said": [[*key, count] for key, count in self._counts.items()],
            "without_update": self._without_update,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore findings, without reporting them again."""
        self.findings = convert(state["findings"], list[Finding])
        self._counts = Counter({(layer, role, symptom): count for layer, role, symptom, count in state["said"]})
        self._without_update = int(state["without_update"])

    def is_due(self, step: int) -> bool:
        """Whether a step should be probed."""
        return step % EVERY == 0

    @contextmanager
    def probing(self, emulation: Emulation, step: int) -> Iterator[Probe]:
        """A context in which a probe inspects the step."""
        probe = Probe(step)
        before = emulation.recorders
        emulation.recorders = (*before, probe)
        try:
            yield probe
        finally:
            emulation.recorders = before

    def check_data(self, data: Splits, numerics: Numerics) -> None:
        """Report examples that are not finite or exceed the range of the activation format.

        Data that are read batch by batch are not inspected as a whole; a batch that makes a step fail is.
        """
        for name in ("train", "validation", "test"):
            pair = resident_pair(getattr(data, name))
            if pair is None:
                continue
            inputs, targets = pair
            for what, tensor in (("inputs", inputs), ("targets", targets)):
                if tensor.is_floating_point() and not is_finite(tensor):
                    bad = int((~tensor.isfinite()).sum())
                    message = f"{bad} numbers of the {name} {what} are not finite"
                    self._add(0, "data", "data", message, f"{name} {what}")
            largest = getattr(numerics.activation.format, "max", None)
            if inputs.is_floating_point() and isinstance(largest, float) and inputs.numel():
                top = float(inputs.abs().nan_to_num(0.0, 0.0, 0.0).max())
                if top > largest:
                    message = f"{name} inputs reach {top:.3g}, and {numerics.activation.format} ends at {largest:.3g}"
                    self._add(0, "data", "data", f"{message}: scale the data", f"{name} range")

    def note(self, probe: Probe) -> None:
        """Keep the shares of a probed step, and report its ReLUs most of whose units are zero for a whole batch."""
        self.shares += probe.shares()
        for layer, share in probe.dead:
            if share > DEAD:
                message = f"{share:.0%} of the units of {name_layer(layer)} are zero for every example of the batch"
                self._add(probe.step, "dead-relu", "conceptual", message, layer, "activation", share)

    def inspect(self, probe: Probe) -> None:
        """Report the findings of a probed step that has seen its gradients."""
        for finding in probe.findings():
            self._report(finding)
        if probe.gradient_ratio is not None:
            where, ratio = probe.gradient_ratio
            message = f"the gradient of {name_layer(where)} is {ratio:.1g} times that of the last layer"
            if ratio < VANISHING:
                self._add(probe.step, "vanishing", "conceptual", message, where, "gradient")
            if ratio > EXPLODING:
                self._add(probe.step, "exploding", "conceptual", message, where, "gradient")

    def fail(self, probe: Probe, model: nn.Module, inputs: Any) -> Finding:
        """The reason why a step's loss or gradients are not finite."""
        if not is_finite(inputs):
            finding = Finding(
                step=probe.step,
                symptom="non-finite",
                bug="data",
                role="activation",
                origin="passed on",
                message="the batch itself has numbers that are not finite",
            )
            self._report(finding)
            return finding
        sizes = [(float(p.detach().abs().max()), name) for name, p in model.named_parameters() if p.numel()]
        grown = [entry for entry in sizes if entry[0] >= GROWN]  # false for NaN
        if probe.first is not None and probe.first.bug == "structural" and grown:
            size, name = max(grown)
            message = f"{probe.first.message}; weights have grown to {size:.1e} ({name}): try a lower learning rate"
            probe.first = replace(probe.first, bug="conceptual", message=message)
        finding = probe.first or Finding(
            step=probe.step,
            symptom="non-finite",
            bug="structural",
            message="the loss or its gradient is not finite, and no layer's numbers are to blame: look at the loss",
        )
        self._report(finding)
        return finding

    def after_update(self, step: int, finite: bool, scale: float) -> str | None:
        """The reason if the run cannot recover, else None."""
        self._without_update = 0 if finite else self._without_update + 1
        falls = self._rule.kind in ("dynamic", "enhanced")
        if self._without_update < HOPELESS or (falls and scale > max(1.0, self._rule.minimum_at(step))):
            return None
        reason = f"{HOPELESS} steps in a row had gradients that are not finite, at a loss scale of {scale:.3g}"
        high = scale > 1.0
        verdict = "a scale that is too high, or divergence" if high else "divergence, not a scale that was too high"
        self._add(step, "loss-scale", "conceptual", f"{reason}: {verdict}")
        return reason

    def judge_skips(self, skipped: Sequence[int], steps: int) -> Finding | None:
        """A verdict on the updates that the loss scale skipped."""
        if not skipped:
            return None
        early = sum(step < max(steps // 10, 20) for step in skipped)
        share = len(skipped) / max(steps, 1)
        count = f"{len(skipped)} of {steps} updates were skipped"
        if early == len(skipped):
            message = f"{count}, all at the start: the scale came down to where it belongs"
        elif share <= 2 / self._rule.interval + 0.01:
            message = f"{count}, as often as a scale that grows every {self._rule.interval} steps must: harmless"
        else:
            message = f"{count}, more than growth explains: gradients overflow again and again; look for divergence"
        return self._add(skipped[-1], "loss-scale", "conceptual", message, share=share)

    def _add(
        self,
        step: int,
        symptom: Any,
        bug: Any,
        message: str,
        layer: str = "",
        role: Role | None = None,
        share: float | None = None,
    ) -> Finding:
        finding = Finding(step=step, symptom=symptom, bug=bug, message=message, layer=layer, role=role, share=share)
        self._report(finding)
        return finding

    def _report(self, finding: Finding) -> None:
        key = (finding.layer, str(finding.role), finding.symptom)
        self._counts[key] += 1
        if self._counts[key] == 1:
            self.findings.append(finding)
            if self._on_finding is not None:
                self._on_finding(finding)
