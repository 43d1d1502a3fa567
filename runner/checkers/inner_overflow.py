"""A check that also looks inside: what passes, with an infinity in it after which values are wrong, fails.

The outputs of a model may tolerate that a whole branch of it computes zeros; on other inputs they need not. It is
looked for in an emulation on ONNX Runtime's CPU provider, whatever the target is.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from runner.candidate import Candidate, Sample
from runner.checkers.checker import Checker, Tools
from runner.checkers.wrapping_checker import Around
from runner.model.values.recorded import paths
from runner.schema.backend import OnnxRuntimeBackend, Rounding
from runner.schema.root import Settings
from runner.verdict import Signature, Verdict
from strategies.outcome import Outcome

log = logging.getLogger(__name__)


PATIENCE = 600.0
"""Seconds for a look inside where checks may take as long as they want: a model for a GPU may be too slow here."""


@dataclass(eq=False)
class OverflowCheck(Around):
    """Judges as ``checker`` does, and fails what passes with an overflow that does harm.

    ``everything``: how many nodes can be raised: with all of them nothing is low; ``high``: that model. ``low``: what
    the low type is called.
    """

    checker: Checker
    settings: Settings
    tools: Tools
    everything: int
    high: Path
    low: str
    warnings: tuple[str, ...] = ()
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def check(self, candidate: Candidate) -> Verdict:
        """Judge one candidate, and look inside it if it passes."""
        verdict = self.checker.check(candidate)
        is_low = len(candidate.trial) < self.everything
        if verdict.outcome is not Outcome.PASS or not is_low or candidate.model is None or self.warnings:
            return verdict
        found, seconds, why = overflows(self.settings, self.tools, candidate.model, candidate.samples, self.high)
        if found is None:
            self._give_up(why)
            return verdict
        harmful = [one for one in found if one["harm"]]
        verdict = replace(verdict, seconds=verdict.seconds + seconds)
        if not harmful:
            return verdict
        more = f", and {len(harmful) - 1} more do harm" if len(harmful) > 1 else ""
        reason = f"{said(harmful[0], self.low)}{more}"
        return replace(verdict, outcome=Outcome.FAIL, signature=Signature("overflow", "inf"), reason=reason)

    def identity(self) -> dict[str, str]:
        """What the checker says, and that harmful overflows fail."""
        return {**self.checker.identity(), "overflow": f"harmful ones fail, rounding {rounding(self.settings)}"}

    def _give_up(self, why: str) -> None:
        with self._lock:
            if not self.warnings:
                warning = f"what becomes Inf inside the models is not looked at: {why}"
                self.warnings = (warning,)
                log.warning("%s", warning)


def rounding(settings: Settings) -> str:
    """Return the emulation in which overflows are looked for."""
    target = settings.target
    strict = isinstance(target, OnnxRuntimeBackend) and target.rounding is Rounding.strict
    return str(Rounding.strict.value if strict else Rounding.on.value)


def overflows(
    settings: Settings, tools: Tools, model: Path, samples: Sequence[Sample], high: Path
) -> tuple[list[Mapping[str, Any]] | None, float, str]:
    """Return what becomes infinite in a mixed model, and the seconds this took; None: not known, and why.

    ``high``: the same model with nothing low.
    """
    if not samples:
        return None, 0.0, "there are no samples"
    args = {
        "model": str(model),
        "high": str(high),
        "rounding": rounding(settings),
        "samples": [paths(sample.feeds) for sample in samples],
    }
    limits = settings.workers
    reply = tools.pool.call("overflow", args, timeout=limits.timeout or PATIENCE, memory_mb=limits.memory_mb)
    if reply.value is None:
        return None, reply.seconds, reply.failure.message[:400] if reply.failure else str(reply.death)
    return reply.value["tensors"], reply.seconds, ""


def said(one: Mapping[str, Any], low: str) -> str:
    """Say of a tensor that it overflows, and where that does harm."""
    told = f"{one['tensor']} becomes Inf in {low} (largest {one['largest']:.2g})"
    if one["made"]:
        told = f"{one['tensor']} is not finite in {low} (it should be up to {one['largest']:.2g})"
    harm = one["harm"]
    if not harm:
        return told
    return f"{told}; after that {harm['op']} {harm['node']} makes {harm['made']:g} where {harm['right']:g} is right"
